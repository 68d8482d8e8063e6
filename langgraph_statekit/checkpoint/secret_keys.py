"""Names under which people keep credentials: nothing under one is stored in metadata, or shown."""

from __future__ import annotations

from typing import Final

SECRET_KEYS: Final = frozenset(
    {
        "access_key",
        "access_token",
        "anthropic_api_key",
        "api_key",
        "api_secret",
        "api_token",
        "apikey",
        "auth",
        "auth_token",
        "authorization",
        "aws_secret_access_key",
        "aws_session_token",
        "bearer",
        "bearer_token",
        "client_secret",
        "connection_string",
        "cookie",
        "credential",
        "credentials",
        "database_url",
        "db_password",
        "dsn",
        "github_token",
        "hf_token",
        "id_token",
        "jwt",
        "openai_api_key",
        "passphrase",
        "passwd",
        "password",
        "private_key",
        "pwd",
        "refresh_token",
        "secret",
        "secret_access_key",
        "secret_key",
        "secret_token",
        "secrets",
        "session_cookie",
        "session_token",
        "signing_key",
        "ssh_key",
        "token",
        "x_api_key",
    }
)
"""Keys whose values are not stored in metadata (compared in lower case, with `-` read as `_`)."""

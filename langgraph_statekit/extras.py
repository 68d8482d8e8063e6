"""Loading what needs a client library that only an extra installs."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

_EXTRAS: Final = {
    "redis": "redis",
    "psycopg": "postgres",
    "psycopg_pool": "postgres",
    "obstore": "s3",
    "cryptography": "encryption",
    "tqdm": "progress",
    "opentelemetry": "otel",
    "prometheus_client": "prometheus",
    "anywidget": "notebook",
    "langchain": "langchain",
}
"""Client library to extra."""


def load(module: str, name: str) -> Any:
    """Return what a module of this package has under a name.

    Raises:
        ModuleNotFoundError: A client library is not installed; the message names the extra that brings it.
    """
    try:
        return getattr(import_module(f"langgraph_statekit.{module}"), name)
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in _EXTRAS:
            raise
        raise ModuleNotFoundError(
            f"{name} needs {library!r}, which is not installed: pip install 'langgraph-statekit[{_EXTRAS[library]}]'",
            name=error.name,
        ) from error

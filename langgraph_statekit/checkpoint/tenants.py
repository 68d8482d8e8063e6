"""The name of a tenant inside a store: any text as one that no store folds, splits or takes for a pattern. Pure."""

from __future__ import annotations

import re
from base64 import b32encode
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Final

from langgraph_statekit.errors import Misuse

MARK: Final = "@"
"""Stands between a place and the name of a tenant; no place without a tenant has it."""
_MOST: Final = 36
_KEPT: Final = 8
_OTHER: Final = re.compile(rb"[^a-z0-9-]")


def tenant_name(tenant: str) -> str:
    """Return the name of a tenant in a store: at most 36 of `a` to `z`, `0` to `9`, `-` and `_`, for each one another.

    Lower case letters, digits and `-` stand for themselves; each byte of any other is `_` and two hex digits, since
    file systems and people fold case. What gets longer than that is its beginning, `__` and a hash.

    Raises:
        Misuse: It is empty, which is more likely a mistake than a tenant, or no string.
    """
    if not isinstance(tenant, str) or not tenant:
        raise Misuse(f"the option tenant must be a text that is not empty, not {tenant!r}; None is no tenant")
    plain = tenant.encode("utf-8", "surrogatepass")
    name = _OTHER.sub(lambda found: b"_%02x" % found[0][0], plain).decode()
    if len(name) <= _MOST:
        return name
    digest = b32encode(blake2b(plain, digest_size=16).digest()).decode().rstrip("=").lower()
    return f"{name[:_KEPT]}__{digest}"


def of_tenant(place: str, tenant: str | None) -> str:
    """Return the place of a tenant: `statekit@acme` for `statekit`; without a tenant the place itself.

    Raises:
        Misuse: The place has an `@`, which would make it a tenant's, or the tenant has no name.
    """
    if MARK in place:
        raise Misuse(f"{place!r} has an {MARK} in it, which stands before the name of a tenant: pass tenant=...")
    return place if tenant is None else f"{place}{MARK}{tenant_name(tenant)}"


def path_of(path: str | PathLike[str], tenant: str | None) -> Path:
    """Return the file of a tenant: `agent@acme.db` for `agent.db`; without a tenant the file itself.

    Raises:
        Misuse: The tenant has no name.
    """
    file = Path(path)
    if tenant is None:
        return file
    # Never without a suffix: SQLite puts `-wal` behind the name, and so could a tenant.
    return file.with_name(f"{file.stem}{MARK}{tenant_name(tenant)}{file.suffix or '.db'}")

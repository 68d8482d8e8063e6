"""Checks of a saver's options, the same for arguments and for the query of a URL."""

from __future__ import annotations

from collections.abc import Collection
from numbers import Integral, Real
from threading import TIMEOUT_MAX

from langgraph_statekit.errors import Misuse


def require_numbers(kind: type[int] | type[float], least: float, **options: object) -> None:
    """Raise `Misuse` for an option that is no number of this kind, is no finite one, or is below the least.

    Args:
        kind: `int` for counts; `float` for seconds, for which an `int` will do.
        least: What is allowed from here on; seconds up to what the system can wait.
        options: By name.
    """
    wanted = f"a whole number of at least {least:g}" if kind is int else f"a finite number of at least {least:g}"
    for name, value in options.items():
        if not isinstance(value, Integral if kind is int else Real) or isinstance(value, bool):
            raise Misuse(f"the option {name} must be {wanted}, not {value!r} of type {type(value).__name__}")
        if not least <= float(value) <= (TIMEOUT_MAX if kind is float else float("inf")):
            raise Misuse(f"the option {name} must be {wanted}, not {value!r}")


def require_texts(**options: object) -> None:
    """Raise `Misuse` for an option that is no string; its value, which may be a secret, is not shown."""
    for name, value in options.items():
        if not isinstance(value, str):
            raise Misuse(f"the option {name} must be a string, not {type(value).__name__}")


def require_ids(ids: Collection[str], what: str) -> Collection[str]:
    """Return ids; raise `Misuse` for one string in place of a collection."""
    if isinstance(ids, str | bytes):
        raise Misuse(f"{what} must be a sequence of ids, not one string: pass [{ids!r}]")
    return ids

"""Chosen metadata as JSON that a database takes, to be searched and read beside the stored checkpoint. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from langgraph_statekit.checkpoint.plain import plain
from langgraph_statekit.errors import Misuse

_REFUSED: Final = re.compile("[\0\ud800-\udfff]")
"""What the JSON of PostgreSQL cannot hold: a Python text has no surrogates but lone ones."""


def checked_keys(audit_keys: Sequence[str]) -> tuple[str, ...]:
    """Return the keys.

    Raises:
        Misuse: They are no sequence of keys.
    """
    if (
        not isinstance(audit_keys, Collection)
        or isinstance(audit_keys, str)
        or not all(isinstance(key, str) for key in audit_keys)
    ):
        raise Misuse(f"audit_keys must be a sequence of metadata keys, not {audit_keys!r}")
    return tuple(audit_keys)


def audit_text(keys: Sequence[str], metadata: Mapping[str, Any]) -> str:
    """Return what the metadata has under these keys as JSON; no value makes it fail.

    Secrets are hidden, and what JSON lacks is shown as a text or by its fields. NUL and lone surrogates, which jsonb
    refuses, are written out as `\\u0000`.
    """
    return json.dumps({_text(key): _shown(metadata[key]) for key in keys if key in metadata}, allow_nan=False)


def _shown(value: Any) -> Any:
    try:
        shown = _clean(plain(value))
        json.dumps(shown, allow_nan=False)
    except Exception as error:  # the checkpoint is worth more
        return f"not shown, {type(error).__name__}: {type(value).__name__}"
    return shown


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_text(key): _clean(item) for key, item in value.items()}
    return value


def _text(text: str) -> str:
    return _REFUSED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)

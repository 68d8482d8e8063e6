"""How a replay tells the effects of a graph that it is one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from langgraph_statekit.errors import NotMade

MODE_KEY: Final = "statekit_effects"
"""The key of `configurable` under which a replay tells what it is: `dry` or `replay`. Other runs have none."""
EFFECT_MARK: Final = "__statekit_effect__"
"""The attribute of a function that makes its effects through a ledger, and so may be called in a replay."""
PURE_MARK: Final = "__statekit_pure__"
"""The attribute of a function that is declared to change nothing."""


def is_rehearsal(configurable: Mapping[str, Any]) -> bool:
    """Say whether a run is a replay, in which no effect may be made."""
    return configurable.get(MODE_KEY) is not None


def not_made(key: str) -> NotMade:
    """Return the error of an effect that a replay asked for and that is not recorded."""
    return NotMade(f"effect {key!r} is not recorded, and a replay makes none: pass effects='live' to make it")

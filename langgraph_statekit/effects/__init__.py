"""Effects on the world outside, done once: `ledger` for users, `engine` and `attempts` below, `rules` without I/O."""

from langgraph_statekit.effects.ledger import EffectLedger, effect

__all__ = ["EffectLedger", "effect"]

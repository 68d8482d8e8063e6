"""What a graph streams to the watchdog, and what of it the caller asked for. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from langgraph.checkpoint.serde.types import INTERRUPT

NOTHING: Final = object()
"""In place of a part that the caller did not ask for."""
_OWN: Final = ("checkpoints", "tasks")


@dataclass(frozen=True, slots=True)
class Parts:
    """How a graph is asked to stream, and what becomes of each part.

    Attributes:
        modes: What the caller asked for.
        bare: Whether the caller asked for one mode by its name, and gets parts without it.
        subgraphs: Whether the caller asked for parts of subgraphs.
        inner: Whether the graph is to stream those.
        v2: Whether parts are dicts.
        last: Whether the caller wants no parts but questions and the last state, as `invoke` does.
    """

    modes: tuple[str, ...]
    bare: bool
    subgraphs: bool
    inner: bool
    v2: bool
    last: bool = False
    asked: list[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "asked", list(dict.fromkeys((*self.modes, *_OWN))))

    def take(self, part: Any, seen: Any) -> tuple[Any, bool]:
        """Tell what was seen, and return what the caller gets and whether a step of the graph itself has ended."""
        ns: tuple[str, ...] = ()
        if self.v2:
            ns, mode, payload = part["ns"], part["type"], part["data"]
        elif self.inner:
            ns, mode, payload = part
        else:
            mode, payload = part
        step = False
        if mode == "tasks":
            if "triggers" in payload:
                seen.begin(payload["id"], payload["name"])
            else:
                error = payload.get("error")
                seen.end(payload["id"], payload["name"], None if error is None else str(error))
        elif mode == "checkpoints" and ns:
            seen.inner()
        elif mode == "checkpoints":
            id = payload["config"]["configurable"]["checkpoint_id"]
            seen.step(id, payload["metadata"].get("step", -1), payload["values"], payload["next"])
            step = True
        return (self._shown(part, ns, mode, payload) if mode in self.modes else NOTHING), step

    def is_state(self, shown: Any) -> bool | None:
        """Say of what the caller would get whether it is a state that a later one replaces; None: it is of no use."""
        if self.v2:
            return not shown.get("interrupts")
        mode, payload = shown[-2:]
        if mode == "values":
            return True
        return False if isinstance(payload, dict) and INTERRUPT in payload else None

    def _shown(self, part: Any, ns: tuple[str, ...], mode: str, payload: Any) -> Any:
        if ns and not self.subgraphs:
            return NOTHING
        if self.v2:
            return part
        if self.bare:
            return (ns, payload) if self.subgraphs else payload
        return (ns, mode, payload) if self.subgraphs else (mode, payload)

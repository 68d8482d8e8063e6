"""What a graph streams to the watchdog, and what of it the caller asked for. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.graph import START

NOTHING: Final = object()
"""In place of a part that the caller did not ask for."""
STEP: Final = "step"
"""A step of the graph itself has ended."""
BEGIN: Final = "begin"
"""A task of the graph itself is about to begin."""
TURN: Final = "turn"
"""Both: a step has ended of which the saver told, and the first task of the next one is about to begin."""
CHECKPOINTS: Final = "checkpoints"
"""The mode that tells of steps."""
_INPUT_ONLY: Final = [START]
"""What comes next while an input has not been put into the state: that is no step of the run."""
_OWN: Final = (CHECKPOINTS, "tasks")


@dataclass(frozen=True, slots=True)
class Parts:
    """How a graph is asked to stream, and what becomes of each part.

    Attributes:
        modes: What the caller asked for.
        bare: Whether the caller asked for one mode by its name, and gets parts without it.
        subgraphs: Whether the caller asked for parts of subgraphs.
        inner: Whether the graph is to stream those.
        v2: Whether parts are dicts.
        last: Whether the caller wants no parts but questions and the last state, as `invoke` does. Both come with
            the mode `values`, so the others that `invoke` asks for are not streamed.
    """

    modes: tuple[str, ...]
    bare: bool
    subgraphs: bool
    inner: bool
    v2: bool
    last: bool = False
    asked: list[str] = field(init=False)

    def __post_init__(self) -> None:
        if self.last:
            object.__setattr__(self, "modes", ("values",))
        object.__setattr__(self, "asked", list(dict.fromkeys((*self.modes, *_OWN))))

    def take(self, part: Any, seen: Any) -> tuple[Any, str]:
        """Tell what was seen, and return what the caller gets and where the graph is: a place, or empty in between."""
        ns: tuple[str, ...] = ()
        if self.v2:
            ns, mode, payload = part["ns"], part["type"], part["data"]
        elif self.inner:
            ns, mode, payload = part
        else:
            mode, payload = part
        place = ""
        if mode == "tasks":
            if "triggers" in payload:
                place = "" if ns else TURN if seen.settle() else BEGIN
                seen.begin(payload["id"], payload["name"])
            else:
                error = payload.get("error")
                seen.end(payload["id"], payload["name"], None if error is None else str(error))
        elif mode == CHECKPOINTS and ns:
            seen.inner()
        elif mode == CHECKPOINTS and payload["next"] != _INPUT_ONLY:
            id = payload["config"]["configurable"]["checkpoint_id"]
            seen.step(id, payload["metadata"].get("step", -1), payload["values"], payload["next"])
            place = STEP
        return (self._shown(part, ns, mode, payload) if mode in self.modes else NOTHING), place

    def state(self, values: Any) -> list[Any]:
        """Return a state that the graph itself does not stream, as the caller gets it; empty if not asked for."""
        part: Any = {"type": "values", "ns": (), "data": values, "interrupts": ()}
        return [self._shown(part, (), "values", values)] if "values" in self.modes else []

    def is_state(self, shown: Any) -> bool:
        """Say of what the caller would get whether it is a state that a later one replaces."""
        return not (self.v2 and shown.get("interrupts"))

    def questions(self, shown: Any) -> Any:
        """Return the questions in a state, as the caller gets them."""
        if self.v2:
            return NOTHING
        payload = shown[-1]
        if not isinstance(payload, dict) or INTERRUPT not in payload:
            return NOTHING
        return (*shown[:-2], "updates", {INTERRUPT: payload[INTERRUPT]})

    def _shown(self, part: Any, ns: tuple[str, ...], mode: str, payload: Any) -> Any:
        if ns and not self.subgraphs:
            return NOTHING
        if self.v2:
            return part
        if self.bare:
            return (ns, payload) if self.subgraphs else payload
        return (ns, mode, payload) if self.subgraphs else (mode, payload)

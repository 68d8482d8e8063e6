"""What a graph streams to the watchdog, and what of it the caller asked for. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

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
    """

    modes: tuple[str, ...]
    bare: bool
    subgraphs: bool
    inner: bool
    v2: bool
    asked: list[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "asked", list(dict.fromkeys((*self.modes, *_OWN))))

    def take(self, part: Any, seen: Any) -> tuple[Any, bool]:
        """Tell what was seen, and return what the caller gets and whether a step of the graph itself has ended."""
        ns, mode, payload = self._split(part)
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

    def _split(self, part: Any) -> tuple[tuple[str, ...], str, Any]:
        if self.v2:
            return part["ns"], part["type"], part["data"]
        if self.inner:
            ns, mode, payload = part
            return ns, mode, payload
        mode, payload = part
        return (), mode, payload

    def _shown(self, part: Any, ns: tuple[str, ...], mode: str, payload: Any) -> Any:
        if ns and not self.subgraphs:
            return NOTHING
        if self.v2:
            return part
        if self.bare:
            return (ns, payload) if self.subgraphs else payload
        return (ns, mode, payload) if self.subgraphs else (mode, payload)

"""What a SessionManager was made with. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from langgraph_statekit.sessions.records import Record, Session

FIRST_AGENT: Final = "support"
FIRST_VERSION: Final = 1
"""Agent and version line of a session for which nobody named one."""
Leave = Callable[[Session, Mapping[str, Any]], Mapping[str, Any]]
"""What an expired session leaves: made of the session and the values of its latest checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a manager was made with; it documents the arguments."""

    agent: str | None
    version: int | None
    idle_us: int
    warn_us: int
    on_expiry: str
    leave: Leave | None
    expire_waiting: bool
    delete_after_us: int | None
    messages_key: str
    lease_s: float

    def applied(self, record: Record) -> Record:
        """Return a record that expires as these settings say."""
        rules = {"idle_us": self.idle_us, "on_expiry": self.on_expiry, "expire_waiting": self.expire_waiting}
        return replace(record, **rules)  # type: ignore[arg-type]

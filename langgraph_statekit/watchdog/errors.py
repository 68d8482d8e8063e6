"""What nodes and processes raise to the watchdog."""

from __future__ import annotations

from langgraph_statekit.errors import StatekitError
from langgraph_statekit.watchdog.view import Finding


class RollbackRequested(StatekitError, RuntimeError):
    """A node asks to roll back; only a `Watchdog` around the graph can do that, so run the graph under one.

    Attributes:
        finding: Why.
        target: Where to, as the name of a place; None: as the policy says.
    """

    def __init__(self, finding: Finding, target: str | None = None) -> None:
        super().__init__(f"{finding.reason}: {finding.message}; a Watchdog around the graph would roll back")
        self.finding = finding
        self.target = target


class WatchdogWarning(UserWarning):
    """Something that a watchdog cannot guard against."""


class ChildError(StatekitError):
    """A node raised in the process of a run; the message names the exception.

    Attributes:
        module: Module of its class.
        kind: Its class.
    """

    def __init__(self, message: str, module: str, kind: str) -> None:
        super().__init__(message)
        self.module = module
        self.kind = kind


class Died(StatekitError):
    """The process of a run ended by itself."""

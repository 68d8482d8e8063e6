"""A provider that counts what it is asked to do, for tests of the ledger."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from langgraph_statekit import EffectLedger


class Died(BaseException):
    """The process ended here, so to speak: nothing after it is done."""


class Provider:
    """Does what it is asked to, once or many times, and can be asked what it has done."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()
        self.dies_before = self.dies_after = False
        self.error: Exception | None = None

    def charge(self, cents: int, idempotency_key: str) -> dict[str, Any]:
        if self.dies_before:
            raise Died
        if self.error is not None:
            raise self.error
        self.made[idempotency_key] += 1
        if self.dies_after:
            raise Died
        return {"charged": cents}

    def find(self, idempotency_key: str) -> dict[str, Any] | None:
        return {"charged": "found"} if self.made[idempotency_key] else None

    @property
    def total(self) -> int:
        return sum(self.made.values())


Run = Callable[..., Any]


def both_faces(ledger: EffectLedger, is_async: bool) -> Run:
    """Return `run`, or `arun` as a plain function."""
    return (lambda *args, **options: asyncio.run(ledger.arun(*args, **options))) if is_async else ledger.run

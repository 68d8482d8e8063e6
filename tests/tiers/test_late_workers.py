"""A worker that goes on late, with what it read before others saved, uploaded and archived, undoes nothing of theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.faces import config
from tests.tiered_under_test import HOT
from tests.tiers.kit import Tiers, grow, history

pytestmark = pytest.mark.parametrize("tiers", [f"{hot}-file" for hot in HOT], indirect=True)


class Late:
    """Stands before something; so that others act once, before or after a call of one of its verbs."""

    def __init__(self, inner: Any, verb: str, *, before: Callable[[], object] | None = None, after: Any = None) -> None:
        self._inner, self._verb, self._before, self._after = inner, verb, before, after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name != self._verb:
            return found

        def call(*args: Any, **options: Any) -> Any:
            before, after, self._before, self._after = self._before, self._after, None, None
            if before:
                before()
            said = found(*args, **options)
            if after:
                after()
            return said

        return call


def test_an_older_view_does_not_replace_the_writes_of_a_newer_one(tiers: Tiers) -> None:
    with tiers.open() as late, tiers.open() as other:
        assert len([*grow(other, 1, "t")]) == 3
        other.flush()
        at = other.get_tuple(config("t")).config
        other.put_writes(at, [("log", 1)], "second task")

        def act() -> None:
            other.put_writes(at, [("log", 2)], "third task")
            other.flush()

        late.tiers.moving._hot = Late(late.tiers.moving._hot, "changes", after=act)
        assert late.archive("t")
        for saver in (late, other):
            written = saver.get_tuple(config("t")).pending_writes
            assert {task for task, _, _ in written} == {"task", "second task", "third task"}


def test_a_late_eviction_lets_no_late_thaw_hide_what_was_saved_between(tiers: Tiers) -> None:
    with tiers.open() as thaws, tiers.open() as evicts, tiers.open() as other:
        assert len([*grow(other, 2, "t")]) == 6
        assert other.archive("t")

        def save() -> None:
            assert len([*grow(other, 1, "t")]) == 3
            other.flush()

        def act() -> None:
            assert other.tiers.moving.thaw("t")
            evicts.tiers.moving._hot = Late(evicts.tiers.moving._hot, "evict", before=save)
            assert evicts.tiers.moving.evict("t")

        thaws.tiers.moving._reading = Late(thaws.tiers.moving._reading, "image", after=act)
        assert thaws.tiers.moving.thaw("t")
        for saver in (thaws, evicts, other):
            assert [values["last"] for values, _, _ in history(saver, "t").values()] == [0, 1, 2]

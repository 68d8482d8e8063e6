"""What was removed from a thread is in no pack that counts, whoever dies or comes between."""

from __future__ import annotations

from contextlib import suppress

import pytest

from langgraph_statekit import StatekitError
from tests.stores.test_tiered import THREAD, Cold, Died, Fate, Place, grow, local, seen

__all__ = ["local"]


def _rows(place: Place) -> set[str]:
    """Return the ids of all checkpoints of which a pack has the body."""
    with place.open() as saver:
        cold = saver.tiers._cold
        head, _ = cold.head(THREAD)
        return {id for pack in cold.packs.read(head, head.packs) for _, id in pack.rows}


@pytest.mark.parametrize("acts", [True, False])
@pytest.mark.parametrize("dies_at", range(1, 9))
def test_whoever_uploads_a_removal_and_dies(local: Place, dies_at: int, acts: bool) -> None:
    with local.open() as saver:
        for _ in range(3):
            assert len(list(grow(saver, 1))) == 1
            saver.flush()
    cold = Cold(local.driver)
    with suppress(Died), local.open(cold) as saver:
        saver.prune([THREAD])
        cold.fate = Fate(dies_at, acts)
        with suppress(Died, StatekitError):
            saver.flush()
    with local.open() as saver:
        saver.tiers.moving.upload(THREAD)
        [left] = seen(saver)
    assert _rows(local) == {left}


def test_whoever_uploads_a_removal_while_another_one_saves(local: Place) -> None:
    slow = Cold(local.driver)
    with local.open(slow) as saver, local.open() as other:
        for _ in range(3):
            assert len(list(grow(saver, 1))) == 1
            saver.flush()
        saver.prune([THREAD])
        heads = 0

        def come_between(key: str) -> None:
            nonlocal heads
            heads += key.endswith("/head")
            if key.endswith("/head") and heads <= 2:
                assert len(list(grow(other, 1))) == 1
                other.flush()

        slow.before_put = come_between
        saver.flush()
        assert _rows(local) == seen(saver).keys()

"""Whatever is done to cells, every store does what the one in memory does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langgraph_statekit import Fenced
from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.backends.memory import MemoryBackend
from langgraph_statekit.checkpoint.cells import Cell, CellChange, CellQuery, CellRef
from langgraph_statekit.checkpoint.claims import Claim
from tests.stores_under_test import Store, unique

KINDS, THREADS, KEYS, GROUPS = ("k", "kind"), ("", "t"), ("a", "b", "ü"), ("g", "h")
CHANGES = st.tuples(
    st.builds(CellRef, st.sampled_from(KINDS), st.sampled_from(THREADS), st.sampled_from(KEYS)),
    st.none() | st.binary(max_size=3).filter(lambda value: not value.startswith(b"\1")),
    st.lists(st.sampled_from(GROUPS), max_size=2, unique=True).map(tuple),
    st.sampled_from(["any", "absent", "current", "before", "any", "current"]),
    st.sampled_from([None, None, "held", "late"]),
    st.sampled_from([None, None, None, 1 << 60, 1]),
    st.booleans(),
)


class Worker:
    """Makes the same changes to a store, in a place of its own."""

    def __init__(self, store: Backend) -> None:
        self._store, self._mark = store, unique()
        self._revs: dict[CellRef, list[int]] = {}
        store.setup()
        (held,) = store.claim([Claim(self._own("t"), "holder", "owner", 10**10)])
        assert held is not None
        assert not isinstance(held, Exception)
        self._token = held.token

    def _own(self, thread: str) -> str:
        return thread and f"{thread} {self._mark}"

    def change(
        self, ref: CellRef, value: Any, groups: Any, expect: str, token: str | None, deadline: int | None, twice: bool
    ) -> list[Any]:
        own = CellRef(f"{ref.kind} {self._mark}", self._own(ref.thread), ref.key)
        seen = self._revs.setdefault(ref, [])
        current = next(iter(self._store.cells(CellQuery(kind=own.kind, refs=[own])).cells), None)
        expected = {
            "any": None,
            "absent": 0,
            "current": current.rev if current else 0,
            "before": seen[0] if seen else 7,
        }
        tokens = {None: None, "held": self._token, "late": self._token - 1}
        fenced = tokens[token] if ref.thread else None
        limits: Any = {"expect": expected[expect], "token": fenced, "deadline_us": deadline}
        change = CellChange(ref=own, value=value, groups=groups, **limits)
        results = [self._store.change_cells([change])[0] for _ in range(1 + twice)]
        told: list[Any] = []
        for result in results:
            if isinstance(result, Fenced):
                told.append("fenced")
                continue
            assert not isinstance(result, Exception)
            if result.cell is not None:
                assert not seen or result.cell.rev >= seen[-1]
                seen.append(result.cell.rev)
            told.append((result.made, result.cell and self._plain(result.cell)))
        return told

    def listed(self) -> list[Any]:
        found = []
        for kind in KINDS:
            for group in (None, *GROUPS):
                query = CellQuery(kind=f"{kind} {self._mark}", group=group, limit=2)
                cells: list[Cell] = []
                while page := self._store.cells(query).cells:
                    cells += page
                    query = CellQuery(kind=query.kind, group=group, limit=2, before=page[-1].place)
                assert [cell.place for cell in cells] == sorted((cell.place for cell in cells), reverse=True)
                found.append(sorted(map(self._plain, cells)))
        return found

    def _plain(self, cell: Cell) -> tuple[Any, ...]:
        kind, thread, key = (part.replace(f" {self._mark}", "") for part in cell.ref)
        return kind, thread, key, cell.value, cell.groups


def test_every_store_does_with_cells_what_the_one_in_memory_does(
    new_store: Callable[[str], Store], durable_name: str
) -> None:
    with new_store(durable_name).open() as saver:

        @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(CHANGES, min_size=5, max_size=25))
        def agree(changes: list[Any]) -> None:
            model, real = Worker(MemoryBackend()), Worker(saver.backend)
            for change in changes:
                assert model.change(*change) == real.change(*change)
            assert model.listed() == real.listed()

        agree()

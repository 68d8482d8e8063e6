"""Hidden rows, such as labels: found by themselves, whatever stands beside them."""

from __future__ import annotations

from langgraph_statekit.checkpoint.records import Query, Row
from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.stores.verbs import row, save

NS = "a*[b]?\\\\c"
"""What a store might take for a pattern."""
LIKE_IT = ("", "aa[b]?\\\\c", "ab?\\\\c", "a*[b]?\\\\cc", "a*[b]?\\\\", "a*bx\\\\c")


async def test_hidden_rows_of_a_namespace_are_found_alone(real: StatekitSaver) -> None:
    real.setup()
    store = real.backend

    def ids(**asked: object) -> list[str]:
        found = store.rows(Query("t", **{"ns": NS, "hidden": True, **asked}))  # type: ignore[arg-type]
        assert all(each.hidden and each.body for each in found)
        return [each.ref.id for each in found]

    def put(made: Row) -> None:
        assert save(store, made)

    assert ids() == []
    for number in range(40):
        put(row("t", f"{number:02}"))
        put(row("t", f"{number:02}", NS, hidden=number % 4 == 0))
    for ns in LIKE_IT:
        put(row("t", "other", ns, hidden=True))
    put(row("u", "other", NS, hidden=True))
    wanted = [f"{number:02}" for number in range(36, -1, -4)]
    assert ids() == wanted
    assert ids(limit=3) == wanted[:3]
    assert ids(before="20") == [id for id in wanted if id < "20"]
    assert ids(id="08") == ["08"]
    assert ids(id="09") == []
    third = store.rows(Query("t", NS, hidden=True, limit=3))[-1]
    assert ids(below_seq=third.seq) == wanted[3:]
    assert ids(below_seq=third.seq, id=third.ref.id) == []
    assert {ref.ns for ref in (each.ref for each in store.rows(Query("t", hidden=True, limit=1000)))} == {NS, *LIKE_IT}
    shown = store.rows(Query("t", NS, limit=1000))
    assert [each.ref.id for each in shown] == [f"{number:02}" for number in range(39, -1, -1) if number % 4]


async def test_hidden_rows_are_found_however_many_are_shown(real: StatekitSaver) -> None:
    real.setup()
    store = real.backend
    for number in range(300):
        assert save(store, row("t", f"{number:03}", hidden=False))
        if number in (5, 250):
            assert save(store, row("t", f"label {number}", NS, hidden=True))
    assert [each.ref.id for each in store.rows(Query("t", NS, hidden=True))] == ["label 250", "label 5"]

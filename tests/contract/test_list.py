"""List: order, bounds, filters and pages; the head of a thread."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from tests.faces import Face, config, id_of, ids, listed, put

THREAD = {"configurable": {"thread_id": "t"}}


async def _fill(saver: Face, count: int, at: Any = None) -> list[str]:
    """Store a chain of checkpoints and return their ids, newest first."""
    at = at or config()
    made: list[str] = []
    for index in range(count):
        at = await put(
            saver, at, {"a": index}, {"a": index + 1}, id=f"{index:04}", meta={"step": index, "odd": index % 2}
        )
        made.insert(0, id_of(at))
    return made


async def test_is_newest_first_and_takes_limits(saver: Face) -> None:
    newest = await _fill(saver, 6)
    assert await ids(saver, config()) == newest
    assert await ids(saver, config(), limit=4) == newest[:4]
    assert await ids(saver, config(), limit=100) == newest
    assert await ids(saver, config(), limit=0) == []
    assert await ids(saver, config(), limit=-1) == []


async def test_limit_counts_what_the_filter_lets_pass(saver: Face) -> None:
    newest = await _fill(saver, 9)
    odd = [each for each in newest if int(each) % 2]
    assert await ids(saver, config(), filter={"odd": 1}, limit=2) == odd[:2]
    assert await ids(saver, config(), filter={"odd": 1}, limit=99) == odd
    assert await ids(saver, None, filter={"odd": 1}, limit=3) == odd[:3]


async def test_goes_over_many_pages(saver: Face) -> None:
    newest = await _fill(saver, 210)
    assert await ids(saver, config()) == newest
    assert await ids(saver, config(), limit=150) == newest[:150]
    assert await ids(saver, config(), filter={"step": 0}) == [newest[-1]]
    assert await ids(saver, config(), before=config(id=newest[9])) == newest[10:]


async def test_carries_values_parents_metadata_and_writes(saver: Face) -> None:
    await _fill(saver, 3)
    await saver.aput_writes(config(id="0001"), [("a", "w")], "task")
    for item, index in zip(await listed(saver, config()), (2, 1, 0), strict=True):
        assert item == await saver.aget_tuple(config(id=f"{index:04}"))
        assert item.checkpoint["channel_values"] == {"a": index}
        assert item.pending_writes == ([("task", "a", "w")] if index == 1 else [])


async def test_before_leaves_out_the_named_one_and_what_is_newer(saver: Face) -> None:
    newest = await _fill(saver, 5)
    for index, each in enumerate(newest):
        assert await ids(saver, config(), before=config(id=each)) == newest[index + 1 :]
    assert await ids(saver, config(), before=config(id=newest[0]), limit=2) == newest[1:3]


async def test_before_without_id_bounds_nothing(saver: Face) -> None:
    newest = await _fill(saver, 3)
    assert await ids(saver, config(), before=config()) == newest
    assert await ids(saver, config(), before={"configurable": {}}) == newest


async def test_before_with_an_id_of_another_namespace_compares_ids(saver: Face) -> None:
    for ns, made in (("", ("10", "30", "50")), ("n:1", ("20", "40", "60"))):
        for each in made:
            await put(saver, config(ns=ns), id=each)
    assert await ids(saver, config(ns="n:1"), before=config(id="50")) == ["40", "20"]
    assert await ids(saver, config(ns="n:1"), before=config(id="10")) == []
    assert await ids(saver, config(), before=config(ns="n:1", id="40")) == ["30", "10"]
    assert await ids(saver, config(), before=config(id="99 never was")) == ["50", "30", "10"]


async def test_a_config_without_namespace_lists_all_of_them(saver: Face) -> None:
    for each, ns in (("1", ""), ("2", "n:1"), ("3", "n:1|m:2"), ("4", "")):
        await put(saver, config(ns=ns), id=each)
    assert sorted(await ids(saver, THREAD)) == ["1", "2", "3", "4"]
    assert await ids(saver, config()) == ["4", "1"]
    assert await ids(saver, config(ns="n:1")) == ["2"]
    assert await ids(saver, config(ns="n")) == []


async def test_a_config_with_id_lists_only_that(saver: Face) -> None:
    newest = await _fill(saver, 3)
    assert await ids(saver, config(id=newest[1])) == [newest[1]]
    assert await ids(saver, config(id="never was")) == []
    assert await ids(saver, config(id=newest[1]), before=config(id=newest[1])) == []


async def test_none_lists_all_threads(saver: Face) -> None:
    assert await listed(saver, None) == []
    for thread in ("t", "u", "v"):
        for each in ("1", "2"):
            await put(
                saver, config(thread, id="1" if each == "2" else None), id=f"{thread}{each}", meta={"who": thread}
            )
    everything = await listed(saver, None)
    assert sorted(item.checkpoint["id"] for item in everything) == ["t1", "t2", "u1", "u2", "v1", "v2"]
    of_each = [[i.checkpoint["id"] for i in everything if i.config["configurable"]["thread_id"] == t] for t in "tuv"]
    assert of_each == [["t2", "t1"], ["u2", "u1"], ["v2", "v1"]]
    assert await ids(saver, None, filter={"who": "u"}) == ["u2", "u1"]
    assert len(await ids(saver, None, limit=5)) == 5
    await saver.adelete_thread("u")
    assert sorted(await ids(saver, None)) == ["t1", "t2", "v1", "v2"]


METADATA: dict[str, dict[str, Any]] = {
    "none": {"k": None},
    "missing": {},
    "one": {"k": 1},
    "true": {"k": True},
    "zero": {"k": 0},
    "text one": {"k": "1"},
    "float": {"k": 1.5},
    "list": {"k": [1]},
    "longer list": {"k": [1, 2]},
    "nested": {"k": {"b": 1}},
    "more nested": {"k": {"b": 1, "c": 2}},
    "other order": {"k": {"c": 2, "b": 1}},
    "empty": {"k": ""},
    "dotted": {"a.b": 1},
    "quoted": {'it\'s "q"': "x' OR '1'='1"},
    "spaced": {"odd key": "%", "$where": "*"},
    "two": {"k": 1, "l": 2},
}

FILTERS: list[dict[str, Any]] = [
    *({"k": meta["k"]} for meta in METADATA.values() if "k" in meta),
    *({"k": each} for each in (1.0, False, "true", {"b": 2}, {}, [], [2, 1], {"$ne": 1}, "%", "*")),
    {},
    {"a.b": 1},
    {"a": {"b": 1}},
    {'it\'s "q"': "x' OR '1'='1"},
    {'it\'s "q"': None},
    {"k' OR '1'='1": 1},
    {"": 1},
    {"odd key": "%", "$where": "*"},
    {"k": 1, "l": 2},
    {"k": 1, "l": None},
    {"source": "loop"},
    {"source": "loop", "k": "1"},
    {"parents": {}},
    {"step": 0},
]


async def test_filter_is_exact_equality_as_in_the_reference(saver: Face) -> None:
    reference = InMemorySaver()
    for index, (name, meta) in enumerate(METADATA.items()):
        for each in (saver, reference):
            await put(each, config(), id=f"{index:02} {name}", meta=meta)
    for wanted in FILTERS:
        assert await ids(saver, config(), filter=wanted) == await ids(reference, config(), filter=wanted), wanted
        assert await ids(saver, None, filter=wanted) == await ids(reference, None, filter=wanted), wanted


async def test_an_id_that_sorts_before_the_head_still_becomes_the_head(saver: Face) -> None:
    """A host whose clock is an hour behind saves next; its work must not hide behind older work."""
    first = await put(saver, config(), {"a": 1}, {"a": 1}, id="2000")
    second = await put(saver, first, {"a": 2}, {"a": 2}, id="1000")
    found = await saver.aget_tuple(config())
    assert found is not None
    assert (found.config, found.parent_config) == (second, first)
    third = await put(saver, second, {"a": 3}, {"a": 3}, id="1001")
    fourth = await put(saver, third, {"a": 4}, {"a": 4}, id="2001")
    assert await ids(saver, config()) == ["2001", "1001", "1000", "2000"]
    assert await ids(saver, THREAD) == ["2001", "1001", "1000", "2000"]
    found = await saver.aget_tuple(config())
    assert found is not None
    assert found.config == fourth


@pytest.mark.parametrize("size", [1, 2, 3])
async def test_paging_with_before_misses_nothing_when_clocks_differ(saver: Face, size: int) -> None:
    order = ["50", "10", "60", "20", "70", "05", "65"]
    at = config()
    for each in order:
        at = await put(saver, at, id=each)
    seen = page = await ids(saver, config(), limit=size)
    while page:
        page = await ids(saver, config(), before=config(id=page[-1]), limit=size)
        seen = seen + page
    assert seen == order[::-1]


async def test_a_page_of_checkpoints_that_have_very_many_values_is_listed(saver: Face) -> None:
    at = config()
    for number in range(100):
        at = await put(saver, at, dict.fromkeys("abcdefg", number), dict.fromkeys("abcdefg", number + 1))
    found = await listed(saver, config())
    assert [item.checkpoint["channel_values"]["g"] for item in found] == list(range(99, -1, -1))

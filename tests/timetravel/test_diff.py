"""Differences: complete, and as small as what changed."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from langgraph_statekit.checkpoint.plain import plain
from langgraph_statekit.timetravel.diff import Change, diff, same

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2) | st.sampled_from([0.5, 1.0])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["id", "a", "b"]), inner, max_size=3),
    max_leaves=12,
)
STATES = st.dictionaries(st.sampled_from(["x", "y", "z"]), VALUES, max_size=3)


def exactly(value: Any) -> Any:
    """Return what compares equal only with the same value of the same types."""
    if isinstance(value, dict):
        return "dict", sorted((key, exactly(each)) for key, each in value.items())
    if isinstance(value, list):
        return "list", [exactly(each) for each in value]
    return type(value).__name__, repr(value)


@given(STATES, STATES)
def test_nothing_differs_only_where_all_is_equal(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert (not list(diff(before, after))) == (exactly(plain(before)) == exactly(plain(after)))
    assert not list(diff(before, before))
    assert same(before, after) <= (exactly(before) == exactly(after))


@given(STATES, STATES)
def test_each_difference_has_the_kind_that_its_sides_show(before: dict[str, Any], after: dict[str, Any]) -> None:
    there, back = list(diff(before, after)), list(diff(after, before))
    kinds = {"added": "removed", "removed": "added", "changed": "changed", "moved": "moved"}
    assert sorted(each.kind for each in there) == sorted(kinds[each.kind] for each in back)
    for each in there:
        assert each.channel in {*before, *after}
        assert each.kind != "changed" or exactly(each.before) != exactly(each.after)


@given(st.lists(SCALARS, max_size=5), st.lists(SCALARS, min_size=1, max_size=3))
def test_what_is_appended_is_all_that_differs(old: list[Any], new: list[Any]) -> None:
    expected = [Change(f"log[{len(old) + at}]", "added", None, each) for at, each in enumerate(new)]
    assert list(diff({"log": old}, {"log": [*old, *new]})) == expected


def test_messages_are_found_by_their_id() -> None:
    old = [HumanMessage(f"question {at}", id=f"m{at}") for at in range(300)]
    new = [old[0], *old[2:100], HumanMessage("edited", id="m100"), *old[101:], AIMessage("answer", id="ai")]
    found = list(diff({"messages": old}, {"messages": new}))
    assert [(each.path, each.kind) for each in found] == [
        ("messages[m1]", "removed"),
        ("messages[m100].content", "changed"),
        ("messages[ai]", "added"),
    ]
    assert [(each.path, each.kind) for each in diff({"m": old[:3]}, {"m": [old[2], old[0], old[1]]})] == [
        ("m", "moved")
    ]


def test_messages_without_ids_or_with_equal_ones_are_compared_by_place() -> None:
    old = [HumanMessage("a", id="x"), HumanMessage("b", id="x")]
    new = [HumanMessage("a", id="x"), HumanMessage("c", id="x")]
    assert [each.path for each in diff({"m": old}, {"m": new})] == ["m[1].content"]


def test_secrets_are_neither_told_nor_compared() -> None:
    before = {"password": "one", "user": {"api_key": "k-1", "name": "ann", "token": None}}
    after = {"password": "two", "user": {"api_key": "k-2", "name": "bob", "token": "t"}, "secret": "s"}
    found = list(diff(before, after))
    assert [(each.path, each.after) for each in found] == [
        ("user.name", "bob"),
        ("user.token", "***"),
        ("secret", "***"),
    ]


def test_equal_beginnings_and_ends_of_long_lists_are_not_converted() -> None:
    seen: list[Any] = []

    def shown(value: Any) -> Any:
        seen.append(value)
        return plain(value)

    items = [{"n": at} for at in range(5000)]
    list(diff({"log": items}, {"log": [*items[:4000], {"n": -1}, *items[4000:]]}, shown))
    assert seen == [{"n": -1}]

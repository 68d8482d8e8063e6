"""The summaries of a chain: which are shown, and how far they cover a history. Found out once for each chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, is_, itemgetter
from typing import Any, Final, NamedTuple, TypedDict

from langchain_core.messages import BaseMessage

from langgraph_statekit.context.tokens import make_room

_MOST_KNOWN: Final = 32
"""Chains that are remembered: each call of a model brings the same again until the next compaction."""
_id: Final = attrgetter("id")


class Node(TypedDict):
    """One summary.

    `covered` counts the messages from `first_id` to `last_id`, 0 for a summary of summaries only, and `marks` has four
    characters for each of them; `children` are the summaries that it took up; `by` is `model` or `extract`.
    """

    id: str
    depth: int
    first_id: str
    last_id: str
    covered: int
    marks: str
    turns: int
    systems: int
    children: list[str]
    text: str
    by: str
    tokens_in: int
    tokens_out: int


class _Chain(NamedTuple):
    """What is known of a list of summaries, which is held so that no other list can take its place."""

    nodes: list[Node]
    was: list[Node]
    begin: int
    end: int
    edges: Callable[[Any], tuple[BaseMessage, ...]] | None
    ids: list[str]
    roots: list[Node]
    has_systems: bool


_known: Final[dict[int, _Chain]] = {}


def end_of(messages: Sequence[BaseMessage], nodes: list[Node], begin: int) -> int | None:
    """Return where the summaries end if the first and last messages of each stand in their places; else None.

    A long thread has many summaries, and this is asked in each call of its model: so all is done in C.
    """
    chain = _chain_of(nodes, begin)
    if chain.edges is None:
        return begin
    if chain.end > len(messages):
        return None
    ids = list(map(_id, chain.edges(messages)))
    return chain.end if ids == chain.ids else None


def roots(nodes: list[Node]) -> list[Node]:
    """Return the summaries that are shown, in the order of what they cover."""
    return _chain_of(nodes).roots


def has_systems(nodes: list[Node]) -> bool:
    """Tell whether there are system messages among the covered ones."""
    return _chain_of(nodes).has_systems


def _chain_of(nodes: list[Node], begin: int | None = None) -> _Chain:
    known = _known.get(id(nodes))
    if (
        known is not None
        and known.nodes is nodes
        and len(known.was) == len(nodes)
        and all(map(is_, known.was, nodes))
        and begin in (None, known.begin)
    ):
        return known
    made = _made(nodes, begin or 0)
    make_room(_known, _MOST_KNOWN)
    _known[id(nodes)] = made
    return made


def _made(nodes: list[Node], begin: int) -> _Chain:
    places, ids, end = list[int](), list[str](), begin
    for node in nodes:
        if covered := node["covered"]:
            places += [end, end + covered - 1]
            ids += [node["first_id"], node["last_id"]]
            end += covered
    edges = itemgetter(*places) if places else None
    return _Chain(nodes, [*nodes], begin, end, edges, ids, _roots(nodes), any(node["systems"] for node in nodes))


def _roots(nodes: list[Node]) -> list[Node]:
    taken: set[str] = set()
    ages: dict[str, int] = {}
    for at, node in enumerate(nodes):  # children stand before what took them up
        children = node["children"]
        if children:
            taken.update(children)
            ages[node["id"]] = min((ages[child] for child in children if child in ages), default=at)
        else:
            ages[node["id"]] = at
    return sorted((node for node in nodes if node["id"] not in taken), key=lambda node: ages[node["id"]])

"""What differs between two states: only what was added where something was added, messages found by their id. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langgraph_statekit.checkpoint.plain import HIDDEN, differences, plain
from langgraph_statekit.checkpoint.secret_keys import SECRET_KEYS

Shown = Callable[[Any], Any]

_DEPTH: Final = 40
_MESSAGES: Final = frozenset({HumanMessage, AIMessage, ToolMessage, SystemMessage})
_SCALARS: Final = frozenset({str, int, float, bool, bytes, type(None)})


class Change(NamedTuple):
    """One difference.

    Attributes:
        path: Where, such as `order.items[2].price`; a message stands under its id: `messages[ai-1].content`.
        kind: `added`, `removed`, `changed`, or `moved` for items found by id that stand in another order.
        before: Plain data; None if it was added.
        after: Plain data; None if it was removed.
    """

    path: str
    kind: str
    before: Any
    after: Any

    @property
    def channel(self) -> str:
        """The path up to the first step into the value."""
        ends = [at for at in (self.path.find("."), self.path.find("[")) if at > 0]
        return self.path[: min(ends)] if ends else self.path


def diff(before: Mapping[str, Any], after: Mapping[str, Any], shown: Shown = plain) -> Iterator[Change]:
    """Yield what differs between two states, given by channel; values may be any that a checkpoint holds.

    What is equal is passed over without being converted, so that one more message on a long history costs little.

    Args:
        before: The one state.
        after: The other one.
        shown: Makes plain data of a value that is told; it may leave out parts of large ones.
    """
    yield from _dicts("", before, after, shown)


def _dicts(path: str, before: Mapping[Any, Any], after: Mapping[Any, Any], shown: Shown) -> Iterator[Change]:
    for name in [*before, *(name for name in after if name not in before)]:
        step = f"{path}.{_key(name)}" if path else _key(name)
        if name not in after:
            yield Change(step, "removed", _under(name, before[name], shown), None)
        elif name not in before:
            yield Change(step, "added", None, _under(name, after[name], shown))
        elif is_secret(name):
            yield from _leaves(step, _under(name, before[name], plain), _under(name, after[name], plain), shown)
        else:
            yield from _between(step, before[name], after[name], shown)


def _key(name: Any) -> str:
    return name if isinstance(name, str) else str(next(iter(plain({name: None}))))


def is_secret(name: Any) -> bool:
    """Say whether what stands under this name is never shown."""
    return str(name).lower().replace("-", "_") in SECRET_KEYS


def _under(name: Any, value: Any, shown: Shown) -> Any:
    return HIDDEN if value is not None and is_secret(name) else shown(value)


def _between(path: str, before: Any, after: Any, shown: Shown) -> Iterator[Change]:
    if same(before, after):
        return
    kind = type(before)
    if kind is type(after) and kind is dict:
        yield from _dicts(path, before, after, shown)
    elif kind is type(after) and kind in (list, tuple):
        yield from _lists(path, before, after, shown)
    else:
        yield from _leaves(path, plain(before), plain(after), shown)


def _leaves(path: str, before: Any, after: Any, shown: Shown) -> Iterator[Change]:
    for step, kind, old, new in differences(before, after, path):
        yield Change(step, kind, shown(old), shown(new))


def _lists(path: str, before: Sequence[Any], after: Sequence[Any], shown: Shown) -> Iterator[Change]:
    most = min(len(before), len(after))
    first = next((at for at in range(most) if not same(before[at], after[at])), most)
    ends = next((at for at in range(most - first) if not same(before[-1 - at], after[-1 - at])), most - first)
    old, new = before[first : len(before) - ends], after[first : len(after) - ends]
    ids = _ids(before), _ids(after)
    if ids[0] is not None and ids[1] is not None:
        olds, news = ids[0][first : len(before) - ends], ids[1][first : len(after) - ends]
        yield from _by_id(path, dict(zip(olds, old, strict=True)), dict(zip(news, new, strict=True)), shown)
        return
    for at in range(max(len(old), len(new))):
        step = f"{path}[{first + at}]"
        if at >= len(new):
            yield Change(step, "removed", shown(old[at]), None)
        elif at >= len(old):
            yield Change(step, "added", None, shown(new[at]))
        else:
            yield from _between(step, old[at], new[at], shown)


def _ids(items: Sequence[Any]) -> list[str] | None:
    """Return the ids of items that all have one of their own."""
    known = set(map(type, items)) <= _MESSAGES  # of which there may be thousands
    found = [item.id for item in items] if known else [id_of(item) for item in items]
    distinct = {id for id in found if id is not None}
    return [id for id in found if id is not None] if len(distinct) == len(items) else None


def id_of(item: Any) -> str | None:
    """Return the id of a message, or of a dict that has one; None without."""
    if isinstance(item, BaseMessage):
        return item.id
    found = item.get("id") if isinstance(item, Mapping) else None
    return found if isinstance(found, str) and found else None


def _by_id(path: str, old: Mapping[str, Any], new: Mapping[str, Any], shown: Shown) -> Iterator[Change]:
    for id, item in old.items():
        if id not in new:
            yield Change(f"{path}[{id}]", "removed", shown(item), None)
    for id, item in new.items():
        if id not in old:
            yield Change(f"{path}[{id}]", "added", None, shown(item))
        else:
            yield from _between(f"{path}[{id}]", old[id], item, shown)
    stayed = [id for id in old if id in new]
    order = [id for id in new if id in old]
    if stayed != order:
        yield Change(path, "moved", stayed, order)


def same(a: Any, b: Any, depth: int = _DEPTH) -> bool:
    """Say whether two values are equal, types included; False where that takes more than a comparison of parts."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b) or depth == 0:
        return False
    if kind in _SCALARS:
        return bool(a == b)
    if kind in (list, tuple):
        return len(a) == len(b) and all(x is y or same(x, y, depth - 1) for x, y in zip(a, b, strict=True))
    if kind is dict:
        return a.keys() == b.keys() and all(same(value, b[key], depth - 1) for key, value in a.items())
    if isinstance(a, BaseMessage):
        return same(a.__dict__, b.__dict__, depth - 1) and same(a.__pydantic_extra__, b.__pydantic_extra__, depth - 1)
    return False

"""The unsummarized messages as a prompt shows them; what was found out about their beginning is not found out again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import is_, itemgetter
from typing import Any, Final
from weakref import ref

from langchain_core.messages import BaseMessage

from langgraph_statekit.context.repair import mended, settled_block, sound_until
from langgraph_statekit.context.tokens import TokenCounter, make_room

_ELSEWHERE: Final = ("system", "remove")
_MOST_REMEMBERED: Final = 256
"""Histories whose beginning is remembered, each as long as the last message of it lives."""
_content: Final = itemgetter("content")
_calls: Final = itemgetter("tool_calls")


class _Beginning:
    """What is known of all blocks of a history but the last one, as far as there is nothing to repair in them.

    It holds the messages' fields, by which it knows them again, and not the messages, so they live no longer for it.
    """

    def __init__(self, how: Hashable) -> None:
        self.how = how
        self.fields: list[dict[str, Any]] = []
        self.contents: list[Any] = []
        self.asking: list[dict[str, Any]] = []
        self.calls: list[Any] = []
        self.calls_in: list[int] = []
        self.copies: dict[int, BaseMessage] = {}
        self.copied: list[Any] = []
        self.others: list[int] = []
        self.ids: set[str] = set()
        self.turns = 0
        self.counted: tuple[TokenCounter | None, int, int] = (None, 0, 0)
        self.last: ref[BaseMessage] | None = None

    def is_of(self, messages: Sequence[BaseMessage], how: Hashable) -> bool:
        """Tell whether the messages begin with these very ones, and nobody has given them other contents or calls."""
        if self.how != how or len(messages) < len(self.fields):
            return False
        fields = list(map(vars, messages[: len(self.fields)]))
        return (
            all(map(is_, fields, self.fields))
            and list(map(_content, fields)) == self.contents
            and list(map(_calls, self.asking)) == self.calls
            and list(map(len, self.calls)) == self.calls_in
            and list(map(_content, map(vars, self.copies.values()))) == self.copied
        )

    def extend(self, messages: Sequence[BaseMessage], shown: Sequence[BaseMessage], others: Sequence[int]) -> None:
        """Take up more messages, how they are shown, and where those stand that are shown elsewhere."""
        at, fields = len(self.fields), list(map(vars, messages))
        asking = [each for each in fields if each.get("tool_calls")]
        self.turns += _turns(messages, self.fields[-1]["type"] if self.fields else "")
        self.fields += fields
        self.contents += map(_content, fields)
        self.asking += asking
        self.calls += map(_calls, asking)
        self.calls_in += map(len, map(_calls, asking))
        copies = {n: shown[n - at] for n, message in enumerate(messages, at) if shown[n - at] is not message}
        self.copies |= copies
        self.copied += map(_content, map(vars, copies.values()))
        self.others += (at + n for n in others)

    def shown(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return the beginning as it is shown."""
        shown = list(messages[: len(self.fields)])
        for at, copy in self.copies.items():
            shown[at] = copy
        for at in reversed(self.others):
            del shown[at]
        return shown


class Shown:
    """How messages are shown to strict providers.

    Attributes:
        systems: The system messages.
        messages: The others, repaired.
        turns: How many turns begin among them.
    """

    def __init__(
        self,
        messages: Sequence[BaseMessage],
        settled: int,
        how: Hashable,
        show: Callable[[int], Sequence[BaseMessage]],
    ) -> None:
        """Show messages: `show` gives them from a place on; `how` tells apart what it makes of the settled ones."""
        key = id(messages[0]) if messages else 0
        known = _known.pop(key, None)  # taken out while in use, so that no other thread can change it
        if known is None or not known.is_of(messages, how):
            known = _Beginning(how)
        at = len(known.fields)
        new, fresh = messages[at:], list(show(at))
        where = [n for n, message in enumerate(fresh) if message.__dict__["type"] not in _ELSEWHERE]
        rest = [fresh[n] for n in where]
        until = sound_until(rest, known.ids)
        while until < len(rest) and (block := settled_block(rest, until, known.ids)):
            for n, message in enumerate(block, until):
                rest[n] = fresh[where[n]] = message
            until = sound_until(rest, known.ids, until + len(block))
        last = until
        while last and (last == len(rest) or rest[last].type == "tool"):
            last -= 1
        end = where[last] if last else 0
        if end:
            others = [n for n, message in enumerate(fresh[:end]) if message.type in _ELSEWHERE]
            known.extend(new[:end], fresh[:end], others)
        begin = known.shown(messages)
        self.messages = [*begin, *(rest[last:] if until == len(rest) else mended(rest[last:], {*known.ids}))]
        aside = [*(messages[n] for n in known.others), *fresh[end:]]
        self.systems = [message for message in aside if message.type == "system"]
        self.turns = known.turns + _turns(new[end:], known.fields[-1]["type"] if known.fields else "")
        self._beginning, self._size = known, len(begin)
        if known.fields and len(known.fields) >= settled:
            known.last = ref(messages[len(known.fields) - 1], lambda _: _known.pop(key, None))
            make_room(_known, _MOST_REMEMBERED)
            _known[key] = known

    def tokens(self, counter: TokenCounter) -> int:
        """Return the tokens of the messages; those of the beginning are counted once."""
        by, until, total = self._beginning.counted
        if by is not counter or until > self._size:
            until = total = 0
        total += counter(self.messages[until : self._size])
        self._beginning.counted = (counter, self._size, total)
        return total + counter(self.messages[self._size :])


_known: Final[dict[int, _Beginning]] = {}


def _turns(messages: Sequence[BaseMessage], before: str) -> int:
    """Return how many turns begin in a part of a history, as `window.turns` finds them in the whole."""
    begun = 0
    for message in messages:
        kind = message.__dict__["type"]
        begun += kind == "human" != before
        before = kind
    return begun

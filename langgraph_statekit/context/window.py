"""Where a history may be cut: turns, blocks that belong together, the live question."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage

MARK: Final = "statekit"
"""Key in a message's `additional_kwargs` under which this package leaves its notes."""

AI: Final = ("ai", "AIMessageChunk")
"""Types of what a model said."""
_MOST_LIVE: Final = 4
"""A user may send a question in pieces; where many talk and nobody answers not all of it is one question."""


def key_of(message: BaseMessage) -> str:
    """Return what names a message: its id; of one that has none, a digest of what it says."""
    id: str | None = message.__dict__["id"]  # pydantic makes attributes slow
    if id:
        return id
    said = f"{message.type}\0{message.content!r}\0{getattr(message, 'tool_calls', '')!r}"
    return f"~{hashlib.blake2b(said.encode('utf-8', 'surrogatepass'), digest_size=12).hexdigest()}"


def note_of(message: BaseMessage) -> Mapping[str, Any]:
    """Return this package's note on a message, empty if there is none."""
    note = message.additional_kwargs.get(MARK)
    return note if isinstance(note, Mapping) else {}


def is_made(message: BaseMessage) -> bool:
    """Tell whether this package made the message, to show summaries or knowledge."""
    fields = message.__dict__  # pydantic makes attributes slow
    if fields["type"] != "human" or MARK not in fields["additional_kwargs"]:
        return False
    note = note_of(message)
    return "summary" in note or "knowledge" in note


def head(messages: Sequence[BaseMessage]) -> int:
    """Return how many system messages stand at the front."""
    at = 0
    while at < len(messages) and messages[at].__dict__["type"] == "system":
        at += 1
    return at


def turns(messages: Sequence[BaseMessage], start: int, end: int | None = None) -> list[int]:
    """Return where turns begin: at a user's message that follows something else."""
    begins, before = [], ""
    for at in range(start, len(messages) if end is None else end):
        kind = messages[at].__dict__["type"]
        if kind == "human" and before != "human":
            begins.append(at)
        before = kind
    return begins


def live_question(messages: Sequence[BaseMessage]) -> range:
    """Return where the user's last message stands, with up to three right before it that nothing has answered."""
    end = len(messages)
    while end and (messages[end - 1].__dict__["type"] != "human" or is_made(messages[end - 1])):
        end -= 1
    begin = end
    while begin > max(0, end - _MOST_LIVE) and _asks(messages[begin - 1]):
        begin -= 1
    return range(begin, end)


def _asks(message: BaseMessage) -> bool:
    return message.__dict__["type"] == "human" and not is_made(message)


def pairs(messages: Sequence[BaseMessage], start: int = 0) -> dict[int, tuple[int, int]]:
    """Return for each tool result, by position, the message that called for it and the number of the call in it.

    A result belongs to the last call of its id before it; a second result of one call belongs to none.
    """
    waiting: dict[str | None, list[tuple[int, int]]] = {}
    found: dict[int, tuple[int, int]] = {}
    for at in range(start, len(messages)):
        fields = messages[at].__dict__  # pydantic makes isinstance slow
        kind = fields["type"]
        if kind == "tool":
            if calls := waiting.get(fields["tool_call_id"]):
                found[at] = calls.pop(0)
        elif kind in AI:
            asked: dict[str | None, list[tuple[int, int]]] = {}
            for number, call in enumerate(fields["tool_calls"]):
                asked.setdefault(call["id"], []).append((at, number))
            waiting.update(asked)
    return found


def open_call(messages: Sequence[BaseMessage], start: int = 0) -> int | None:
    """Return where the last message with calls stands if some wait for a result and only results follow it."""
    at = len(messages) - 1
    while at >= start and messages[at].type == "tool":
        at -= 1
    message = messages[at] if at >= start else None
    if not isinstance(message, AIMessage) or not message.tool_calls:
        return None
    results = [call for call, _ in pairs(messages, at).values() if call == at]
    return None if len(results) == len(message.tool_calls) else at


def cuts(messages: Sequence[BaseMessage], start: int) -> list[int]:
    """Return where the history may be cut off: never between a call and its results, nor behind an open call.

    Results without a call go with what stands before them. The last block, a call with its results or one message, is
    never cut off.
    """
    reach: dict[int, int] = {}
    for result, (call, _) in pairs(messages, start).items():
        reach[call] = max(reach.get(call, call), result)
    opened = open_call(messages, start)
    allowed, until = [], start
    for at in range(start, len(messages) if opened is None else opened + 1):
        if at > until and messages[at].type != "tool":
            allowed.append(at)
        until = max(until, reach.get(at, at))
    return allowed


def positions(messages: Sequence[BaseMessage]) -> dict[str, list[int]]:
    """Return where each message stands, by key."""
    found: dict[str, list[int]] = {}
    for at, message in enumerate(messages):
        found.setdefault(key_of(message), []).append(at)
    return found

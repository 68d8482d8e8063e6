"""A history as strict providers take it: each call with its results right behind it, nothing said left out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import ToolCall

from langgraph_statekit.context.copies import Copies
from langgraph_statekit.context.plain_text import plain_text
from langgraph_statekit.context.tokens import plain_json
from langgraph_statekit.context.window import AI, key_of, open_call, pairs

UNANSWERED: Final = "No result was recorded for this call."
BEGINNING: Final = "(The conversation begins.)"
EMPTY: Final = "(empty)"
CALL_BLOCKS: Final = ("tool_use", "tool_call", "function_call", "tool_call_chunk", "invalid_tool_call")
_ARGUMENTS: Final = ("input", "args", "arguments")
_MOST_ID_CHARS: Final = 40
"""Providers refuse longer ids."""
_SIGNATURE: Final = "__thought__"
"""What follows it in an id is Gemini's signature, which LiteLLM carries there and takes off for other providers."""

_copies: Final = Copies()


def sound_until(messages: Sequence[BaseMessage], seen: set[str], start: int = 0) -> int:
    """Return up to where `repair` would change nothing, always the begin of a block; the ids of its calls go to `seen`.

    This is the fast path of every model call.
    """
    waiting: list[str] = []
    asked: list[str] = []
    block = start
    for at in range(start, len(messages)):
        fields = messages[at].__dict__  # a history is long, and attributes of pydantic models are slow
        kind = fields["type"]
        if kind == "tool":
            if not waiting or waiting.pop(0) != fields["tool_call_id"]:
                return block
            continue
        if waiting:
            return block
        seen.update(asked)
        asked, block = [], at
        if kind in AI:
            content = fields["content"]
            if fields["invalid_tool_calls"] or (content.__class__ is list and _stray_blocks(fields)):
                return block
            if calls := fields["tool_calls"]:
                asked = [call["id"] for call in calls]
                if not _are_own(asked, seen):
                    return block
                waiting = asked[:]
                continue
        if is_blank(fields["content"]):
            return block
    return block if waiting else len(messages)


def is_blank(content: Any) -> bool:
    """Tell whether a message's content is nothing but blanks, which providers refuse."""
    if content.__class__ is str:
        return not content or content.isspace()
    said = (block if isinstance(block, str) else block.get("text", "_") for block in content)
    return not any(text and not str(text).isspace() for text in said)


def repair(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages as strict providers take them; those that are in order are the same objects.

    Results stand behind their call in the order of the calls. A call without a result gets one that says so; a result
    without a call and a call that could not be parsed become text; a call's id that comes again is renamed; an empty
    message says that it is. System messages are no part of it.
    """
    kept = [message for message in messages if message.type not in ("system", "remove")]
    taken: set[str] = set()
    until = sound_until(kept, taken)
    return kept if until == len(kept) else kept[:until] + mended(kept[until:], taken)


def settled_block(messages: Sequence[BaseMessage], at: int, taken: set[str]) -> list[BaseMessage]:
    """Return a repaired block that no later message can change, as many messages as it has.

    Empty for a block in which calls and results do not fit, and for the last one.
    """
    message = messages[at].__dict__
    calls, end = message.get("tool_calls") or [], at + 1 + len(message.get("tool_calls") or [])
    ids = [call["id"] for call in calls]
    if end >= len(messages) or messages[end].type == "tool" or message["type"] == "tool":
        return []
    asked = _parsed(messages[at])
    if not calls:
        return [_said(asked)]
    results = messages[at + 1 : end]
    if not all(ids) or len({*ids}) < len(ids) or [each.__dict__.get("tool_call_id") for each in results] != ids:
        return []
    asked, calls = _with_own_ids(cast("AIMessage", asked), taken)
    return [asked, *map(_answer, results, calls, results, range(len(calls)))]


def mended(rest: Sequence[BaseMessage], taken: set[str]) -> list[BaseMessage]:
    """Return the messages from where something must be repaired; `taken` are the ids of calls before them."""
    out: list[BaseMessage] = []
    owners = pairs(rest)
    results = {owner: rest[at] for at, owner in owners.items()}
    for at, message in enumerate(rest):
        fields = message.__dict__
        if fields["type"] == "tool":
            if at not in owners:
                out.append(as_text(cast("ToolMessage", message)))
        elif fields["type"] in AI:
            asked, calls = _with_own_ids(cast("AIMessage", _parsed(message)), taken)
            out.append(asked if calls else _said(asked))
            for number, call in enumerate(calls):
                out.append(_answer(results.get((at, number)), call, message, number))
        else:
            out.append(_said(message))
    return out


def mended_in_place(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return as many messages, as strict providers take them, each with the id of the one in its place.

    This is for a stored history, into which nothing can be put. What `repair` moves or adds becomes text here: results
    that do not follow their call, and calls whose result does not follow. Results in another order than their calls
    exchange ids. System messages, and a call at the end that is still open, stay as they are.
    """
    out, taken = list(messages), set[str]()
    opened = open_call(messages)
    begin, end = 0, len(messages) if opened is None else opened
    while begin < end:
        at = begin + 1
        while at < end and messages[at].type == "tool":
            at += 1
        out[begin:at] = map(_with_id_of, _block_in_place(messages[begin:at], taken), messages[begin:at])
        begin = at
    return out


def _block_in_place(block: Sequence[BaseMessage], taken: set[str]) -> list[BaseMessage]:
    """Return a message, the results of its calls, and as text the results behind it that are of others."""
    first, owners = block[0], pairs(block)
    answered = sorted((number, at) for at, (_, number) in owners.items())
    loose = [as_text(cast("ToolMessage", block[at])) for at in range(1, len(block)) if at not in owners]
    if isinstance(first, ToolMessage):
        return [as_text(first), *loose]
    if not isinstance(first, AIMessage):
        return [first if first.type == "system" else _said(first), *loose]
    asked = cast("AIMessage", _parsed(first))
    numbers = {number for number, _ in answered}
    if open_calls := [number for number in range(len(asked.tool_calls)) if number not in numbers]:
        asked = without_calls(asked, open_calls)
    asked, calls = _with_own_ids(asked, taken)
    results = [_answer(block[at], call, asked, 0) for (_, at), call in zip(answered, calls, strict=True)]
    return [asked if calls else _said(asked), *results, *loose]


def _with_id_of(message: BaseMessage, replaced: BaseMessage) -> BaseMessage:
    return message if message.id == replaced.id else message.model_copy(update={"id": replaced.id})


def as_text(result: ToolMessage) -> AIMessage:
    """Return a result without a call as text, with its id."""
    name = f" of {result.name}" if result.name else ""
    return AIMessage(f"[A tool result{name} whose call is not here]\n{plain_text(result)}", id=result.id)


def without_calls(message: AIMessage, dropped: Sequence[int]) -> AIMessage:
    """Return the message with these calls, by number, as text."""
    lost = [call for number, call in enumerate(message.tool_calls) if number in dropped]
    kept = [call for number, call in enumerate(message.tool_calls) if number not in dropped]
    notes = [f"[Called {call['name']} {plain_json(call['args'])}. {UNANSWERED}]" for call in lost]
    return _changed(message, kept, _unchanged(kept), notes)


def _said(message: BaseMessage) -> BaseMessage:
    return message.model_copy(update={"content": EMPTY}) if is_blank(message.content) else message


def _answer(result: BaseMessage | None, call: ToolCall, asked: BaseMessage, number: int) -> BaseMessage:
    if result is None:
        id = f"{key_of(asked)}-{number}"
        return ToolMessage(UNANSWERED, tool_call_id=call["id"] or "", name=call["name"], status="error", id=id)
    if result.__dict__["tool_call_id"] == call["id"]:
        return result
    return _copies.get(result, call["id"], lambda: result.model_copy(update={"tool_call_id": call["id"]}))


def _parsed(message: BaseMessage) -> BaseMessage:
    """Return the message with all that only looks like a call, in its content or among its calls, as text."""
    fields = message.__dict__
    if fields["type"] not in AI:
        return message
    asked = cast("AIMessage", message)
    strays = _stray_blocks(fields) if fields["content"].__class__ is list else []
    if not asked.invalid_tool_calls and not strays:
        return message
    notes = [f"[Called {call['name']} with what is no JSON: {call['args']}]" for call in asked.invalid_tool_calls]
    known = {call["id"] for call in (*asked.tool_calls, *asked.invalid_tool_calls)}
    for block in strays:
        if _call_id(block) not in known:
            args: Any = next((block[key] for key in _ARGUMENTS if key in block), {})
            notes.append(f"[Called {block.get('name')} {plain_json(args)}. {UNANSWERED}]")
    return _changed(asked, asked.tool_calls, _unchanged(asked.tool_calls), notes)


def _stray_blocks(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the blocks of a content that call what `tool_calls` does not: an app may have taken the call back."""
    left = [call["id"] for call in fields["tool_calls"]]
    strays: list[dict[str, Any]] = []
    for block in fields["content"]:
        if block.__class__ is dict and block.get("type") in CALL_BLOCKS:
            if (id := _call_id(block)) in left:
                left.remove(id)
            else:
                strays.append(block)
    return strays


def _call_id(block: Mapping[str, Any]) -> Any:
    return block["call_id"] if "call_id" in block else block.get("id")


def _are_own(ids: Sequence[str | None], taken: set[str]) -> bool:
    """Tell whether calls have ids that providers take, and no call before has."""
    return all(ids) and taken.isdisjoint(ids) and len({*ids}) == len(ids) and all(map(_is_short, ids))  # type: ignore[arg-type]


def _is_short(id: str) -> bool:
    """Tell whether providers take an id's length; a signature does not count."""
    return len(id) <= _MOST_ID_CHARS or id.find(_SIGNATURE, 0, _MOST_ID_CHARS + len(_SIGNATURE)) >= 0


def _with_own_ids(message: AIMessage, taken: set[str]) -> tuple[AIMessage, list[ToolCall]]:
    """Return the message and its calls, each with an id that none before it has."""
    given = [call["id"] or "" for call in message.tool_calls]
    if not given or _are_own(given, taken):
        taken.update(given)
        return message, message.tool_calls
    names: list[str] = []
    for call in message.tool_calls:
        wanted = call["id"] or "call"
        name = next(each for each in _names(wanted) if each not in taken and (each != "call" or call["id"]))
        taken.add(name)
        names.append(name)
    shown = cast("AIMessage", _copies.get(message, tuple(names), lambda: _renamed(message, names)))
    return shown, shown.tool_calls


def _renamed(message: AIMessage, names: Sequence[str]) -> AIMessage:
    calls = [ToolCall({**call, "id": name}) for call, name in zip(message.tool_calls, names, strict=True)]
    renamed: dict[str | None, list[str | None]] = {}
    for call, name in zip(message.tool_calls, names, strict=True):
        renamed.setdefault(call["id"], []).append(name)
    return _changed(message, calls, renamed, ())


def _unchanged(calls: Sequence[ToolCall]) -> dict[str | None, list[str | None]]:
    return {call["id"]: [call["id"]] for call in calls}


def _names(wanted: str) -> Iterator[str]:
    if _is_short(wanted):
        yield wanted
    name, *signature = wanted.partition(_SIGNATURE)
    short = name if len(name) < _MOST_ID_CHARS - 6 else hashlib.md5(name.encode()).hexdigest()
    number = 2
    while True:
        yield "".join((f"{short}_{number}", *signature))
        number += 1


def _changed(
    message: AIMessage, calls: Sequence[ToolCall], renamed: dict[str | None, list[str | None]], notes: Sequence[str]
) -> AIMessage:
    """Return a copy with these calls, in its content too, and notes as text behind it."""
    content: Any = message.content
    if isinstance(content, str):
        content = "\n".join(filter(None, [content, *notes]))
    else:
        blocks = [_block(block, renamed) for block in content]
        content = [block for block in blocks if block is not None] + [{"type": "text", "text": note} for note in notes]
    extra = {
        key: value for key, value in message.additional_kwargs.items() if key not in ("tool_calls", "function_call")
    }
    return message.model_copy(
        update={"content": content, "tool_calls": list(calls), "invalid_tool_calls": [], "additional_kwargs": extra}
    )


def _block(block: Any, renamed: dict[str | None, list[str | None]]) -> Any:
    """Return a block with its call's new id; None for a call that is no more."""
    if not isinstance(block, dict) or block.get("type") not in CALL_BLOCKS:
        return block
    place = "call_id" if "call_id" in block else "id"
    names = renamed.get(block.get(place))
    return {**block, place: names.pop(0)} if names else None


def opening(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return what must stand before messages that do not begin with a user's, as Anthropic and Gemini want it."""
    if not messages or messages[0].type == "human":
        return []
    return [HumanMessage(BEGINNING, id=f"{key_of(messages[0])}-before")]

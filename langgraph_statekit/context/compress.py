"""Shorter messages without a model: old tool results as digests, repeated thoughts once. The history stays as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig

from langgraph_statekit.context.copies import Copies
from langgraph_statekit.context.digest import Call, calls_of, clipped, digest, digest_result, one_line
from langgraph_statekit.context.placeholders import DOCUMENT, RESULT, SAME, content_id, placeholder
from langgraph_statekit.context.plain_text import plain_text
from langgraph_statekit.context.policy import ToolResultPolicy, of_type
from langgraph_statekit.context.tokens import fingerprint, hash_of, make_room
from langgraph_statekit.context.verbatim import is_marked, is_verbatim
from langgraph_statekit.errors import Misuse

SHORTENED: Final = "shortened"
"""The key in `additional_kwargs["statekit"]` of a shortened message; it holds the id of what the original says."""
_LEAST_SAVED_CHARS: Final = 40
_REPEATED_CHARS: Final = 60
"""A shorter thought costs no more than the mark that would stand for it."""
_SIGNED: Final = ("thinking", "redacted_thinking", "reasoning")
_MOST_TEXTS: Final = 16_384
_texts: dict[int, str] = {}
"""What to show in place of a result, by what it and its call say; empty for the result itself."""
_copies: Final = Copies()


def compress(messages: Sequence[BaseMessage], policy: ToolResultPolicy | None = None) -> list[BaseMessage]:
    """Return the messages with old tool results as one line each and repeated thoughts once; as many, with their ids.

    Nothing given is changed: a shortened message is a copy, and `placeholders.original` leads back from the mark in
    it. A result stays whole as long as no model has answered after it, whatever `policy.keep` says. What is already
    shortened, or would not get shorter, stays.

    Args:
        messages: A history, or the part of it that goes into a prompt.
        policy: Which results stay whole; None for the defaults of `ToolResultPolicy`.
    """
    policy = policy or ToolResultPolicy()
    if policy.digest == "off":
        return list(messages)
    old = _old_results(messages, policy.keep)
    shown: list[BaseMessage] = []
    calls: dict[str, Call] = {}
    said: set[int] = set()
    settings = hash(policy)
    for index, message in enumerate(messages):
        if isinstance(message, AIMessage):
            calls.update(calls_of(message))
            shown.append(_once(message, said))
        elif index in old:
            assert isinstance(message, ToolMessage)
            shown.append(_shortened(message, calls.get(message.tool_call_id), policy, settings))
        else:
            shown.append(message)
    return shown


class ContextCompressor(Runnable[Any, Any]):
    """Shortens old tool results before a model is called; a graph node, a `pre_model_hook`, or a step of a chain.

    Given a list of messages it returns one. Given a graph's state it returns an update of `output_key` only, so the
    history in the state, and in every checkpoint, stays whole.

    Args:
        policy: Which results stay whole; None for the defaults of `ToolResultPolicy`.
        messages_key: Where the state has its messages.
        output_key: Where the shortened ones go: the key that `create_react_agent` sends to the model.

    Raises:
        Misuse: On `invoke`, if the input is neither messages nor a state that has them.
    """

    def __init__(
        self,
        policy: ToolResultPolicy | None = None,
        *,
        messages_key: str = "messages",
        output_key: str = "llm_input_messages",
    ) -> None:
        self.policy = policy or ToolResultPolicy()
        of_type(self.policy, ToolResultPolicy, "policy")
        self.messages_key, self.output_key = messages_key, output_key

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return shortened messages, or the update of a state with them."""
        if isinstance(input, Sequence) and not isinstance(input, str):
            return compress(input, self.policy)
        found = input.get(self.messages_key) if isinstance(input, Mapping) else getattr(input, self.messages_key, None)
        if not isinstance(found, Sequence) or isinstance(found, str):
            raise Misuse(f"the state has no list of messages at {self.messages_key!r}; set messages_key")
        return {self.output_key: compress(found, self.policy)}


def result_text(message: ToolMessage, call: Call | None, policy: ToolResultPolicy) -> str:
    """Return what a tool found, in one line unless the policy wants it whole; without its call."""
    whole, name = plain_text(message), call["name"] if call else message.name
    keeps = policy.digest == "off" or name in policy.exclude_tools or is_verbatim(message, policy.verbatim_kinds)
    if keeps or _is_shortened(message):
        return whole
    short = digest_result(message, call, numbers=policy.numbers)
    return short if len(short) < len(whole) else whole


def _old_results(messages: Sequence[BaseMessage], keep: int) -> set[int]:
    """Return the places of results that a model has answered since, without the newest ones."""
    last_answer = max((index for index, message in enumerate(messages) if isinstance(message, AIMessage)), default=0)
    results = [index for index, message in enumerate(messages) if isinstance(message, ToolMessage)]
    return {index for index in results[: len(results) - keep] if index < last_answer}


def _shortened(message: ToolMessage, call: Call | None, policy: ToolResultPolicy, settings: int) -> BaseMessage:
    name = call["name"] if call else message.name
    if name in policy.exclude_tools or _is_shortened(message) or is_marked(message):
        return message
    asked = (call["name"], hash_of(call["args"])) if call else None
    key = hash((fingerprint(message), message.status, asked, settings))
    text = _texts.get(key)
    if text is None:
        make_room(_texts, _MOST_TEXTS)
        text = _texts[key] = _short_text(message, call, policy)
    return _copies.get(message, text, partial(_copy, message, text)) if text else message


def _short_text(message: ToolMessage, call: Call | None, policy: ToolResultPolicy) -> str:
    """Return what to show in place of a result; nothing if that is the result itself."""
    whole = plain_text(message)
    if is_verbatim(message, policy.verbatim_kinds):
        if policy.offload_chars is None or len(whole) <= policy.offload_chars:
            return ""
        first = clipped(next(filter(str.strip, whole.splitlines()), ""), 80)
        text = (
            f"{placeholder(message, DOCUMENT)} {one_line(message.name or 'result')}, {len(whole)} characters: {first}"
        )
    else:
        text = digest(message, call, numbers=policy.numbers)
        if one_line(whole) not in text:
            text += f" {placeholder(message, RESULT)}"
    return text if len(text) + _LEAST_SAVED_CHARS <= len(whole) or not isinstance(message.content, str) else ""


def _once(message: AIMessage, said: set[int]) -> BaseMessage:
    """Return a message with a mark in place of each text that came before it."""
    content = message.content
    if isinstance(content, str):
        again = _is_again(content, said) and not is_marked(message)
        return _copy(message, placeholder(message, SAME)) if again else message
    if is_marked(message) or any(_type_of(block) in _SIGNED for block in content):
        return message  # what stands beside reasoning must stay as the provider signed it
    places = [
        at
        for at, block in enumerate(content)
        if isinstance(block, dict) and block.get("type") == "text" and _is_again(str(block.get("text", "")), said)
    ]
    if not places:
        return message
    mark = placeholder(message, SAME)
    blocks = [{"type": "text", "text": mark} if at in places else block for at, block in enumerate(content)]
    return _copies.get(message, (SAME, *places), partial(_copy, message, blocks))


def _is_again(text: str, said: set[int]) -> bool:
    """Tell whether a text of some length was said before."""
    if len(text) < _REPEATED_CHARS:
        return False
    key = hash(text)
    again = key in said
    said.add(key)
    return again


def _type_of(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else None


def _copy(message: BaseMessage, content: Any) -> BaseMessage:
    marks = {**(message.additional_kwargs.get("statekit") or {}), SHORTENED: content_id(message)}
    return message.model_copy(
        update={"content": content, "additional_kwargs": {**message.additional_kwargs, "statekit": marks}}
    )


def _is_shortened(message: BaseMessage) -> bool:
    marks = message.additional_kwargs.get("statekit")
    return isinstance(marks, Mapping) and SHORTENED in marks

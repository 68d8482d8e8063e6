"""What the faces share: the channels they need, what they read from a state, the events they send."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from types import MethodType, new_class
from typing import Annotated, Any, Final, TypedDict

from langchain_core.messages import AnyMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.last_value import LastValue
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.graph.message import add_messages

from langgraph_statekit.context.core import Compaction
from langgraph_statekit.context.resources import ResourceState, spent
from langgraph_statekit.errors import Misuse
from langgraph_statekit.events import Compacted, Event, Failed, Hooks

MESSAGES: Final = "messages"
SUMMARY: Final = "session_summary"
KNOWLEDGE: Final = "session_knowledge"
PROMPT: Final = "llm_input_messages"


class Furthest(LastValue[dict[str, Any]]):
    """A channel that keeps, of what parallel nodes write in one step, the value with the most summaries.

    They all began with the same history and the same value, so each of theirs is true; LangGraph's own channel raises.
    """

    __slots__ = ()

    def update(self, values: Sequence[dict[str, Any]]) -> bool:
        """Take the value that goes furthest."""
        return super().update([max(values, key=lambda value: (value or {}).get("next", 0))] if values else [])


class ContextState(TypedDict, total=False):
    """A graph state with all channels of the context nodes; the prompt is not stored with checkpoints.

    Nodes of this package bring the channels of summary and knowledge themselves, so a state of your own needs this
    only to read them in other nodes.
    """

    messages: Annotated[list[AnyMessage], add_messages]
    session_summary: Annotated[dict[str, Any], Furthest]
    session_knowledge: Annotated[dict[str, Any], Furthest]
    llm_input_messages: Annotated[list[AnyMessage], UntrackedValue]
    resources: Annotated[ResourceState, spent]


def bring_channels(node: Any, channels: Mapping[str, Any]) -> None:
    """Have LangGraph add these channels to a graph in which the node stands, and pass the node their values.

    It reads them from the annotation of a node's first argument. Channels that the graph has already stay as they are.
    """
    schema = new_class(
        "Channels", (TypedDict,), {"total": False}, lambda body: body.update(__annotations__=dict(channels))
    )

    def call(self: Any, state: Any) -> Any:
        return self.invoke(state)

    call.__annotations__ = {"state": schema}
    node.__dict__["__call__"] = MethodType(call, node)


def value_of(state: Any, name: str) -> Any:
    """Return a channel's value from a state, a dict or an object; None if there is none."""
    return state.get(name) if isinstance(state, Mapping) else getattr(state, name, None)


def messages_of(state: Any, name: str) -> list[BaseMessage]:
    """Return a state's messages; raise `Misuse` for what is none."""
    messages = value_of(state, name)
    if messages is None:
        raise Misuse(f"the state has no {name!r}: name the channel of the messages with messages_key")
    for each in messages[:1], messages[-1:]:
        if each and not isinstance(each[0], BaseMessage):
            raise Misuse(f"{name!r} must hold messages, not {type(each[0]).__name__}: give the channel add_messages")
    return messages if isinstance(messages, list) else list(messages)


def tell(
    hooks: Hooks, config: RunnableConfig | None, compactions: Iterable[Compaction], began: float, problem: str = ""
) -> None:
    """Send an event for each compaction."""
    configurable: Mapping[str, Any] = (config or {}).get("configurable", {})
    thread, namespace = configurable.get("thread_id"), configurable.get("checkpoint_ns")
    common: dict[str, Any] = {
        "store": "context",
        "thread_id": None if thread is None else str(thread),
        "checkpoint_ns": namespace,
        "latency_s": time.perf_counter() - began,
    }
    for each in compactions:
        operation = "condense" if each.condenses else "summarize"
        event: Event = Failed(**common, operation=operation, error=each.problem)
        if each.node_id is not None:
            event = Compacted(
                **common,
                operation=operation,
                by=each.by,
                reason=each.reason,
                messages=each.messages,
                tokens_in=each.tokens_in,
                tokens_out=each.tokens_out,
                attempts=each.attempts,
                problem=each.problem,
            )
        hooks(event)

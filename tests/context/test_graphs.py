"""The context nodes in graphs on real stores: stored as plain data, forked, replayed, in parallel, and never streamed."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages

from langgraph_statekit import (
    ContextBuilder,
    ContextPolicy,
    ContextState,
    KnowledgePolicy,
    SessionSummarizer,
    StatekitSaver,
    build_context,
    open_saver,
    originals,
    pre_model_hook,
)
from tests.context.rules import assert_kept, assert_strict
from tests.faces import config
from tests.stores_under_test import Store

POLICY = ContextPolicy(trigger=("turns", 4), slice=("turns", 2), keep=("turns", 2), fanout=2)
SECRET = "SECRET"


class Watching(MessagesState):
    """What a model node of one's own reads."""

    session_summary: dict[str, Any]


class Prompted(MessagesState):
    """What a model node reads that gets its prompt from a builder."""

    llm_input_messages: Annotated[list[AnyMessage], UntrackedValue]


class Chat(TypedDict, total=False):
    """A state with names of its own."""

    chat: Annotated[list[AnyMessage], add_messages]
    memo: dict[str, Any]


def summarizer() -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=(AIMessage(f"{SECRET} {number} of it") for number in itertools.count()))


def model() -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=(AIMessage(f"answer {number} to you") for number in itertools.count()))


def view_graph(saver: Any) -> Any:
    """Return a graph with a summarizer node and a model node of its own."""
    chat = model()

    def answer(state: Watching) -> Any:
        prompt = build_context(state["messages"], state.get("session_summary"), POLICY, compact=False).messages
        assert_strict(prompt)
        assert_kept(state["messages"], prompt)
        return {"messages": [chat.invoke(prompt)]}

    graph = StateGraph(MessagesState)
    graph.add_node("summarize", SessionSummarizer(summarizer(), POLICY))
    graph.add_node("answer", answer)
    graph.add_edge(START, "summarize")
    graph.add_edge("summarize", "answer")
    return graph.compile(checkpointer=saver)


def builder_graph(saver: Any) -> Any:
    chat = model()

    async def answer(state: Prompted) -> Any:
        assert_kept(state["messages"], state["llm_input_messages"])
        return {"messages": [await chat.ainvoke(state["llm_input_messages"])]}

    graph = StateGraph(Prompted)
    graph.add_node("context", ContextBuilder(session=SessionSummarizer(summarizer(), POLICY)))
    graph.add_node("answer", answer)
    graph.add_edge(START, "context")
    graph.add_edge("context", "answer")
    return graph.compile(checkpointer=saver)


def replace_graph(saver: Any) -> Any:
    chat = model()

    def answer(state: MessagesState) -> Any:
        assert_strict(state["messages"])
        return {"messages": [chat.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("summarize", SessionSummarizer(summarizer(), POLICY, mode="replace"))
    graph.add_node("answer", answer)
    graph.add_edge(START, "summarize")
    graph.add_edge("summarize", "answer")
    return graph.compile(checkpointer=saver)


def hook_graph(saver: Any) -> Any:
    from langgraph.prebuilt import create_react_agent

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return create_react_agent(model(), [], pre_model_hook=pre_model_hook(summarizer(), POLICY), checkpointer=saver)


def agent_graph(saver: Any) -> Any:
    agents = pytest.importorskip("langchain.agents")
    from langgraph_statekit import ContextMiddleware

    middleware = [ContextMiddleware(summarizer(), POLICY)]
    return agents.create_agent(model(), [], system_prompt="Be brief.", middleware=middleware, checkpointer=saver)


FACES: dict[str, Callable[[Any], Any]] = {
    "node": view_graph,
    "replace": replace_graph,
    "hook": hook_graph,
    "middleware": agent_graph,
}


def texts(state: Any) -> list[str]:
    return [node["text"] for node in state["session_summary"]["nodes"]]


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[StatekitSaver]:
    with open_saver(f"sqlite:///{tmp_path}/context.db") as opened:
        yield opened


async def test_the_summary_is_plain_json_in_its_own_channel_and_the_history_stays(durable_store: Store) -> None:
    async with durable_store.open() as saver:
        app = view_graph(saver)
        for turn in range(9):
            await app.ainvoke({"messages": [HumanMessage(f"q{turn}", id=f"h{turn}")]}, config())
    async with durable_store.open() as saver:
        state = (await view_graph(saver).aget_state(config())).values
    assert json.loads(json.dumps(state["session_summary"])) == state["session_summary"]
    assert len(state["messages"]) == 18
    assert [m.id for m in originals(state["messages"], state["session_summary"], "s1")][::2] == ["h0", "h1"]
    condensed = next(node for node in state["session_summary"]["nodes"] if node["depth"])
    told = originals(state["messages"], state["session_summary"], condensed["id"])
    assert [m.id for m in told][::2] == ["h0", "h1", "h2", "h3"]


@pytest.mark.parametrize("name", FACES)
def test_no_token_of_a_summary_is_streamed_and_every_answer_is(name: str, saver: StatekitSaver) -> None:
    app, streamed = FACES[name](saver), list[str]()
    for turn in range(9):
        given = {"messages": [HumanMessage(f"q{turn}", id=f"h{turn}")]}
        streamed += [chunk.content for chunk, _ in app.stream(given, config(), stream_mode="messages")]
    state = app.get_state(config()).values
    shown = str(state["messages"]) if name == "replace" else str(texts(state))
    assert SECRET in shown, "nothing was summarized"
    assert "".join(streamed) == "".join(f"answer {turn} to you" for turn in range(9))


@pytest.mark.parametrize("name", FACES)
async def test_no_token_of_a_summary_is_streamed_by_async_graphs(name: str, saver: StatekitSaver) -> None:
    app, streamed = FACES[name](saver), list[str]()
    for turn in range(9):
        given = {"messages": [HumanMessage(f"q{turn}", id=f"h{turn}")]}
        streamed += [chunk.content async for chunk, _ in app.astream(given, config(), stream_mode="messages")]
    assert "".join(streamed) == "".join(f"answer {turn} to you" for turn in range(9))


class Starts(BaseCallbackHandler):
    """Counts the models that were asked, as what adds up a run's cost does."""

    count = 0

    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        self.count += 1


@pytest.mark.parametrize("name", FACES)
async def test_events_tell_of_no_summarizer_but_callbacks_do(name: str, saver: StatekitSaver) -> None:
    app, starts, streamed = FACES[name](saver), Starts(), list[Any]()
    for turn in range(9):
        given: Any = {"messages": [HumanMessage(f"q{turn}", id=f"h{turn}")]}
        at: Any = {**config(), "callbacks": [starts]}
        streamed += [event async for event in app.astream_events(given, at, version="v2")]
    assert SECRET in str((await app.aget_state(config())).values), "nothing was summarized"
    models = [event for event in streamed if event["event"].startswith("on_chat_model")]
    assert sum(event["event"] == "on_chat_model_end" for event in models) == 9 < starts.count
    answered = [event["data"]["chunk"].content for event in models if event["event"] == "on_chat_model_stream"]
    assert "".join(answered) == "".join(f"answer {turn} to you" for turn in range(9))
    assert not any({"nostream", "langsmith:nostream"} & {*event["tags"]} for event in streamed)


@pytest.mark.parametrize("name", FACES)
def test_callbacks_hear_of_the_summarizer_in_sync_graphs_too(name: str, saver: StatekitSaver) -> None:
    app, starts = FACES[name](saver), Starts()
    for turn in range(9):
        app.invoke({"messages": [HumanMessage(f"q{turn}", id=f"h{turn}")]}, {**config(), "callbacks": [starts]})
    assert starts.count > 9


async def test_a_builder_node_gives_the_model_its_prompt_without_storing_it(saver: StatekitSaver) -> None:
    app = builder_graph(saver)
    for turn in range(6):
        await app.ainvoke({"messages": [HumanMessage(f"q{turn}", id=f"h{turn}")]}, config())
    state = (await app.aget_state(config())).values
    assert texts(state)
    assert "llm_input_messages" not in saver.get_tuple(config()).checkpoint["channel_values"]  # type: ignore[union-attr]


def test_a_fork_from_before_a_summary_makes_its_own(saver: StatekitSaver) -> None:
    app = view_graph(saver)
    for turn in range(6):
        app.invoke({"messages": [HumanMessage(f"q{turn}", id=f"h{turn}")]}, config())
    assert len(texts(app.get_state(config()).values)) == 2
    earlier = next(
        each for each in app.get_state_history(config()) if len(each.values.get("messages", [])) == 4 and not each.next
    )
    assert "session_summary" not in earlier.values or not earlier.values["session_summary"]
    forked = app.update_state(earlier.config, {"messages": [HumanMessage("other", id="other")]}, as_node="answer")
    for turn in range(3):
        app.invoke({"messages": [HumanMessage(f"again {turn}", id=f"n{turn}")]}, forked if turn == 0 else config())
    state = app.get_state(config()).values
    covered = originals(state["messages"], state["session_summary"], state["session_summary"]["nodes"][0]["id"])
    assert covered[0].id == "h0"
    assert "h3" not in [m.id for m in state["messages"]]
    assert [m.id for m in state["messages"] if m.id == "other"] == ["other"]


def test_replaying_from_a_checkpoint_shows_the_summary_of_its_time(saver: StatekitSaver) -> None:
    app = view_graph(saver)
    for turn in range(8):
        app.invoke({"messages": [HumanMessage(f"q{turn}", id=f"h{turn}")]}, config())
    for each in app.get_state_history(config()):
        summary, messages = each.values.get("session_summary"), each.values.get("messages", [])
        for node in (summary or {"nodes": []})["nodes"]:
            if node["covered"]:
                assert len(originals(messages, summary, node["id"])) == node["covered"]


@pytest.mark.parametrize("name", ["a_parallel", "z_parallel"])
def test_what_a_parallel_node_says_stays_when_the_history_is_replaced(name: str, saver: StatekitSaver) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("summarize", SessionSummarizer(summarizer(), POLICY, mode="replace"))
    graph.add_node(name, lambda state: {"messages": [AIMessage("meanwhile")]})
    graph.add_edge(START, "summarize")
    graph.add_edge(START, name)
    app = graph.compile(checkpointer=saver)
    for turn in range(9):
        state = app.invoke({"messages": [HumanMessage(f"q{turn}", id=f"h{turn}")]}, config())
        assert state["messages"][-1].content == "meanwhile"
        assert len({m.id for m in state["messages"]}) == len(state["messages"])
    assert SECRET in str(state["messages"][0].content)
    assert len(state["messages"]) < 9


class Both(ContextState, total=False):
    """What nodes of one's own that make prompts in parallel read and write."""


def test_nodes_that_make_prompts_in_parallel_store_one_summary(saver: StatekitSaver) -> None:
    source = KnowledgePolicy(source=lambda query: [f"about {query}"])
    context = ContextBuilder(session=SessionSummarizer(summarizer(), POLICY), knowledge=source)
    chat = model()

    def answer(state: Both) -> Any:
        prompt = context.build(state)
        return {"messages": [chat.invoke(prompt.messages)], **prompt.update}

    graph = StateGraph(Both)
    for name in ("one", "other"):
        graph.add_node(name, answer)
        graph.add_node(f"{name} before", SessionSummarizer(summarizer(), POLICY))
        graph.add_edge(START, f"{name} before")
        graph.add_edge(f"{name} before", name)
    app = graph.compile(checkpointer=saver)
    for turn in range(6):
        state = app.invoke({"messages": [HumanMessage(f"q{turn}?", id=f"h{turn}")]}, config())
        prompt = build_context(state["messages"], state.get("session_summary"), POLICY, compact=False).messages
        assert_strict(prompt)
        assert_kept(state["messages"], prompt)
    assert [node["first_id"] for node in state["session_summary"]["nodes"][:2]] == ["h0", "h2"]


def test_a_model_that_reads_a_damaged_history_behind_a_replacing_node_is_sent_a_valid_one(saver: StatekitSaver) -> None:
    app = replace_graph(saver)

    def asked(id: str, *calls: str) -> AIMessage:
        return AIMessage("", id=id, tool_calls=[{"name": "look", "args": {"of": call}, "id": call} for call in calls])

    said = [
        HumanMessage("q", id="h"),
        asked("dangling", "c1"),
        HumanMessage("and?", id="h2"),
        ToolMessage("late", tool_call_id="c1", id="late"),
        asked("twice", "c2", "c3"),
        ToolMessage("two", tool_call_id="c2", id="t2"),
        ToolMessage("two again", tool_call_id="c2", id="again"),
        ToolMessage("three", tool_call_id="c3", id="t3"),
        asked("same ids", "c2"),
        ToolMessage("other", tool_call_id="c2", id="other"),
        AIMessage(" ", id="blank"),
    ]
    app.update_state(config(), {"messages": said}, as_node="answer")
    given = {"messages": [HumanMessage("go on", id="h3")]}
    streamed = [chunk.content for chunk, _ in app.stream(given, config(), stream_mode="messages")]
    assert "".join(streamed) == "answer 0 to you", "what was mended is streamed"
    state = app.get_state(config()).values["messages"]
    assert [message.id for message in state[:-1]] == [*(message.id for message in said), "h3"]
    assert [message.type for message in state[3:8]] == ["ai", "ai", "tool", "tool", "ai"]
    assert all(text in str(state) for text in ("late", "two again", "three", "other"))
    kept = next(each for each in app.get_state_history(config()) if len(each.values["messages"]) == len(said))
    assert kept.values["messages"] == said, "an earlier checkpoint has it as it was"


def test_a_replaced_history_can_be_read_whole_at_an_earlier_checkpoint(saver: StatekitSaver) -> None:
    app = replace_graph(saver)
    for turn in range(5):
        app.invoke({"messages": [HumanMessage(f"q{turn}", id=f"h{turn}")]}, config())
    seen: set[str] = set()
    for each in app.get_state_history(config()):
        seen.update(str(message.id) for message in each.values.get("messages", []))
    assert {f"h{turn}" for turn in range(5)} <= seen
    assert "h0" not in [m.id for m in app.get_state(config()).values["messages"]][1:]


def test_a_graph_whose_state_has_other_names_works_too(saver: StatekitSaver) -> None:
    node = SessionSummarizer(summarizer(), POLICY, messages_key="chat", summary_key="memo")
    graph = StateGraph(Chat)
    graph.add_node("summarize", node)
    graph.add_edge(START, "summarize")
    graph.add_edge("summarize", END)
    app = graph.compile(checkpointer=saver)
    for turn in range(5):
        said: list[BaseMessage] = [HumanMessage(f"q{turn}"), AIMessage(f"a{turn}")]
        state = app.invoke({"chat": said}, config())
    assert SECRET in state["memo"]["nodes"][0]["text"]

"""A graph node and tools that remember what the user asks for, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.prebuilt import InjectedState
from langgraph.types import interrupt

from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.errors import Misuse
from langgraph_statekit.sessions.memories import MOST_TEXT, Memories, Memory
from langgraph_statekit.sessions.requests import MemoryRequest, find_requests
from langgraph_statekit.sessions.words import normal

_REFUSED: Final = "Not done: the user's last message does not ask for it. Do not say that it was done."


def memory_requests(state: Mapping[str, Any], messages_key: str = "messages") -> Sequence[MemoryRequest]:
    """Return what the last message of a graph's state asks to remember, forget or list; only a human's counts.

    Args:
        state: The state of a graph.
        messages_key: Its channel of messages.
    """
    messages: Sequence[AnyMessage] = state.get(messages_key) or ()
    if not messages or not isinstance(messages[-1], HumanMessage):
        return []
    return find_requests(messages[-1].text)


def memory_node(memories: Memories, *, ask: bool = False, messages_key: str = "messages") -> Runnable[Any, Any]:
    """Return a node that does what the user's last message explicitly asks for, and confirms it in a message.

    Without such a request it changes nothing. A node that runs again after a crash remembers nothing twice. The user is
    `configurable["user_id"]`, which `SessionManager.config` and `turn` set.

    Args:
        memories: Where to keep it.
        ask: Interrupt the graph for each request with `{"action": ..., "text": ...}` first, and do it only if it is
            resumed with True.
        messages_key: The channel of messages.
    """

    async def run(state: Mapping[str, Any], config: RunnableConfig, is_async: bool) -> dict[str, Any]:
        requests = memory_requests(state, messages_key)
        if not requests:
            return {}
        user_id, said = _user(config), state[messages_key][-1]
        source = {"message_id": said.id, "session_id": config.get("configurable", {}).get("thread_id")}
        agreed = [
            request
            for request in requests
            if not ask
            or request.action == "list"
            or interrupt({"action": request.action, "text": request.text}) is True
        ]
        lines = [await _done(memories, user_id, request, source, is_async) for request in agreed]
        lines += [_refusal(request) for request in requests if request not in agreed]
        return {messages_key: [AIMessage("\n".join(lines), name="memory")]}

    def sync(state: Mapping[str, Any], config: RunnableConfig) -> dict[str, Any]:
        return run_sync(run(state, config, False))

    async def asynchronous(state: Mapping[str, Any], config: RunnableConfig) -> dict[str, Any]:
        return await run(state, config, True)

    return RunnableLambda(sync, afunc=asynchronous, name="memory")


def memory_tools(memories: Memories, *, messages_key: str = "messages") -> list[BaseTool]:
    """Return the tools `remember`, `forget` and `list_memories` for a model.

    `remember` and `forget` do nothing unless the last message of the user asks for it: whatever a model, a web page or
    the result of another tool says. They run in a `ToolNode`, which passes the state and the config to them.

    Args:
        memories: Where to keep it.
        messages_key: The channel of messages.
    """

    async def run(action: str, about: str, state: Mapping[str, Any], config: RunnableConfig, is_async: bool) -> str:
        user_id = _user(config)
        said = next((each for each in reversed(state.get(messages_key) or ()) if isinstance(each, HumanMessage)), None)
        asked = [each for each in find_requests(said.text if said else "") if each.action == action]
        # The user's words count, not the model's: of several requests the one that it has in mind.
        request = next((each for each in asked if normal(each.text) == normal(about)), asked[0] if asked else None)
        if request is None:
            return _REFUSED
        source = {
            "message_id": said.id if said else None,
            "session_id": config.get("configurable", {}).get("thread_id"),
        }
        return await _done(memories, user_id, request, source, is_async)

    def remember(text: str, state: Annotated[Any, InjectedState], config: RunnableConfig) -> str:
        """Remember something about the user beyond this conversation. Only if the user explicitly asks for it."""
        return run_sync(run("remember", text, state, config, False))

    async def aremember(text: str, state: Annotated[Any, InjectedState], config: RunnableConfig) -> str:
        """See `remember`."""
        return await run("remember", text, state, config, True)

    def forget(text: str, state: Annotated[Any, InjectedState], config: RunnableConfig) -> str:
        """Forget something that was remembered about the user. Only if the user explicitly asks for it."""
        return run_sync(run("forget", text, state, config, False))

    async def aforget(text: str, state: Annotated[Any, InjectedState], config: RunnableConfig) -> str:
        """See `forget`."""
        return await run("forget", text, state, config, True)

    def list_memories(config: RunnableConfig) -> str:
        """List what the user asked to be remembered."""
        return _listed(memories.list_memories(_user(config)), False)

    async def alist_memories(config: RunnableConfig) -> str:
        """See `list_memories`."""
        return _listed(await memories.alist_memories(_user(config)), False)

    made = ((remember, aremember), (forget, aforget), (list_memories, alist_memories))
    return [StructuredTool.from_function(sync, coroutine=asynchronous) for sync, asynchronous in made]


def as_prompt(memories: Sequence[Memory]) -> str:
    """Return a passage for a system prompt that tells a model what is remembered; empty if nothing is."""
    lines = "\n".join(f"- {' '.join(memory.text.split())}" for memory in memories)
    return f"The user asked you to remember, in these words:\n{lines}" if lines else ""


async def _done(
    memories: Memories, user_id: str, request: MemoryRequest, source: Mapping[str, Any], is_async: bool
) -> str:
    """Do what is asked for, and return what to tell the user."""
    zh = request.chinese
    if request.action == "remember":
        if len(request.text) > MOST_TEXT:
            return (
                f"太长了，我记不住（最多 {MOST_TEXT} 个字）。"
                if zh
                else f"Too long to remember: over {MOST_TEXT:,} characters."
            )
        args = user_id, request.text, source
        memory = await memories.aremember(*args) if is_async else memories.remember(*args)
        return f"我记住了：「{memory.text}」" if zh else f"I will remember: “{memory.text}”"
    if request.action == "list":
        return _listed(await memories.alist_memories(user_id) if is_async else memories.list_memories(user_id), zh)
    if not request.text:
        gone = await memories.aforget_all(user_id) if is_async else memories.forget_all(user_id)
    else:
        gone = await memories.aforget(user_id, request.text) if is_async else memories.forget(user_id, request.text)
    told = "; ".join(f"“{memory.text}”" for memory in gone)
    if not told:
        return "没有找到相关的记忆，所以没有忘记任何内容。" if zh else "I found nothing like that to forget."
    return f"我忘记了：{told}" if zh else f"I have forgotten: {told}"


def _refusal(request: MemoryRequest) -> str:
    if request.chinese:
        return f"没有改变：「{request.text}」"
    return f"Nothing was changed: “{request.text}”"


def _listed(memories: Sequence[Memory], chinese: bool) -> str:
    if not memories:
        return "我没有记住任何内容。" if chinese else "I remember nothing that you asked me to."
    lines = "\n".join(f"- {memory.text}" for memory in memories)
    return f"你让我记住的内容：\n{lines}" if chinese else f"You asked me to remember:\n{lines}"


def _user(config: RunnableConfig) -> str:
    user_id: object = config.get("configurable", {}).get("user_id")
    if not isinstance(user_id, str) or not user_id:
        raise Misuse(
            "memories are a user's: run the graph with configurable['user_id'], as SessionManager.turn sets it"
        )
    return user_id

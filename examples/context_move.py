"""Moving to the context nodes from LangChain's SummarizationMiddleware and langmem's SummarizationNode; needs no key.

pip install 'langgraph-statekit[langchain]'
python examples/context_move.py
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import create_react_agent

from langgraph_statekit import ContextBuilder, ContextMiddleware, ContextPolicy, SessionSummarizer

TURNS = 30
THREAD: Any = {"configurable": {"thread_id": "move"}}


def model(says: str) -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=(AIMessage(f"{says} {n}. " + "More words. " * 20) for n in itertools.count()))


def from_langchain() -> Any:
    # Before: SummarizationMiddleware(model, trigger=("tokens", 1500), keep=("messages", 10))
    policy = ContextPolicy(trigger=("tokens", 1_500), slice=None, keep=("messages", 10), max_summary_chars=1_000)
    middleware = ContextMiddleware(model("A summary"), policy)
    return create_agent(model("Answer"), [], middleware=[middleware], checkpointer=InMemorySaver())


def from_langmem() -> Any:
    # Before: SummarizationNode(model=model, token_counter=count_tokens_approximately, max_tokens=1500,
    #         max_summary_tokens=250, output_messages_key="llm_input_messages"), and a state with `context: dict`
    policy = ContextPolicy(
        trigger=("tokens", 1_500),
        slice=None,
        keep=("tokens", 750),
        max_tokens=("tokens", 1_500),
        max_summary_chars=1_000,
        fanout=1,
    )
    hook = ContextBuilder(session=SessionSummarizer(model("A summary"), policy))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the agent is deprecated in favour of create_agent
        return create_react_agent(model("Answer"), [], pre_model_hook=hook, checkpointer=InMemorySaver())


def main() -> None:
    for name, agent in (("SummarizationMiddleware", from_langchain()), ("SummarizationNode", from_langmem())):
        for turn in range(TURNS):
            agent.invoke({"messages": [HumanMessage(f"Question {turn}? " + "Please. " * 20)]}, THREAD)
        state = agent.get_state(THREAD).values
        summaries = state["session_summary"]["nodes"]
        print(f"{name}: {len(state['messages'])} messages in the history, {len(summaries)} summaries beside them")
        assert len(state["messages"]) == 2 * TURNS
        assert summaries


if __name__ == "__main__":
    main()

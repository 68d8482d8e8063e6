# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 5. Shorter prompts, and the history stays whole
#
# What you learn: old turns become summaries in the prompt, while the history in the state stays as it is.
# Needs: nothing but this package; the model is a fake one. Takes: about 5 seconds.

# %%
import tempfile
from typing import Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from langgraph_statekit import ContextBuilder, ContextPolicy, SessionSummarizer, TimeTravel, open_saver

folder = tempfile.mkdtemp()
saver = open_saver(f"sqlite:///{folder}/agent.db")

# %% [markdown]
# Two models: one answers, the other one writes summaries. The context builder sits between the state and the model.

# %%
model = GenericFakeChatModel(messages=(AIMessage(f"Answer {number}. {'Long words. ' * 40}") for number in range(99)))
summarizer = GenericFakeChatModel(messages=(AIMessage(f"They talked about trips, part {n}.") for n in range(99)))
session = SessionSummarizer(summarizer, ContextPolicy.recommended())
context = ContextBuilder(system="You book flights.", session=session)
sizes: list[tuple[int, int]] = []


class State(MessagesState):
    session_summary: dict[str, Any]


def answer(state: State) -> dict[str, Any]:
    prompt = context.build(state)
    sizes.append((len(state["messages"]), len(prompt.messages)))
    return {"messages": [model.invoke(prompt.messages)], **prompt.update}


builder = StateGraph(State)
builder.add_node("answer", answer)
builder.add_edge(START, "answer")
graph = builder.compile(checkpointer=saver)
config = {"configurable": {"thread_id": "trip"}}

# %% [markdown]
# Thirty turns later the history has sixty messages. The prompt has fewer.

# %%
for turn in range(30):
    state = graph.invoke({"messages": [HumanMessage(f"Question {turn}?")]}, config, durability="sync")
assert len(state["messages"]) == 60
assert sizes[-1][1] < sizes[-1][0]
print("turn  messages  in the prompt")
for turn, (whole, sent) in enumerate(sizes):
    if turn % 5 == 4:
        print(f"{turn + 1:4}  {whole:8}  {sent:13}")

# %% [markdown]
# What went into the last prompt, what was left out, and why:

# %%
print(context.build(state).report)

# %% [markdown]
# ## Something to look at
#
# The summary is a channel of its own, so it follows forks and time travel. Open a step in which it changed.

# %%
TimeTravel(graph, config).timeline(limit=30)

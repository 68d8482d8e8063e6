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
# # 1. A graph that goes on where it was killed
#
# What you learn: a graph with a saver stores each step; after a crash it goes on from the last one.
# Needs: nothing but this package. Takes: about 5 seconds.

# %%
import tempfile
from typing import TypedDict

from langgraph.graph import END, START, StateGraph

from langgraph_statekit import TimeTravel, open_saver

folder = tempfile.mkdtemp()
saver = open_saver(f"sqlite:///{folder}/agent.db")

# %% [markdown]
# The agent checks prices, one item after the other. `broken` stands for a process that is killed at the fourth item.

# %%
ITEMS = ["kettle", "lamp", "chair", "desk", "shelf", "sofa"]
broken = True


class State(TypedDict, total=False):
    position: int
    prices: dict[str, float]


def check(state: State) -> State:
    position = state["position"]
    if broken and position == 3:
        raise ConnectionError("the process might as well have been killed here")
    found = {**state["prices"], ITEMS[position]: 10.0 * (position + 1)}
    return {"prices": found, "position": position + 1}


def after(state: State) -> str:
    return "check" if state["position"] < len(ITEMS) else END


builder = StateGraph(State)
builder.add_node("check", check)
builder.add_edge(START, "check")
builder.add_conditional_edges("check", after, ["check", END])
graph = builder.compile(checkpointer=saver)
config = {"configurable": {"thread_id": "prices"}}

# %% [markdown]
# `durability="sync"` stores each step before the next one begins, so that a kill loses no finished step.

# %%
try:
    graph.invoke({"position": 0, "prices": {}}, config, durability="sync")
except ConnectionError as error:
    print("stopped:", error)

# %% [markdown]
# The input is **not** passed again: `None` means to go on. With the input, the graph would begin anew.

# %%
broken = False
result = graph.invoke(None, config, durability="sync")
assert list(result["prices"]) == ITEMS
result

# %% [markdown]
# ## Something to look at
#
# Each step is a checkpoint. Click on one: what changed, and the whole state. The error is kept with the step in which
# it happened.

# %%
TimeTravel(graph, config)

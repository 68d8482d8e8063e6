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
# # 4. A watchdog that rolls back
#
# What you learn: a run that hangs is stopped, rolled back to where the item began, and resumed; and what was done to
# the world is done once.
# Needs: nothing but this package. Takes: about 10 seconds.

# %%
import asyncio
import tempfile
from typing import TypedDict

from langgraph.graph import END, START, StateGraph

from langgraph_statekit import Backoff, EffectLedger, ItemDeadline, Rollback, TimeTravel, Watchdog, open_saver

folder = tempfile.mkdtemp()
saver = open_saver(f"sqlite:///{folder}/agent.db")
effects = EffectLedger(saver)

# %% [markdown]
# The agent crawls an item, then cuts its price in a shop. The page of item 3 hangs, once. The price is cut through the
# ledger, so that a step that runs again does not cut it again.

# %%
hangs = [3]
cuts: list[str] = []  # the shop's own record


class State(TypedDict, total=False):
    item: int
    prices: dict[str, int]


async def crawl(state: State) -> State:
    if state["item"] in hangs:
        hangs.remove(state["item"])
        await asyncio.Event().wait()
    return {"prices": {**state.get("prices", {}), f"sku {state['item']}": 100}}


def cut_in_the_shop(sku: str) -> str:
    cuts.append(sku)
    return f"{sku} is cheaper now"


async def cut(state: State) -> State:
    sku = f"sku {state['item']}"
    await effects.arun(f"spring sale: {sku}", cut_in_the_shop, sku)
    return {"item": state["item"] + 1}


builder = StateGraph(State)
builder.add_node("crawl", crawl)
builder.add_node("cut", cut)
builder.add_edge(START, "crawl").add_edge("crawl", "cut")
builder.add_conditional_edges("cut", lambda state: "crawl" if state["item"] < 6 else END, ["crawl", END])
graph = builder.compile(checkpointer=saver)

# %% [markdown]
# A check says what is wrong: no item may take longer than half a second. A policy says what to do: go back to where the
# item began, and try again.

# %%
dog = Watchdog(
    graph,
    checks=[ItemDeadline(seconds=0.5, key=lambda state: state["item"])],
    policy=Rollback(to="item_start", max_attempts=3, backoff=Backoff(first_s=0.1)),
    every_s=0.05,
    grace_s=0.1,
)
config = {"configurable": {"thread_id": "sale"}}
result = await dog.ainvoke({"item": 0, "prices": {}}, config)
assert len(result["prices"]) == 6
assert sorted(cuts) == [f"sku {number}" for number in range(6)]
cuts

# %% [markdown]
# ## Something to look at
#
# The rollback stands in the history, with its reason and its item. What was done before it stays, as a branch.

# %%
TimeTravel(graph, config)

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
# # 2. Time travel: find the step that broke it, and go back to before it
#
# What you learn: to look at a run, to find where it went wrong, to try again on a copy, and to branch.
# Needs: nothing but this package. Takes: about 5 seconds.

# %%
import tempfile
from typing import TypedDict

from langgraph.graph import END, START, StateGraph

from langgraph_statekit import Misuse, TimeTravel, open_saver, pure

folder = tempfile.mkdtemp()
saver = open_saver(f"sqlite:///{folder}/agent.db")

# %% [markdown]
# A shop's agent crawls a competitor's prices and lowers its own, item by item. The third crawl comes back empty,
# without an error. The agent makes its list of what is done from what was crawled, so it forgets what it has done, and
# cuts the first price again and again.

# %%
PAGES = [{"sku": f"A-{number}"} for number in range(5)]
crawler_works = False


class Shop(TypedDict, total=False):
    pages: list[dict[str, str]]
    prices: dict[str, float]
    done: list[str]
    round: int


@pure
def crawl(state: Shop) -> Shop:
    turn = state.get("round", 0) + 1
    pages = PAGES if crawler_works or turn < 3 else []
    known = {page["sku"] for page in pages}
    return {"pages": pages, "round": turn, "done": [sku for sku in state["done"] if sku in known]}


def cut(state: Shop) -> Shop:
    sku = next(sku for sku in state["prices"] if sku not in state["done"])
    prices = {**state["prices"], sku: round(state["prices"][sku] * 0.95, 2)}
    return {"prices": prices, "done": [*state["done"], sku] if state["pages"] else state["done"]}


builder = StateGraph(Shop)
builder.add_node("crawl", crawl)
builder.add_node("cut", cut)
builder.add_edge(START, "crawl").add_edge("crawl", "cut")
builder.add_conditional_edges("cut", lambda state: "crawl" if state["round"] < 5 else END, ["crawl", END])
graph = builder.compile(checkpointer=saver)
config = {"configurable": {"thread_id": "shop"}}
start = {"prices": {f"A-{number}": 1000.0 for number in range(5)}, "done": []}
graph.invoke(start, config, durability="sync")["prices"]

# %% [markdown]
# One price is much too low. What happened?

# %%
tt = TimeTravel(graph, config)
tt

# %% [markdown]
# The cause stands on top. The same can be asked: where did it become so, what did that step change, and which node
# wrote the price?

# %%
lost = tt.find(lambda state: state["pages"] == [])
print("step", lost.step)
tt.diff(lost.point.parent, lost)

# %%
print(tt.why("prices.A-0"))

# %% [markdown]
# Does a repaired crawler help? A replay runs the nodes again, on a copy in memory. It refuses nodes that might do harm:
# `crawl` is declared `@pure`, `cut` is not.

# %%
before = tt.at(lost.step - 1)
crawler_works = True
try:
    tt.replay(before)
except Misuse as refusal:
    print(refusal)

again = tt.replay(before, stop_before="cut")
assert again.at().values["pages"] == PAGES
print("ran", *again.ran.nodes, "and stopped", again.ran.stopped)

# %% [markdown]
# It does. Go back: a fork makes the good step the latest one. Nothing is deleted; the wrong steps stay as a branch.

# %%
tt.fork(before, reason="the crawl came back empty")
result = graph.invoke(None, config, durability="sync")
assert min(result["prices"].values()) == 950.0
print(tt.branches())

# %% [markdown]
# ## Something to look at
#
# Both branches, the reason, and what each step cost. `tt.to_html("run.html")` writes the same as a page without
# scripts; with the extra `notebook`, `tt.widget()` adds a slider and a form that forks.

# %%
tt

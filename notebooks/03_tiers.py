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
# # 3. Two tiers: the store that answers is lost, and nothing with it
#
# What you learn: a hot store answers, a cold store keeps. Threads that nobody uses need no place in the hot one, and
# its loss loses no thread.
# Needs: nothing but this package; a directory stands for the bucket. Takes: about 5 seconds.

# %%
import tempfile
from pathlib import Path

from langgraph.graph import START, MessagesState, StateGraph

from langgraph_statekit import TimeTravel, open_saver

folder = Path(tempfile.mkdtemp())
cold = f"file://{folder}/bucket"  # s3://bucket/prefix, gs:// and az:// work the same
saver = open_saver(f"sqlite:///{folder}/hot.db", cold=cold, mode="write_behind")

# %% [markdown]
# A saver of two tiers is a saver as any other. Twenty customers talk to an agent, ten turns each.

# %%
builder = StateGraph(MessagesState)
builder.add_node("answer", lambda state: {"messages": [("ai", f"Noted. {len(state['messages'])} so far.")]})
builder.add_edge(START, "answer")
graph = builder.compile(checkpointer=saver)


def customer(number: int) -> dict:
    return {"configurable": {"thread_id": f"customer {number}"}}


for number in range(20):
    for turn in range(10):
        graph.invoke({"messages": [("user", f"Question {turn} of customer {number}")]}, customer(number))

# %% [markdown]
# `write_behind` acknowledges a save when the hot store has it, and uploads it a little later; `flush` uploads now.
# Saves of a thread share objects, so 600 checkpoints are few of them. `archive` has the hot store drop a thread, which
# it does only if the cold store has acknowledged all of it.

# %%
saver.flush()


def sizes() -> str:
    packs = [each.stat().st_size for each in (folder / "bucket").rglob("*") if each.is_file()]
    return f"{len(packs)} objects, {sum(packs) / 1000:.0f} kB in the cold store"


print(sizes())
archived = sum(saver.archive(f"customer {number}") for number in range(20))
print(f"{archived} threads are in the cold store only")
saver.close()

# %% [markdown]
# Now the hot store is gone: the disk, the server, or somebody who cleaned up.

# %%
for file in folder.glob("hot.db*"):
    file.unlink()

# %% [markdown]
# A worker starts on an empty one. Reading a thread takes two rounds of requests, whatever its length, and leaves it
# where it is. Going on with it brings it back.

# %%
saver = open_saver(f"sqlite:///{folder}/hot.db", cold=cold, mode="write_behind")
graph = builder.compile(checkpointer=saver)
assert len(graph.get_state(customer(7)).values["messages"]) == 20

graph.invoke({"messages": [("user", "Do you still know me?")]}, customer(7))
assert len(graph.get_state(customer(7)).values["messages"]) == 22

# %% [markdown]
# What is deleted is deleted in both, and no later upload brings it back.

# %%
saver.delete_thread("customer 8")
assert saver.deleted("customer 8")
saver.flush()
print(sizes())

# %% [markdown]
# ## Something to look at
#
# The thread of customer 7, with every step from before the loss, and the turn after it.

# %%
TimeTravel(graph, customer(7))

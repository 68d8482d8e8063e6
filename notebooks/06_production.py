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
# # 6. In production: one worker per thread, new code for old threads, figures
#
# What you learn: leases, versions of a state, and what to measure.
# Needs: nothing but this package. Takes: about 5 seconds.

# %%
import tempfile
from typing import Any, TypedDict

from langgraph.graph import START, StateGraph

from langgraph_statekit import Fenced, TimeTravel, check_compat, migrates, open_saver, state_version

folder = tempfile.mkdtemp()

# %% [markdown]
# ## What to measure
#
# A saver tells its hooks of every operation: how long it took, how many bytes, and whether it failed. Here they are
# added up by hand; `OpenTelemetryHook` and `PrometheusHook` are ready to use.

# %%
figures: dict[str, list[float]] = {}


def measure(event: Any) -> None:
    figures.setdefault(getattr(event, "operation", type(event).__name__), []).append(getattr(event, "latency_s", 0.0))


saver = open_saver(f"sqlite:///{folder}/agent.db", hooks=[measure])

# %% [markdown]
# ## One worker per thread
#
# A worker takes the thread's lease and passes its config on. Another one that takes the lease over fences the first one
# off: its saves are refused, so it cannot undo what the new worker does.


# %%
class OrderV1(TypedDict, total=False):
    total: float


def add(state: OrderV1) -> OrderV1:
    return {"total": state["total"] + 1}


def build(schema: Any, node: Any, checkpointer: Any, **options: Any) -> Any:
    builder = StateGraph(schema)
    builder.add_node("add", node)
    builder.add_node("send", lambda state: {})
    builder.add_edge(START, "add").add_edge("add", "send")
    return builder.compile(checkpointer=checkpointer, **options)


old_code = build(OrderV1, add, saver, interrupt_before=["send"])
with saver.lease("order-17", owner="worker-a") as first:
    old_code.invoke({"total": 41.0}, first.config, durability="sync")
    second = saver.lease("order-17", owner="worker-b", steal=True)
    try:
        old_code.update_state(first.config, {"total": 0.0})
    except Fenced as error:
        print("worker-a:", error)
    second.release()

# %% [markdown]
# ## New code for old threads
#
# The new release keeps cents instead of a float. The thread waits in the middle of its run: its state is migrated when
# it is read, and `check_compat` tells before the deploy whether the new graph can take every thread.


# %%
@state_version(2, migrates(from_=1)(lambda state: {"cents": round(state["total"] * 100)}))
class OrderV2(TypedDict, total=False):
    cents: int


def add_cents(state: OrderV2) -> OrderV2:
    return {"cents": state["cents"] + 100}


newer = saver.with_state(OrderV2)
new_code = build(OrderV2, add_cents, newer)
print("problems:", check_compat(new_code, newer))
with newer.lease("order-17", owner="worker-c") as lease:
    result = new_code.invoke(None, lease.config, durability="sync")
assert result == {"cents": 4200}
result

# %% [markdown]
# ## Something to look at
#
# Operations by kind, and the thread across both releases.

# %%
for operation, seconds in sorted(figures.items()):
    print(f"{operation:20} {len(seconds):4} times, {1000 * sum(seconds) / len(seconds):6.2f} ms on average")

# %%
TimeTravel(new_code, {"configurable": {"thread_id": "order-17"}})

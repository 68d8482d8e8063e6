"""Where does the time of the chat go? Self time of each layer under cProfile, with all calls on one thread."""

from __future__ import annotations

import cProfile
import pstats
import sys
from collections import Counter
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from benchmarks.bench import Bench, Numbers
from benchmarks.bench import run as in_mode
from benchmarks.savers import SAVERS
from benchmarks.state import chat, chat_graph, check_chat

FULL = {"turns": 200}
QUICK = {"turns": 6}
MODES = ("async",)
REPEATS = 1
ONLY_OURS = True
BEFORE = True

_VALUES = ("serde.py", "exact.py", "messages.py", "message_kinds.py", "results.py")
_LAYERS = (
    ("langgraph_statekit/checkpoint/backends/", "store"),
    ("langgraph_statekit/checkpoint/frames.py", "deltas"),
    ("langgraph_statekit/checkpoint/splice.py", "deltas"),
    ("langgraph_statekit/", "records"),
    ("langgraph/checkpoint/serde/", "values"),
    ("langgraph/checkpoint/memory/", "store"),
    ("langgraph/graph/message.py", "messages"),
    ("langchain_core/messages/", "messages"),
    ("pydantic/", "messages"),
    ("langgraph/", "graph"),
    ("langchain_core/", "graph"),
    ("langsmith/", "graph"),
    ("redis/", "client"),
    ("psycopg", "client"),
    ("asyncio/", "loop"),
    ("concurrent/", "loop"),
    ("selectors.py", "loop"),
)
LAYERS = (*dict.fromkeys(layer for _, layer in _LAYERS), "other")

_Function = tuple[str, int, str]


class Inline(BaseCheckpointSaver[Any]):
    """Makes a saver's blocking calls where they are awaited, so that one thread does all the work."""

    def __init__(self, saver: Any) -> None:
        super().__init__(serde=saver.serde)
        self.saver = saver

    async def aget_tuple(self, config: Any) -> Any:
        return self.saver.get_tuple(config)

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        return self.saver.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.saver.put_writes(config, writes, task_id, task_path)

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self.saver.get_next_version(current, channel)

    def with_allowlist(self, extra_allowlist: Any) -> Inline:
        return Inline(self.saver.with_allowlist(extra_allowlist))


def _layer(function: _Function) -> str:
    path = function[0].replace("\\", "/")
    if "langgraph_statekit/checkpoint/" in path and path.endswith(_VALUES):
        return "values"
    return next((layer for part, layer in _LAYERS if part in path), "other")


def by_layer(profile: cProfile.Profile) -> Counter[tuple[str, str]]:
    """Return the self seconds of each function with its layer; what has no layer counts for its caller's."""
    seconds: Counter[tuple[str, str]] = Counter()
    stats: dict[_Function, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for function, (_, _, own_s, _, callers) in stats.items():
        name = f"{'/'.join(function[0].split('/')[-2:])}:{function[2]}"
        if "epoll" in function[2] or "select" in function[2]:
            continue  # the loop waits for a thread that runs a node
        layer = _layer(function)
        if layer != "other" or not callers:
            seconds[layer, name] += own_s
            continue
        for caller, (_, _, part_s, _) in callers.items():
            seconds[_layer(caller), name] += part_s
    return seconds


async def profiled(bench: Bench) -> Counter[tuple[str, str]]:
    """Run the chat and return the self seconds of its functions."""
    turns = bench.size["turns"]
    profile = cProfile.Profile()
    async with bench.open() as saver:
        app = chat_graph().compile(checkpointer=Inline(saver.saver))
        with profile:
            await chat(saver, app, range(turns))
    await check_chat(bench, turns)
    return by_layer(profile)


async def run(bench: Bench) -> Numbers:
    seconds = await profiled(bench)
    found = dict.fromkeys(LAYERS, 0.0)
    for (layer, _), own_s in seconds.items():
        found[layer] += own_s
    return {"profiled_s": seconds.total(), **{layer: own_s / seconds.total() for layer, own_s in found.items()}}


def main(name: str) -> None:
    """Print the functions in which a saver's chat spends its time."""
    from benchmarks.stores import Stores

    saver, stores = SAVERS[name], Stores()
    try:
        with stores.fresh(saver.store) as store:
            bench = Bench(saver, store.url, "async", FULL, lambda question: {}, thorough=False)
            seconds = in_mode("async", profiled(bench))
    finally:
        stores.close()
    print(f"{seconds.total():.2f} s under the profiler")
    for (layer, function), own_s in seconds.most_common(25):
        print(f"{own_s / seconds.total():6.1%}  {layer:<9} {function}")


if __name__ == "__main__":
    main(*sys.argv[1:])

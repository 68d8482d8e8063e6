"""Where does the time of the chat go? Every millisecond, each thread that works is asked for its innermost layer."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from benchmarks.bench import Bench, Numbers
from benchmarks.bench import run as in_mode
from benchmarks.savers import SAVERS
from benchmarks.state import chat, chat_graph, check_chat

FULL = {"turns": 200}
QUICK = {"turns": 6}
MODES = ("sync",)
REPEATS = 1
ONLY_OURS = True
EVERY_S = 0.001

_LAYERS = (
    ("/benchmarks/", "workload"),
    ("langgraph_statekit/checkpoint/backends/", "store"),
    ("langgraph_statekit/checkpoint/frames.py", "deltas"),
    ("langgraph_statekit/checkpoint/splice.py", "deltas"),
    ("langgraph_statekit/", "records"),
    ("langgraph/checkpoint/serde/", "values"),
    ("langgraph/checkpoint/memory/", "store"),
    ("langchain_core/", "messages"),
    ("langgraph/graph/message.py", "messages"),
    ("pydantic/", "messages"),
    ("langgraph/", "graph"),
    ("langsmith/", "graph"),
    ("redis/", "client"),
    ("psycopg", "client"),
)
_VALUES = ("serde.py", "exact.py", "messages.py", "results.py")
_IDLE = ("threading.py", "queue.py", "selectors.py", "concurrent/futures/thread.py", "concurrent/futures/_base.py")


def _place(frame: FrameType | None) -> tuple[str, str] | None:
    """Return the innermost layer of a thread that works, and the function; None for one that waits for another."""
    if frame is None or frame.f_code.co_filename.endswith(_IDLE):
        return None
    while frame is not None:
        path = frame.f_code.co_filename.replace("\\", "/")
        if "langgraph_statekit/checkpoint/" in path and path.endswith(_VALUES):
            return "values", _name(frame)
        for part, layer in _LAYERS:
            if part in path:
                return layer, _name(frame)
        frame = frame.f_back
    return None


def _name(frame: FrameType) -> str:
    code = frame.f_code
    return f"{'/'.join(code.co_filename.split('/')[-2:])}:{code.co_qualname}"


@contextmanager
def sampling() -> Iterator[Counter[tuple[str, str]]]:
    """Count samples by layer and function while the block runs."""
    counts: Counter[tuple[str, str]] = Counter()
    done = threading.Event()

    def sample() -> None:
        own = threading.get_ident()
        while not done.wait(EVERY_S):
            for thread, frame in sys._current_frames().items():
                if thread != own and (place := _place(frame)):
                    counts[place] += 1

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield counts
    finally:
        done.set()
        thread.join()


async def profiled(bench: Bench) -> tuple[float, Counter[tuple[str, str]]]:
    """Run the chat and return its seconds of processor time and the samples."""
    turns = bench.size["turns"]
    async with bench.open() as saver:
        app = chat_graph().compile(checkpointer=saver.saver)
        with sampling() as counts:
            started = time.process_time()
            await chat(saver, app, range(turns))
            cpu_s = time.process_time() - started
    await check_chat(bench, turns)
    return cpu_s, counts


async def run(bench: Bench) -> Numbers:
    cpu_s, counts = await profiled(bench)
    shares = dict.fromkeys(sorted({layer for _, layer in _LAYERS}), 0.0)
    for (layer, _), count in counts.items():
        shares[layer] += count / counts.total()
    return {"cpu_s": cpu_s, **shares}


def main(name: str) -> None:
    """Print the functions in which a saver's chat spends its time."""
    from benchmarks.stores import Stores

    saver, stores = SAVERS[name], Stores()
    try:
        with stores.fresh(saver.store) as store:
            bench = Bench(saver, store.url, "sync", FULL, lambda question: {}, thorough=False)
            cpu_s, counts = in_mode("sync", profiled(bench))
    finally:
        stores.close()
    print(f"{cpu_s:.2f} s of processor time")
    for (layer, function), count in counts.most_common(25):
        print(f"{count / counts.total():6.1%}  {layer:<9} {function}")


if __name__ == "__main__":
    main(*sys.argv[1:])

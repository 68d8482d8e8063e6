"""How long does one wait for a long thread to be shown, and how much memory does that take?"""

from __future__ import annotations

import tracemalloc
from time import perf_counter
from typing import Any

from benchmarks.bench import Bench, Numbers, check, p50_ms
from benchmarks.state import PIECES, Thread, chat_graph, config

FULL = {"checkpoints": 10_000, "turns": 200, "repeats": 5}
QUICK = {"checkpoints": 120, "turns": 3, "repeats": 1}
MODES = ("sync",)
ONLY_OURS = True
BASE = False
REPEATS = 1
PAGE = 50


def _state(step: int, marked_at: int) -> dict[str, Any]:
    pages = [{"sku": f"A-{number}", "price": 100.0 + step // 10} for number in range(20)]
    changed = {"count": step, "note": PIECES[step % len(PIECES)], "mark": "late" if step >= marked_at else "early"}
    return {**changed, "pages": pages}


async def run(bench: Bench) -> Numbers:
    from langgraph_statekit import TimeTravel  # other savers run where this package is not

    count, turns, repeats = bench.size["checkpoints"], bench.size["turns"], bench.size["repeats"]
    marked_at = count // 3
    async with bench.open() as saver:
        thread, before = Thread(saver, "long"), {}
        for step in range(count):
            state = _state(step, marked_at)
            await thread.advance({key: value for key, value in state.items() if before.get(key) != value}, writes=False)
            before = state
        app = chat_graph().compile(checkpointer=saver.saver)
        for turn in range(turns):
            await saver.invoke(app, {"messages": [("user", PIECES[turn % len(PIECES)])]}, config("chat"))
    async with bench.open() as saver:
        opened = perf_counter()
        travel = TimeTravel(saver.saver, thread_id="long")
        page = travel._repr_html_()
        cold_ms = (perf_counter() - opened) * 1e3
        check(f"step {count - 1}" in page, "the newest step is not on the first page")
        check(travel.at().values == _state(count - 1, marked_at), "the latest state is not what was put")
        found = travel.find(lambda values: values["mark"] == "late")
        check(found is not None and found.values == _state(marked_at, marked_at), "another step was found")
        why = travel.why("mark")
        check((why.point.step, why.before, why.after) == (marked_at, "early", "late"), "another cause was found")
        older = travel.timeline(limit=PAGE, before=travel.at(count // 2).point)
        steps = [moment.point.step for moment in older.page.moments]
        check(steps == [*range(count // 2 - 1, count // 2 - 1 - PAGE, -1)], "a page is not whole, or not in order")
        chat = TimeTravel(saver.saver, thread_id="chat")
        check(len(chat.at().values["messages"]) == 2 * turns, "messages are missing")

        async def called(call: Any) -> None:
            call()

        numbers = {
            "cold_view_ms": cold_ms,
            "view_ms": await p50_ms(repeats, lambda: called(travel._repr_html_)),
            "chat_view_ms": await p50_ms(repeats, lambda: called(chat._repr_html_)),
            "page_ms": await p50_ms(repeats, lambda: called(lambda: travel.timeline(before=found.point))),
            "find_ms": await p50_ms(repeats, lambda: called(lambda: travel.find(lambda v: v["mark"] == "late"))),
            "why_ms": await p50_ms(repeats, lambda: called(lambda: travel.why("mark"))),
        }
        tracemalloc.start()
        try:
            travel._repr_html_()
            numbers["view_peak_bytes"] = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        return numbers

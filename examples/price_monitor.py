"""Watch competitors' prices for a whole catalogue, and survive being killed at any item.

A LangGraph loop over a catalogue: `crawl` one competitor page, `decide` on a price, `apply` it to the shop's price
table, then the next item. Every step is a checkpoint. Kill the process, start it again with the same `--thread`, and
it goes on at the item where it stopped; no price is changed twice.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import RunControl, Runtime
from langgraph.types import RetryPolicy
from shop import (
    BadPage,
    Crawl,
    InputError,
    Item,
    PriceTable,
    RepeatedKey,
    crawl_page,
    money,
    read_catalogue,
    read_price,
)

from langgraph_statekit import StatekitError, open_saver

CATALOGUE = Path(__file__).with_name("price_monitor") / "catalogue.csv"
STEPS_PER_ITEM = 3
TRIES = 4
CRAWL_ERRORS = (BadPage, OSError)
MARGIN_PERCENT = 10
LARGEST_STEP_PERCENT = 15


def key_of(thread: str, sku: str) -> str:
    """Return the key of one item's change in one run: the same after every restart, and in no other run."""
    return f"{thread}/{sku}"


def fingerprint(items: Sequence[Item]) -> str:
    """Return a short name for exactly this catalogue."""
    return hashlib.sha256(repr(items).encode()).hexdigest()[:16]


class State(TypedDict, total=False):
    """All that a restart needs. The catalogue itself stays in its file."""

    catalogue: str
    position: int
    old_price: int
    competitor_price: int | None
    problem: str
    new_price: int | None
    changed: int
    kept: int
    repeats: int
    skipped: list[list[str]]


def new_price(old: int, cost: int, competitor: int) -> int:
    """Undercut by one cent, but keep a margin and move by a limited step."""
    least = cost + -(-cost * MARGIN_PERCENT // 100)
    target = max(competitor - 1, least)
    step = old * LARGEST_STEP_PERCENT // 100
    return min(max(target, old - step), old + step)


def build_graph(
    items: Sequence[Item],
    prices: PriceTable,
    thread: str,
    *,
    crawler: Crawl = crawl_page,
    pause: Callable[[], object] = lambda: None,
) -> StateGraph[State, None, State, State]:
    """Return the loop over the items, ready to compile with a checkpointer."""

    def crawl(state: State, runtime: Runtime[None]) -> State:
        item = items[state["position"]]
        attempt = runtime.execution_info.node_attempt if runtime.execution_info else 1
        if attempt == 1:
            pause()
        try:
            competitor = read_price(crawler(item, attempt))
        except CRAWL_ERRORS as error:
            if attempt < TRIES:
                raise  # the retry policy calls again
            return {"competitor_price": None, "problem": str(error)}
        # After a lost store the price may be cut already: what it was before stands under the key.
        known = prices.find(key_of(thread, item.sku))
        old_price = known[0] if known else prices.price(item.sku)
        return {"old_price": old_price, "competitor_price": competitor, "problem": ""}

    def decide(state: State) -> State:
        item, competitor = items[state["position"]], state["competitor_price"]
        if competitor is None:
            report(state, f"skipped   {state['problem']} ({TRIES} tries)")
            skipped = [*state["skipped"], [item.sku, state["problem"]]]
            return {"new_price": None, "position": state["position"] + 1, "skipped": skipped}
        price = new_price(state["old_price"], item.cost, competitor)
        if abs(price - state["old_price"]) * 100 < state["old_price"]:
            report(state, f"kept      {money(state['old_price'])}")
            return {"new_price": None, "position": state["position"] + 1, "kept": state["kept"] + 1}
        return {"new_price": price}

    def apply(state: State) -> State:
        item, old, new = items[state["position"]], state["old_price"], state["new_price"]
        assert new is not None
        key = key_of(thread, item.sku)
        # A strict system is safe to call again. A plain one would act again, so it is asked first.
        made = None if prices.strict else prices.find(key)
        if made is None:
            try:
                prices.change(key, item.sku, old, new)
            except RepeatedKey:
                made = prices.find(key)
        before, after = made or (old, new)
        note = "  (was done before the restart)" if made else ""
        report(state, f"changed   {money(before)} -> {money(after)}{note}")
        done: State = {"position": state["position"] + 1, "changed": state["changed"] + 1}
        return {**done, "repeats": state["repeats"] + 1} if made else done

    def report(state: State, what: str) -> None:
        position = state["position"]
        print(f"{position + 1:5}/{len(items)}  {items[position].sku:<12}  {what}", flush=True)

    def next_item(state: State) -> str:
        return "crawl" if state["position"] < len(items) else END

    def after_decide(state: State) -> str:
        return next_item(state) if state["new_price"] is None else "apply"

    graph = StateGraph(State)
    retry = RetryPolicy(initial_interval=0.01, jitter=False, max_attempts=TRIES, retry_on=CRAWL_ERRORS)
    graph.add_node("crawl", crawl, retry_policy=retry)
    graph.add_node("decide", decide)
    graph.add_node("apply", apply)
    graph.add_edge(START, "crawl")
    graph.add_edge("crawl", "decide")
    graph.add_conditional_edges("decide", after_decide, ["apply", "crawl", END])
    graph.add_conditional_edges("apply", next_item, ["crawl", END])
    return graph


def first_state(items: Sequence[Item]) -> State:
    return {
        "catalogue": fingerprint(items),
        "position": 0,
        "changed": 0,
        "kept": 0,
        "repeats": 0,
        "skipped": [],
    }


class Stop:
    """Turns Ctrl-C and SIGTERM into a stop after the running step; a second signal ends the process at once."""

    def __init__(self) -> None:
        self.control = RunControl()
        self.signal = 0
        self._event = threading.Event()

    def listen(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        self.signal = number
        self.control.request_drain(signal.Signals(number).name)
        self._event.set()

    def wait(self, delay_s: float) -> None:
        if delay_s:
            self._event.wait(delay_s)


def run(options: argparse.Namespace, stop: Stop) -> int:
    """Work through the catalogue and return the exit code."""
    items = read_catalogue(options.catalogue)
    with (
        closing(PriceTable(options.prices, items, strict=options.provider == "strict")) as prices,
        open_saver(options.store) as saver,
    ):
        builder = build_graph(items, prices, options.thread, pause=lambda: stop.wait(options.delay_s))
        graph = builder.compile(checkpointer=saver)
        config: RunnableConfig = {
            "configurable": {"thread_id": options.thread},
            "recursion_limit": STEPS_PER_ITEM * len(items) + 10,
        }
        before = graph.get_state(config)
        new = before.created_at is None
        if not new:
            check_resume(before.values, items, prices, options.thread)
            if not before.tasks:  # `next` leaves out tasks whose writes are stored, though their step is not done
                print(f"thread {options.thread!r} is finished, nothing to do")
                summarize(before.values, items)
                return 0
        at = before.values.get("position", 0) + 1
        print(
            f"thread {options.thread!r}: {'starting' if new else 'going on'} at item {at} of {len(items)}", flush=True
        )
        try:
            graph.invoke(first_state(items) if new else None, config, durability="sync", control=stop.control)
        except GraphDrained:
            done = graph.get_state(config).values.get("position", 0)
            print(f"stopped after {done} of {len(items)} items; the same command goes on from there", flush=True)
            return 128 + stop.signal
        summarize(graph.get_state(config).values, items)
        return 0


def check_resume(state: Mapping[str, Any], items: Sequence[Item], prices: PriceTable, thread: str) -> None:
    """Refuse to go on with another catalogue or another price system than the thread began with."""
    if state.get("catalogue", fingerprint(items)) != fingerprint(items):
        raise InputError(f"thread {thread!r} was started with another catalogue; take that one, or another --thread")
    if prices.count(key_of(thread, "")) < state.get("changed", 0):
        raise InputError(f"the prices file lacks changes that thread {thread!r} has made; take the one it began with")


def summarize(state: Mapping[str, Any], items: Sequence[Item]) -> None:
    skipped: dict[str, list[str]] = {}
    for sku, problem in state["skipped"]:
        skipped.setdefault(problem, []).append(sku)
    print(
        f"items {len(items)}, changed {state['changed']}, kept {state['kept']}, skipped {len(state['skipped'])}, "
        f"repeats refused {state['repeats']}"
    )
    for problem, skus in skipped.items():
        print(f"  skipped, {problem}: {', '.join(skus)}")
    sys.stdout.flush()


def seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError
    return value


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Adjust our prices to a competitor's, item by item; resumable.")
    parser.add_argument("--store", default="sqlite:///price_monitor.db", metavar="URL", help="where checkpoints go")
    parser.add_argument("--catalogue", default=CATALOGUE, type=Path, metavar="CSV", help="items to work through")
    parser.add_argument("--prices", default="prices.db", metavar="FILE", help="the shop's price system (SQLite)")
    parser.add_argument(
        "--provider",
        default="strict",
        choices=("strict", "plain"),
        help="strict: the price system refuses a repeated key; plain: it can only be asked",
    )
    parser.add_argument("--thread", default="price-monitor", metavar="ID", help="same ID: go on where it stopped")
    parser.add_argument("--delay-s", default=0.0, type=seconds, metavar="SECONDS", help="pause before each item")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit code 0 when every item is done, 2 for bad input or a store that does not answer."""
    options = parse(arguments)
    stop = Stop()
    stop.listen()
    try:
        return run(options, stop)
    except (InputError, StatekitError, ImportError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

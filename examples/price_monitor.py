"""Watch competitors' prices for a whole catalogue, and survive being killed at any item.

A LangGraph loop over a catalogue: `crawl` one competitor page, `decide` on a price, `apply` it to the shop's price
table, then the next item. Every step is a checkpoint. Kill the process, start it again with the same `--thread`, and
it goes on at the item where it stopped; no price is changed twice. One process works on a thread at a time.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import math
import os
import signal
import sqlite3
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
LONGEST_WAIT_MS = 2**31 - 1
EXIT_CODES = """Exit codes: 0 every item is done; 2 the input cannot be used or the store does not answer; 130 or 143
stopped by Ctrl-C or SIGTERM; 141 nobody reads the output any more. After a stop or a kill the same command goes on
where the thread stopped. A second process on the same thread waits for the first."""


def key_of(thread: str, sku: str) -> str:
    """Return the key of one item's change in one run: the same after every restart, and in no other run."""
    return f"{thread}/{sku}"


def fingerprint(items: Sequence[Item]) -> str:
    """Return a short name for exactly this catalogue."""
    return short_hash(repr(items))


def short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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


def run(options: argparse.Namespace) -> int:
    """Work through the catalogue and return the exit code."""
    items = read_catalogue(options.catalogue)
    stop = Stop()
    with (
        closing(PriceTable(options.prices, items, strict=options.provider == "strict")) as prices,
        closing(lock(options.prices, options.thread)),
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
        done = before.values.get("position", 0)
        if not new:
            check_resume(before.values, items, prices, options.thread)
            if not before.tasks:  # `next` leaves out tasks whose writes are stored, though their step is not done
                print(f"thread {options.thread!r} is finished, nothing to do")
                summarize(before.values, 0)
                return 0
        print(
            f"thread {options.thread!r}: {'starting' if new else 'going on'} at item {done + 1} of {len(items)}",
            flush=True,
        )
        stop.listen()
        try:
            graph.invoke(first_state(items) if new else None, config, durability="sync", control=stop.control)
        except GraphDrained:
            now = graph.get_state(config).values.get("position", 0)
            print(f"stopped after {now} of {len(items)} items; the same command goes on from there", flush=True)
            return 128 + stop.signal
        after = graph.get_state(config).values
        summarize(after, after["position"] - done)
        return 0


def lock(prices: Path, thread: str) -> sqlite3.Connection:
    """Keep other processes off what a thread does to a prices file, until this is closed or the process ends."""
    path = f"{prices.resolve()}.{short_hash(thread)}.lock"
    try:
        held = sqlite3.connect(path, isolation_level=None, timeout=0)
        try:
            held.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            print(f"another process works on thread {thread!r}, waiting for its end", flush=True)
            held.execute(f"PRAGMA busy_timeout = {LONGEST_WAIT_MS}")
            held.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        raise InputError(f"lock file {path} cannot be used: {error}") from error
    return held


def check_resume(state: Mapping[str, Any], items: Sequence[Item], prices: PriceTable, thread: str) -> None:
    """Refuse to go on with another catalogue or another price system than the thread began with."""
    if state.get("catalogue", fingerprint(items)) != fingerprint(items):
        raise InputError(f"thread {thread!r} was started with another catalogue; take that one, or another --thread")
    if prices.count(key_of(thread, "")) < state.get("changed", 0):
        raise InputError(f"the prices file lacks changes that thread {thread!r} has made; take the one it began with")


def summarize(state: Mapping[str, Any], handled: int) -> None:
    skipped: dict[str, list[str]] = {}
    for sku, problem in state["skipped"]:
        skipped.setdefault(problem, []).append(sku)
    print(
        f"items handled: {handled} in this run, {state['position']} in all; changed {state['changed']}, "
        f"kept {state['kept']}, skipped {len(state['skipped'])}, repeats avoided {state['repeats']}",
        *(f"  skipped, {problem}: {', '.join(skus)}" for problem, skus in skipped.items()),
        sep="\n",
        flush=True,
    )


def seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError
    return value


def utf_8(text: str) -> str:
    text.encode()  # an argument that is not UTF-8 comes with surrogates, which stores do not take
    return text


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Adjust our prices to a competitor's, item by item; resumable.",
        epilog=EXIT_CODES,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--store", default="sqlite:///price_monitor.db", type=utf_8, metavar="URL", help="where checkpoints go"
    )
    parser.add_argument("--catalogue", default=CATALOGUE, type=Path, metavar="CSV", help="items to work through")
    parser.add_argument("--prices", default="prices.db", type=Path, metavar="FILE", help="the shop's price system")
    parser.add_argument(
        "--provider",
        default="strict",
        choices=("strict", "plain"),
        help="strict: the price system refuses a repeated key; plain: it can only be asked",
    )
    parser.add_argument(
        "--thread", default="price-monitor", type=utf_8, metavar="ID", help="same ID: go on where it stopped"
    )
    parser.add_argument("--delay-s", default=0.0, type=seconds, metavar="SECONDS", help="pause before each item")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code, as `EXIT_CODES` says."""
    options = parse(arguments)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the first step there is nothing to finish
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return run(options)
    except (InputError, StatekitError, ImportError) as error:
        return fail(error)
    except OSError as error:  # all others are dealt with where they arise: this one is of the output
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what it still holds goes nowhere
        return 128 + signal.SIGPIPE if isinstance(error, BrokenPipeError) else fail(error)


def fail(error: Exception) -> int:
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())

"""Watch competitors' prices for a whole catalogue, and survive being killed, stopped or upgraded at any item.

A LangGraph loop over a catalogue: `crawl` one competitor page, `decide` on a price, `apply` it to the shop's price
table, then the next item, and a report after each batch of 50. Every step is a checkpoint. Kill the process, start it
again with the same `--thread`, and it goes on at the item where it stopped; or let another one with `--watch` go on
with it. No price is changed twice: each change goes through the effect ledger, under the thread's lease.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from pricing import (
    BATCH,
    RELEASES,
    TRIES,
    build_graph,
    fingerprint,
    first_state,
    key_of,
    most_steps,
    new_price,
)
from shop import Crawl, InputError, Item, Page, PriceTable, crawl_page, read_catalogue

from langgraph_statekit import (
    Conflict,
    EffectLedger,
    Fenced,
    Lease,
    StatekitError,
    StatekitSaver,
    Supervisor,
    guard,
    open_saver,
)
from langgraph_statekit.events import Supervised

CATALOGUE = Path(__file__).with_name("price_monitor") / "catalogue.csv"
GRAPH = "price_monitor"
"""The name under which supervisors know this graph."""
OTHER_WORKER = 3
LONGEST_WAIT_S = 3e8
EXIT_CODES = """Exit codes: 0 every item is done; 2 the input cannot be used or the store does not answer; 3 another
worker goes on with the thread; 130 or 143 stopped by Ctrl-C or SIGTERM; 141 nobody reads the output any more. After a
stop or a kill the same command goes on where the thread stopped. A second process on the same thread waits for the
first, or takes over if its lease ends."""

__all__ = ["BATCH", "TRIES", "build_graph", "first_state", "main", "new_price"]


class Stop:
    """Turns Ctrl-C and SIGTERM into a stop after the running step; a second signal ends the process at once."""

    def __init__(self) -> None:
        self.control = RunControl()
        self.signal = 0
        self.then: Callable[[], object] = lambda: None
        self._event = threading.Event()

    def listen(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        self.signal = number
        self.control.request_drain(signal.Signals(number).name)
        self._event.set()
        self.then()

    def wait(self, delay_s: float) -> None:
        if delay_s:
            self._event.wait(delay_s)


def run(options: argparse.Namespace) -> int:
    """Work through the catalogue, or look after others who do, and return the exit code."""
    items = read_catalogue(options.catalogue)
    with (
        closing(PriceTable(options.prices, items, strict=options.provider == "strict")) as prices,
        open_saver(options.store) as saver,
    ):
        return (watch if options.watch else work)(options, items, prices, saver)


def compiled(
    options: argparse.Namespace, items: Sequence[Item], prices: PriceTable, saver: StatekitSaver, **more: Any
) -> Any:
    """Return the graph of a release; one that waits for the node of an older release is given the new name."""
    ledger = EffectLedger(saver)
    crawler = crawl_page if options.hang_at is None else hanging(items[options.hang_at - 1], options.prices)
    dying = None if options.die_at is None else items[options.die_at - 1].sku

    def made(sku: str) -> None:
        if sku == dying:
            print(f"{sku}: the price is changed, and the process dies before it is noted", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    more |= {"crawler": crawler, "made": made, "release": options.release}
    builder = build_graph(items, prices, ledger, **more)
    graph = guard(
        builder.compile(checkpointer=saver),
        rename_nodes={name: RELEASES[options.release] for old, name in RELEASES.items() if old < options.release},
    )
    return graph.with_config(recursion_limit=most_steps(items))


def hanging(hung: Item, prices: Path) -> Crawl:
    """Return a crawler to which one item's page does not answer until a file `PRICES.answers` is there."""

    def crawl(item: Item, attempt: int) -> Page:
        if item == hung:
            print(f"{item.sku}: the page does not answer", flush=True)
            while not Path(f"{prices}.answers").exists():
                time.sleep(0.02)
        return crawl_page(item, attempt)

    return crawl


def work(options: argparse.Namespace, items: Sequence[Item], prices: PriceTable, saver: StatekitSaver) -> int:
    """Work through the catalogue under the lease of the thread."""
    stop = Stop()
    lease = leased(options, saver, stop)
    with lease:
        graph = compiled(
            options, items, prices, saver, pause=lambda: stop.wait(options.delay_s), working=lease.progress
        )
        config: RunnableConfig = lease.config
        before = graph.get_state(config)
        new = before.created_at is None
        done = before.values.get("position", 0)
        if not new:
            check_resume(before.values, items, prices, options.thread)
            # `next` leaves out tasks whose writes are stored, though their step is not done
            if not before.tasks and done == len(items):
                print(f"thread {options.thread!r} is finished, nothing to do")
                summarize(before.values, 0, saver, options.thread)
                return 0
        print(
            f"thread {options.thread!r}: {'starting' if new else 'going on'} at item {done + 1} of {len(items)}",
            flush=True,
        )
        stop.listen()
        try:
            graph.invoke(first_state(items) if new else None, config, durability="sync", control=stop.control)
        except (GraphDrained, Fenced):
            if not stop.signal or lease.lost:
                print(f"another worker goes on with thread {options.thread!r}", flush=True)
                return OTHER_WORKER
            now = graph.get_state(config).values.get("position", 0)
            print(f"stopped after {now} of {len(items)} items; the same command goes on from there", flush=True)
            return 128 + stop.signal
        after = graph.get_state(config).values
        summarize(after, after["position"] - done, saver, options.thread)
        return 0


def leased(options: argparse.Namespace, saver: StatekitSaver, stop: Stop) -> Lease:
    """Return the lease of the thread, at once or when whoever has it is done."""

    def other_worker(lease: Lease) -> None:
        stop.control.request_drain("another worker goes on")

    def ask(wait_s: float) -> Lease:
        return saver.lease(
            options.thread,
            graph=GRAPH,
            ttl_s=options.lease_s,
            wait_s=wait_s,
            on_lost=other_worker,
            on_control=other_worker,
        )

    try:
        return ask(0)
    except Conflict:
        print(f"another process works on thread {options.thread!r}, waiting for its end", flush=True)
        return ask(LONGEST_WAIT_S)


def watch(options: argparse.Namespace, items: Sequence[Item], prices: PriceTable, saver: StatekitSaver) -> int:
    """Go on with threads whose worker died or hangs, until a signal comes."""
    stop = Stop()

    def told(event: Supervised) -> None:
        print(f"{event.thread_id}: {event.outcome}: {event.message}", flush=True)

    supervisor = Supervisor(
        saver,
        {GRAPH: lambda each: compiled(options, items, prices, each, pause=lambda: stop.wait(options.delay_s))},
        every_s=0.25,
        stuck_s=options.stuck_s,
        drain_s=options.stuck_s / 4,
        quarantine_s=options.stuck_s / 4,
        lease_s=options.lease_s,
        told=told,
        alert=lambda event: None,
    )
    stop.then = supervisor.stop
    stop.listen()
    print(f"watching, release {options.release}", flush=True)
    supervisor.run()
    return 128 + stop.signal


def check_resume(state: Mapping[str, Any], items: Sequence[Item], prices: PriceTable, thread: str) -> None:
    """Refuse to go on with another catalogue or another price system than the thread began with."""
    if state.get("catalogue", fingerprint(items)) != fingerprint(items):
        raise InputError(f"thread {thread!r} was started with another catalogue; take that one, or another --thread")
    if prices.count(key_of(thread, "")) < state.get("changed", 0):
        raise InputError(f"the prices file lacks changes that thread {thread!r} has made; take the one it began with")


def summarize(state: Mapping[str, Any], handled: int, saver: StatekitSaver, thread: str) -> None:
    skipped: dict[str, list[str]] = {}
    for sku, problem in state["skipped"]:
        skipped.setdefault(problem, []).append(sku)
    unknown = len(EffectLedger(saver).list(thread, states=["unknown"]))
    print(
        f"items handled: {handled} in this run, {state['position']} in all; changed {state['changed']}, "
        f"kept {state['kept']}, skipped {len(state['skipped'])}, repeats avoided {state['repeats']}",
        f"  of these repeats, refused by the price system: {state.get('refused', 0)}, unknown and asked for: "
        f"{state.get('asked', 0)}; still unknown: {unknown}",
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
    parser.add_argument(
        "--lease-s", default=5.0, type=seconds, metavar="SECONDS", help="how long a dead worker's lasts"
    )
    parser.add_argument("--watch", action="store_true", help="go on with threads whose worker died or hangs")
    parser.add_argument("--stuck-s", default=60.0, type=seconds, metavar="SECONDS", help="with --watch: what is a hang")
    newest = max(RELEASES)
    parser.add_argument("--release", default=newest, type=int, choices=sorted(RELEASES), help="release of this code")
    parser.add_argument("--hang-at", type=int, metavar="ITEM", help="an item whose page does not answer, for the demo")
    parser.add_argument("--die-at", type=int, metavar="ITEM", help="an item after whose change to die, for the demo")
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

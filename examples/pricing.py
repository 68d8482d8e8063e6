"""The agent: a LangGraph loop over a catalogue that crawls, decides, and changes prices through an effect ledger."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from langgraph.config import get_config
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import RetryPolicy
from shop import BadPage, Crawl, InputError, Item, PriceTable, RepeatedKey, crawl_page, money, read_price

from langgraph_statekit import EffectLedger, heartbeat

BATCH = 50
STEPS_PER_ITEM = 3
TRIES = 4
CRAWL_ERRORS = (BadPage, OSError)
MARGIN_PERCENT = 10
LARGEST_STEP_PERCENT = 15
RELEASES = {1: "apply", 2: "change_price"}
"""What the node that changes prices is called in each release of this code."""


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
    refused: int
    asked: int
    closed: list[int]
    skipped: list[list[str]]


def key_of(thread: str, sku: str) -> str:
    """Return the key of one item's change in one run: the same after every restart, and in no other run."""
    return f"{thread}/{sku}"


def fingerprint(items: Sequence[Item]) -> str:
    """Return a short name for exactly this catalogue."""
    return hashlib.sha256(repr(items).encode()).hexdigest()[:16]


def first_state(items: Sequence[Item]) -> State:
    counts: State = {"changed": 0, "kept": 0, "repeats": 0, "refused": 0, "asked": 0}
    return {"catalogue": fingerprint(items), "position": 0, "closed": [0, 0, 0], "skipped": [], **counts}


def most_steps(items: Sequence[Item]) -> int:
    return STEPS_PER_ITEM * len(items) + len(items) // BATCH + 10


def new_price(old: int, cost: int, competitor: int) -> int:
    """Undercut by one cent, but keep a margin and move by a limited step."""
    least = cost + -(-cost * MARGIN_PERCENT // 100)
    target = max(competitor - 1, least)
    step = old * LARGEST_STEP_PERCENT // 100
    return min(max(target, old - step), old + step)


class Change:
    """One change of a price, made at most once: how it went, and what the provider was asked for."""

    def __init__(
        self, prices: PriceTable, key: str, item: Item, old: int, new: int, made: Callable[[str], object]
    ) -> None:
        self._prices, self._key, self._item, self._old, self._new = prices, key, item, old, new
        self._made = made
        self.acted = self.refused = self.asked = False

    def make(self) -> list[int]:
        """Change the price, unless that was done before."""
        # A strict system is safe to call again. A plain one would act again, so it is asked first.
        made = None if self._prices.strict else self._prices.find(self._key)
        if made is None:
            try:
                self._prices.change(self._key, self._item.sku, self._old, self._new)
                self.acted, made = True, (self._old, self._new)
                self._made(self._item.sku)
            except RepeatedKey:
                self.refused, made = True, self._prices.find(self._key)
        assert made is not None
        return [*made]

    def verify(self, key: str) -> list[int] | None:
        """Ask a plain system for what became of a change that nobody knows about."""
        self.asked = True
        found = self._prices.find(self._key)
        return None if found is None else [*found]


def build_graph(
    items: Sequence[Item],
    prices: PriceTable,
    ledger: EffectLedger,
    *,
    crawler: Crawl = crawl_page,
    pause: Callable[[], object] = lambda: None,
    working: Callable[[str], object] = lambda sku: heartbeat(item=sku),
    made: Callable[[str], object] = lambda sku: None,
    release: int = max(RELEASES),
) -> StateGraph[State, None, State, State]:
    """Return the loop over the items, ready to compile with a checkpointer.

    Args:
        items: The catalogue.
        prices: The shop's price system.
        ledger: Sees to it that no price is changed twice, whatever happens between a change and its checkpoint.
        crawler: Fetches a competitor's page.
        pause: Called before each item.
        working: Told of the item that is worked on.
        made: Told of the item whose price was changed, before anybody else knows of it.
        release: Which release of this code it is to be.
    """
    change = RELEASES[release]
    catalogue = fingerprint(items)

    def crawl(state: State, runtime: Runtime[None]) -> State:
        if state.get("catalogue", catalogue) != catalogue:
            raise InputError("the thread was started with another catalogue")
        item = items[state["position"]]
        working(item.sku)
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
        known = prices.find(key_of(get_config()["configurable"]["thread_id"], item.sku))
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
        key = key_of(get_config()["configurable"]["thread_id"], item.sku)
        one = Change(prices, key, item, old, new, made)
        unknown: Mapping[str, Any] = {"on_unknown": "retry"} if prices.strict else {"verify": one.verify}
        before, after = ledger.run(key, one.make, request=item.sku, **unknown)
        report(state, f"changed   {money(before)} -> {money(after)}{'' if one.acted else '  (was done before)'}")
        return {
            "position": state["position"] + 1,
            "changed": state["changed"] + 1,
            "repeats": state["repeats"] + (not one.acted),
            "refused": state["refused"] + one.refused,
            "asked": state["asked"] + one.asked,
        }

    def close_batch(state: State) -> State:
        now = [state["changed"], state["kept"], len(state["skipped"])]
        changed, kept, skipped = (after - before for after, before in zip(now, state["closed"], strict=True))
        number, of = -(-state["position"] // BATCH), -(-len(items) // BATCH)
        print(f"batch {number} of {of}: changed {changed}, kept {kept}, skipped {skipped}", flush=True)
        return {"closed": now}

    def report(state: State, what: str) -> None:
        position = state["position"]
        print(f"{position + 1:5}/{len(items)}  {items[position].sku:<12}  {what}", flush=True)

    def next_item(state: State) -> str:
        position = state["position"]
        return "close_batch" if position % BATCH == 0 or position == len(items) else "crawl"

    def after_decide(state: State) -> str:
        return next_item(state) if state["new_price"] is None else change

    graph = StateGraph(State)
    retry = RetryPolicy(initial_interval=0.01, jitter=False, max_attempts=TRIES, retry_on=CRAWL_ERRORS)
    graph.add_node("crawl", crawl, retry_policy=retry)
    graph.add_node("decide", decide)
    graph.add_node(change, apply)
    graph.add_node("close_batch", close_batch)
    graph.add_edge(START, "crawl")
    graph.add_edge("crawl", "decide")
    graph.add_conditional_edges("decide", after_decide, [change, "crawl", "close_batch"])
    graph.add_conditional_edges(change, next_item, ["crawl", "close_batch"])
    graph.add_conditional_edges(
        "close_batch", lambda state: "crawl" if state["position"] < len(items) else END, ["crawl", END]
    )
    return graph

"""Random histories: every store tells the same story as InMemorySaver."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.faces import LONG, checkpoint, config, metadata
from tests.stores.verbs import deltas
from tests.stores_under_test import Store, unique

THREADS = ("t", "u")
NAMESPACES = ("", "n:1")
PLAIN = ("a", "b")
DELTA = "d"
CHANNELS = (*PLAIN, DELTA, "__error__", "__interrupt__", "__resume__", "__scheduled__")
RUNS = ("r1", "r2")

threads = st.sampled_from(THREADS)
namespaces = st.sampled_from(NAMESPACES)
picks = st.integers(0, 1000)
text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3)  # the reference drops NUL in metadata
values = st.one_of(st.integers(-5, 5), st.none(), text, st.lists(st.integers(-(2**63), 2**64 - 1), max_size=3))
Step = tuple[int, dict[str, Any], str | None, bool, str | None, dict[str, Any]]
steps: st.SearchStrategy[Step] = st.tuples(
    picks,
    st.dictionaries(st.sampled_from(PLAIN), values, min_size=1, max_size=2),
    st.sampled_from((*[None] * 6, *PLAIN)),
    st.sampled_from((False, False, False, False, True)),
    st.sampled_from((None, *RUNS)),
    st.dictionaries(st.sampled_from(("k", "l")), values, max_size=2),
)
Batch = tuple[int, list[tuple[str, Any]], str, str]
batches: st.SearchStrategy[Batch] = st.tuples(
    picks,
    st.lists(st.tuples(st.sampled_from(CHANNELS), values), min_size=1, max_size=4),
    st.sampled_from("xy"),
    st.sampled_from("pq"),
)


class Histories(RuleBasedStateMachine):
    """The same calls to a saver and to InMemorySaver; what the latter lacks is done to its dicts."""

    def __init__(self, saver: StatekitSaver, deltas: list[int]) -> None:
        super().__init__()
        self.saver, self.model, self.deltas = saver, InMemorySaver(), deltas
        self.prefix = unique()
        self.count = 0
        self.cut: set[str] = set()  # threads whose delta history the model lost

    def thread(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def ids(self, thread: str, ns: str) -> list[str]:
        return sorted(self.model.storage.get(thread, {}).get(ns, {}))

    def next_id(self) -> str:
        self.count += 1
        return f"{self.count:06}"

    @initialize(steps=st.lists(steps, min_size=4, max_size=6), batches=st.lists(batches, min_size=4, max_size=6))
    def begin(self, steps: list[Step], batches: list[Batch]) -> None:
        for step, batch in zip(steps, batches, strict=False):
            self.put_one("t", "", step)
            self.put_batch("t", "", batch)

    @rule(name=threads, ns=namespaces, steps=st.lists(steps, min_size=1, max_size=5))
    def put(self, name: str, ns: str, steps: list[Step]) -> None:
        for step in steps:
            self.put_one(name, ns, step)

    def put_one(self, name: str, ns: str, step: Step) -> None:
        parent, changed, emptied, snapshot, run, extra = step
        thread, id = self.thread(name), self.next_id()
        known = self.ids(thread, ns)
        above = [None, *known][max(0, len(known) - parent % 4)] if known else None
        before = self.model.get_tuple(config(thread, ns, above)) if above else None
        kept: dict[str, Any] = dict(before.checkpoint["channel_values"]) if before else {}
        versions: dict[str, Any] = dict(before.checkpoint["channel_versions"]) if before else {}
        new = dict.fromkeys([*changed, DELTA, *([emptied] if emptied else [])], f"{id}.{name}")
        kept |= {channel: _longer(kept.get(channel), value) for channel, value in changed.items()}
        for gone in (DELTA, *([emptied] if emptied else [])):
            kept.pop(gone, None)
        if snapshot:
            kept[DELTA] = [LONG, f"snapshot {id}"]
        made = checkpoint(kept, versions | new, id)
        meta = metadata(self.count, counters_since_delta_snapshot={DELTA: [1, 1]}, **extra)
        if run:
            meta["run_id"] = run
        for saver in (self.saver, self.model):
            saver.put(config(thread, ns, above), made, meta, new)

    @rule(name=threads, ns=namespaces, pick=picks, value=values)
    def put_again(self, name: str, ns: str, pick: int, value: Any) -> None:
        thread = self.thread(name)
        if not (known := self.ids(thread, ns)):
            return
        id = known[pick % len(known)]
        found = self.model.get_tuple(config(thread, ns, id))
        assert found is not None
        parent = found.parent_config["configurable"]["checkpoint_id"] if found.parent_config else None
        values = found.checkpoint["channel_values"]
        made = {**found.checkpoint, "channel_values": {**values, "a": _longer(values.get("a"), value)}}
        version = f"{self.next_id()}.again"
        made["channel_versions"] = {**made["channel_versions"], "a": version}
        for saver in (self.saver, self.model):
            saver.put(config(thread, ns, parent), made, {**found.metadata, "again": self.count}, {"a": version})

    @rule(name=threads, ns=namespaces, batches=st.lists(batches, min_size=1, max_size=5))
    def put_writes(self, name: str, ns: str, batches: list[Batch]) -> None:
        for batch in batches:
            self.put_batch(name, ns, batch)

    def put_batch(self, name: str, ns: str, batch: Batch) -> None:
        pick, pairs, task, path = batch
        thread = self.thread(name)
        if known := self.ids(thread, ns):
            at = config(thread, ns, known[-1 - pick % min(3, len(known))])
            for saver in (self.saver, self.model):
                saver.put_writes(at, pairs, task, path)

    @rule(name=threads)
    def delete(self, name: str) -> None:
        self.cut.discard(name)
        for saver in (self.saver, self.model):
            saver.delete_thread(self.thread(name))

    @rule(name=threads)
    def copy(self, name: str) -> None:
        thread, other = self.thread(name), self.thread("copy")
        self.saver.copy_thread(thread, other)
        copied = _by_place(self.saver.list({"configurable": {"thread_id": other}}))
        assert _elsewhere(copied, thread) == _by_place(self.model.list({"configurable": {"thread_id": thread}}))
        for ns in copied:
            self.saver.put(config(other, ns), checkpoint({"a": "x"}, {"a": "x"}, "999999"), metadata(), {"a": "x"})
        self.saver.delete_thread(other)

    @rule(name=threads)
    def prune(self, name: str) -> None:
        thread = self.thread(name)
        self.cut_to(name, {(ns, known[-1]) for ns in NAMESPACES if (known := self.ids(thread, ns))})
        assert {(i.config["configurable"]["checkpoint_ns"]) for i in self.listed(thread, None)} == {
            ns for ns in NAMESPACES if self.ids(thread, ns)
        }

    @precondition(lambda self: self.count > 3)
    @rule(run=st.sampled_from(RUNS))
    def delete_for_runs(self, run: str) -> None:
        kept = {
            name: {
                (i.config["configurable"]["checkpoint_ns"], i.checkpoint["id"])
                for i in self.model.list({"configurable": {"thread_id": self.thread(name)}})
                if i.metadata.get("run_id") != run
            }
            for name in THREADS
        }
        histories = {name: self.histories(name, kept[name]) for name in THREADS}
        self.saver.delete_for_runs([run])
        for name in THREADS:
            self.cut_model(name, kept[name])
            assert self.histories(name, kept[name]) == histories[name]

    def cut_to(self, name: str, kept: set[tuple[str, str]]) -> None:
        histories = self.histories(name, kept)
        self.saver.prune([self.thread(name)])
        self.cut_model(name, kept)
        assert self.histories(name, kept) == histories

    def cut_model(self, name: str, kept: set[tuple[str, str]]) -> None:
        """Remove all but some checkpoints from the model, and give these their nearest kept ancestor as parent."""
        thread = self.thread(name)
        for ns in NAMESPACES:
            stored = self.model.storage.get(thread, {}).get(ns, {})
            parents = {id: entry[2] for id, entry in stored.items()}
            for id in list(stored):
                if (ns, id) not in kept:
                    del stored[id]
                    self.model.writes.pop((thread, ns, id), None)
                    self.cut.add(name)
            for id, (body, meta, parent) in list(stored.items()):
                while parent is not None and parent not in stored:
                    parent = parents.get(parent)
                stored[id] = (body, meta, parent)

    def histories(self, name: str, refs: set[tuple[str, str]]) -> dict[tuple[str, str], Any]:
        """Return what rebuilds the delta channel at checkpoints that do not hold its value."""
        found: dict[tuple[str, str], Any] = {}
        for ns, id in refs:
            at = config(self.thread(name), ns, id)
            stored = self.saver.get_tuple(at)
            if stored is not None and DELTA not in stored.checkpoint["channel_values"]:
                found[ns, id] = self.saver.get_delta_channel_history(config=at, channels=[DELTA])
        return found

    def listed(self, thread: str, ns: str | None, **options: Any) -> list[CheckpointTuple]:
        at = config(thread, ns) if ns is not None else {"configurable": {"thread_id": thread}}
        return list(self.saver.list(at, **options))

    @invariant()
    def same_checkpoints(self) -> None:
        for name in THREADS:
            thread = self.thread(name)
            self.deltas.append(deltas(self.saver.backend, thread))
            at: Any = {"configurable": {"thread_id": thread}}
            assert _by_place(self.saver.list(at)) == _by_place(self.model.list(at))
            for ns in NAMESPACES:
                assert self.saver.get_tuple(config(thread, ns)) == self.model.get_tuple(config(thread, ns))
            self.same_history(name, "", -1)

    @rule(
        name=threads,
        ns=namespaces,
        pick=picks,
        filter=st.dictionaries(
            st.sampled_from(("k", "l", "run_id", "again")), st.one_of(values, st.sampled_from(RUNS))
        ),
    )
    def same_answers(self, name: str, ns: str, pick: int, filter: dict[str, Any]) -> None:
        thread = self.thread(name)
        newest = config(thread, id=f"{1 + pick % (self.count + 1):06}")
        for wanted in (filter, {"run_id": RUNS[pick % 2]}, None):
            for before in (None, newest):
                for limit in (None, 0, 1, 3):
                    options: dict[str, Any] = {"filter": wanted, "before": before, "limit": limit}
                    assert self.listed(thread, ns, **options) == list(self.model.list(config(thread, ns), **options))
        if known := self.ids(thread, ns):
            at = config(thread, ns, known[pick % len(known)])
            assert self.saver.get_tuple(at) == self.model.get_tuple(at)
            self.same_history(name, ns, pick % len(known))

    def same_history(self, name: str, ns: str, pick: int) -> None:
        thread = self.thread(name)
        if name not in self.cut and (known := self.ids(thread, ns)):
            asked: Any = {"config": config(thread, ns, known[pick]), "channels": [DELTA, "a"]}
            assert self.saver.get_delta_channel_history(**asked) == self.model.get_delta_channel_history(**asked)

    def teardown(self) -> None:
        self.saver.prune([self.thread(name) for name in THREADS], strategy="delete")


def _longer(old: Any, value: Any) -> Any:
    """Return a long list that grows with each value, and is short again after None."""
    return None if value is None else [*(old or [LONG]), value]


def _by_place(items: Any) -> Mapping[str, list[CheckpointTuple]]:
    found: dict[str, list[CheckpointTuple]] = defaultdict(list)
    for item in items:
        found[item.config["configurable"]["checkpoint_ns"]].append(item)
    return found


def _elsewhere(found: Mapping[str, list[CheckpointTuple]], thread: str) -> Mapping[str, list[CheckpointTuple]]:
    def moved(at: Any) -> Any:
        return at and {"configurable": {**at["configurable"], "thread_id": thread}}

    return {
        ns: [i._replace(config=moved(i.config), parent_config=moved(i.parent_config)) for i in items]
        for ns, items in found.items()
    }


def test_random_histories_equal_the_reference(store: Store, store_name: str) -> None:
    quick = store_name in ("memory", "sqlite")
    deltas: list[int] = []
    with store.open() as saver:
        run_state_machine_as_test(
            lambda: Histories(saver, deltas),
            settings=settings(
                max_examples=25,
                stateful_step_count=20,
                deadline=None,
                database=None,
                derandomize=True,
                phases=(Phase.generate, Phase.shrink) if quick else (Phase.generate,),
                suppress_health_check=list(HealthCheck),
            ),
        )
        assert list(saver.list(None)) == []
        assert (sum(map(bool, deltas)) > 100) == saver.backend.deltas

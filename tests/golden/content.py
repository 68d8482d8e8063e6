"""What the golden stores hold. It is never changed: a new format gets new content beside it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt, Send

from langgraph_statekit import Encryption, SerializableResult
from langgraph_statekit.checkpoint.cells import CellChange, cell_ref
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.faces import LONG
from tests.versions.states import Second

TASK = "00000000-0000-0000-0000-0000000000aa"
ODD = "order \\ 17: é\0\ud800*?[a]/../{x}"
"""Characters that one store or the other cannot take as they are."""


class Put(NamedTuple):
    """A checkpoint with all that belongs to it; `new` lists the channels of `values` that it stores."""

    thread: str
    ns: str
    id: str
    parent: str | None
    values: dict[str, Any]
    versions: dict[str, Any]
    new: tuple[str, ...]
    metadata: dict[str, Any]
    writes: tuple[tuple[str, str, Any], ...] = ()

    @property
    def config(self) -> RunnableConfig:
        return at(self.thread, self.ns, self.id)

    @property
    def checkpoint(self) -> dict[str, Any]:
        return {
            "v": 4,
            "ts": "2026-01-02T03:04:05.000006+00:00",
            "id": self.id,
            "channel_values": self.values,
            "channel_versions": self.versions,
            "versions_seen": {"__input__": {}, "node": {name: self.versions[name] for name in self.new}},
            "updated_channels": sorted(self.new),
        }


def at(thread: str, ns: str = "", id: str | None = None) -> RunnableConfig:
    address = {"thread_id": thread, "checkpoint_ns": ns}
    return {"configurable": address if id is None else {**address, "checkpoint_id": id}}


def identifier(number: int) -> str:
    return f"1f0c1b2a-{number:04x}-6000-8000-0123456789ab"


def version(number: int) -> str:
    return f"{number:032}.0.{number:016}"


def _values() -> dict[str, Any]:
    return {
        "number": 2**63,
        "float": -0.5,
        "text": "é\n\0",
        "bytes": bytes(range(256)),
        "nothing": None,
        "list": [1, "two", [3.0, True]],
        "dict": {"a": {"b": [None]}, 7: "seven"},
        "set": {1, 2, 3},
        "time": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
        "uuid": UUID(int=1),
        "decimal": Decimal("1.10"),
        "result": SerializableResult.of(ValueError("no")),
        "messages": [
            HumanMessage("hi", id="m1"),
            AIMessage("", id="m2", tool_calls=[{"name": "find", "args": {"q": [1]}, "id": "c1"}]),
            ToolMessage("found", tool_call_id="c1", id="m3"),
        ],
    }


def _kinds() -> Iterator[Put]:
    values = _values()
    versions = dict.fromkeys(values, version(1))
    yield Put("kinds", "", identifier(1), None, values, versions, tuple(values), {"source": "input", "step": -1})
    yield Put(
        "kinds",
        "",
        identifier(2),
        identifier(1),
        {**values, "number": 1, "branch:to:ask": None},
        {**versions, "number": version(2), "branch:to:ask": version(2)},
        ("number", "branch:to:ask"),
        {"source": "loop", "step": 0, "parents": {}, "run_id": "run-1", "score": 0.5},
        (
            (TASK, "__interrupt__", [Interrupt("ok?", id="i1")]),
            (TASK, "number", 3),
            (TASK, "__pregel_tasks", Send("work", {"n": 1})),
        ),
    )
    yield Put(
        "kinds",
        "inner:0000|deep:1111",
        identifier(3),
        None,
        {"log": ["in"]},
        {"log": version(1)},
        ("log",),
        {"source": "loop", "step": 0, "parents": {"": identifier(2)}},
    )


def _grown() -> Iterator[Put]:
    """Versions of a list that grows, so that most of them are stored as deltas of both kinds."""
    for number in range(40):
        yield Put(
            "grown",
            "",
            identifier(100 + number),
            identifier(99 + number) if number else None,
            {"log": [LONG, *range(number)], "turn": number},
            {"log": version(number + 1), "turn": version(number + 1)},
            ("log", "turn"),
            {"source": "loop", "step": number, "parents": {}},
        )


def _delta() -> Iterator[Put]:
    """A delta channel: a snapshot, then checkpoints without a value whose writes rebuild it."""
    for number in range(5):
        snapshot = {"log": _DeltaSnapshot(["seed"])} if number == 0 else {}
        counters = {} if number == 0 else {"counters_since_delta_snapshot": {"log": [number, number]}}
        yield Put(
            "delta",
            "",
            identifier(200 + number),
            identifier(199 + number) if number else None,
            snapshot,
            {"log": version(number + 1)},
            tuple(snapshot),
            {"source": "loop", "step": number, "parents": {}, **counters},
            ((TASK, "log", [number]),),
        )


def _odd() -> Iterator[Put]:
    name = ODD.replace("\ud800", "")
    yield Put(ODD, ODD, name, None, {name: name}, {name: 1}, (name,), {"source": "input", "step": -1})


def _versioned() -> Iterator[Put]:
    """A state of version 3 with a value that a migration made."""
    versions = {"cents": f"{version(1)}~0123456789abcdef"}
    meta = {"source": "loop", "step": 1, "parents": {}, "statekit_state_version": 3}
    yield Put("versioned", "", identifier(300), None, {"cents": 100}, versions, ("cents",), meta)


def _migrated() -> Iterator[Put]:
    """A state that a batch migrates and does not commit, with a write of the older version."""
    meta = {"source": "input", "step": -1, "parents": {}}
    values, versions = {"euros": 1, "log": ["a"]}, {"euros": version(1), "log": version(2)}
    yield Put("migrated", "", identifier(400), None, values, versions, ("euros", "log"), meta, ((TASK, "log", ["b"]),))


PUTS = [*_kinds(), *_grown(), *_delta(), *_odd(), *_versioned(), *_migrated()]
"""In the order in which they are stored."""
CENTS = "7a1b7112adab19a7"
"""The digest of what a migration made of the value in the thread `migrated`."""
KEPT = {identifier(number) for number in (130, 139)}
"""What retention leaves of the thread `grown`."""


def fill(saver: StatekitSaver) -> None:
    """Store all of it."""
    for put in PUTS:
        if put.writes:
            saver.put_writes(put.config, [each[1:] for each in put.writes], TASK, "~__pregel_pull, node")
        above = at(put.thread, put.ns, put.parent)
        new = {name: put.versions[name] for name in put.new}
        saver.put(above, put.checkpoint, put.metadata, new)  # type: ignore[arg-type]
    saver.label(at("grown", id=identifier(139)), "before release")
    saver.label(at("grown", id=identifier(130)), "middle")
    saver.copy_thread("grown", "copied")
    saver.prune(["grown"])
    saver.unlabel("grown", "middle")
    newer = saver.with_state(Second)
    newer.put_writes(at("versioned", id=identifier(300)), [("cents", 5)], TASK, "path")
    run_sync(newer._sync.rewrite(newer._codec, "migrated", "migrate", None))
    saver.copy_thread("delta", "pruned delta")
    saver.prune(["pruned delta"])


KEYS = Encryption({"golden": b"g" * 32}, "golden")
CELL = cell_ref("golden", "key", "grown")


def fill_encrypted(saver: StatekitSaver) -> None:
    """Store all of it with a saver that has the keys, and a record beside the threads."""
    fill(saver)
    run_sync(saver.cells.change_cell(CellChange(ref=CELL, value=b"sealed", groups=("group",))))


def read(item: CheckpointTuple) -> tuple[Any, ...]:
    """Return what a checkpoint shows, in the form of `expected`."""
    parent = item.parent_config and item.parent_config["configurable"]["checkpoint_id"]
    return item.config, item.checkpoint, item.metadata, parent, item.pending_writes


def expected() -> dict[str, list[tuple[Any, ...]]]:
    """Return what each thread shows, newest first."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for put in reversed(PUTS):
        shown = (put.config, put.checkpoint, put.metadata, put.parent, [*put.writes])
        found.setdefault(put.thread, []).append(shown)

    def moved(thread: str, target: str, keep: Any = lambda id: True) -> list[tuple[Any, ...]]:
        return [(at(target, id=each[1]["id"]), *each[1:]) for each in found[thread] if keep(each[1]["id"])]

    (versioned,) = found["versioned"]
    found["versioned"] = [(*versioned[:4], [(TASK, "cents", 5)])]
    (old,) = found["migrated"]
    cents = f"{version(2)}~{CENTS}"
    values = {
        "channel_values": {"cents": 100, "log": ["a"]},
        "channel_versions": {"log": version(2), "cents": cents},
        "versions_seen": {
            "__input__": {"cents": cents},
            "node": {"euros": version(1), "log": version(2), "cents": cents},
        },
    }
    found["migrated"] = [(old[0], {**old[1], **values}, {**old[2], "statekit_state_version": 2}, *old[3:])]
    found["copied"] = moved("grown", "copied")
    newest, middle = moved("grown", "grown", KEPT.__contains__)
    found["grown"] = [(*newest[:3], identifier(130), newest[4]), (*middle[:3], None, middle[4])]
    (head,) = moved("delta", "pruned delta", identifier(204).__eq__)
    found["pruned delta"] = [(*head[:3], None, head[4])]
    return found


HISTORY = {"log": {"writes": [(TASK, "log", [number]) for number in range(4)], "seed": _DeltaSnapshot(["seed"])}}
"""The delta channel's history at the head of the threads `delta` and `pruned delta`."""

"""A thread that waits for a node of an old name, forked so that it waits for the new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import WRITES_IDX_MAP, Checkpoint, CheckpointTuple
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.pregel import Pregel
from langgraph.types import Interrupt

from langgraph_statekit.checkpoint.claims import TOKEN_KEY
from langgraph_statekit.checkpoint.forking import NULL_TASK
from langgraph_statekit.checkpoint.sides import Side, task_paths
from langgraph_statekit.errors import DataError
from langgraph_statekit.topology import renamed_checkpoint, renamed_write
from langgraph_statekit.versions import path_of

RENAMED_KEY: Final = "statekit_renamed_nodes"
"""The metadata key that records a rename: new names by old ones."""
_INTERRUPT: Final = "__interrupt__"
_MOST_ANSWERS: Final = 100

Graph = Pregel[Any, Any, Any, Any]


async def rename(
    graph: Graph, side: Side, item: CheckpointTuple, names: Mapping[str, str], token: int | None
) -> RunnableConfig:
    """Fork a thread at a checkpoint with nodes renamed, and return the config of the fork.

    Writes go first, so that nobody sees the fork without them. A task's id is made of its checkpoint and its name, so
    each write is given to the task that has the same place in the fork.

    Args:
        graph: The root graph.
        side: Its saver.
        item: The checkpoint, of the graph or of a subgraph.
        names: New names by old ones.
        token: That of the lease under which to save; None: under none.

    Raises:
        DataError: The step has writes that no fork can take over; the message says which.
    """
    address = item.config["configurable"]
    thread, ns = address["thread_id"], address.get("checkpoint_ns", "")
    checkpoint, new_versions = renamed_checkpoint(item.checkpoint, names, side.saver.get_next_version)
    checkpoint["id"] = str(uuid6(clock_seq=item.metadata.get("step", -1)))
    checkpoint["ts"] = datetime.now(UTC).isoformat()
    metadata: Any = {**item.metadata, "source": "fork", RENAMED_KEY: dict(names)}
    fork: RunnableConfig = {
        "configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint["id"]}
    }
    lease = {} if token is None else {TOKEN_KEY: token}
    leased: RunnableConfig = {"configurable": {**fork["configurable"], **lease}}
    for writes, target, path in await _carried(graph, side, item, names, (checkpoint, metadata, fork)):
        await side.call("put_writes", leased, writes, target, path)
    parent: RunnableConfig = {"configurable": {**leased["configurable"], "checkpoint_id": item.checkpoint["id"]}}
    await side.call("put", parent, checkpoint, metadata, new_versions)
    return fork


async def _carried(
    graph: Graph,
    side: Side,
    item: CheckpointTuple,
    names: Mapping[str, str],
    to: tuple[Checkpoint, Any, RunnableConfig],
) -> list[tuple[list[tuple[str, Any]], str, str]]:
    """Return the writes that go along, each call's with its task and path."""
    checkpoint, metadata, fork = to
    writes = item.pending_writes or []
    if not writes:
        return []
    ns = item.config["configurable"].get("checkpoint_ns", "")
    _refuse_deltas(graph, ns, item)
    scratch = InMemorySaver(serde=side.saver.serde)
    root: RunnableConfig = {"configurable": {**fork["configurable"], "checkpoint_id": None}}
    scratch.put(root, checkpoint, metadata, checkpoint["channel_versions"])
    scratch.put(root, item.checkpoint, item.metadata, item.checkpoint["channel_versions"])
    reader = graph.copy({"checkpointer": scratch})
    before = {each.path: each for each in reader.get_state(item.config).tasks}
    after = {each.path: each for each in reader.get_state(fork).tasks}
    ids = {before[path].id: each.id for path, each in after.items() if path in before}
    strangers = {task for task, _, _ in writes} - ids.keys() - {NULL_TASK}
    fresh = [each.id for path, each in after.items() if path not in before]
    if len(strangers) == len(fresh) == 1:
        ids[strangers.pop()] = fresh[0]
    # With more of them nobody can tell whose writes are whose: these tasks run, and ask, anew.
    labels = {each.id: each.name for each in after.values()}
    olds = {new: old for old, new in names.items()}
    found: list[tuple[list[tuple[str, Any]], str, str]] = []
    for task, path in (await task_paths(side, item.config, [task for task, _, _ in writes])).items():
        target = task if task == NULL_TASK else ids.get(task)
        if target is None:
            continue
        own = [renamed_write(write, names)[1:] for write in writes if write[0] == task]
        if task != NULL_TASK:
            name = labels[target]
            was = [f"{each}:{task}" for each in (name, olds.get(name, name))]
            own = [(c, _reissued(v, ns, was, f"{name}:{target}") if c == _INTERRUPT else v) for c, v in own]
        # Apart, since SQL savers replace a special write only in a call without any other.
        parts = (
            [write for write in own if write[0] not in WRITES_IDX_MAP],
            [write for write in own if write[0] in WRITES_IDX_MAP],
        )
        found += [(part, target, path) for part in parts if part]
    return found


def _refuse_deltas(graph: Graph, ns: str, item: CheckpointTuple) -> None:
    path = path_of(ns)
    own: Any = dict(graph.get_subgraphs(namespace=path, recurse=True)).get(path) if path else graph
    for _, channel, _ in item.pending_writes or ():
        if isinstance(own.channels.get(channel), DeltaChannel):
            raise DataError(
                f"a task wrote the DeltaChannel {channel!r} in a step that has not ended: let the graph with the old "
                "names finish the step"
            )


def _reissued(value: Any, ns: str, was: Sequence[str], now: str) -> Any:
    """Return interrupts with the ids that they have in the fork."""
    above = f"{ns}|" if ns else ""
    places = ["", *(f"|{answered}" for answered in range(1, _MOST_ANSWERS))]
    known = {Interrupt.from_ns(None, f"{above}{each}{place}").id: place for each in was for place in places}
    if not all(isinstance(each, Interrupt) and each.id in known for each in value):
        raise DataError("a subgraph asks a question in a step that a renamed node shares: answer it with the old graph")
    return tuple(
        Interrupt.from_ns(each.value, f"{above}{now}{known[each.id]}", response_schema=each.response_schema)
        for each in value
    )

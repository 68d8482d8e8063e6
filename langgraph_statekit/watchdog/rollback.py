"""A thread taken back to an earlier checkpoint, as a recorded fork: what was done since stays, on a branch of its own.

Only the public interfaces of LangGraph's graphs and checkpointers are used.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.pregel import Pregel
from langgraph.types import Command, StateSnapshot

from langgraph_statekit.checkpoint.claims import TOKEN_KEY, token_of
from langgraph_statekit.checkpoint.forking import (
    ATTEMPT_KEY,
    FROM_KEY,
    ITEM_KEY,
    OP_KEY,
    REASON_KEY,
    TO_KEY,
    save_again,
)
from langgraph_statekit.checkpoint.labels import OWN_LABELS
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.sides import Side
from langgraph_statekit.errors import CheckpointMissing, Misuse
from langgraph_statekit.events import RolledBack
from langgraph_statekit.watchdog.policy import DeadLetter, Interrupt, Label, Last, Skip, Target, require_target
from langgraph_statekit.watchdog.standing import state_of
from langgraph_statekit.watchdog.view import Finding, clean

Graph: TypeAlias = Pregel[Any, Any, Any, Any]
Kind: TypeAlias = Literal["rollback", "skip", "dead_letter", "interrupt"]

_NO_ITEM: Final = object()


@dataclass(frozen=True, slots=True)
class Edit:
    """What to write at the target: as if a node had returned an update there.

    Attributes:
        as_node: The node; what follows it runs next.
        update: The update, or a function of the state and the finding that returns it.
        kind: How it is recorded.
    """

    as_node: str
    update: Any | Callable[[Any, Finding], Any] = None
    kind: Kind = "skip"


@dataclass(frozen=True, slots=True)
class Rolled:
    """A rollback as it is recorded.

    Attributes:
        thread_id: The thread.
        kind: `rollback`, or what was written at the target.
        reason: That of the finding.
        item: That of the finding.
        attempt: Which one it is for the thread, the item and the reason.
        from_id: The newest checkpoint before.
        to_id: The target.
        fork_id: The checkpoint that the thread goes on from: a copy of the target, or with `retry_head` itself.
        token: Of the lease under which it was made.
    """

    thread_id: str
    kind: Kind
    reason: str
    item: str | None
    attempt: int
    from_id: str
    to_id: str
    fork_id: str
    token: int

    @property
    def config(self) -> RunnableConfig:
        """The config to go on with, as `graph.invoke(None, rolled.config)`; it carries the token."""
        return {"configurable": {"thread_id": self.thread_id, TOKEN_KEY: self.token}}


def rollback(
    graph: Graph,
    config: RunnableConfig,
    target: Target,
    finding: Finding,
    attempt: int = 1,
    *,
    edit: Edit | None = None,
    item_key: Callable[[Any], Any] | None = None,
    settle: Callable[[RunnableConfig], object] | None = None,
) -> Rolled:
    """Take a thread back to a checkpoint and return the record; the graph runs when it is invoked with None.

    The newest checkpoint becomes a copy of the target, with the record in its metadata (`statekit_reason` and so on).
    What was done since the target stays in the history. Both ends are labelled, so that retention keeps them; `prune`
    with `"delete"` removes all. Tasks of the target run again, all of them, and its questions are asked again, with new
    ids. Effects on the world are not undone. Subgraphs of `checkpointer=True` keep their state.

    Args:
        graph: The compiled graph, with a `StatekitSaver`.
        config: `lease.config` of a lease taken for it: `saver.lease(thread_id, steal=True)`. So no run that is still
            alive can undo the rollback.
        target: Where to, see `Target`.
        finding: Why.
        attempt: Which one it is, for the record.
        edit: What to write at the target; None: nothing.
        item_key: Tells the item of a state, for `item_start`.
        settle: Called with the config of the target before anything is changed; what it raises stops the rollback.
            Such as `ledger.on_rollback`, which settles what was done to the world since.

    Raises:
        Misuse: The config has no token, the target is unknown, or the graph has no `StatekitSaver`.
        CheckpointMissing: The thread has no checkpoint, or none that is meant.
        Fenced: Another worker took the thread over; nothing was changed.
        Unavailable: The store did not answer; take it as not done, and call again.
    """

    async def settled(at: RunnableConfig) -> None:
        if settle is not None:
            settle(at)

    return run_sync(_rollback(graph, False, config, target, finding, attempt, edit, item_key, settled))


async def arollback(
    graph: Graph,
    config: RunnableConfig,
    target: Target,
    finding: Finding,
    attempt: int = 1,
    *,
    edit: Edit | None = None,
    item_key: Callable[[Any], Any] | None = None,
    settle: Callable[[RunnableConfig], Awaitable[object]] | None = None,
) -> Rolled:
    """Async version of `rollback`; `settle` is awaited."""

    async def settled(at: RunnableConfig) -> None:
        if settle is not None:
            await settle(at)

    return await _rollback(graph, True, config, target, finding, attempt, edit, item_key, settled)


def edit_of(action: Last) -> Edit | None:
    """Return what an action writes at the target; None if the thread does not go on."""
    match action:
        case Skip():
            return Edit(action.as_node, action.update)
        case Interrupt():
            return Edit(action.node, action.update, "interrupt")
        case DeadLetter(as_node=str(node)):
            return Edit(node, action.update, "dead_letter")
    return None


def saver_of(graph: object) -> StatekitSaver:
    """Return the saver of a graph.

    Raises:
        Misuse: It has none of this package.
    """
    if not isinstance(graph, Pregel):
        raise Misuse(f"a compiled graph is needed, not {type(graph).__name__}: pass what compile() returns")
    if not isinstance(graph.checkpointer, StatekitSaver):
        raise Misuse(
            "the graph must be compiled with a saver of this package, such as open_saver(url): no other can fence off "
            f"a worker that hangs; it has {type(graph.checkpointer).__name__}"
        )
    return graph.checkpointer


async def _rollback(
    graph: Graph,
    is_async: bool,
    config: RunnableConfig,
    target: Target,
    finding: Finding,
    attempt: int,
    edit: Edit | None,
    item_key: Callable[[Any], Any] | None,
    settle: Callable[[RunnableConfig], Awaitable[None]],
) -> Rolled:
    require_target(target)
    saver = saver_of(graph)
    side = Side(saver, is_async)
    token = token_of(config.get("configurable", {}))
    if token is None:
        raise Misuse("fence first: pass lease.config of saver.lease(thread_id, steal=True)")
    thread_id = str(config["configurable"]["thread_id"])
    head = await state_of(graph, is_async, _at(thread_id, token))
    if head.created_at is None:
        raise CheckpointMissing(f"thread {thread_id!r} has no checkpoint to roll back to")
    found = await _find(graph, side, head, target, finding, item_key, token)
    kind: Kind = "rollback" if edit is None else edit.kind
    record = Rolled(
        thread_id, kind, finding.reason, finding.item, attempt, id_of(head.config), id_of(found.config), "", token
    )
    if target == "retry_head" and edit is None:
        fork_id = record.to_id
    else:
        await settle(_at(thread_id, token, record.to_id))
        for end, id in (("from", record.from_id), ("to", record.to_id)):
            await side.call("label", _at(thread_id, token, id), f"{OWN_LABELS}{end}:{id}")
        fork_id = await (
            _copied(side, record) if edit is None else _edited(graph, is_async, record, edit, found.values, finding)
        )
    saver.tell(
        RolledBack,
        operation=kind,
        thread_id=thread_id,
        checkpoint_ns="",
        reason=record.reason,
        item=record.item,
        attempt=attempt,
        from_id=record.from_id,
        to_id=record.to_id,
        fork_id=fork_id,
    )
    return replace(record, fork_id=fork_id)


async def _find(
    graph: Graph,
    side: Side,
    head: StateSnapshot,
    target: Target,
    finding: Finding,
    item_key: Callable[[Any], Any] | None,
    token: int,
) -> StateSnapshot:
    """Return the checkpoint that is meant, of the newest one and its ancestors."""
    thread_id = str(head.config["configurable"]["thread_id"])
    ancestors = _line(graph, side.is_async, head, token)
    if isinstance(target, Label):
        labels = await side.call("labels", thread_id)
        if target.name not in labels:
            raise CheckpointMissing(f"thread {thread_id!r} has no checkpoint with the label {target.name!r}")
        return await state_of(graph, side.is_async, _at(thread_id, token, id_of(labels[target.name])))
    if callable(target):
        async with aclosing(ancestors):
            async for each in ancestors:
                if target(each):
                    return each
        raise CheckpointMissing(f"the predicate is true of no checkpoint of thread {thread_id!r}")
    async with aclosing(ancestors):
        if target == "parent":
            return [each async for each in _first(ancestors, 2)][-1]
        if target == "last_healthy" and finding.since is not None:
            return await _before(ancestors, finding.since, thread_id)
        if target == "item_start" and item_key is not None:
            found, item = head, _item(item_key, head)
            async for each in ancestors:
                if _item(item_key, each) != item:
                    break
                found = each
            return found
        if target == "item_start" and finding.started is not None:
            async for each in ancestors:
                if id_of(each.config) == finding.started:
                    return each
    return head


async def _before(line: AsyncIterator[StateSnapshot], id: str, thread_id: str) -> StateSnapshot:
    """Return the checkpoint before one of a line."""
    met = False
    async for each in line:
        if met:
            return each
        met = id_of(each.config) == id
    raise CheckpointMissing(f"thread {thread_id!r} has no checkpoint from before {id!r}, which is not to be trusted")


def _item(item_key: Callable[[Any], Any], state: StateSnapshot) -> Any:
    try:
        return item_key(state.values)
    except (LookupError, AttributeError, TypeError):  # before the first item
        return _NO_ITEM


async def _first(line: AsyncIterator[StateSnapshot], count: int) -> AsyncIterator[StateSnapshot]:
    async for each in line:
        yield each
        count -= 1
        if not count:
            return


async def _line(graph: Graph, is_async: bool, head: StateSnapshot, token: int) -> AsyncGenerator[StateSnapshot]:
    """Yield a checkpoint and its ancestors, nearest first."""
    thread_id = head.config["configurable"]["thread_id"]
    yield head
    while head.parent_config is not None:
        head = await state_of(graph, is_async, _at(thread_id, token, id_of(head.parent_config)))
        if head.created_at is None:
            return
        yield head


async def _copied(side: Side, record: Rolled) -> str:
    def at(id: str | None) -> RunnableConfig:
        return _at(record.thread_id, record.token, id)

    return id_of(await save_again(side, at, record.to_id, metadata_of(record)))


async def _edited(graph: Graph, is_async: bool, record: Rolled, edit: Edit, values: Any, finding: Finding) -> str:
    """Write at the target, and return the id of the checkpoint that this makes."""
    update = edit.update(values, finding) if callable(edit.update) else edit.update
    if edit.kind == "interrupt":
        update = Command(goto=edit.as_node, update=update)
    at: RunnableConfig = {**_at(record.thread_id, record.token, record.to_id), "metadata": metadata_of(record)}
    if is_async:
        return id_of(await graph.aupdate_state(at, update, as_node=edit.as_node))
    return id_of(graph.update_state(at, update, as_node=edit.as_node))


def metadata_of(record: Rolled) -> dict[str, Any]:
    """Return what of a rollback stands in the metadata of its checkpoint."""
    found = {
        OP_KEY: record.kind,
        REASON_KEY: clean(record.reason),
        ITEM_KEY: None if record.item is None else clean(record.item),
        ATTEMPT_KEY: record.attempt,
        FROM_KEY: record.from_id,
        TO_KEY: record.to_id,
        TOKEN_KEY: record.token,
    }
    return {key: value for key, value in found.items() if value is not None}


def id_of(config: RunnableConfig) -> str:
    """Return the checkpoint id of a config."""
    return str(config["configurable"]["checkpoint_id"])


def origin_of(state: StateSnapshot) -> str:
    """Return the id of the checkpoint that a state is a copy of, or its own."""
    metadata = state.metadata or {}
    copied = metadata.get(TO_KEY) if metadata.get("source") == "fork" else None
    return str(copied or id_of(state.config))


def _at(thread_id: str, token: int, id: str | None = None) -> RunnableConfig:
    address = {"thread_id": thread_id, "checkpoint_ns": "", TOKEN_KEY: token}
    return {"configurable": address if id is None else {**address, "checkpoint_id": id}}

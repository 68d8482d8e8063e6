"""Copying threads between any two checkpointers: resumable, and compared with the source when done.

Nothing but a checkpoint whose writes are all stored counts as copied, since its writes go first. So a copy that was
killed leaves a target that a second one finds equal as far as it goes, and continues.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple

from langgraph_statekit.checkpoint.exact import lost
from langgraph_statekit.checkpoint.lifecycle import Lifecycle
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.checkpoint.sides import AnySaver, Side, listed, share_store, task_paths
from langgraph_statekit.errors import Conflict, DataError, Misuse
from langgraph_statekit.extras import load

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with thread id, checkpoints of it that are done, and how many it has; 0 done when it begins."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy did.

    Attributes:
        threads: Threads that are now equal on both sides.
        checkpoints: Checkpoints that were written.
        skipped: Checkpoints that the target had already.
    """

    threads: int = 0
    checkpoints: int = 0
    skipped: int = 0


def copy_threads(
    src: AnySaver,
    dst: AnySaver,
    thread_ids: Sequence[str] | None = None,
    *,
    replace: bool = False,
    without_metadata: Collection[str] = (),
    progress: Progress | bool = False,
) -> Copied:
    """Copy threads from one checkpointer to another, compare them, and return how much was written.

    A thread is copied with all namespaces, forks, metadata and pending writes; ids and versions stay. Call again after
    a kill, or for what the source got since: what the target has already is skipped. Each thread is compared with its
    source at the end. One checkpoint is held in memory at a time, besides the ids and versions of a thread.

    Tasks keep their paths when the source is a saver of this package or LangGraph's own for memory, SQLite and
    Postgres; of others they keep their order.

    Args:
        src: Any checkpointer, read only. Do not run its threads meanwhile.
        dst: Another one, set up.
        thread_ids: Threads to copy; those that the source lacks are passed over. None for all, which reads another
            project's saver once more to find them.
        replace: Whether to delete a thread of the target that differs from its source, and copy it anew. A thread of
            its own is put into the target for a moment before, to see that the source is another store.
        without_metadata: Metadata keys to leave out, such as those that the target would not store.
        progress: Called before the first and after every checkpoint with thread id, number done and number in all;
            True for a bar on stderr, which needs the extra `progress`.

    Raises:
        Misuse: One is no checkpointer, both are the same saver or store, or a thread of the target differs from its
            source; the message says where. Nothing of this thread was changed.
        Conflict: The source got new checkpoints while it was read; call again.
        DataError: What the target returns differs from the source; the message names thread, checkpoint and field.
            Or retention has removed what a delta channel of the source builds on, which no checkpointer can show.
        ModuleNotFoundError: A bar was asked for and `tqdm` is not installed.
    """
    with _reporter(progress) as report:
        return run_sync(_copy(Side(src, False), Side(dst, False), thread_ids, replace, without_metadata, report))


async def acopy_threads(
    src: AnySaver,
    dst: AnySaver,
    thread_ids: Sequence[str] | None = None,
    *,
    replace: bool = False,
    without_metadata: Collection[str] = (),
    progress: Progress | bool = False,
) -> Copied:
    """Async version of `copy_threads`; calls the async methods of both savers."""
    with _reporter(progress) as report:
        return await _copy(Side(src, True), Side(dst, True), thread_ids, replace, without_metadata, report)


class _Entry(NamedTuple):
    """A checkpoint of a thread, without its content."""

    ns: str
    id: str
    parent: str | None
    open: tuple[str, ...]
    """Delta channels without a value here."""


@dataclass(slots=True)
class _Thread:
    """One thread under way.

    Attributes:
        id: Thread id.
        left_out: Metadata keys to leave out.
        entries: Checkpoints of the source, oldest first.
        held: Namespace, channel and version of what the target has, and whether with a value.
    """

    id: str
    left_out: Collection[str]
    entries: Sequence[_Entry] = ()
    held: dict[tuple[str, str, Any], bool] = field(default_factory=dict)

    def at(self, entry: _Entry) -> RunnableConfig:
        return _config(self.id, entry.ns, entry.id)

    def metadata(self, item: CheckpointTuple) -> dict[str, Any]:
        return {key: value for key, value in item.metadata.items() if key not in self.left_out}

    def new_versions(self, ns: str, item: CheckpointTuple) -> dict[str, Any]:
        """Return the versions that are not stored yet, or stored without the value that is here."""
        values = item.checkpoint["channel_values"]
        return {
            channel: version
            for channel, version in item.checkpoint["channel_versions"].items()
            if (ns, channel, version) not in self.held or (channel in values and not self.held[ns, channel, version])
        }

    def hold(self, ns: str, item: CheckpointTuple) -> None:
        values = item.checkpoint["channel_values"]
        for channel, version in item.checkpoint["channel_versions"].items():
            key = (ns, channel, version)
            self.held[key] = self.held.get(key, False) or channel in values


async def _copy(
    src: Side,
    dst: Side,
    thread_ids: Sequence[str] | None,
    replace: bool,
    left_out: Collection[str],
    report: Progress,
) -> Copied:
    if src.saver is dst.saver:
        raise Misuse("src and dst are the same saver: copy_thread copies a thread within one store")
    if isinstance(thread_ids, str | bytes):
        raise Misuse(f"thread_ids must be a sequence of ids, not one string: pass [{thread_ids!r}]")
    if isinstance(left_out, str):
        raise Misuse(f"without_metadata must be a collection of keys, not one string: pass [{left_out!r}]")
    if isinstance(dst.saver, Lifecycle) and (dst.saver.retention or dst.saver.require_lease):
        raise Misuse("open the target of a copy without retention and require_lease, which would stand in its way")
    src, dst = src.as_stored(), dst.as_stored()
    ids = await src.threads() if thread_ids is None else list(dict.fromkeys(thread_ids))
    threads = written = skipped = 0
    for id in ids:
        thread = _Thread(id, left_out, await _entries(src, id))
        if not thread.entries:
            continue  # says nothing about the target's
        threads += 1
        await _require_ancestors(src, thread)
        done = await _present(src, dst, thread, replace)
        report(id, 0, len(thread.entries))
        for number, entry in enumerate(thread.entries, 1):
            if entry not in done:
                await _transfer(src, dst, thread, entry)
            report(id, number, len(thread.entries))
        await _verify(src, dst, thread)
        written += len(thread.entries) - len(done)
        skipped += len(done)
    return Copied(threads, written, skipped)


async def _entries(side: Side, thread: str) -> list[_Entry]:
    """Return the checkpoints of a thread, oldest first."""
    found: list[_Entry] = []
    async with aclosing(listed(side, {"configurable": {"thread_id": thread}})) as items:
        async for item in items:
            address = item.config["configurable"]
            open = tuple(
                channel for channel in _delta_channels(item) if channel not in item.checkpoint["channel_values"]
            )
            found.append(_Entry(address.get("checkpoint_ns", ""), item.checkpoint["id"], _parent(item), open))
    found.reverse()
    blocks = [list(block) for _, block in groupby(found, key=lambda entry: entry.ns)]
    if len(blocks) == len({entry.ns for entry in found}):  # one namespace after the other, as InMemorySaver lists them
        return list(heapq.merge(*blocks, key=lambda entry: entry.id))
    return found


async def _require_ancestors(src: Side, thread: _Thread) -> None:
    known = {(entry.ns, entry.id) for entry in thread.entries}
    for entry in thread.entries:
        if entry.open and (entry.ns, entry.parent) not in known:
            for channel, found in (await _history(src, thread, entry)).items():
                if found["writes"] or "seed" in found:
                    raise DataError(
                        f"{_named(thread, entry)} cannot be copied: its delta channel {channel!r} builds on "
                        "checkpoints that retention has removed from sight; nothing of this thread was changed"
                    )


async def _present(src: Side, dst: Side, thread: _Thread, replace: bool) -> set[_Entry]:
    """Return what the target has already; a target that differs is removed or refused."""
    there = {(entry.ns, entry.id) for entry in await _entries(dst, thread.id)}
    if not there:
        return set()
    wanted = {(entry.ns, entry.id) for entry in thread.entries}
    surplus = next((key for key in there if key not in wanted), None)
    differs = surplus and f"checkpoint {surplus[1]!r} of namespace {surplus[0]!r} is not in the source"
    done: set[_Entry] = set()
    for entry in thread.entries if not differs else ():
        if (entry.ns, entry.id) not in there:
            continue
        want = await _get(src, thread, entry)
        got = await dst.call("get_tuple", thread.at(entry))
        thread.hold(entry.ns, want)
        difference = "it is gone" if got is None else _difference(thread, entry.ns, want, got)
        if difference is None:
            done.add(entry)
        elif got is None or not _is_behind(thread, entry.ns, want, got):
            differs = f"{_named(thread, entry)}: {difference}"
            break
    if not differs:
        return done
    if not replace:
        raise Misuse(
            f"thread {thread.id!r} of the target differs, {differs}; nothing of it was changed. Pass replace=True to "
            "delete it and copy it anew"
        )
    if await share_store(src, dst):
        raise Misuse(f"src and dst are the same store: to replace thread {thread.id!r} would delete it from both")
    await dst.call("delete_thread", thread.id)
    thread.held.clear()
    return set()


async def _transfer(src: Side, dst: Side, thread: _Thread, entry: _Entry) -> None:
    item = await _get(src, thread, entry)
    writes = item.pending_writes or []
    paths = await task_paths(src, thread.at(entry), [task for task, _, _ in writes])
    for task, path in paths.items():
        own = [(channel, value) for owner, channel, value in writes if owner == task]
        # Apart, since SQL savers replace a special write only in a call without any other.
        for part in (
            [write for write in own if write[0] not in WRITES_IDX_MAP],
            [write for write in own if write[0] in WRITES_IDX_MAP],
        ):
            if part:
                await dst.call("put_writes", thread.at(entry), part, task, path)
    below = _config(thread.id, entry.ns, entry.parent)
    await dst.call("put", below, item.checkpoint, thread.metadata(item), thread.new_versions(entry.ns, item))
    thread.hold(entry.ns, item)


async def _verify(src: Side, dst: Side, thread: _Thread) -> None:
    """Compare both sides, each namespace from its newest checkpoint to its oldest."""
    known = {(entry.ns, entry.id) for entry in thread.entries}
    async with aclosing(src.list({"configurable": {"thread_id": thread.id}}, limit=1)) as items:
        async for item in items:
            if (item.config["configurable"].get("checkpoint_ns", ""), item.checkpoint["id"]) not in known:
                raise _changed(thread)
    for ns in dict.fromkeys(entry.ns for entry in thread.entries):
        at = _config(thread.id, ns, None)
        async with aclosing(listed(src, at)) as wanted, aclosing(listed(dst, at)) as found:
            own = [entry for entry in thread.entries if entry.ns == ns]
            for entry in reversed(own):
                want, got = await _next(wanted), await _next(found)
                if want is None or want.checkpoint["id"] != entry.id:
                    raise _changed(thread)
                if got is None or got.checkpoint["id"] != entry.id:
                    raise DataError(
                        f"{_named(thread, entry)} is not in its place in the target: the order differs, or somebody "
                        "else changes the target"
                    )
                if (difference := _difference(thread, ns, want, got)) is not None:
                    raise DataError(f"{_named(thread, entry)} differs after the copy: {difference}")
            if await _next(wanted) is not None:
                raise _changed(thread)
            if await _next(found) is not None:
                raise DataError(f"thread {thread.id!r} got other checkpoints in the target during the copy")
        if own[-1].open:
            sides = [await _history(side, thread, own[-1]) for side in (src, dst)]
            if (where := lost(*sides)) is not None:
                raise DataError(f"{_named(thread, own[-1])} differs after the copy: delta channel history{where}")


def _is_behind(thread: _Thread, ns: str, want: CheckpointTuple, got: CheckpointTuple) -> bool:
    """Say whether the target lacks nothing but some writes, which its source got since."""
    if _difference(thread, ns, want._replace(pending_writes=[]), got._replace(pending_writes=[])) is not None:
        return False
    missing = list(want.pending_writes or [])
    for write in got.pending_writes or []:
        place = next((n for n, other in enumerate(missing) if lost(other, write) is None), None)
        if place is None:
            return False
        del missing[place]
    return True


def _difference(thread: _Thread, ns: str, want: CheckpointTuple, got: CheckpointTuple) -> str | None:
    """Return the first field in which a checkpoint of the target differs; None: in none."""
    if _parent(want) != _parent(got):
        return f"parent {_parent(want)!r} becomes {_parent(got)!r}"
    metadata = thread.metadata(want)
    if odd := metadata.keys() ^ got.metadata.keys():
        return f"metadata key {min(odd)!r} is {'lost' if min(odd) in metadata else 'added'} (see without_metadata)"
    before, after = ({**cast("dict[str, Any]", item.checkpoint)} for item in (want, got))
    values, others = before.pop("channel_values"), after.pop("channel_values")
    # A version has one value in most stores, so a snapshot shows also where the version was merely carried on.
    carried = {
        channel
        for channel in others.keys() - values.keys()
        if thread.held.get((ns, channel, want.checkpoint["channel_versions"].get(channel)))
    }
    others = {channel: value for channel, value in others.items() if channel not in carried}
    return next(
        (
            f"{field}{where}"
            for field, one, other in (
                ("metadata", metadata, dict(got.metadata)),
                ("checkpoint", before, after),
                ("channel_values", values, others),
                ("pending_writes", want.pending_writes or [], got.pending_writes or []),
            )
            if (where := lost(one, other)) is not None
        ),
        None,
    )


async def _get(src: Side, thread: _Thread, entry: _Entry) -> CheckpointTuple:
    found: CheckpointTuple | None = await src.call("get_tuple", thread.at(entry))
    if found is None:
        raise _changed(thread)
    return found


async def _history(side: Side, thread: _Thread, entry: _Entry) -> dict[str, Any]:
    return dict(await side.call("get_delta_channel_history", config=thread.at(entry), channels=entry.open))


async def _next(items: AsyncGenerator[CheckpointTuple]) -> CheckpointTuple | None:
    return await anext(items, None)


def _delta_channels(item: CheckpointTuple) -> Iterable[str]:
    counters: Any = item.metadata.get("counters_since_delta_snapshot") or ()
    return [channel for channel in counters if channel in item.checkpoint["channel_versions"]]


def _parent(item: CheckpointTuple) -> str | None:
    return item.parent_config["configurable"].get("checkpoint_id") if item.parent_config else None


def _config(thread: str, ns: str, id: str | None) -> RunnableConfig:
    address = {"thread_id": thread, "checkpoint_ns": ns}
    return {"configurable": address if id is None else {**address, "checkpoint_id": id}}


def _named(thread: _Thread, entry: _Entry) -> str:
    return f"checkpoint {entry.id!r} of thread {thread.id!r}, namespace {entry.ns!r}"


def _changed(thread: _Thread) -> Conflict:
    return Conflict(f"thread {thread.id!r} changed in the source while it was copied; call again to copy the rest")


@contextmanager
def _reporter(progress: Progress | bool) -> Iterator[Progress]:
    if callable(progress):
        yield progress
    elif progress:
        with closing(load("checkpoint.progress_bar", "ProgressBar")()) as bar:
            yield bar
    else:
        yield lambda thread_id, done, total: None

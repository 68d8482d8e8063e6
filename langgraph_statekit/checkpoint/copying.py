"""Copying threads between any two checkpointers: resumable, and compared with the source when done.

Nothing but a checkpoint whose writes are all stored counts as copied, since its writes go first. So a copy that was
killed leaves a target that a second one finds equal as far as it goes, and continues.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple

from langgraph_statekit.checkpoint.comparing import (
    Entry,
    Thread,
    address_of,
    delta_channels,
    difference_of,
    is_behind,
    named,
    parent_of,
    relabelled,
)
from langgraph_statekit.checkpoint.exact import lost
from langgraph_statekit.checkpoint.lifecycle import Lifecycle
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.checkpoint.sampled import Sampled
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

    A thread is copied with all namespaces, forks, metadata and pending writes; ids and versions stay. Labels go along
    between savers of this package; those that only the target has stay. Call again after a kill, or for what the source
    got since: what the target has already is skipped. Each thread is compared with its source at the end. One
    checkpoint is held in memory at a time, besides the ids and versions of a thread.

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


async def _copy(
    src: Side,
    dst: Side,
    thread_ids: Sequence[str] | None,
    replace: bool,
    left_out: Collection[str],
    report: Progress,
) -> Copied:
    src, dst = await _unsampled(src), await _unsampled(dst)
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
        thread = Thread(id, left_out, await _entries(src, id))
        if not thread.entries:
            continue  # says nothing about the target's
        threads += 1
        await _require_ancestors(src, thread)
        if dst.has_labels:
            thread.labels = {label: at for label, at in (await src.labels(id)).items() if at in thread.places}
        done = await _present(src, dst, thread, replace)
        report(id, 0, len(thread.entries))
        for number, entry in enumerate(thread.entries, 1):
            if entry not in done:
                await _transfer(src, dst, thread, entry)
            report(id, number, len(thread.entries))
        await _label(dst, thread)
        await _verify(src, dst, thread)
        written += len(thread.entries) - len(done)
        skipped += len(done)
    return Copied(threads, written, skipped)


async def _unsampled(side: Side) -> Side:
    """Return the saver that a `Sampled` stands before, with all that was held: a copy leaves nothing out."""
    while isinstance(side.saver, Sampled):
        await side.call("flush")
        side = Side(side.saver.saver, side.is_async)
    return side


async def _entries(side: Side, thread: str) -> list[Entry]:
    """Return the checkpoints of a thread, oldest first."""
    found: list[Entry] = []
    async with aclosing(listed(side, {"configurable": {"thread_id": thread}})) as items:
        async for item in items:
            address = item.config["configurable"]
            open = tuple(
                channel for channel in delta_channels(item) if channel not in item.checkpoint["channel_values"]
            )
            found.append(Entry(address.get("checkpoint_ns", ""), item.checkpoint["id"], parent_of(item), open))
    found.reverse()
    blocks = [list(block) for _, block in groupby(found, key=lambda entry: entry.ns)]
    if len(blocks) == len({entry.ns for entry in found}):  # one namespace after the other, as InMemorySaver lists them
        return list(heapq.merge(*blocks, key=lambda entry: entry.id))
    return found


async def _require_ancestors(src: Side, thread: Thread) -> None:
    known = thread.places
    for entry in thread.entries:
        if entry.open and (entry.ns, entry.parent) not in known:
            for channel, found in (await _history(src, thread, entry)).items():
                if found["writes"] or "seed" in found:
                    raise DataError(
                        f"{named(thread, entry)} cannot be copied: its delta channel {channel!r} builds on "
                        "checkpoints that retention has removed from sight; nothing of this thread was changed"
                    )


async def _present(src: Side, dst: Side, thread: Thread, replace: bool) -> set[Entry]:
    """Return what the target has already; a target that differs is removed or refused."""
    there = {(entry.ns, entry.id) for entry in await _entries(dst, thread.id)}
    if not there:
        return set()
    surplus = next((key for key in there if key not in thread.places), None)
    differs = surplus and f"checkpoint {surplus[1]!r} of namespace {surplus[0]!r} is not in the source"
    differs = differs or relabelled(thread, await dst.labels(thread.id))
    done: set[Entry] = set()
    for entry in thread.entries if not differs else ():
        if (entry.ns, entry.id) not in there:
            continue
        want = await _get(src, thread, entry)
        got = await dst.call("get_tuple", thread.at(entry))
        thread.hold(entry.ns, want)
        difference = "it is gone" if got is None else difference_of(thread, entry.ns, want, got)
        if difference is None:
            done.add(entry)
        elif got is None or not is_behind(thread, entry.ns, want, got):
            differs = f"{named(thread, entry)}: {difference}"
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


async def _transfer(src: Side, dst: Side, thread: Thread, entry: Entry) -> None:
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
    below = address_of(thread.id, entry.ns, entry.parent)
    await dst.call("put", below, item.checkpoint, thread.metadata(item), thread.new_versions(entry.ns, item))
    thread.hold(entry.ns, item)


async def _label(dst: Side, thread: Thread) -> None:
    there = await dst.labels(thread.id) if thread.labels else {}
    for label, (ns, id) in thread.labels.items():
        if label not in there:
            await dst.call("label", address_of(thread.id, ns, id), label)


async def _verify(src: Side, dst: Side, thread: Thread) -> None:
    """Compare both sides, each namespace from its newest checkpoint to its oldest."""
    known = thread.places
    async with aclosing(src.list({"configurable": {"thread_id": thread.id}}, limit=1)) as items:
        async for item in items:
            if (item.config["configurable"].get("checkpoint_ns", ""), item.checkpoint["id"]) not in known:
                raise _changed(thread)
    for ns in dict.fromkeys(entry.ns for entry in thread.entries):
        at = address_of(thread.id, ns, None)
        async with aclosing(listed(src, at)) as wanted, aclosing(listed(dst, at)) as found:
            own = [entry for entry in thread.entries if entry.ns == ns]
            for entry in reversed(own):
                want, got = await _next(wanted), await _next(found)
                if want is None or want.checkpoint["id"] != entry.id:
                    raise _changed(thread)
                if got is None or got.checkpoint["id"] != entry.id:
                    raise DataError(
                        f"{named(thread, entry)} is not in its place in the target: the order differs, or somebody "
                        "else changes the target"
                    )
                if (difference := difference_of(thread, ns, want, got)) is not None:
                    raise DataError(f"{named(thread, entry)} differs after the copy: {difference}")
            if await _next(wanted) is not None:
                raise _changed(thread)
            if await _next(found) is not None:
                raise DataError(f"thread {thread.id!r} got other checkpoints in the target during the copy")
        if own[-1].open:
            sides = [await _history(side, thread, own[-1]) for side in (src, dst)]
            if (where := lost(*sides)) is not None:
                raise DataError(f"{named(thread, own[-1])} differs after the copy: delta channel history{where}")
    if thread.labels and not (await dst.labels(thread.id)).items() >= thread.labels.items():
        raise DataError(f"labels of thread {thread.id!r} differ after the copy: somebody else changes the target")


async def _get(src: Side, thread: Thread, entry: Entry) -> CheckpointTuple:
    found: CheckpointTuple | None = await src.call("get_tuple", thread.at(entry))
    if found is None:
        raise _changed(thread)
    return found


async def _history(side: Side, thread: Thread, entry: Entry) -> dict[str, Any]:
    return dict(await side.call("get_delta_channel_history", config=thread.at(entry), channels=entry.open))


async def _next(items: AsyncGenerator[CheckpointTuple]) -> CheckpointTuple | None:
    return await anext(items, None)


def _changed(thread: Thread) -> Conflict:
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

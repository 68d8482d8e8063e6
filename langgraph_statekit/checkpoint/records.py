"""What a store keeps: frozen records without any LangGraph type.

Every id in a record is *storage text* (see `to_text`): valid UTF-8 without NUL, so that each store
takes it as it is. `Row.body`, `Frame.data` and `Write.data` are opaque bytes made by `codec`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_SPECIAL = re.compile("[\\\\\x00\ud800-\udfff]")
_ESCAPED = re.compile(r"\\(?:\\|u([0-9a-f]{4}))")


KEY_BYTES = 16
NAME_BYTES = 8
HEADER_ID_BYTES = 8
"""Bytes that a thread's header begins with; they stay when the rest is wrapped anew."""


def to_text(value: object) -> str:
    """Return `str(value)` with NUL, lone surrogates and backslashes escaped, so that any store takes it."""
    text = str(value)
    if text.isascii() and "\\" not in text and "\0" not in text:
        return text
    return _SPECIAL.sub(lambda m: "\\\\" if m[0] == "\\" else f"\\u{ord(m[0]):04x}", text)


def from_text(text: str) -> str:
    """Undo `to_text`."""
    return _ESCAPED.sub(lambda m: chr(int(m[1], 16)) if m[1] else "\\", text)


def split(joined: bytes, size_bytes: int) -> tuple[bytes, ...]:
    """Return the pieces of equal size that were joined."""
    return tuple(joined[at : at + size_bytes] for at in range(0, len(joined), size_bytes))


class Ref(NamedTuple):
    """Address of one checkpoint; a plain tuple, since retention makes and looks up thousands."""

    thread: str
    ns: str
    id: str


class Row(NamedTuple):
    """One checkpoint without its channel values.

    Attributes:
        ref: Address.
        parent: Id of the parent checkpoint as shown to readers; None for a root.
        via: Id of the ancestor to walk to for delta history where it differs from `parent` (retention has
            removed what lay between); None: walk to `parent`.
        seq: Place in the thread's order over all namespaces (see `order`); no two rows of a thread share one.
            Assigned by the store; in a row that is not stored yet 0, or what it is sealed with (see `SaveRow.seq`).
        packed_keys: One frame key of 16 bytes for each channel version of the checkpoint, stored or not, joined. The
            first 8 bytes name the channel, the last 8 the version.
        packed_deltas: The 8-byte channel names of channels whose value must be rebuilt from ancestors, joined.
        run_id: `metadata["run_id"]`, for `delete_for_runs`; None if there is none.
        hidden: Kept only for the delta history of later checkpoints; neither listed nor loaded.
        body: Checkpoint and metadata, opaque. Empty in an outline.
        audit: Some of the metadata as JSON, readable; for stores that show it, kept by no other. None: none.
    """

    ref: Ref
    parent: str | None = None
    via: str | None = None
    seq: int = 0
    packed_keys: bytes = b""
    packed_deltas: bytes = b""
    run_id: str | None = None
    hidden: bool = False
    body: bytes = b""
    audit: str | None = None

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The frame keys, one by one."""
        return split(self.packed_keys, KEY_BYTES)

    @property
    def deltas(self) -> tuple[bytes, ...]:
        """The names of the channels to rebuild, one by one."""
        return split(self.packed_deltas, NAME_BYTES)

    def linked(self, links: Row) -> Row:
        """Return this row with parent, via and hidden of another one."""
        return self._replace(parent=links.parent, via=links.via, hidden=links.hidden)


HEAD_BYTES = 26
"""Bytes of a stored frame that tell its check and its base."""


class Frame(NamedTuple):
    """One stored version of one channel, or in an outline the first `HEAD_BYTES` of it.

    Attributes:
        key: 16 bytes that name channel and version; a frame that was replaced while others build on it is kept under
            key and check together (20 bytes).
        data: The envelope (see `frames`); None says that the version has no value.
    """

    key: bytes
    data: bytes | None

    @property
    def stored(self) -> bytes:
        """The envelope of a frame that has a value."""
        assert self.data is not None
        return self.data

    @property
    def check(self) -> bytes:
        """The 4 bytes that tell this value from another of the same key: `data[2:6]`."""
        return self.stored[2:6]

    @property
    def base(self) -> tuple[bytes, bytes] | None:
        """Key and check of the frame that a delta builds on, `data[6:22]` and `data[22:26]`; None: it is whole."""
        data = self.stored
        return (data[6:22], data[22:26]) if len(data) >= HEAD_BYTES and data[0] == 1 and data[1] & 2 else None


class Heads(Mapping[bytes, Frame]):
    """The frames of an outline, each made when it is looked at.

    A thread has many, few are looked at, and so many objects at once would set off Python's collection of garbage.

    Args:
        heads: Of the frames, by key.
    """

    __slots__ = ("_heads",)

    def __init__(self, heads: Mapping[bytes, bytes]) -> None:
        self._heads = heads

    def __getitem__(self, key: bytes) -> Frame:
        return Frame(key, self._heads[key])

    def __contains__(self, key: object) -> bool:
        return key in self._heads

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._heads)

    def __len__(self) -> int:
        return len(self._heads)


@dataclass(frozen=True, slots=True)
class Write:
    """One pending write of a task; `idx < 0` is a special channel that overwrites, others keep the first."""

    task: str
    idx: int
    channel: str
    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Stored:
    """A row with its writes, its frames and the frames that these build on.

    Attributes:
        row: The row.
        frames: Its frames by key.
        writes: Its writes.
        header: The thread's, see `SaveRow`; a store may leave it out where the row is not sealed.
    """

    row: Row
    frames: Mapping[bytes, Frame]
    writes: Sequence[Write]
    header: bytes = b""


@dataclass(frozen=True, slots=True)
class Query:
    """Which rows of a thread to read, newest first.

    Attributes:
        thread: Thread to read.
        ns: Namespace, or None for all namespaces of the thread.
        id: Only this checkpoint id (in each namespace that has it), or None.
        before: Only rows older than this checkpoint id. In a namespace that has a row of this id the rows are
            compared by `seq`, in any other by id as text. None: no bound.
        below_seq: Only rows with `seq < below_seq`: where the last page ended. None: from the newest.
        limit: At most this many rows.
        refresh: Whether the read lets the thread live on, see `expiry`.
        hidden: Hidden rows instead of the others; with `ns`, for what there is little of, such as labels.
    """

    thread: str
    ns: str | None = None
    id: str | None = None
    before: str | None = None
    below_seq: int | None = None
    limit: int = 100
    refresh: bool = False
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Outline:
    """All of a thread but its values: rows without bodies (hidden ones too) in order of `seq`, and heads of frames.

    `rev` rises by one with every saved row and every `apply` on the thread, and begins somewhere else with each of its
    lives; 0 for a thread that does not exist. One of the heads alone leaves out `more_rows` and `more_frames`, see
    `Backend.outline`.
    """

    rev: int
    rows: Sequence[Row]
    frames: Mapping[bytes, Frame]
    more_rows: int = 0
    more_frames: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A set of removals that `Backend.apply` makes as one step.

    Attributes:
        drop: Rows to remove together with their writes.
        drop_frames: Keys of frames to remove.
        keep: All rows that stay, for a store that would rather keep these few than remove many; the same change as
            `drop`, since it is only made to what was outlined. None: look at `drop`.
        keep_frames: With `keep`, keys of all frames that stay.
        rest: What the outline left out goes too, so `drop` is not all, and `keep` must be looked at.
        relink: Rows that stay but change, without bodies: their parent, via and hidden are stored. Hidden ones keep
            their writes.
    """

    drop: Sequence[Ref] = ()
    drop_frames: Sequence[bytes] = ()
    keep: Collection[Ref] | None = None
    keep_frames: Collection[bytes] = ()
    relink: Sequence[Row] = ()
    rest: bool = False

    @property
    def idle(self) -> bool:
        """Whether it changes nothing."""
        return not (self.drop or self.drop_frames or self.relink or self.rest)

    @property
    def shorter(self) -> tuple[bool, Collection[Ref], Collection[bytes]]:
        """Whether to keep or to drop, and rows and frame keys to keep or to drop: whichever are fewer."""
        if self.keep is not None:
            kept, gone = len(self.keep) + len(self.keep_frames), len(self.drop) + len(self.drop_frames)
            if self.rest or kept < gone:
                return True, self.keep, self.keep_frames
        return False, self.drop, self.drop_frames


@dataclass(frozen=True, slots=True)
class SaveRow:
    """A checkpoint to store with its new frames.

    Attributes:
        row: The checkpoint.
        frames: Values of its new versions.
        at: The time in its id, see `order`.
        token: That of the lease under which it is saved, see `claims`; None: under none.
        whole: It comes with all values there are; else one whose parent is gone is refused if it lacks some.
        ttl_us: The time to live of its thread from now on, see `expiry`; None: as it was.
        header: Of the data key that it is sealed with (see `sealing`): only the id, of a thread that has it; all of it,
            for one that may have none yet. Empty: it is not sealed.
    """

    row: Row
    frames: Sequence[Frame]
    at: int = 0
    token: int | None = None
    whole: bool = False
    ttl_us: int | None = None
    header: bytes = b""

    @property
    def thread(self) -> str:
        """The thread that it changes."""
        return self.row.ref.thread

    @property
    def seq(self) -> int:
        """The place that the row must get, since it is sealed with it; 0: any."""
        return self.row.seq if self.header else 0

    @property
    def parent(self) -> Ref | None:
        """The parent that must be stored if not all values are; None: no matter."""
        row = self.row
        return None if self.whole or row.parent is None else row.ref._replace(id=row.parent)

    def unsent(self) -> list[bytes]:
        """Return the keys of the checkpoint for which no frame is sent."""
        sent = {frame.key for frame in self.frames}
        return [key for key in self.row.keys if key not in sent]


@dataclass(frozen=True, slots=True)
class SaveWrites:
    """The writes of one task to store; `token` and `header` as in `SaveRow`."""

    ref: Ref
    writes: Sequence[Write]
    token: int | None = None
    header: bytes = b""

    @property
    def thread(self) -> str:
        """The thread that it changes."""
        return self.ref.thread


Save = SaveRow | SaveWrites


def is_made(result: int | Exception) -> bool:
    """Say whether a save was made, by what `Backend.save` returned for it."""
    return not isinstance(result, Exception) and result > 0

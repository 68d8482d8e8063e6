"""The file that sessions are exported to: JSON lines, each followed by the bytes that it tells of. Pure.

The first line says what the file is. A line with `bytes` is followed by so many bytes and a line feed, and tells their
SHA-256. The last line tells how many lines there were and the SHA-256 of all before it, so that a file that was cut off
or altered is refused before anything of it is used.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from io import TextIOBase
from typing import Any, BinaryIO, Final

from langgraph_statekit.checkpoint.records import Frame, Ref, Row, Write
from langgraph_statekit.errors import Corrupt, Misuse, SchemaTooNew

FORMAT: Final = "statekit-sessions"
_VERSION: Final = 1
_LAYOUT: Final = (
    "JSON lines; a line with 'bytes' is followed by that many bytes and a line feed. session: a record. checkpoint,"
    " value, write: of the session before it, as langgraph-statekit stores them, not encrypted. memory: of a user. end:"
    " lines before it, and the SHA-256 of all bytes before it"
)
_MOST_LINE_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Thread:
    """What a file holds of one session.

    Attributes:
        session_id: Its id.
        record: Its record, as JSON.
        rows: Checkpoints with bodies, oldest first; `ref.thread` is empty.
        frames: Values by key, with all that they build on.
        writes: Pending writes by checkpoint.
        labels: Namespace and id of checkpoints by label.
    """

    session_id: str
    record: Mapping[str, Any]
    rows: Sequence[Row] = ()
    frames: Mapping[bytes, Frame] = field(default_factory=dict)
    writes: Mapping[Ref, Sequence[Write]] = field(default_factory=dict)
    labels: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(slots=True)
class Archive:
    """All that a file holds: sessions, what was remembered, as user id, text and source, and its own checksum."""

    threads: list[Thread] = field(default_factory=list)
    memories: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list)
    checksum: str = ""


class Writer:
    """Writes a file piece by piece.

    Args:
        file: Open for writing bytes.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._sum, self._lines = file, sha256(), 0
        self.size_bytes = 0
        self._line({"format": FORMAT, "version": _VERSION, "layout": _LAYOUT})

    def thread(self, thread: Thread) -> None:
        """Write a session."""
        self._line(
            {"kind": "session", "session_id": thread.session_id, "record": thread.record, "labels": thread.labels}
        )
        for frame in thread.frames.values():
            self._line({"kind": "value", "key": frame.key.hex()}, frame.stored)
        for row in thread.rows:
            at = {"ns": row.ref.ns, "id": row.ref.id}
            about = {"parent": row.parent, "via": row.via, "run_id": row.run_id}
            packed = {"keys": _text(row.packed_keys), "deltas": _text(row.packed_deltas)}
            self._line({"kind": "checkpoint", **at, **about, **packed}, row.body)
            for write in thread.writes.get(row.ref, ()):
                what = {"task": write.task, "idx": write.idx, "channel": write.channel, "path": write.path}
                self._line({"kind": "write", **at, **what}, write.data)

    def memory(self, user_id: str, text: str, source: Mapping[str, Any]) -> None:
        """Write what was remembered for a user."""
        self._line({"kind": "memory", "user_id": user_id, "text": text, "source": source})

    def end(self) -> None:
        """Write the last line."""
        self._line({"kind": "end", "lines": self._lines, "sha256": self._sum.hexdigest()})

    def _line(self, told: dict[str, Any], data: bytes | None = None) -> None:
        if data is not None:
            told = {**told, "bytes": len(data), "sha256": sha256(data).hexdigest()}
        line = json.dumps(told, separators=(",", ":")).encode() + b"\n" + (b"" if data is None else data + b"\n")
        self._file.write(line)
        self._sum.update(line)
        self._lines += 1
        self.size_bytes += len(line)


def require_binary(file: object, verb: str) -> None:
    """Raise `Misuse` for what is no file that is open for bytes."""
    if isinstance(file, TextIOBase) or not hasattr(file, verb):
        raise Misuse(f"sessions need a path, or a file that is open in binary mode, not {type(file).__name__}")


def read_archive(file: BinaryIO) -> Archive:
    """Return all that a file holds, once every checksum was found right.

    Raises:
        Misuse: It is no file of this kind.
        SchemaTooNew: A later release wrote it.
        Corrupt: It was cut off or altered.
    """
    lines = _lines(file)
    _, first, _ = next(lines, (0, {}, None))
    if first.get("format") != FORMAT:
        raise Misuse("this is no file of exported sessions: its first line does not say so")
    if first.get("version") != _VERSION:
        raise SchemaTooNew(f"a later release wrote this file (version {first.get('version')}): upgrade this one")
    found, done = Archive(), False
    for number, told, data in lines:
        if done:
            raise Corrupt(f"line {number} of the file comes after its end")
        try:
            done = _take(found, told, data)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise Corrupt(f"line {number} of the file cannot be read: {type(error).__name__}") from error
    if not done:
        raise Corrupt("the file was cut off: its last line is missing")
    return found


def _take(found: Archive, told: Mapping[str, Any], data: bytes | None) -> bool:
    """Add what a line tells; True says that it was the last one."""
    kind = told["kind"]
    if kind == "end":
        found.checksum = told["sha256"]
        return True
    if kind == "memory":
        found.memories.append((told["user_id"], told["text"], told["source"]))
        return False
    if kind == "session":
        labels = {label: (at[0], at[1]) for label, at in told["labels"].items()}
        found.threads.append(Thread(told["session_id"], told["record"], [], {}, {}, labels))
        return False
    thread = found.threads[-1]
    rows, frames, writes = _filled(thread)
    if data is None:
        raise ValueError
    if kind == "value":
        key = bytes.fromhex(told["key"])
        frames[key] = Frame(key, data)
        return False
    ref = Ref("", *_texts(told, "ns", "id"))
    if kind == "checkpoint":
        keys, deltas = b64decode(told["keys"]), b64decode(told["deltas"])
        about = {name: told[name] for name in ("parent", "via", "run_id") if told[name] is None or _texts(told, name)}
        rows.append(Row(ref, seq=0, packed_keys=keys, packed_deltas=deltas, body=data, **about))
    elif kind == "write":
        task, channel, path = _texts(told, "task", "channel", "path")
        writes.setdefault(ref, []).append(Write(task, int(told["idx"]), channel, path, data))
    else:
        raise ValueError
    return False


def _texts(told: Mapping[str, Any], *names: str) -> list[str]:
    if not all(isinstance(told[name], str) for name in names):
        raise ValueError
    return [told[name] for name in names]


def _filled(thread: Thread) -> tuple[list[Row], dict[bytes, Frame], dict[Ref, list[Write]]]:
    return thread.rows, thread.frames, thread.writes  # type: ignore[return-value]


def _lines(file: BinaryIO) -> Iterator[tuple[int, dict[str, Any], bytes | None]]:
    """Yield number, content and bytes of each line, whose checksums are right."""
    total, number = sha256(), 0
    while line := file.readline(_MOST_LINE_BYTES):
        number += 1
        try:
            told = json.loads(line) if line.endswith(b"\n") else None
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict):
            if number == 1:
                raise Misuse("this is no file of exported sessions: its first line is no JSON")
            raise Corrupt(f"line {number} of the file was cut off or altered")
        if told.get("kind") == "end" and (told.get("lines"), told.get("sha256")) != (number - 1, total.hexdigest()):
            raise Corrupt("the file was altered: its checksum is another one")
        total.update(line)
        data = None
        if "bytes" in told:
            size = told["bytes"]
            try:
                data = file.read(size) if type(size) is int and size >= 0 else b""
            except (MemoryError, OverflowError):  # of a size that somebody made up
                data = b""
            ends = file.read(1)
            if len(data) != size or ends != b"\n" or sha256(data).hexdigest() != told.get("sha256"):
                raise Corrupt(f"what line {number} of the file tells of was cut off or altered")
            total.update(data + ends)
        yield number, told, data


def _text(data: bytes) -> str:
    return b64encode(data).decode()

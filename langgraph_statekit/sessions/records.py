"""What is stored of a session, and what is told of it: always by the store's clock. Pure.

A session is one cell of its thread. Its times are the store's: in what is written `active_us` and `created_us` may be
0, which stands for the moment of the change, and are filled in when it is read.
"""

from __future__ import annotations

import json
import re
import reprlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final, Literal

from langgraph_statekit.checkpoint.cells import Cell, CellRef, cell_ref
from langgraph_statekit.checkpoint.options import require_texts
from langgraph_statekit.errors import Corrupt, Misuse, SchemaTooNew
from langgraph_statekit.thread_ids import parse_thread_id, thread_id

Status = Literal["active", "idle", "waiting", "closed", "expired"]
ACTIVE: Final = "active"
IDLE: Final = "idle"
WAITING: Final = "waiting"
CLOSED: Final = "closed"
EXPIRED: Final = "expired"
DELETING: Final = "deleting"
IMPORTING: Final = "importing"
STATUSES: Final = (ACTIVE, IDLE, WAITING, CLOSED, EXPIRED)
POLICIES: Final = ("keep", "delete", "summary")
KIND: Final = "session"
_FORMAT: Final = 1
_KEY: Final = "record"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_MOST_ID: Final = 1024
_MOST_METADATA_BYTES: Final = 64 << 10
_MOST_LEVELS: Final = 100
_MOST_US: Final = 10**17
"""In the year 5138: the sum of two such times is still a date."""
_MOST_DIGITS: Final = 20
_LEAST_DIGITS: Final = 7
"""Distinct hex digits of a random UUID; fewer come once in a billion, and in ids that somebody made up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A conversation of a user with an agent, as it was when it was read; times are by the store's clock.

    Attributes:
        session_id: Its id, which is also the id of its thread. Whoever knows it and the user may open it.
        user_id: Whose it is.
        agent: Name of the agent.
        version: Version line of the agent.
        status: `active`: a turn is under way, or its process died and nobody went on since. `idle`: no turn is under
            way. `waiting`: the graph waits for an answer to an interrupt. `closed`: `close` was called. `expired`:
            nobody used it for too long.
        metadata: What the application keeps with it.
        created_at: When it was made.
        updated_at: When anything of it changed last.
        active_at: When it was used last.
        expires_at: When it expires unless it is used; None while it does not.
        message_count: Messages after the last turn or `touch`; None if that is not known.
        size_bytes: What its thread took up in the store then; None if the store does not tell.
        device: What the turn under way was said to come from; empty without one.
        left: What the policy of an expired session left of it; None if nothing.
        rev: Rises with each change: pass it to `watch`.
    """

    session_id: str
    user_id: str
    agent: str
    version: int
    status: Status
    metadata: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime
    active_at: datetime
    expires_at: datetime | None
    message_count: int | None
    size_bytes: int | None
    device: str
    left: Mapping[str, Any] | None
    rev: int

    @property
    def ended(self) -> bool:
        """Whether it is closed or expired: it can be read, but not gone on with."""
        return self.status in (CLOSED, EXPIRED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is stored of a session; `state` is a status, or `deleting` or `importing`, whose session nobody sees."""

    user: str
    agent: str
    version: int
    idle_us: int = 0
    on_expiry: str = "keep"
    expire_waiting: bool = False
    state: str = IDLE
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created_us: int = 0
    active_us: int = 0
    device: str = ""
    messages: int | None = None
    size_bytes: int | None = None
    left: Mapping[str, Any] | None = None

    @property
    def ends_us(self) -> int | None:
        """When it expires if nobody uses it; None: it does not."""
        lives = self.state == IDLE or (self.state == WAITING and self.expire_waiting)
        return self.active_us + self.idle_us if lives else None

    @property
    def dead_us(self) -> int | None:
        """When it expires even if it is marked as active, which then is a mark of a process that died."""
        return self.active_us + self.idle_us if self.state == ACTIVE else self.ends_us

    def status(self, now_us: int) -> Status:
        """Return what it is now."""
        if self.ends_us is not None and self.ends_us <= now_us:
            return "expired"
        return "closed" if self.hidden else self.state  # type: ignore[return-value]

    @property
    def hidden(self) -> bool:
        """Whether there is no session yet, or none any more, for anybody."""
        return self.state in (DELETING, IMPORTING)

    def used(self, **fields: Any) -> Record:
        """Return the record as used now."""
        return replace(self, active_us=0, **fields)

    def abandoned(self) -> Record:
        """Return the record as that of a session whose turn is known to be over."""
        return replace(self, state=IDLE, device="") if self.state == ACTIVE else self

    def doomed(self) -> Record:
        """Return the record as that of a session that is being deleted."""
        return replace(self, state=DELETING, device="", metadata={}, left=None)


def ref_of(session_id: str) -> CellRef:
    """Return the address of a session's cell."""
    return cell_ref(KIND, _KEY, session_id)


def pack(record: Record) -> bytes:
    """Return a record as bytes."""
    return json.dumps({"format": _FORMAT, **fields_of(record)}, allow_nan=False, separators=(",", ":")).encode()


def fields_of(record: Record) -> dict[str, Any]:
    """Return the fields of a record."""
    return {name.name: getattr(record, name.name) for name in fields(record)}


def unpack(cell: Cell) -> Record:
    """Return the record of a cell, with its times.

    Raises:
        SchemaTooNew: A later release wrote it.
        Corrupt: It is none.
    """
    try:
        stored = json.loads(cell.value)
        newer = stored.pop("format") > _FORMAT
        record = None if newer else Record(**stored)
    except Exception as error:
        raise Corrupt(f"what is stored of the session {cell.ref.thread!r} cannot be read") from error
    if record is None:
        raise SchemaTooNew("a later release wrote this session: upgrade this one")
    return replace(record, created_us=record.created_us or cell.at_us, active_us=record.active_us or cell.at_us)


def session_of(session_id: str, cell: Cell, now_us: int) -> Session:
    """Return what is told of a session."""
    record = unpack(cell)
    return Session(
        session_id=session_id,
        user_id=record.user,
        agent=record.agent,
        version=record.version,
        status=record.status(now_us),
        metadata=record.metadata,
        created_at=_time(record.created_us),
        updated_at=_time(cell.at_us),
        active_at=_time(record.active_us),
        expires_at=None if record.ends_us is None else _time(record.ends_us),
        message_count=record.messages,
        size_bytes=record.size_bytes,
        device=record.device if record.state == ACTIVE else "",
        left=record.left,
        rev=cell.rev,
    )


def _time(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1e6, UTC)


def group(**by: str) -> str:
    """Return the name of a group: a hash, so that no user id stands in an index."""
    return blake2b(json.dumps(by, sort_keys=True).encode(), digest_size=16).hexdigest()


def groups_of(record: Record) -> tuple[str, ...]:
    """Return the groups in which a session is listed."""
    state = DELETING if record.hidden else record.state
    return (
        group(user=record.user),
        group(agent=record.agent),
        group(state=state),
        group(agent=record.agent, state=state),
    )


def sources(user_id: str | None, agent: str | None, status: str | None) -> list[str | None]:
    """Return the groups that hold all sessions asked for, and as few others as may be."""
    if user_id is not None:
        return [group(user=required_user(user_id))]
    if status is not None:
        states = (EXPIRED, IDLE, WAITING) if status == EXPIRED else (status,)
        return [group(state=state) if agent is None else group(agent=agent, state=state) for state in states]
    return [None if agent is None else group(agent=agent)]


def require_listing(agent: object, status: object, before: object) -> None:
    """Raise `Misuse` for what no sessions can be listed by."""
    if status is not None and status not in STATUSES:
        raise Misuse(f"no status of a session: {status!r}; use one of {', '.join(STATUSES)}")
    if not isinstance(before, Session | str | None):
        raise Misuse(f"before must be the last session of the page before, or its id, not {type(before).__name__}")
    require_texts(**({} if agent is None else {"agent": agent}))


def required_user(user_id: object) -> str:
    """Return a user id; raise `Misuse` for what is none."""
    # Surrogates go into no checkpoint, and JSON makes one character of two of them, and so one user of two.
    if not isinstance(user_id, str) or not user_id or _SURROGATE.search(user_id):
        raise Misuse(f"user_id must be a text that is not empty and has no surrogates, not {user_id!r}")
    return user_id


def storable(text: str) -> str:
    """Return a text with U+FFFD for NUL and lone surrogates, which not every `BaseStore` takes."""
    return _UNSTORABLE.sub("\ufffd", text)


def new_session_id(agent: str, version: int | str, instance: str | None) -> str:
    """Return the id of a new session: `support_v1_<uuid>`.

    Raises:
        Misuse: Agent or version is none, or the instance could be guessed.
    """
    while instance is None:
        made = str(uuid.uuid4())
        instance = made if _is_random(made) else None
    if not _is_random(instance):
        raise Misuse(
            "the instance of a session must be a random UUID (version 4), as str(uuid.uuid4()) is: whoever guesses the"
            f" id of a session can ask for it, so {instance!r} is refused; keep names and numbers in its metadata"
        )
    made = thread_id(agent, version_of(version), instance)
    if not is_session_id(made):
        raise Misuse(f"the name of an agent must be shorter than {_MOST_ID - 64} characters, not {len(agent):,}")
    return made


def version_of(version: int | str) -> int:
    """Return a version line as a number.

    Raises:
        Misuse: It is none.
    """
    short = isinstance(version, str) and len(version) < _MOST_DIGITS and version.isascii() and version.isdecimal()
    if short and str(int(version)) == version:
        return int(version)
    if type(version) is int and version >= 0:
        return version
    raise Misuse(f"the version line of an agent must be a whole number such as 1 or '1', not {version!r}")


def is_session_id(text: object) -> bool:
    """Say whether a text could be the id of a session; no other is ever looked up."""
    try:
        return isinstance(text, str) and len(text) < _MOST_ID and _is_random(parse_thread_id(text).instance)
    except (Misuse, UnicodeError):
        return False


def _is_random(text: object) -> bool:
    try:
        made = uuid.UUID(text) if isinstance(text, str) else None
    except ValueError:
        return False
    return (
        made is not None
        and str(made) == text
        and (made.version, made.variant) == (4, uuid.RFC_4122)
        and len(set(made.hex[:12] + made.hex[13:16] + made.hex[17:])) >= _LEAST_DIGITS
    )


def checked_metadata(metadata: object, what: str = "the metadata of a session") -> dict[str, Any]:
    """Return a mapping that JSON can hold.

    Raises:
        Misuse: It is none, or larger than 64 KiB.
    """
    try:
        text = json.dumps(dict(metadata), allow_nan=False)  # type: ignore[call-overload]
        back = json.loads(text)
        same = isinstance(metadata, Mapping) and back == dict(metadata) and _levels(back) <= _MOST_LEVELS
    except (TypeError, ValueError, RecursionError):
        same = False
    if not same:
        raise Misuse(
            f"{what} must be a mapping of names to JSON values, at most {_MOST_LEVELS} in each other, not"
            f" {reprlib.repr(metadata)}"
        )
    if len(text) > _MOST_METADATA_BYTES:
        raise Misuse(f"{what} takes {len(text):,} bytes: keep at most {_MOST_METADATA_BYTES:,}, and the rest elsewhere")
    return dict(back)


def _levels(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_levels, inner), default=0)


def imported(stored: object, session_id: str) -> Record:
    """Return the record of a file, in which anything may stand.

    Raises:
        Corrupt: No session of this id has such a record.
    """
    try:
        record = Record(**stored)  # type: ignore[arg-type]
        times = record.created_us, record.active_us, record.idle_us
        counts = [count for count in (record.messages, record.size_bytes) if count is not None]
        fine = (
            parse_thread_id(session_id)[:2] == (record.agent, record.version)
            and required_user(record.user) == record.user
            and all(type(us) is int and 0 <= us < _MOST_US for us in times)
            and all(type(count) is int and 0 <= count < 1 << 63 for count in counts)
            and (record.state in STATUSES and record.on_expiry in POLICIES)
            and (isinstance(record.expire_waiting, bool) and isinstance(record.device, str))
        )
        checked_metadata(record.metadata)
        checked_metadata({} if record.left is None else record.left)
    except (TypeError, Misuse):
        fine = False
    if not fine or not is_session_id(session_id):
        raise Corrupt(f"the record of session {session_id!r} in the file cannot be one")
    return record

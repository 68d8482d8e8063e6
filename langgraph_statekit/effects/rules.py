"""What the effect ledger knows of an effect, and what may be done about it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import ormsgpack
from pydantic import BaseModel

from langgraph_statekit.checkpoint.cells import EFFECT, Cell, effects_of
from langgraph_statekit.errors import Corrupt, SchemaTooNew

KIND: Final = EFFECT
PENDING: Final = "pending"
SENT: Final = "sent"
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"
RESOLVED: Final = "resolved"
STATES: Final = (PENDING, SENT, FAILED, UNKNOWN, RESOLVED)

NOT_SENT: Final = "not_sent"
COMPENSATED: Final = "compensated"
_FORMAT: Final = 1
_MOST_USES: Final = 32
FOR_EVER: Final = -1

Dumps = Callable[[Any], tuple[str, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An effect as it is stored.

    Attributes:
        state: One of `STATES`.
        request: Hash of what it was asked to do.
        claim: Names the attempt that is under way, or that came last.
        claimed_us: When that began, by the server's clock; 0 while it is pending, as its cell tells it then.
        lease_us: After so long a pending attempt counts as unknown.
        token: Of the lease of its thread at the time; None: there was none.
        attempts: How many there were.
        generation: How often it was compensated; each has another idempotency key.
        handed: The idempotency key that the provider was given.
        key: Its business identity; empty once its thread was deleted.
        thread: The thread that it was made for, as storage text.
        ns: Namespace of the node.
        checkpoint: The root's checkpoint that the step went on from.
        uses: The same of the last other steps of the thread that got what it gave, oldest first.
        owner: Who made the last attempt.
        outcome: Of a resolved one: `sent`, `not_sent` or `compensated`.
        result: Type tag and bytes of what it gave; None: nothing is known.
        error: What the last attempt raised.
        note: What somebody who resolved it said.
        compensation: Name of the function that undoes it.
        compensates: Whether it undoes another one.
        gone_us: How long it is kept once its thread was deleted; `FOR_EVER` for that.
        forgotten: Whether that was done.
    """

    state: str
    request: bytes
    claim: str = ""
    claimed_us: int = 0
    lease_us: int = 0
    token: int | None = None
    attempts: int = 1
    generation: int = 0
    handed: str = ""
    key: str = ""
    thread: str = ""
    ns: str = ""
    checkpoint: str = ""
    uses: tuple[str, ...] = ()
    owner: str = ""
    outcome: str = ""
    result: tuple[str, bytes] | None = None
    error: str = ""
    note: str = ""
    compensation: str = ""
    compensates: bool = False
    gone_us: int = 30 * 86_400_000_000
    forgotten: bool = False

    @property
    def is_made(self) -> bool:
        """Whether the effect is known to have happened, and to count."""
        return SENT in (self.state, self.outcome)

    @property
    def groups(self) -> tuple[str, ...]:
        """Under which it is listed."""
        return () if self.forgotten else (str(effects_of(self.thread).group), f"state {self.state}")

    @property
    def life_us(self) -> int | None:
        """How long it is kept from the deletion of its thread on; None: for ever."""
        return None if self.gone_us == FOR_EVER else self.gone_us

    def used(self, thread: str, checkpoint: str) -> Record:
        """Return it with a step that gets what it gave; itself if that is known, or of no matter to its thread."""
        if thread != self.thread or checkpoint in ("", self.checkpoint, *self.uses):
            return self
        return replace(self, uses=(*self.uses, checkpoint)[-_MOST_USES:])

    def without_content(self) -> Record:
        """Return what stays of it when its thread is deleted: enough not to make it again."""
        return Record(
            state=UNKNOWN if self.state == PENDING else self.state,
            request=self.request,
            claim=self.claim,
            claimed_us=self.claimed_us,
            attempts=self.attempts,
            generation=self.generation,
            outcome=self.outcome,
            gone_us=self.gone_us,
            forgotten=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What the ledger knows of an effect.

    Attributes:
        key: Its business identity.
        state: `pending`, `sent`, `failed` (certainly not made), `unknown`, or `resolved`.
        outcome: Of a resolved one: `sent`, `not_sent` or `compensated`; else empty.
        thread_id: The thread that it was made for.
        checkpoint_ns: Namespace of the node that made it.
        checkpoint_id: The root's checkpoint that its step went on from; empty outside of a run.
        idempotency_key: What the provider was given.
        attempts: How many there were.
        claimed_us: When the last attempt began, in microseconds since 1970 by the server's clock.
        changed_us: When this was recorded, by the same clock.
        owner: Who made the last attempt.
        result: What it gave; None if nothing is known.
        error: What the last attempt raised.
        note: What was said when it was resolved.
    """

    key: str
    state: str
    outcome: str
    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    idempotency_key: str
    attempts: int
    claimed_us: int
    changed_us: int
    owner: str
    result: Any
    error: str
    note: str


class SettledEffects(NamedTuple):
    """What became of effects that a rollback goes back behind.

    Attributes:
        kept: They stay: the steps that run again get their results.
        compensated: They were undone, and are made again if their steps run again.
        open: Somebody must decide: all of them with `ask`; with `compensate` those that nobody knows of, or that have
            no function that undoes them.
    """

    kept: Sequence[Effect] = ()
    compensated: Sequence[Effect] = ()
    open: Sequence[Effect] = ()


def encode(record: Record) -> bytes:
    """Pack a record."""
    plain = {name: value for name, value in asdict(record).items() if value not in ("", None, 0, False, ())}
    return ormsgpack.packb({"v": _FORMAT, **plain})


def decode(cell: Cell) -> Record:
    """Unpack a record.

    Raises:
        Corrupt: It cannot be read.
        SchemaTooNew: A later release wrote it.
    """
    try:
        plain = ormsgpack.unpackb(cell.value)
        version = plain.pop("v")
        if version > _FORMAT:
            raise SchemaTooNew(f"an effect has format {version}, this release reads {_FORMAT}: upgrade it")
        result = plain.pop("result", None)
        plain = {"attempts": 0, **plain, "uses": tuple(plain.get("uses", ()))}
        record = Record(**plain, result=None if result is None else (result[0], result[1]))
    except (ormsgpack.MsgpackDecodeError, AttributeError, KeyError, TypeError, IndexError) as error:
        raise Corrupt(f"a stored effect of {len(cell.value)} bytes cannot be read: {error!r}") from error
    return replace(record, claimed_us=cell.at_us) if record.state == PENDING else record


class Asked(NamedTuple):
    """What one call asks of the ledger; fields as in `Record`."""

    request: bytes
    thread: str
    token: int | None


DONE: Final = "done"
CLAIM: Final = "claim"
WAIT: Final = "wait"
CONFLICT: Final = "conflict"


def judge(record: Record, asked: Asked, now_us: int) -> str:
    """Return what a caller may do about an effect that is known.

    `DONE`: return its result. `CLAIM`: it certainly was not made, make it. `WAIT`: another attempt may be under way.
    `UNKNOWN`: nobody knows. `CONFLICT`: the key stands for another request.
    """
    if record.state == FAILED or record.outcome in (NOT_SENT, COMPENSATED):
        return CLAIM
    if record.request != asked.request:
        return CONFLICT
    if record.is_made:
        return DONE
    return WAIT if record.state == PENDING and left_us(record, asked, now_us) > 0 else UNKNOWN


def left_us(record: Record, asked: Asked, now_us: int) -> int:
    """Return for how long a pending attempt still counts as under way.

    Not at all if it was made under a lease of the thread that the caller has by now: then whoever made it is fenced
    off.
    """
    taken_over = record.thread == asked.thread and None not in (record.token, asked.token)
    if taken_over and record.token != asked.token:
        return 0
    return record.claimed_us + record.lease_us - now_us


def as_seen(record: Record, now_us: int) -> Record:
    """Return a record as people are shown it: a pending one whose time is over is unknown."""
    over = record.state == PENDING and now_us >= record.claimed_us + record.lease_us
    return replace(record, state=UNKNOWN) if over else record


def fingerprint(secret: bytes, request: object, dumps: Dumps) -> bytes:
    """Return a hash of a request that does not depend on the order of dicts and sets."""
    return blake2b(ormsgpack.packb(_canonical(request, dumps)), key=secret, digest_size=16).digest()


def _canonical(value: Any, dumps: Dumps) -> Any:
    if value is None or isinstance(value, bool | float | bytes):
        return [type(value).__name__, value]
    if type(value) in (int, str):
        text = str(value).encode(errors="surrogatepass")
        return [type(value).__name__, text]
    if isinstance(value, Mapping):
        pairs = [
            (ormsgpack.packb(_canonical(key, dumps)), ormsgpack.packb(_canonical(item, dumps)))
            for key, item in value.items()
        ]
        return ["dict", *(part for pair in sorted(pairs) for part in pair)]
    if isinstance(value, list | tuple):
        return ["list", *(_canonical(item, dumps) for item in value)]
    if isinstance(value, AbstractSet):
        return ["set", *sorted(ormsgpack.packb(_canonical(item, dumps)) for item in value)]
    if isinstance(value, BaseModel):
        return [type(value).__qualname__, _canonical(dict(value), dumps)]
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: getattr(value, field.name) for field in fields(value)}
        return [type(value).__qualname__, _canonical(held, dumps)]
    tag, data = dumps(value)
    return ["other", tag, data]


def name_in_store(secret: bytes, scope: str, key: str) -> str:
    """Return the hash by which an effect is found; `scope` is its thread, or empty."""
    return _hash(f"{scope}\0{key}", secret)


def idempotency_key(secret: bytes, scope: str, key: str, generation: int) -> str:
    """Return the key that the provider is given: the same for each attempt of one effect, and for no other one."""
    return _hash(f"{generation}\0{scope}\0{key}", secret)


def _hash(text: str, key: bytes) -> str:
    return blake2b(text.encode(errors="surrogatepass"), key=key, digest_size=16).hexdigest()


def is_behind(record: Record, checkpoint: str, line: AbstractSet[str], seqs: Mapping[str, int]) -> bool:
    """Say whether a thread that goes back to a checkpoint leaves an effect behind.

    It does if a step that went on from there or from a later checkpoint made it or got what it gave, on whatever
    branch; but not if a step on the way to the checkpoint did, since the state that the thread goes back to knows it.

    Args:
        record: The effect.
        checkpoint: The checkpoint; empty: all effects are behind it.
        line: Ids of the checkpoints from which steps led to it.
        seqs: As in `is_after`.
    """
    steps = (record.checkpoint, *record.uses)
    return line.isdisjoint(steps) and any(is_after(step, checkpoint, seqs) for step in steps)


def is_after(recorded: str, checkpoint: str, seqs: Mapping[str, int]) -> bool:
    """Say whether an effect is of a step that went on from a checkpoint or from a later one.

    Args:
        recorded: The checkpoint that the step of the effect went on from.
        checkpoint: The other one.
        seqs: Places in the thread's order by id; of one that is not stored the id, which holds the time, tells.
    """
    if recorded in seqs and checkpoint in seqs:
        return seqs[recorded] >= seqs[checkpoint]
    return recorded >= checkpoint

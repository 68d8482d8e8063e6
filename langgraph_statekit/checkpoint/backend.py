"""The seam between the engine and a store: a few verbs over records.

Verbs are plain blocking calls, safe to call from many threads at once; `run.py` turns them into awaitables.
Each verb is atomic (readers and crashes see all of it or nothing), durable when it returns, and idempotent: it
may be repeated after a lost reply. A store that cannot answer raises `Unavailable` with the driver's error as
cause, after its own retries (`retrying` in run.py). A fault that waiting cannot mend (a refused login, a database,
bucket or folder that does not exist or may not be written) raises `Misuse` at once, with the driver's error as cause.
What may pass (nobody listens, a name does not resolve, a server starts or is full, a disk is full) is repeated.
No error shows a password.

A thread that has expired (see `expiry`) is to every verb one that does not exist, from that moment on by the store's
clock; what is saved then begins a new one. Saves, granted claims, and reads with `refresh` let a thread live on, in the
same step; a copy has the time to live of its source, and begins it anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from langgraph_statekit.checkpoint.cells import CellChange, CellPage, CellQuery, Changed
from langgraph_statekit.checkpoint.claims import Claim, Held, LeasePage, LeaseQuery
from langgraph_statekit.checkpoint.expiry import Swept
from langgraph_statekit.checkpoint.facts import Fact, Usage
from langgraph_statekit.checkpoint.records import (
    Change,
    Frame,
    Outline,
    Query,
    Ref,
    Row,
    Save,
    Stored,
    Write,
)


class Backend(Protocol):
    """A store of checkpoints.

    Attributes:
        deltas: Whether `save` takes frames that build on others; if not, each comes whole.
        sweeps: Whether `sweep` is cheap and needed, so that savers call it now and then.
    """

    deltas: bool
    sweeps: bool

    def setup(self) -> None:
        """Create what the store needs; harmless when repeated, also by many workers at once."""

    def close(self) -> None:
        """Give back connections that the backend opened itself; harmless when repeated."""

    def spare(self) -> Backend:
        """Return the same store for one more caller, with a connection of its own where it can open one.

        It repeats a failed call at most once.
        """

    def exists(self) -> bool:
        """Say whether there is anything to read; creates nothing, unlike `setup`."""

    def facts(self) -> Sequence[Fact]:
        """Return what the store is and what it promises now; creates and changes nothing."""

    def usage(self, thread: str) -> Usage:
        """Return what a thread takes up, without reading its values."""

    def save(self, saves: Sequence[Save]) -> Sequence[int | Exception]:
        """Make each save durable, in the given order within a thread, and say for each how it went.

        Each save is atomic by itself; one that fails does not touch the others. Raises only if all failed.

        `SaveRow`: the `rev` that it gave the thread (see `Outline`), or 0. A new row gets the `seq` that `order.place`
        gives, or the next free one above; a row that exists keeps its `seq` and takes the new content. A frame whose
        key exists is replaced; one without data removes the stored one. What is replaced or removed by another check
        stays under key + check, for deltas that build on it. 0, and nothing changed, when a delta's base is not stored:
        a base is stored if a frame has its key and its check, or is kept under key + check. 0 too when `parent` is not
        None and not stored, and one of `unsent()` is not stored: retention removed what the checkpoint goes on from.

        A save with a token that is not that of the thread's lease, or where there is none, changes nothing; its
        result is what `claims.fenced` returns.

        A new row with a `SaveRow.seq` gets that one if it is above all others. If it is not the one that the row gets,
        or has, nothing is changed, and the result is a `claims.Misplaced` with that one.

        A save that `claims.is_rekeyed`, given the thread's header, changes nothing either; its result is what
        `claims.rekeyed` returns. One that is made and has a header gives it to a thread without.

        `SaveWrites`: the checkpoint need not exist (yet). Decided for each write by its (task, idx): `idx >= 0` keeps
        what is stored, `idx < 0` replaces it. Always True, or 1.
        """

    def claim(self, claims: Sequence[Claim]) -> Sequence[Held | Exception | None]:
        """Decide each claim as `claims.decide` does, by the server's clock, and return the thread's lease after it.

        An error that is of one claim only stands in its place.

        The lease is of this claim if its holder, and the token if one was given, is the claim's. `Held.until_us` is
        not in the past for one that runs. Leases are deleted with their thread by `drop_thread` only, and not copied.
        """

    def leases(self, query: LeaseQuery) -> LeasePage:
        """Return a page of the leases that run or ended without being given back; those that ended are found by index.

        Pages go on by when leases end, or by anything else that does not change while a lease has ended.
        """

    def change_cells(self, changes: Sequence[CellChange]) -> Sequence[Changed | Exception]:
        """Decide each change as `cells.decide` does, by the server's clock, and say for each how it went.

        Each is atomic by itself; one whose token is not that of its thread's lease changes nothing, and its result is
        what `claims.fenced` returns. (A store that cannot look at both in one step looks after its write, and takes
        that back.) `drop_thread` and `copy_thread` leave cells alone.
        """

    def cells(self, query: CellQuery) -> CellPage:
        """Return the cells that a query asks for; a listing of a group does not read all others."""

    def load(self, thread: str, ns: str, id: str | None, refresh: bool = False) -> Stored | None:
        """Return a checkpoint with its writes, every stored frame of `row.keys` and all that these build on.

        `id=None` means the head; `refresh` is that of `Query`.

        The head is the row of the namespace with the highest `seq` that is not hidden. Hidden rows are not found.
        """

    def rows(self, query: Query) -> Sequence[Row]:
        """Return matching rows with bodies, highest `seq` first; hidden ones only if the query asks for them.

        The hidden ones of a namespace are found without a look at all other rows, however long the thread.
        """

    def fill(
        self, thread: str, keys: Collection[bytes], refs: Collection[Ref]
    ) -> tuple[Mapping[bytes, Frame], Mapping[Ref, Sequence[Write]]]:
        """Return the stored ones of `keys` with all that they build on, and the writes of each of `refs`.

        A ref whose row is gone is left out, so that a caller notices a removal since it read the row. (A store that
        keeps removed data readable for a while may still count it.)
        """

    def outline(self, thread: str, ns: str | None = None, heads: bool = False) -> Outline:
        """Return the thread's rows without bodies (of one namespace if given) and the heads of its frames.

        With `heads` (and no namespace) a store may leave out all but the head of each namespace, a label if there is
        one, and the frames that they need, and count what it leaves out; `retention.tells` says what that is enough
        for.
        """

    def apply(self, thread: str, rev: int, change: Change) -> bool:
        """Make the change if the thread's `rev` is still the given one; False means that it moved on.

        A thread that has no row left after it is removed whole, with its frames and writes.
        """

    def drop_thread(self, thread: str) -> bool:
        """Remove everything of a thread, its header too; one that does not exist is no error.

        Cells stay. Returns whether some of those that `effects_of` asks for are there; a store that keeps the cells of
        threads apart may look at those whose `ref` names the thread only, and count expired ones.
        """

    def copy_thread(self, source: str, target: str, operation: str, header: bytes = b"") -> bool:
        """Copy rows (hidden ones too), order, frames and writes to a thread that has no rows, which gets `header`.

        Returns False, and changes nothing, when the target has rows that another operation made, or a header with
        another id. A repeat with the same `operation` id finds its own copy and returns True. A missing source copies
        nothing. Raises `claims.rekeyed`, and changes nothing, when the id of the source's header is another one.
        """

    def headers(self, threads: Sequence[str]) -> Mapping[str, bytes]:
        """Return the headers of those threads that have one."""

    def rewrap(self, changes: Sequence[tuple[str, bytes, bytes]]) -> Sequence[bool]:
        """Replace headers: thread, what is stored now, and what is to be; False for each that is not stored so."""

    def threads(self, run_ids: Collection[str] | None = None) -> Iterator[Sequence[str]]:
        """Yield thread ids in pages, in a fixed order, of threads without rows too if they have a header.

        With `run_ids`, only threads that have a row of these runs (a store without such an index may yield more).
        """

    def sweep(self, orphans_us: int) -> Swept:
        """Remove some of what has expired, threads and cells, and some writes that came so long ago without checkpoint.

        Never touches what is not both old enough and without its checkpoint at that moment; holds up no save.
        """

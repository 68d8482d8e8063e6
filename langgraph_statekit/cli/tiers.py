"""The commands for two tiers: archive, restore, verify and replicate, and what doctor tells of a deleted thread."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.records import Ref, from_text, to_text
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.cli.doctor import Checked, check_thread
from langgraph_statekit.cli.serializer import ForeignSerializer
from langgraph_statekit.cli.stores import encryption, missing, opened
from langgraph_statekit.cli.terminal import emit, progress, table
from langgraph_statekit.errors import CheckpointMissing, Corrupt, DataError, Misuse
from langgraph_statekit.extras import load

if TYPE_CHECKING:
    from langgraph_statekit.checkpoint.backends.tiered import TieredSaver


def archive(given: Namespace) -> int:
    """Have the hot store drop threads that the cold one has; 1 if one stays, since it is in use."""
    with _tiered(given.url) as saver:
        ids = _chosen(given, lambda: [id for page in saver.tiers.listing.hot() for id in page])
        done = {from_text(id): saver.tiers.evict(id) for id in progress(ids, "threads")}
    stays = [id for id, gone in done.items() if not gone]
    lines = [f"{id}: stays in the hot store, it is in use, has a time to live, or is not there" for id in stays]
    emit(
        {"archived": len(done) - len(stays), "stay": stays},
        [*lines, f"{len(done) - len(stays):,} archived"],
        given.json,
    )
    return 1 if stays else 0


def restore(given: Namespace) -> int:
    """Bring threads from the cold store to the hot one, or make copies of them as they were."""
    if given.prefix is not None and not given.all:
        raise Misuse("--prefix goes with --all")
    at = None if given.at is None else _moment(given.at)
    made, bad = list[str](), list[str]()
    with ExitStack() as stack:
        saver = stack.enter_context(_tiered(given.url))
        into = stack.enter_context(_tiered(given.to)) if given.to else None
        copies = bool(given.at or given.suffix or given.to)
        every = [from_text(id) for id in _chosen(given, lambda: saver.tiers.restorable(_note(bad), copies=copies))]
        ids = [id for id in every if id.startswith(given.prefix or "")]
        if isinstance(at, str) and len(ids) != 1:
            raise Misuse(f"{at!r} is no time like 2025-12-24T18:00+01:00; a checkpoint belongs to one thread: name it")
        for id in progress(ids, "threads"):
            try:
                made += saver.restore([id], at=at, suffix=given.suffix, into=into)
            except CheckpointMissing:
                if not given.all:
                    raise
            except Corrupt as error:
                bad.append(str(error))
    told = made if copies else []
    document = {"restored": len(made), **({"threads": told} if told else {}), **({"damaged": bad} if bad else {})}
    emit(document, [*told, *bad, f"{len(made):,} in the hot store"], given.json)
    return 1 if bad else 0


def _note(bad: list[str]) -> Callable[[Corrupt], None]:
    return lambda error: bad.append(str(error))


def _moment(text: str) -> datetime | str:
    """Return the time or the id of a checkpoint that a text means."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return text
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def verify(given: Namespace) -> int:
    """Read all that the cold store has of threads; 1 if something of it cannot be read."""
    checked, repaired, lacking = Checked(), 0, list[str]()
    with _tiered(given.url) as saver:
        for id in progress(_chosen(given, lambda: _cold(saver, checked)), "threads"):
            done = given.repair and _repaired(saver, id, checked)
            repaired += done
            before = len(checked.problems)
            _verify(saver, id, checked, may_lack=done)
            if len(checked.problems) == before and saver.tiers.restoring.lacks_key(id):
                lacking.append(from_text(id))
    problems = checked.problems
    rows = [(each["thread"], each["where"], each["problem"]) for each in problems]
    document = {"threads": checked.threads, "checkpoints": checked.checkpoints, "problems": problems}
    told = f"read {checked.threads:,} threads, {checked.checkpoints:,} checkpoints: {len(problems):,} problems"
    if given.repair:
        document["repaired"], told = repaired, f"{told}, {repaired:,} heads repaired"
    advice = []
    if lacking:
        document["without_key_copy"] = lacking
        advice = [f"{len(lacking):,} threads have their key in their head only: no damage, --repair makes a copy of it"]
    emit(document, [*(table(("THREAD", "WHERE", "PROBLEM"), rows) if rows else ()), told, *advice], given.json)
    return 1 if problems else 0


def deleted(given: Namespace) -> int:
    """Say whether a thread is gone from both stores; 1 if something of it is left."""
    with _tiered(given.url) as saver:
        gone = saver.deleted(given.deleted)
    told = "nothing is left of it" if gone else "it is not deleted, or not all of it"
    emit({"thread": given.deleted, "deleted": gone}, [f"{given.deleted}: {told}"], given.json)
    return 0 if gone else 1


def replicate(given: Namespace) -> int:
    """Bring over what the replicas lack."""
    with _tiered(given.url) as saver:
        count = saver.replicate()
    emit({"threads": count}, [f"the replicas have {count:,} threads"], given.json)
    return 0


def _repaired(saver: TieredSaver, id: str, checked: Checked) -> bool:
    try:
        return saver.tiers.restoring.repair(id)
    except DataError as error:
        checked.problems.append({"thread": from_text(id), "where": "the cold store", "problem": str(error)})
        return False


def _verify(saver: TieredSaver, id: str, checked: Checked, *, may_lack: bool) -> None:
    (_, read), *replicas = saver.tiers.images(id)
    before = len(checked.problems)
    if harm := saver.tiers.restoring.harm(id):
        told = f"{harm}; --repair makes it anew"
        checked.problems.append({"thread": from_text(id), "where": "the cold store", "problem": told})
    wanted = _verify_at(saver, id, "the cold store", read, checked)
    if not (wanted or may_lack) and len(checked.problems) == before:
        raise missing(from_text(id))
    for name, read in replicas:
        where, copy = f"the replica {name}", Checked()
        found = _verify_at(saver, id, where, read, copy)
        if wanted and found != wanted and not copy.problems:
            told = f"it has {len(found & wanted)} of {len(wanted)} checkpoints, and {len(found - wanted)} others"
            copy.problems.append({"thread": from_text(id), "where": where, "problem": told})
        checked.problems += [{**each, "where": where} for each in copy.problems]


def _verify_at(
    saver: TieredSaver, id: str, where: str, read: Callable[[], Backend | None], checked: Checked
) -> set[Ref]:
    """Read a thread in one place, and return its checkpoints."""
    try:
        held = read()
    except DataError as error:
        checked.threads += 1
        checked.problems.append({"thread": from_text(id), "where": where, "problem": str(error)})
        return set()
    if held is None:
        return set()
    options: dict[str, Any] = {"serde": ForeignSerializer(), "workers": 1, "encryption": encryption()}
    with StatekitSaver(held, tenant=saver.tenant, **options) as alone:
        check_thread(alone, id, checked)
    return {row.ref for row in held.outline(id).rows}


@contextmanager
def _tiered(url: str) -> Iterator[TieredSaver]:
    with opened(url, create=True) as saver:
        if not isinstance(saver, load("checkpoint.backends.tiered", "TieredSaver")):
            raise Misuse("the URL names no cold store: add ?cold=URL to it, with % / ? & in it percent-encoded")
        saver.setup()
        yield saver


def _chosen(given: Namespace, every: Callable[[], list[str]]) -> list[str]:
    if bool(given.threads) == given.all:
        raise Misuse("name threads, or pass --all")
    return every() if given.all else [to_text(id) for id in given.threads]


def _cold(saver: TieredSaver, checked: Checked) -> list[str]:
    def bad(error: Exception) -> None:
        checked.problems.append({"thread": "?", "where": "the cold store", "problem": str(error)})

    return [id for page in saver.tiers.cold_threads(bad) for id in page]

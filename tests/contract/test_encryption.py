"""Encryption: what a store cannot tell, whose key counts, and that nothing is stored that nobody can read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from zlib import crc32

import pytest

from langgraph_statekit import Encryption, Misuse, Retention
from langgraph_statekit.checkpoint.claims import Rekeyed, is_rekeyed
from langgraph_statekit.checkpoint.encrypted import EncryptedBackend
from langgraph_statekit.checkpoint.records import Query, Ref, Row, SaveRow, SaveWrites, Write, is_made
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.errors import Corrupt
from tests.conformance import conforms
from tests.crash.faulty import Faulty
from tests.faces import LONG, Face, config, id_of, ids, listed, put
from tests.graphs.builders import DeltaLog, chain
from tests.stores_under_test import Store

OLD, NEW = b"o" * 32, b"n" * 32
ENCRYPTION = Encryption({"old": OLD}, "old")
SECRET = "the secret " + LONG


@pytest.fixture
def opened(store: Store, face: Callable[[StatekitSaver], Face]) -> Iterator[Callable[..., Face]]:
    """Yield a maker of savers on one store, each as a worker of its own."""
    with ExitStack() as savers:

        def make(encryption: Encryption | None = ENCRYPTION, **options: Any) -> Face:
            return face(savers.enter_context(store.open(encryption=encryption, **options)))

        yield make


async def fill(saver: Face, thread: str = "t", count: int = 3) -> Any:
    at = config(thread)
    for step in range(count):
        values = {"x": [SECRET] * (step + 1), "n": 7, "short": "the secret"}
        at = await put(saver, at, values, dict.fromkeys(values, step), meta={"who": SECRET})
        await saver.aput_writes(at, [("x", SECRET), ("__interrupt__", SECRET)], "task")
    return at


async def seen(saver: Face, thread: str = "t") -> list[Any]:
    """Return all of a thread but its id."""
    return [
        (item.checkpoint, item.metadata, item.pending_writes, item.parent_config and id_of(item.parent_config))
        for item in await listed(saver, config(thread))
    ]


async def test_passes_the_conformance_kit(store: Store, face: Callable[[StatekitSaver], Face]) -> None:
    await conforms(lambda: store.open(encryption=ENCRYPTION), face)


async def test_the_store_holds_no_value_and_no_check_of_one(opened: Callable[..., Face], store: Store) -> None:
    def tells(dump: bytes, saver: Any) -> list[bool]:
        small = saver.serde.dumps_typed(7)
        plain = bytes((len(small[0]),)) + small[0].encode() + small[1]
        return [part in dump for part in (b"the secret", crc32(plain).to_bytes(4, "big"))]

    await fill(saver := opened())
    assert tells(store.raw_dump(), saver) == [False, False]
    await fill(saver := opened(None), "in plain")
    assert tells(store.raw_dump(), saver) == [True, True]


async def test_metadata_is_filtered_though_the_store_cannot_read_it(opened: Callable[..., Face]) -> None:
    await fill(saver := opened())
    assert len(await ids(saver, config(), filter={"who": SECRET})) == 3
    assert await ids(saver, config(), filter={"who": "x"}) == []


async def test_what_is_done_to_threads_works_on_encrypted_ones(store: Store) -> None:
    with store.open(encryption=ENCRYPTION, retention=Retention(keep_last=5)) as saver:
        app = chain(DeltaLog, *"abcdef").compile(checkpointer=saver)
        for _ in range(2):
            values = app.invoke({"log": ["in"]}, config())
        saver.copy_thread("t", "u")
        saver.label(config(), "here")
        with saver.lease("t") as lease:
            app.update_state(lease.config, {"log": ["more"]})
        saver.prune(["t", "u"])
    with store.open(encryption=ENCRYPTION) as other:
        app = chain(DeltaLog, *"abcdef").compile(checkpointer=other)
        assert app.get_state(config("u")).values == values
        assert app.get_state(other.labels("t")["here"]).values == values
        assert app.get_state(config()).values["log"][:14] == values["log"]
        assert app.invoke({"log": ["in"]}, config("u"))["log"][:14] == values["log"]


async def test_workers_that_begin_a_thread_at_once_read_each_other(opened: Callable[..., Face]) -> None:
    one, two = opened(), opened()
    assert [await saver.aget_tuple(config()) for saver in (one, two)] == [None, None]
    first, second = await put(one, config(), {"x": 1}), await put(two, config(), {"x": 2})
    await one.aput_writes(second, [("x", "one")], "task of one")
    await two.aput_writes(first, [("x", "two")], "task of two")
    assert await seen(one) == await seen(two) == await seen(opened())
    assert len(await seen(one)) == 2


async def test_workers_that_begin_a_thread_with_writes_read_each_other(opened: Callable[..., Face]) -> None:
    one, two = opened(), opened()
    await one.aput_writes(config(id="1"), [("x", "one")], "task of one")
    await two.aput_writes(config(id="1"), [("x", "two")], "task of two")
    await put(two, config(), {"x": 2}, id="1")
    for saver in (one, two, opened()):
        found = await saver.aget_tuple(config())
        assert found is not None
        assert found.pending_writes == [("task of one", "x", "one"), ("task of two", "x", "two")]


def test_many_workers_that_begin_a_thread_leave_nothing_unreadable(store: Store) -> None:
    workers = 8
    start = threading.Barrier(workers)

    def work(number: int) -> None:
        with store.open(encryption=ENCRYPTION) as saver:
            start.wait()
            for step in range(3):
                at = config(id=f"{number} {step}")
                saver.put_writes(at, [("x", SECRET)], f"task {number}")
                made = {"v": 4, "id": f"{number} {step}", "ts": "", "versions_seen": {}, "updated_channels": None}
                values: Any = {"channel_values": {"x": SECRET}, "channel_versions": {"x": f"{number} {step}"}}
                saver.put(config(), {**made, **values}, {}, values["channel_versions"])  # type: ignore[typeddict-item]
                if number == 0:
                    saver.delete_thread("t" if step == 1 else "another")

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    with store.open(encryption=ENCRYPTION) as saver:
        found = list(saver.list(config()))
        assert all(item.checkpoint["channel_values"] == {"x": SECRET} for item in found)
        assert found


async def test_a_worker_with_the_key_of_a_deleted_thread_goes_on_with_the_new_one(opened: Callable[..., Face]) -> None:
    one, two = opened(), opened()
    await fill(one)
    await fill(two, count=1)
    await two.adelete_thread("t")
    last = await fill(two)
    assert await seen(one) == await seen(two)
    await two.adelete_thread("t")
    last = await fill(two)
    last = await put(one, last, {"x": "old key"}, {"x": "9"})
    await one.aput_writes(last, [("x", "old key")], "task")
    assert await seen(one) == await seen(two) == await seen(opened())
    await two.adelete_thread("t")
    await put(one, config(), {"x": "old key, no thread"})
    assert len(await seen(two)) == len(await seen(opened())) == 1


async def test_a_saver_without_keys_is_told_so_and_changes_nothing(opened: Callable[..., Face]) -> None:
    last = await fill(saver := opened())
    before = await seen(saver)
    plain = opened(None)
    with pytest.raises(Misuse, match="encryption="):
        await plain.aget_tuple(config())
    with pytest.raises(Misuse, match="encryption="):
        await listed(plain, config())
    with pytest.raises(Misuse, match="encryption="):
        await put(plain, last, {"x": 1})
    with pytest.raises(Misuse, match="encryption="):
        await plain.aput_writes(last, [("x", 1)], "another task")
    with pytest.raises(Misuse, match="encryption="):
        await plain.acopy_thread("t", "u")
    with pytest.raises(Misuse, match=r"key 'old', which is none of the keys \['other'\]"):
        await opened(Encryption({"other": NEW}, "other")).aget_tuple(config())
    assert await seen(saver) == before
    await plain.adelete_thread("t")
    assert await seen(saver) == []


async def test_a_thread_of_before_is_read_and_goes_on_encrypted_unless_that_is_required(
    opened: Callable[..., Face], store: Store
) -> None:
    last = await fill(opened(None))
    await opened(None).aput_writes(last, [("x", "in plain")], "both")
    before = await seen(saver := opened())
    assert len(before) == 3
    strict = opened(require_encryption=True)
    with pytest.raises(Corrupt, match="not encrypted"):
        await strict.aget_tuple(config())
    await saver.aput_writes(last, [("x", "later"), ("y", "later")], "both")
    found = await opened().aget_tuple(config())
    assert found is not None
    assert found.pending_writes is not None
    assert [write for write in found.pending_writes if write[0] == "both"] == [
        ("both", "x", "in plain"),
        ("both", "y", "later"),
    ]
    await put(saver, last, {"x": [SECRET] * 4, "n": 7}, {"x": 9, "n": 9})
    assert (await seen(opened()))[2:] == before[1:]
    with pytest.raises(Misuse, match="encryption="):
        await put(opened(None), last, {"x": 1})
    with pytest.raises(Corrupt, match="not encrypted"):
        await listed(strict, config())
    await fill(strict, "u")
    assert len(await seen(strict, "u")) == 3


async def test_a_copy_has_a_header_of_its_own_and_outlives_its_source(
    opened: Callable[..., Face], store: Store
) -> None:
    await fill(saver := opened())
    before = await seen(saver)
    await saver.acopy_thread("t", "u")
    with store.open(encryption=None) as plain:
        headers = plain.backend.headers(["t", "u", "v"])
    assert sorted(headers) == ["t", "u"]
    assert headers["t"][:8] == headers["u"][:8]
    assert headers["t"] != headers["u"]
    await saver.adelete_thread("t")
    await fill(saver, count=1)
    assert await seen(saver, "u") == await seen(opened(), "u") == before
    await saver.aput_writes(config("v", id="1"), [("x", 1)], "task")
    with pytest.raises(Misuse, match="delete it first"):
        await saver.acopy_thread("u", "v")
    await saver.acopy_thread("no such thread", "v")
    await put(saver, config("v"), {"x": 1}, id="1")
    found = await opened().aget_tuple(config("v"))
    assert found is not None
    assert found.pending_writes == [("task", "x", 1)]


@pytest.mark.parametrize("kind", ["row", "writes"])
@pytest.mark.parametrize("before", [None, "row", "writes", "in plain"])
def test_whose_key_counts_is_decided_in_the_step_of_the_save(store: Store, kind: str, before: str | None) -> None:
    ref = Ref("t", "", "1")
    one, other = b"11111111, the header of one", b"22222222, that of another"

    def save(kind: str, header: bytes) -> int | Exception:
        row = SaveRow(Row(ref, body=b"body"), (), header=header)
        [result] = inner.save(
            [row if kind == "row" else SaveWrites(ref, [Write("task", 0, "x", "", b"1")], header=header)]
        )
        return result

    with store.open(encryption=None) as saver:
        saver.setup()
        inner = saver.backend
        for sent in (b"", one[:8], one, other[:8], other):
            inner.drop_thread("t")
            if before is not None:
                assert is_made(save("row" if before == "in plain" else before, b"" if before == "in plain" else one))
            held = inner.headers(["t"]).get("t")
            result = save(kind, sent)
            assert isinstance(result, Rekeyed) == is_rekeyed(sent, held)
            if isinstance(result, Rekeyed):
                assert inner.headers(["t"]).get("t") == held
                assert (inner.load("t", "", None) is not None) == (before in ("row", "in plain"))
            else:
                assert inner.headers(["t"]).get("t", b"") == (held or sent)
                assert is_made(save(kind, sent)), "a repeat finds what the first one did"
            inner.drop_thread("t")
            assert inner.headers(["t"]) == {}


def test_a_save_to_a_thread_with_an_unknown_key_fails_alone(store: Store) -> None:
    with store.open(encryption=Encryption({"lost": NEW}, "lost")) as saver:
        saver.put(config("lost"), {**_checkpoint(), "id": "1"}, {}, {"x": "1"})
    with store.open(encryption=ENCRYPTION) as saver:
        saves = [SaveRow(Row(Ref(thread, "", "2"), body=b"body"), ()) for thread in ("t", "lost", "u", "t")]
        results = saver.backend.save(saves)
        assert [*map(is_made, results)] == [True, False, True, True]
        with pytest.raises(Misuse, match="key 'lost', which is none of"):
            raise results[1]  # type: ignore[misc]
        assert [bool(saver.backend.rows(Query(thread))) for thread in "tu"] == [True, True]


def _checkpoint() -> Any:
    return {"v": 4, "ts": "", "versions_seen": {}, "channel_values": {"x": 1}, "channel_versions": {"x": "1"}}


@pytest.mark.parametrize("delta", [True, False])
def test_deltas_are_made_only_if_asked_for(store: Store, delta: bool) -> None:
    with store.open(encryption=Encryption({"old": OLD}, "old", delta=delta)) as saver:
        at: Any = config()
        for step in range(3):
            made = {**_checkpoint(), "id": f"{step}", "channel_versions": {"x": f"{step}"}}
            at = saver.put(at, {**made, "channel_values": {"x": [SECRET, step]}}, {}, made["channel_versions"])
        frames = saver.backend.outline("t").frames.values()
        assert sum(frame.base is not None for frame in frames) == (2 if delta and saver.backend.inner.deltas else 0)
        assert len(list(saver.list(config()))) == 3


def test_an_operation_makes_as_many_requests_as_without_encryption(store: Store) -> None:
    workers = ExitStack()

    def watched() -> tuple[StatekitSaver, Faulty]:
        faulty = Faulty(workers.enter_context(store.open(encryption=None)).backend)
        return StatekitSaver(EncryptedBackend(faulty, ENCRYPTION)), faulty

    def verbs(faulty: Faulty, call: Callable[[], object]) -> list[str]:
        before = len(faulty.begun)
        call()
        return [name for name, _ in faulty.begun[before:]]

    saver, faulty = watched()
    saver.setup()
    made: Any = {**_checkpoint(), "id": "1"}
    assert verbs(faulty, lambda: saver.put(config(), made, {}, {"x": "1"})) == ["save"]
    assert verbs(faulty, lambda: saver.put_writes(config(id="1"), [("x", 1)], "task")) == ["save"]
    for warm in (False, True):
        if not warm:
            saver, faulty = watched()
            saver.setup()
        assert verbs(faulty, lambda: saver.get_tuple(config())) == ["load"]
        assert verbs(faulty, lambda: list(saver.list(config()))) == ["rows", "fill"]
        assert verbs(faulty, lambda: saver.put_writes(config(id="1"), [("x", 1)], "task")) == ["save"]
        assert verbs(faulty, lambda: saver.put(config(id="1"), {**made, "id": f"2 {warm}"}, {}, {"x": "1"})) == ["save"]
    saver, faulty = watched()
    saver.setup()
    assert verbs(faulty, lambda: list(saver.list(config()))) == ["rows", "headers", "fill"]
    assert verbs(faulty, lambda: saver.copy_thread("t", "u")) == ["headers", "copy_thread"]
    assert verbs(faulty, lambda: saver.prune(["t"])) == ["outline", "apply"]
    saver, faulty = watched()
    saver.setup()
    assert verbs(faulty, lambda: saver.prune(["t"])) == ["outline", "headers"]
    workers.close()

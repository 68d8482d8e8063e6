"""PostgreSQL: deltas and their bases, batches of saves, and the same answers as the reference store."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.backends import postgres_format
from langgraph_statekit.checkpoint.backends.memory import MemoryBackend
from langgraph_statekit.checkpoint.backends.postgres import PostgresBackend, PostgresSaver
from langgraph_statekit.checkpoint.claims import Rekeyed
from langgraph_statekit.checkpoint.frames import CHAIN_FRAMES
from langgraph_statekit.checkpoint.records import Change, Frame, Query, Ref, Row, Save, SaveRow, SaveWrites, is_made
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.errors import DataError, Fenced
from tests.stores.pg import backend, counting_proxy, frames, numbered, query, together, write
from tests.stores.verbs import frame, key, prune, save

ALL: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def grow(saver: StatekitSaver, at: Any, numbers: Sequence[int]) -> Any:
    """Put a checkpoint for each number, with a list that got longer by one; return the config of the last one."""
    for number in numbers:
        checkpoint = empty_checkpoint()
        checkpoint["id"] = f"{number:06}"
        checkpoint["channel_values"] = {"log": log(number)}
        checkpoint["channel_versions"] = {"log": f"{number:06}"}
        at = saver.put(at, checkpoint, {"step": number, "run_id": f"run {number % 2}"}, {"log": f"{number:06}"})
    return at


def log(number: int) -> list[str]:
    return [random.Random(n).randbytes(100).hex() for n in range(number + 1)]


def check_latest(saver: StatekitSaver, number: int, thread: str = "t") -> None:
    found = saver.get_tuple({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})
    assert found is not None
    assert found.checkpoint["channel_values"] == {"log": log(number)}


def test_a_put_whose_bases_another_worker_deleted_is_stored_whole(url: str, schema: str) -> None:
    with PostgresSaver.from_url(url, schema=schema) as saver, PostgresSaver.from_url(url, schema=schema) as other:
        at = grow(saver, ALL, range(30))
        other.delete_thread("t")
        grow(saver, at, [30])
        check_latest(other, 30)
        grow(saver, at, range(31, 40))
        check_latest(other, 39)
        assert query(url, f'SELECT count(*) FROM "{schema}".frames WHERE base IS NOT NULL')[0][0] >= 8


@pytest.mark.parametrize(
    "remove",
    [
        lambda saver: saver.prune(["t"]),
        lambda saver: saver.delete_for_runs(["run 0"]),
        lambda saver: (saver.copy_thread("t", "copy"), saver.delete_thread("t"), saver.copy_thread("copy", "t")),
    ],
    ids=["prune", "delete_for_runs", "copy_thread"],
)
@pytest.mark.parametrize("length", [2, 20, 26, 60])
def test_what_stays_can_be_read_and_built_upon(
    url: str, schema: str, remove: Callable[[StatekitSaver], object], length: int
) -> None:
    with PostgresSaver.from_url(url, schema=schema) as saver, PostgresSaver.from_url(url, schema=schema) as other:
        at = grow(saver, ALL, range(length))
        remove(other)
        for item in other.list(ALL):
            assert item.checkpoint["channel_values"] == {"log": log(int(item.checkpoint["id"]))}
        grow(saver, at, range(length, length + 4))
        check_latest(other, length + 3)


def test_bytes_of_a_growing_list_stay_near_linear(url: str, schema: str) -> None:
    def stored(length: int) -> float:
        with PostgresSaver.from_url(url, schema=schema) as saver:
            grow(saver, ALL, range(length))
            [[size]] = query(url, f'SELECT sum(octet_length(data)) FROM "{schema}".frames')
            saver.delete_thread("t")
        return float(size) / length

    assert stored(400) < 2 * stored(100)


def chain(store: PostgresBackend, length: int) -> list[Frame]:
    """Save a row for each frame of a chain; return the chain."""
    made = [frame(key(1, 0), b"value 0")]
    save(store, numbered("t", 0), made)
    for number in range(1, length):
        made.append(frame(key(1, number), b"value %d" % number, made[-1]))
        assert save(store, numbered("t", number), [made[-1]]) is True
    return made


def test_a_chain_is_read_in_one_round_trip(url: str, schema: str) -> None:
    with counting_proxy(url) as (proxied, trips), backend(proxied, schema) as store:
        made = chain(store, CHAIN_FRAMES)
        found: list[Any] = []
        assert trips.of(lambda: found.append(store.load("t", "", None))) == 1
        assert found[0].frames == {each.key: each for each in made}
        assert trips.of(lambda: found.append(store.fill("t", {each.key for each in made[5:9]}, []))) == 1
        assert found[1][0] == {each.key: each for each in made[:9]}


def test_reads_and_saves_touch_only_the_rows_that_they_need(url: str, schema: str, store: PostgresBackend) -> None:
    made = chain(store, 300)
    count = "SELECT sum(idx_tup_fetch + seq_tup_read) FROM pg_stat_xact_user_tables WHERE schemaname = %s"
    numbers = itertools.count(300)

    def new() -> SaveRow:
        number = next(numbers)
        return SaveRow(numbered("t", number), [frame(key(1, number), b"new", made[-1]), Frame(key(2, number), None)])

    with psycopg.connect(url, autocommit=True) as db:
        same = PostgresBackend(db, schema=schema)

        def touched(call: Callable[[], object]) -> int:
            for _ in range(8):  # the server chooses its lasting plan after some calls
                call()
            with db.transaction():
                [[before]] = db.execute(count, [schema]).fetchall()
                call()
                [[after]] = db.execute(count, [schema]).fetchall()
            return int(after - before)

        assert touched(lambda: same.save([new()])) < 10
        assert touched(lambda: same.load("t", "", "000299")) < 310
        assert touched(lambda: same.load("t", "", "000009")) < 20
        assert touched(lambda: same.fill("t", [made[9].key], [Ref("t", "", "000009")])) < 20


def test_a_refused_save_changes_nothing(store: PostgresBackend) -> None:
    base = frame(key(1, 0), b"base")
    delta = frame(key(1, 1), b"delta", base)
    assert save(store, numbered("t", 1), [frame(key(2, 1), b"x"), delta]) is False
    assert store.outline("t") == store.outline("none")
    for replaced in (frame(key(1, 0), b"other"), Frame(key(3, 0), b"\1\0" + base.check)):
        save(store, numbered("t", 0), [replaced])
        before = store.outline("t")
        assert save(store, numbered("t", 1), [frame(key(2, 1), b"x"), delta]) is False
        assert save(store, numbered("t", 0, body=b"new"), [delta]) is False
        assert store.outline("t") == before
    save(store, numbered("u", 0), [base])
    assert save(store, numbered("t", 1), [delta]) is False, "a base of another thread"
    save(store, numbered("t", 0), [base])
    assert save(store, numbered("t", 1), [delta]) is True


@pytest.mark.parametrize("data", [b"\1\0other value", None])
def test_a_base_that_was_replaced_or_removed_serves_the_deltas_on_it(
    store: PostgresBackend, data: bytes | None
) -> None:
    base = frame(key(1, 0), b"base")
    first, second = frame(key(1, 1), b"first", base), frame(key(1, 2), b"second", base)
    save(store, numbered("t", 0), [base])
    save(store, numbered("t", 1), [first])
    save(store, numbered("t", 2), [Frame(base.key, data)])
    assert save(store, numbered("t", 3), [second]) is True
    kept = Frame(base.key + base.check, base.data)
    assert store.fill("t", [first.key], [])[0] == {first.key: first, kept.key: kept}
    assert store.fill("t", [first.key, second.key, base.key], [])[0] == {
        **{each.key: each for each in (first, second, kept)},
        **({base.key: Frame(base.key, data)} if data else {}),
    }


def test_one_bad_save_of_a_batch_fails_alone(store: PostgresBackend) -> None:
    long = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=9000))
    delta = frame(key(1, 1), b"delta", frame(key(1, 0), b"missing"))
    refused, *bad = [
        SaveRow(numbered("t", 1), [delta]),
        SaveRow(numbered("nul\0", 1), frames(1)),
        SaveRow(numbered(long, 1), frames(1)),
        SaveWrites(Ref("t", "nul\0", "1"), [write("task", 0)]),
    ]
    good = [SaveRow(numbered("t", 2), frames(2)), SaveWrites(Ref("t", "", "000002"), [write("task", 0)])]
    assert [*map(is_made, store.save([refused, *good]))] == [False, True, True]
    for one in bad:
        results = store.save([refused, good[0], one, good[1]])
        assert isinstance(results[2], DataError)
        assert [*map(is_made, results)] == [False, True, False, True]
    assert all(isinstance(each, DataError) for each in store.save(bad))
    assert list(store.threads()) == [["t"]]
    stored = store.load("t", "", None)
    assert stored is not None
    assert (stored.row.seq, stored.writes) == (1, [write("task", 0)])


def test_a_worker_of_the_release_before_saves_and_is_refused_as_ever(
    store: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, args_of = postgres_format._SAVE_ROW, postgres_format._row_args
    refused = frame(key(1, 1), b"delta", frame(key(1, 0), b"missing"))
    saves = [
        SaveRow(numbered("t", 1), frames(1)),
        SaveRow(numbered("t", 2), [refused]),
        SaveRow(numbered("t", 2), [], header=b"8 bytes."),
        SaveRow(numbered("t", 2), [], token=1),
    ]
    before = now.replace("save_row_2", "save_row_1").replace(", $%d)", ")")
    monkeypatch.setattr(postgres_format, "_SAVE_ROW", before)
    monkeypatch.setattr(postgres_format, "_row_args", lambda save: args_of(save)[:-1])
    made, lacks, rekeyed, late = store.save(saves)
    assert (made, lacks, type(rekeyed), type(late)) == (1, 0, Rekeyed, Fenced)
    monkeypatch.undo()
    rev = store.outline("t").rev
    assert store.save([saves[0]]) == [rev + 1]


def test_a_batch_is_one_commit_and_keeps_the_order_of_each_thread(url: str, schema: str) -> None:
    pick = random.Random(1)
    rows = [(numbered(f"t{pick.randrange(5)}", number), frames(number)) for number in range(60)]
    saves: list[Save] = [SaveRow(row, values, whole=True) for row, values in rows]
    first, last = (SaveRow(numbered("t1", 7, body=body), [], whole=True) for body in (b"first", b"last"))
    ref = Ref("t1", "", "000007")
    tasks = [(f"task {n}", b"%d" % n) for n in range(100)]
    fan_out = [
        SaveWrites(ref, [write(task, 0, data), write("shared", 0, data), write("shared", -1, data)])
        for task, data in tasks
    ]
    with counting_proxy(url) as (proxied, trips), backend(proxied, schema) as store:
        made: list[Any] = []
        assert trips.of(lambda: made.append(store.save([first, *saves, *fan_out, last]))) == 1
        assert [*map(is_made, made[0])] == [True] * 162
        tables = " UNION ALL ".join(
            f'SELECT xmin::text FROM "{schema}".{table}' for table in ("rows", "frames", "writes")
        )
        assert query(url, f"SELECT count(DISTINCT xmin) FROM ({tables}) AS t") == [(1,)]
        for thread in {each.thread for each in saves} - {"t1"}:
            ids = [each.ref.id for each in store.outline(thread).rows]
            assert ids == [each.row.ref.id for each in saves if isinstance(each, SaveRow) and each.thread == thread]
        stored = store.load("t1", "", "000007")
        assert stored is not None
        assert (stored.row.seq, stored.row.body) == (1, b"last")
        found = {(each.task, each.idx): each.data for each in stored.writes}
        assert found == {
            **{(f"task {n}", 0): b"%d" % n for n in range(100)},
            ("shared", 0): b"0",
            ("shared", -1): b"99",
        }


def test_a_batch_too_large_for_one_message_is_saved(store: PostgresBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_statekit.checkpoint.backends.postgres.MESSAGE_BYTES", 10)
    saves = [SaveRow(numbered("t", number), frames(number)) for number in range(3)]
    assert all(map(is_made, store.save(saves)))
    assert [each.seq for each in store.outline("t").rows] == [1, 2, 3]


def test_batches_that_share_threads_do_not_block_each_other(store: PostgresBackend) -> None:
    def work(number: int) -> None:
        pick = random.Random(number)
        for step in range(10):
            threads = pick.sample(range(10), 6)
            batch: list[Save] = [SaveRow(numbered(f"t{n}", 100 * number + step), [], whole=True) for n in threads]
            batch += [SaveWrites(Ref(f"t{n}", "", "1"), [write("shared", -1), write("shared", 0)]) for n in threads]
            pick.shuffle(batch)
            assert all(map(is_made, store.save(batch)))

    together(4, work)
    rows = [store.outline(f"t{n}").rows for n in range(10)]
    assert sum(map(len, rows)) == 4 * 10 * 6
    assert all([each.seq for each in found] == list(range(1, len(found) + 1)) for found in rows)


def state(store: Backend, threads: Sequence[str], namespaces: Sequence[str], ids: Sequence[str]) -> list[Any]:
    """Return all that a store answers, without the order of writes and without revs."""
    found: list[Any] = [list(store.threads()), list(store.threads({"r1"})), list(store.threads({"r0", "r2"}))]
    for thread in threads:
        for ns in (None, *namespaces):
            outline = store.outline(thread, ns)
            found.append((outline.rows, outline.frames))
            found += [store.rows(Query(thread, ns, before=id, limit=4)) for id in (None, *ids)]
            found += [store.rows(Query(thread, ns, ids[0])), store.rows(Query(thread, ns, below_seq=4, limit=2))]
        for ns, id in itertools.product(namespaces, (None, *ids)):
            stored = store.load(thread, ns, id)
            found.append(stored and (stored.row, dict(stored.frames), sorted(stored.writes, key=repr)))
        refs = [Ref(thread, ns, id) for ns in namespaces for id in ids]
        values, writes = store.fill(thread, [key(channel, version) for channel in (1, 2) for version in range(4)], refs)
        found.append((dict(values), {ref: sorted(each, key=repr) for ref, each in writes.items()}))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_any_history_gives_the_answers_of_the_reference_store(store: PostgresBackend, seed: int) -> None:
    pick = random.Random(seed)
    memory = MemoryBackend()
    threads, namespaces, ids = ["a", "b", "c"], ["", "n|ö"], ["1", "2", "10", "é"]
    made: list[Frame] = []

    def ref(thread: str) -> Ref:
        return Ref(thread, pick.choice(namespaces), pick.choice(ids))

    def keys() -> list[bytes]:
        return [key(channel, pick.randrange(4)) for channel in (1, 2)][: pick.randrange(3)]

    def linked(thread: str) -> Row:
        return Row(ref(thread), pick.choice([None, *ids]), pick.choice([None, *ids]), hidden=pick.random() < 0.4)

    for step in range(80):
        thread, other = pick.sample(threads, 2)
        match pick.randrange(13):
            case 12:
                results = [prune(each, thread) for each in (memory, store)]
            case 0:
                results = [each.drop_thread(thread) for each in (memory, store)]
            case 1 | 2:
                results = [each.copy_thread(thread, other, str(step % 3)) for each in (memory, store)]
            case 3 | 4 | 5:
                change = Change(
                    drop=[ref(thread) for _ in range(pick.randrange(3))],
                    drop_frames=keys(),
                    relink=[*{row.ref: row for row in (linked(thread), linked(thread))}.values()],
                )
                late = pick.random() < 0.2
                results = [each.apply(thread, each.outline(thread).rev + late, change) for each in (memory, store)]
            case _:
                batch: list[Save] = []
                for at in range(pick.choice([1, 1, 2, 5])):
                    number = b"%d.%d" % (step, at)
                    if pick.random() < 0.4:
                        some = [
                            write(pick.choice("xy"), pick.randrange(-2, 3), number) for _ in range(pick.randrange(1, 4))
                        ]
                        batch.append(SaveWrites(ref(pick.choice(threads)), some))
                        continue
                    new = Row(
                        ref(pick.choice(threads)), pick.choice([None, *ids]), pick.choice([None, *ids]), packed_keys=b"".join(keys()),
                        run_id=pick.choice([None, "r0", "r1", "r2"]), packed_deltas=key(1, 0)[:8] * pick.randrange(2),
                        body=number,
                    )  # fmt: skip
                    values = [
                        Frame(one, None)
                        if pick.random() < 0.2
                        else frame(one, number, pick.choice(made) if made and pick.random() < 0.6 else None)
                        for one in keys()
                    ]
                    made += [value for value in values if value.data is not None]
                    made = made[-8:]
                    batch.append(SaveRow(new, values))
                results = [[*map(is_made, each.save(batch))] for each in (memory, store)]
        assert results[0] == results[1]
        assert state(store, threads, namespaces, ids) == state(memory, threads, namespaces, ids)

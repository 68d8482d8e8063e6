"""What somebody changes in an encrypted store is noticed: what was altered, moved or cut raises `Corrupt`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from langgraph_statekit import Encryption, Retention
from langgraph_statekit.checkpoint.labels import is_label, label_query
from langgraph_statekit.checkpoint.records import Change, Query, Row, Save, SaveRow, SaveWrites, is_made
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.errors import Corrupt
from tests.faces import LONG, config
from tests.graphs.builders import DeltaLog, chain
from tests.stores_under_test import Store

ENCRYPTION = Encryption({"old": b"o" * 32}, "old")
SECRET = "the secret " + LONG
NOTICED = "of thread 't' (cannot be decrypted|is not encrypted)"


def made() -> Any:
    return {"v": 4, "ts": "", "versions_seen": {}, "channel_values": {"x": 1}, "channel_versions": {"x": "1"}}


ALTERED: list[tuple[str, dict[str, Any]]] = [
    ("every", {"parent": "1"}),
    ("every", {"parent": None}),
    ("every", {"via": "1"}),
    ("every", {"via": None}),
    ("every", {"via": "\\!AAAAAAAAAAAAAAAA"}),
    ("every", {"run_id": "another"}),
    ("every", {"packed_keys": b"k" * 16}),
    ("checkpoint", {"packed_deltas": b""}),
    ("checkpoint", {"hidden": True}),
    ("label", {"hidden": False}),
]


def run_twice(saver: StatekitSaver) -> list[Row]:
    """Return what is stored last of a thread whose log must be rebuilt: two checkpoints and a label."""
    app = chain(DeltaLog, *"abcdef").compile(checkpointer=saver)
    for _ in range(2):
        app.invoke({"log": ["in"]}, config())
    saver.label(config(), "here")
    return list(saver.backend.inner.outline("t").rows[-3:])


def test_whatever_is_altered_of_a_row_is_noticed(store: Store) -> None:
    with store.open(encryption=ENCRYPTION, require_encryption=True, retention=None) as saver:
        rows, inner = run_twice(saver), saver.backend.inner
        stored_rows = [*inner.rows(Query("t")), *inner.rows(label_query("t"))]
        header, bodies = inner.headers(["t"])["t"], {row.ref: row.body for row in stored_rows}

        def history() -> Any:
            return saver.get_delta_channel_history(config=config(), channels=["log"])

        def store_row(row: Row) -> None:
            kept = row._replace(body=bodies[row.ref])
            assert all(map(is_made, inner.save([SaveRow(kept, (), whole=True, header=header)])))

        def reads_of(row: Row) -> list[Callable[[], Any]]:
            """Return what reads a row; whoever changes whether it is hidden has removed it for some of them."""
            if is_label(row):
                return [lambda: saver.labels("t")] if row.hidden else []
            at = config(id=row.ref.id)
            loads = [lambda: saver.get_tuple(at), lambda: list(saver.list(config()))]
            return [history, *([] if row.hidden else loads)]

        for row in rows:
            for what, change in ALTERED:
                if what not in ("every", "label" if is_label(row) else "checkpoint"):
                    continue
                bad = row._replace(**change)
                assert bad != row
                store_row(bad)
                for read in (*reads_of(bad), lambda: saver.prune(["t"])):
                    with pytest.raises(Corrupt, match=NOTICED):
                        read()
                store_row(row)
            assert all(read() for read in reads_of(row))


def test_what_retention_left_is_as_safe_as_what_was_saved(store: Store) -> None:
    with store.open(encryption=ENCRYPTION, require_encryption=True, retention=None) as saver:
        run_twice(saver)
        saver.prune(["t"], strategy=Retention(keep_last=3))
        left = saver.backend.inner.outline("t")
        assert {row.hidden for row in left.rows} == {True, False}
        hidden = next(row for row in left.rows if row.hidden)
        assert saver.backend.inner.apply("t", left.rev, Change(relink=[hidden._replace(hidden=False)]))
    with store.open(encryption=ENCRYPTION, require_encryption=True) as saver:
        with pytest.raises(Corrupt, match=NOTICED):
            saver.get_tuple(config(id=hidden.ref.id))
        with pytest.raises(Corrupt, match=NOTICED):
            list(saver.list(config()))


def test_an_older_state_that_was_put_back_is_read_as_it_was(store: Store) -> None:
    """What the docs say nobody notices: checkpoints that are removed, and what is in its own place as it once was."""
    with store.open(encryption=ENCRYPTION, require_encryption=True, retention=None) as saver:
        at = config()
        for id in "123":
            new = {"id": id, "channel_values": {"x": "value " + id}, "channel_versions": {"x": id}}
            at = saver.put(at, {**made(), **new}, {}, {"x": id})
        saver.put_writes(config(id="1"), [("__error__", "first")], "task")
        inner = saver.backend.inner
        stored = [inner.load("t", "", id) for id in "123"]
        saver.put_writes(config(id="1"), [("__error__", "second")], "task")
        header = inner.headers(["t"])["t"]
        inner.drop_thread("t")
        saves: list[Save] = []
        for each in stored[:2]:  # the third one is gone
            assert each is not None
            saves.append(SaveRow(each.row, list(each.frames.values()), whole=True, header=header))
            saves += [SaveWrites(each.row.ref, each.writes, header=header)] * bool(each.writes)
        assert all(map(is_made, inner.save(saves)))
    with store.open(encryption=ENCRYPTION, require_encryption=True) as fresh:
        found = fresh.get_tuple(config())
        assert found is not None
        assert found.checkpoint["id"] == "2"
        assert found.checkpoint["channel_values"] == {"x": "value 2"}
        assert [item.checkpoint["id"] for item in fresh.list(config())] == ["2", "1"]
        # Whoever knows which checkpoint is the latest asks for it by its id, and learns that it is missing.
        assert fresh.get_tuple(config(id="3")) is None
        first = fresh.get_tuple(config(id="1"))
        assert first is not None
        assert first.pending_writes == [("task", "__error__", "first")]


def test_a_value_that_was_removed_is_noticed(store: Store) -> None:
    with store.open(encryption=ENCRYPTION, require_encryption=True, retention=None) as saver:
        inner = saver.backend.inner
        saver.put(config(), {**made(), "id": "1"}, {}, {"x": "1"})
        stored = inner.load("t", "", "1")
        assert stored is not None
        header = inner.headers(["t"])["t"]
        inner.drop_thread("t")
        assert all(map(is_made, inner.save([SaveRow(stored.row, [], whole=True, header=header)])))
        with pytest.raises(Corrupt, match="channel 'x'"):
            saver.get_tuple(config())
        with pytest.raises(Corrupt, match="channel 'x'"):
            list(saver.list(config()))


def test_a_record_of_an_earlier_life_of_its_thread_is_corrupt(store: Store) -> None:
    with store.open(encryption=ENCRYPTION, require_encryption=True, retention=None) as saver:
        inner = saver.backend.inner
        for id in "01":
            saver.put(config(), {**made(), "id": id}, {}, {"x": "1"})
        earlier = inner.load("t", "", "1")
        assert earlier is not None
        saver.delete_thread("t")
        saver.put(config(), {**made(), "id": "2"}, {}, {"x": "1"})
        header = inner.headers(["t"])["t"]
        assert all(
            map(is_made, inner.save([SaveRow(earlier.row, list(earlier.frames.values()), whole=True, header=header)]))
        )
        with pytest.raises(Corrupt, match=NOTICED):
            saver.get_tuple(config())
        with pytest.raises(Corrupt, match=NOTICED):
            list(saver.list(config()))


@pytest.mark.parametrize("kind", ["row", "frame", "write"])
@pytest.mark.parametrize("how", ["altered", "cut", "moved", "of another thread"])
def test_a_record_that_was_tampered_with_in_the_store_is_corrupt(store: Store, kind: str, how: str) -> None:
    with store.open(encryption=ENCRYPTION) as saver:
        for thread in "tu":
            for id in "12":
                new: Any = {**made(), "id": id, "channel_versions": {"x": id}}
                saver.put(config(thread), new, {}, new["channel_versions"])
                saver.put_writes(config(thread, id=id), [("__error__", SECRET)], "task")
        inner = saver.backend.inner
        own, other = inner.load("t", "", "2"), inner.load("u" if how == "of another thread" else "t", "", "1")
        assert own is not None
        assert other is not None

        def tampered(data: bytes | None, moved: bytes | None) -> bytes:
            assert data is not None
            assert moved is not None
            return {"altered": data[:-1] + bytes((data[-1] ^ 1,)), "cut": data[:-1]}.get(how, moved)

        (frame,), (write,) = own.frames.values(), own.writes
        row = own.row._replace(body=tampered(own.row.body, other.row.body)) if kind == "row" else own.row
        data = tampered(frame.data, next(iter(other.frames.values())).data) if kind == "frame" else frame.data
        stored: list[Save] = [SaveRow(row, [frame._replace(data=data)], header=own.header)]
        if kind == "write":
            bad = replace(write, data=tampered(write.data, other.writes[0].data))
            stored.append(SaveWrites(row.ref, [bad], header=own.header))
        assert all(map(is_made, inner.save(stored)))
    with store.open(encryption=ENCRYPTION) as fresh:
        for reader in (saver, fresh):
            with pytest.raises(Corrupt, match="of thread 't' cannot be decrypted"):
                reader.get_tuple(config("t", id="2"))
            with pytest.raises(Corrupt, match="of thread 't' cannot be decrypted"):
                list(reader.list(config("t")))
            found = reader.get_tuple(config("t", id="1"))
            assert found is not None
            assert found.pending_writes == [("task", "__error__", SECRET)]


def test_a_header_that_is_moved_to_another_thread_opens_nothing(store: Store) -> None:
    with store.open(encryption=ENCRYPTION) as saver:
        for thread in "tu":
            saver.put(config(thread), {**made(), "id": "1"}, {}, {"x": "1"})
        inner = saver.backend.inner
        headers = inner.headers(["t", "u"])
        assert inner.rewrap([("t", headers["t"], headers["u"]), ("u", headers["t"], b"")]) == [True, False]
    with store.open(encryption=ENCRYPTION) as other:
        with pytest.raises(Corrupt, match="altered or moved"):
            other.get_tuple(config("t"))
        assert other.get_tuple(config("u")) is not None

"""What somebody changes in an encrypted store is noticed: what was altered, moved or cut raises `Corrupt`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from langgraph_statekit import Encryption, Retention
from langgraph_statekit.checkpoint.records import Change, Row, Save, SaveRow, SaveWrites
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
        found = {row.ref: inner.load("t", "", row.ref.id) for row in rows}

        def history() -> Any:
            return saver.get_delta_channel_history(config=config(), channels=["log"])

        for row in rows:
            held = found[row.ref]
            kind, reads, loads = "label", [lambda: saver.labels("t")], list[Any]()
            if held is not None:
                loads = [partial(saver.get_tuple, config(id=row.ref.id)), lambda: list(saver.list(config()))]
                kind, reads = "checkpoint", [history]

            def stored(row: Row, body: bytes = b"label" if held is None else held.row.body) -> None:
                save = SaveRow(row._replace(body=body), (), whole=True, header=inner.headers(["t"])["t"])
                assert inner.save([save]) == [True]

            for what, change in ALTERED:
                if what not in ("every", kind):
                    continue
                bad = row._replace(**change)
                assert bad != row
                stored(bad)
                for read in (*reads, *([] if bad.hidden else loads), lambda: saver.prune(["t"])):
                    with pytest.raises(Corrupt, match=NOTICED):
                        read()
                stored(row)
            assert all(read() for read in (*reads, *loads))


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
        assert inner.save(stored) == [True] * len(stored)
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

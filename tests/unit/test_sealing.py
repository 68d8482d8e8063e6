"""Sealed records and headers: any change is noticed, lengths can be hidden, and wrong keys are refused in words."""

from __future__ import annotations

from typing import Any

import pytest

from langgraph_statekit import Encryption
from langgraph_statekit.checkpoint.frames import seal
from langgraph_statekit.checkpoint.records import Frame, Ref, Row, Write
from langgraph_statekit.errors import Corrupt, Misuse, SchemaTooNew
from tests.stores.verbs import frame, key

KEY = b"k" * 32
ENCRYPTION = Encryption({"one": KEY}, "one").of(None)
REF = Ref("t", "ns", "id")
ROW = Row(REF, "parent", None, 5, key("a", 1), key("a", 1)[:8], "run", False, seal(b"body"))
WRITE = Write("task", 1, "channel", "path", seal(b"write"))
WHOLE = frame(key("a", 1), b"value" * 20)
DELTA = frame(key("a", 2), b"more", WHOLE)


def flipped(data: bytes) -> list[bytes]:
    altered = [data[:at] + bytes((data[at] ^ bit,)) + data[at + 1 :] for at in range(len(data)) for bit in (1, 128)]
    return [*altered, *(data[:size] for size in range(2, len(data))), data + b"\0"]


@pytest.fixture(params=[0, 64])
def data_key(request: pytest.FixtureRequest) -> Any:
    return Encryption({"one": KEY}, "one", pad_bytes=request.param).of(None).new("t")


def test_what_is_sealed_is_opened_as_it_was(data_key: Any) -> None:
    assert data_key.open_row(data_key.seal_row(ROW)) == ROW
    assert data_key.open_write(REF, data_key.seal_write(REF, WRITE)) == WRITE
    for each in (WHOLE, DELTA):
        assert data_key.open_frame("t", data_key.seal_frame(each)) == each
    assert data_key.seal_frame(Frame(key("a", 1), None)) == Frame(key("a", 1), None)


def test_a_sealed_delta_names_its_base_as_the_sealed_base_is_named(data_key: Any) -> None:
    whole, delta = data_key.seal_frame(WHOLE), data_key.seal_frame(DELTA)
    assert delta.base == (whole.key, whole.check)
    assert whole.check != WHOLE.check
    assert data_key.seal_frame(WHOLE).check == whole.check, "the same value has the same check"
    assert data_key.seal_frame(WHOLE._replace(key=key("b", 1))).check != whole.check
    replaced = whole._replace(key=whole.key + whole.check)
    assert data_key.open_frame("t", replaced) == WHOLE._replace(key=WHOLE.key + WHOLE.check)


def test_every_changed_byte_and_every_cut_is_noticed(data_key: Any) -> None:
    row, write = data_key.seal_row(ROW), data_key.seal_write(REF, WRITE)
    for body in flipped(row.body):
        with pytest.raises(Corrupt, match="checkpoint 'id' of thread 't'"):
            data_key.open_row(row._replace(body=body))
    for data in flipped(write.data):
        with pytest.raises(Corrupt, match="a write to channel 'channel'"):
            data_key.open_write(REF, Write(write.task, write.idx, write.channel, write.path, data))
    for each in map(data_key.seal_frame, (WHOLE, DELTA)):
        for data in flipped(each.data):
            with pytest.raises(Corrupt, match="a value of thread 't'"):
                data_key.open_frame("t", each._replace(data=data))


@pytest.mark.parametrize(
    "changed",
    [
        {"ref": REF._replace(ns="other")},
        {"ref": REF._replace(id="other")},
        {"packed_keys": key("a", 2)},
        {"packed_deltas": b""},
        {"run_id": None},
        {"body": seal(b"body")},
        {"parent": None},
        {"hidden": True},
        {"via": None},
        {"via": "far"},
    ],
)
def test_a_row_that_was_moved_or_has_other_contents_is_not_opened(data_key: Any, changed: dict[str, Any]) -> None:
    with pytest.raises(Corrupt):
        data_key.open_row(data_key.seal_row(ROW)._replace(**changed))


@pytest.mark.parametrize("via", [None, "", "far", "=ns", "\\\\!"])
def test_what_retention_changes_in_a_row_is_tagged_anew(data_key: Any, via: str | None) -> None:
    moved = ROW._replace(parent=None, via=via, hidden=True)
    linked = data_key.tag_row(moved)
    assert data_key.untag_row(linked) == moved
    assert data_key.open_row(data_key.seal_row(ROW)._replace(parent=None, via=linked.via, hidden=True)) == moved
    with pytest.raises(Corrupt):
        data_key.open_row(data_key.seal_row(ROW)._replace(seq=ROW.seq + 9))
    with pytest.raises(Corrupt, match="checkpoint 'id' of thread 't'"):
        ENCRYPTION.new("t").untag_row(linked)
    for at in range(len(linked.via)):
        with pytest.raises(Corrupt):
            data_key.untag_row(linked._replace(via=f"{linked.via[:at]}~{linked.via[at + 1 :]}"))


def test_a_write_or_a_frame_that_was_moved_is_not_opened(data_key: Any) -> None:
    data = data_key.seal_write(REF, WRITE).data
    for moved in (
        Write("other", 1, "channel", "path", data),
        Write("task", 2, "channel", "path", data),
        Write("task", 1, "other", "path", data),
        Write("task", 1, "channel", "other", data),
    ):
        with pytest.raises(Corrupt):
            data_key.open_write(REF, moved)
    with pytest.raises(Corrupt):
        data_key.open_write(REF._replace(id="other"), Write("task", 1, "channel", "path", data))
    with pytest.raises(Corrupt):
        data_key.open_frame("t", data_key.seal_frame(WHOLE)._replace(key=key("b", 1)))
    with pytest.raises(Corrupt):
        data_key.open_frame("t", Frame(WHOLE.key, data))
    with pytest.raises(Corrupt):
        ENCRYPTION.new("t").open_frame("t", data_key.seal_frame(WHOLE))


def test_a_header_is_of_its_thread_and_every_changed_byte_of_it_is_noticed() -> None:
    made = ENCRYPTION.new("t")
    assert ENCRYPTION.unwrapped("t", made.header).secret == made.secret
    copied = ENCRYPTION.wrapped("u", made)
    assert (copied.id, copied.secret) == (made.id, made.secret)
    with pytest.raises(Corrupt, match="header"):
        ENCRYPTION.unwrapped("u", made.header)
    with pytest.raises(Corrupt, match="header"):
        Encryption({"one": KEY}, "one").of("tenant \ud800").unwrapped("t", made.header)
    for header in (*flipped(made.header), b"", b"1"):
        with pytest.raises((Corrupt, Misuse, SchemaTooNew), match=r"header|none of the keys"):
            ENCRYPTION.unwrapped("t", header)


def test_padding_hides_lengths() -> None:
    padded = Encryption({"one": KEY}, "one", pad_bytes=256).of(None).new("t")
    sizes = {len(padded.seal_write(REF, Write("t", 0, "c", "", seal(bytes(n)))).data) for n in range(120)}
    assert len(sizes) == 1
    plain = ENCRYPTION.new("t")
    assert len({len(plain.seal_write(REF, Write("t", 0, "c", "", seal(bytes(n)))).data) for n in range(120)}) > 100


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"keys": {}}, "mapping of names"),
        ({"keys": KEY}, "mapping of names"),
        ({"keys": {"one": "secret"}}, "must be 32 bytes"),
        ({"keys": {"one": b"secret"}}, "must be 32 bytes"),
        ({"keys": {"": KEY, "one": KEY}}, "name of a key"),
        ({"keys": {"x" * 256: KEY, "one": KEY}}, "name of a key"),
        ({"active": "two"}, r"none of the keys \['one'\]"),
        ({"delta": 1}, "delta"),
        ({"pad_bytes": -1}, "pad_bytes"),
    ],
)
def test_wrong_keys_and_options_are_refused_without_showing_a_key(options: Any, told: str) -> None:
    with pytest.raises(Misuse, match=told) as caught:
        Encryption(**{"keys": {"one": KEY}, "active": "one", **options})
    assert "secret" not in str(caught.value).replace("secrets.token_bytes", "")
    assert "kkk" not in str(caught.value) + repr(Encryption({"one": KEY}, "one"))

"""Keyframes, deltas and the envelope."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_statekit.checkpoint import frames
from langgraph_statekit.checkpoint.frames import CHAIN_FRAMES, Chain, Frames, decode, encode, seal, unseal, with_bases
from langgraph_statekit.checkpoint.records import Frame
from langgraph_statekit.checkpoint.splice import diff
from langgraph_statekit.errors import Corrupt, Misuse, SchemaTooNew


def key(version: int) -> bytes:
    return b"channel-" + version.to_bytes(8, "big")


def history(versions: list[bytes]) -> dict[bytes, Frame]:
    stored: dict[bytes, Frame] = {}
    chain: Chain | None = None
    for version, plain in enumerate(versions):
        frame, chain = encode(key(version), plain, chain)
        stored[frame.key] = frame
    return stored


def growing(steps: int, item: int = 300, seed: bytes = b"") -> list[bytes]:
    text = os.urandom(4096).hex().encode() * 3
    items = [text[(n * 37) % 4000 :][:item] for n in range(steps)]
    return [seed + b"".join(items[: n + 1]) for n in range(steps)]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 2000), st.binary(max_size=1500)), max_size=60))
def test_every_version_reads_back_exactly(edits: list[tuple[int, int, bytes]]) -> None:
    plain, versions = os.urandom(2000), []
    for at, cut, add in edits:
        plain = plain[:at] + add + plain[at + cut :]
        versions.append(plain)
    stored = history(versions)
    known: dict[bytes, bytes] = {}
    for version, plain in enumerate(versions):
        assert decode(key(version), stored, known)[0] == plain


def test_a_read_needs_few_frames() -> None:
    stored = history(growing(600))
    assert max(len(with_bases(stored, [key(n)])) for n in range(600)) <= CHAIN_FRAMES


def test_stored_bytes_grow_nearly_linearly() -> None:
    def per_step(steps: int) -> float:
        return sum(len(frame.stored) for frame in history(growing(steps)).values()) / steps

    assert per_step(2000) < 1.4 * per_step(400)


def test_a_loaded_version_continues_the_chain_where_its_writer_would() -> None:
    chain: Chain | None = None
    stored: dict[bytes, Frame] = {}
    for version, plain in enumerate(growing(80)):
        frame, chain = encode(key(version), plain, chain)
        stored[frame.key] = frame
        assert decode(key(version), stored, {})[1] == chain


def test_values_without_anything_in_common_are_soon_stored_without_looking_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = []
    monkeypatch.setattr(frames, "diff", lambda base, new: looked.append(new) or diff(base, new))
    unlike = [os.urandom(3000) for _ in range(40)]
    similar = [unlike[-1] + b"%d" % n for n in range(10)]
    stored = history(unlike + similar)
    assert len([new for new in looked if new in unlike]) <= 12
    whole = [n for n in range(40, 50) if stored[key(n)].base is None]
    assert len(whole) <= 3, "deltas come back when values are alike"


def test_equal_values_are_compressed_once_and_stay_apart_from_others() -> None:
    assert unseal(seal(b"")) == b""
    values = [b"%d" % n + text for n in range(60) for text in (b"a" * 5000, os.urandom(5000))]
    for _ in range(2):
        for value in values:
            assert unseal(seal(value)) == value
    assert seal(bytes(bytearray(values[-1]))) is seal(values[-1])


def test_a_replaced_base_is_found_under_its_check() -> None:
    stored = history(growing(10, seed=os.urandom(3000)))
    old = stored.pop(key(0))
    stored[key(0)] = Frame(key(0), seal(b"another value"))
    with pytest.raises(Corrupt, match="older version"):
        decode(key(9), stored, {})
    stored[old.key + old.check] = Frame(old.key + old.check, old.data)
    plain, chain = decode(key(9), stored, {})
    assert len(plain) == 6000
    assert chain is not None
    assert len(chain.keyframe.key) == 16


def test_a_value_that_changes_wholly_is_stored_whole() -> None:
    stored = history([os.urandom(5000) for _ in range(5)])
    assert all(frame.base is None for frame in stored.values())


REPEATED = st.builds(lambda unit, n: unit * n, st.binary(min_size=1, max_size=9), st.integers(1, 99))
PLAINS = st.binary(max_size=300) | REPEATED


def read(data: bytes) -> bytes | None:
    try:
        return unseal(data)
    except (Corrupt, SchemaTooNew, Misuse):  # it may look encrypted
        return None


@settings(max_examples=200, deadline=None)
@given(PLAINS)
def test_an_envelope_gives_back_its_value(plain: bytes) -> None:
    sealed = seal(plain)
    assert unseal(sealed) == plain
    assert len(sealed) <= len(plain) + 6


def test_a_value_is_compressed_where_that_helps() -> None:
    assert len(seal(b"x" * 10_000)) < 100
    assert seal(b"x" * 100)[-100:] == b"x" * 100


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200) | st.builds(lambda rest: bytes((frames.FORMAT, 1)) + rest, st.binary(max_size=200)))
def test_any_bytes_are_an_envelope_or_corrupt(data: bytes) -> None:
    found = read(data)
    assert found is None or found == unseal(seal(found))


@settings(max_examples=300, deadline=None)
@given(PLAINS, st.data())
def test_a_cut_envelope_is_never_read(plain: bytes, data: st.DataObject) -> None:
    sealed = seal(plain)
    cut = data.draw(st.integers(0, len(sealed) - 1))
    assert read(sealed[:cut]) is None
    assert read(sealed[cut + 1 :]) in (None, plain)


def test_every_single_bit_of_two_envelopes() -> None:
    for plain in (b"abc", b"state " * 40):
        sealed = seal(plain)
        for place in range(len(sealed) * 8):
            flipped = bytearray(sealed)
            flipped[place // 8] ^= 1 << place % 8
            assert read(bytes(flipped)) in (None, plain)


def test_bytes_after_a_value_are_noticed() -> None:
    assert read(seal(b"x" * 500) + b"more") is None
    assert read(seal(b"x") + b"more") is None


@settings(deadline=None)
@given(st.binary(max_size=400), st.integers(0, 10_000), st.integers(0, 7), st.booleans())
def test_altered_bytes_are_never_read_as_a_value(plain: bytes, at: int, bit: int, delta: bool) -> None:
    base = plain * 8 + b"a base that is long enough to build on" * 40
    data = seal(plain)
    if delta:
        _, chain = encode(key(0), base, None)
        data = encode(key(1), base + plain, chain)[0].stored
    flipped = bytearray(data)
    flipped[at % len(data)] ^= 1 << bit
    for bad in (bytes(flipped), data[: at % len(data)]):
        try:
            got = unseal(bad, base)
        except (Corrupt, SchemaTooNew, Misuse):
            continue
        # Key and place in the chain steer the search for the base; they are no part of the value.
        assert got == (base + plain if delta else plain)


def test_a_newer_format_asks_for_an_upgrade() -> None:
    with pytest.raises(SchemaTooNew, match="upgrade"):
        unseal(bytes((frames.FORMAT + 1,)) + seal(b"x")[1:])


def test_the_cache_stays_within_its_bytes() -> None:
    cache = Frames(max_bytes=10_000)
    for _ in range(50):
        packed, chains = cache.pack("thread", [(os.urandom(8) + bytes(8), os.urandom(3000))])
        cache.remember("thread", chains)
        assert packed[0].base is None
    assert cache._chains._bytes <= 10_000
    assert len(cache._chains._items) == 3


def test_a_version_that_is_stored_again_does_not_build_on_itself() -> None:
    frames = Frames()
    key, plain = b"channel_version_", os.urandom(2000)
    (first,), chains = frames.pack("t", [(key, plain)])
    frames.remember("t", chains)
    (again,), _ = frames.pack("t", [(key, plain)])
    assert again == first

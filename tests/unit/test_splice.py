"""The difference of two byte strings."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_statekit.checkpoint import splice

BLOCKS = st.lists(st.sampled_from([bytes([n]) * 40 + bytes(range(n, n + 60)) for n in range(20)]), max_size=30)
EDITS = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 300), st.binary(max_size=80)), max_size=8)


@settings(max_examples=300, deadline=None)
@given(BLOCKS, EDITS)
def test_patch_undoes_diff(blocks: list[bytes], edits: list[tuple[int, int, bytes]]) -> None:
    base = b"".join(blocks)
    new = base
    for at, cut, add in edits:
        new = new[:at] + add + new[at + cut :]
    found = splice.diff(base, new)
    assert found is None or splice.patch(base, *found) == new


FEW = st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=600).map(b"".join)


@settings(max_examples=500, deadline=None)
@given(FEW, FEW, st.integers(0, 600), st.integers(0, 600))
def test_a_shared_run_has_its_true_length(base: bytes, tail: bytes, i: int, j: int) -> None:
    new = base[i:] + tail
    i, j = min(i, len(base)), min(j, len(new))
    run = 0
    while i + run < len(base) and j + run < len(new) and base[i + run] == new[j + run]:
        run += 1
    assert splice._common(base, i, new, j) == run


@settings(max_examples=500, deadline=None)
@given(FEW, st.lists(st.tuples(st.integers(0, 600), st.integers(0, 40), FEW.map(lambda b: b[:40])), max_size=6))
def test_patch_undoes_diff_of_texts_that_repeat_themselves(base: bytes, edits: list[tuple[int, int, bytes]]) -> None:
    new = base
    for at, cut, add in edits:
        new = new[:at] + add + new[at + cut :]
    found = splice.diff(base, new)
    assert found is None or splice.patch(base, *found) == new


def test_a_number_and_a_name_that_change_in_a_record_are_found() -> None:
    def record(pages: int, last: str) -> bytes:
        return (
            b"\x83\xa4text"
            + b"lorem ipsum " * 100
            + b"\xa5pages"
            + bytes((pages,))
            + b"\xa8last_crawled_item_number"
            + last.encode()
        )

    base, new = record(1, "TO-54717-ch"), record(2, "OU-12345-it")
    found = splice.diff(base, new)
    assert found is not None
    assert splice.patch(base, *found) == new


@given(st.binary(max_size=500), st.binary(max_size=500))
def test_patch_undoes_diff_of_unrelated_bytes(base: bytes, new: bytes) -> None:
    found = splice.diff(base, new)
    assert found is None or splice.patch(base, *found) == new


@pytest.mark.parametrize("size", [10_000, 5_000_000])
def test_a_small_change_costs_little_at_any_size(size: int) -> None:
    base = os.urandom(size)
    middle = size // 2
    changes = {
        "end": base + b"one more message",
        "start": base[777:],
        "middle": base[:middle] + b"other" + base[middle + 9 :],
        "inserted": base[:middle] + b"other" + base[middle:],
        "header and end": b"\xdd\x00\x00" + base[3:] + b"one more message",
    }
    for what, new in changes.items():
        found = splice.diff(base, new)
        assert found is not None, what
        assert splice.patch(base, *found) == new
        assert len(found[0]) + len(found[1]) < 100, what


def test_unrelated_values_are_given_up() -> None:
    assert splice.diff(os.urandom(50_000), os.urandom(50_000)) is None


@pytest.mark.parametrize("copies", [(0, 5, 10), (9, 0, 1), (0, 2**31, 2**31)])
def test_a_patch_that_does_not_fit_is_refused(copies: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="older version"):
        splice.patch(b"0123456789", splice._COPY.pack(*copies), b"short")

"""The difference of two byte strings as copies and insertions: quick where little changed, at any size.

State values grow at the end, lose their beginning, or change in a few places. Runs that both strings share are found
by comparing memory and by searching for short anchors, so a 5 MB value with one change costs a few comparisons, where
a compressor has to index all of the old value first.
"""

from __future__ import annotations

import struct
from typing import Final

_COPY: Final = struct.Struct("<III")  # bytes inserted before the copy, start of the copy in the base, its length
COPY_BYTES: Final = _COPY.size
_ANCHOR: Final = 24
_PROBES: Final = (1, 4, 12, 40, 120, 400, 1200)
_MAX_COPIES: Final = 256
_NEAR_BYTES: Final = 1 << 20
"""How far a search goes, but for the first two: a value may have lost its beginning, and large ones need a bound."""


def diff(base: bytes, new: bytes) -> tuple[bytes, bytes] | None:
    """Return (copies, inserted bytes) that make `new` from `base`, or None where too much differs to be worth it."""
    copies: list[bytes] = []
    inserted: list[bytes] = []
    old_at = new_at = pending = 0
    budget = len(new) // 2
    while new_at < len(new):
        run = _common(base, old_at, new, new_at)
        if run >= _ANCHOR or (run and not copies):
            copies.append(_COPY.pack(pending, old_at, run))
            if len(copies) > _MAX_COPIES:
                return None
            pending, old_at, new_at = 0, old_at + run, new_at + run
            if new_at == len(new):
                break
        end = len(base) if len(copies) < 2 else old_at + _NEAR_BYTES
        step, old_at = _resync(base, old_at, end, new, new_at)
        inserted.append(new[new_at : new_at + step])
        pending += step
        new_at += step
        budget -= step
        if budget < 0:
            return None
    return b"".join(copies), b"".join(inserted)


def patch(base: bytes, copies: bytes, inserted: bytes) -> bytes:
    """Return what `diff` took apart; raises ValueError where copies or insertions do not fit."""
    parts: list[memoryview | bytes] = []
    old, fresh = memoryview(base), memoryview(inserted)
    at = 0
    for before, start, length in _COPY.iter_unpack(copies):
        if at + before > len(inserted) or start + length > len(base):
            raise ValueError("a copy lies outside the older version")
        parts += (fresh[at : at + before], old[start : start + length])
        at += before
    parts.append(fresh[at:])
    return b"".join(parts)


def _common(base: bytes, i: int, new: bytes, j: int) -> int:
    """Length of the run that starts at `base[i]` and `new[j]`."""
    limit = min(len(base) - i, len(new) - j)
    done, step = 0, 64
    while done < limit:
        step = min(step, limit - done)
        if base.startswith(new[j + done : j + done + step], i + done):
            done += step
            step *= 8
        elif step == 1:
            break
        else:
            limit = done + step  # the first difference lies in this block
            step = max(step // 8, 1)
    return done


def _resync(base: bytes, i: int, end: int, new: bytes, j: int) -> tuple[int, int]:
    """Bytes of `new` to insert at `j`, and where in `base` a shared run starts after them."""
    for probe in _PROBES:
        anchor = new[j + probe : j + probe + _ANCHOR]
        if len(anchor) < _ANCHOR:
            break
        found = base.find(anchor, i, end)
        if found < 0 and probe == _PROBES[0] and j == 0:
            continue
        if found >= 0:
            back = 0
            while back < probe and found > 0 and base[found - 1] == new[j + probe - back - 1]:
                back += 1
                found -= 1
            return probe - back, found
    return len(new) - j, len(base)

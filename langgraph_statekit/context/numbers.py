"""Large numbers in the form in which people say them, for display only."""

from __future__ import annotations

from typing import Final

READABLE_FROM: Final = 1_000_000
"""Smaller numbers are read as they are."""
_ENGLISH: Final = ((10**12, " trillion"), (10**9, " billion"), (10**6, " million"))
_CHINESE: Final = ((10**12, "万亿"), (10**8, "亿"), (10**4, "万"))


def readable(number: float, *, chinese: bool = False) -> str:
    """Return a number as `1.23 million` or `123万`, with three digits; below a million, and beyond reason, as it is.

    Rounded: show it to a reader and keep the number itself for everything else.
    """
    if not READABLE_FROM <= abs(number) < 10**18:  # no, nan and infinity are none of them
        return str(number)
    rounded = float(f"{number:.3g}")
    size, name = next(pair for pair in (_CHINESE if chinese else _ENGLISH) if abs(rounded) >= pair[0])
    return f"{rounded / size:,.6g}{name}"

"""Texts and numbers as people read them, in a terminal and on a page. Pure."""

from __future__ import annotations

from typing import Final

_JOINERS: Final = frozenset("\u200c\u200d\ufe0e\ufe0f")
"""They make one sign of several, and can do no harm."""


def printable(text: str) -> str:
    """Return a text on one line whose control characters, which could steer the terminal, are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def harmless(text: str) -> str:
    """Return a text in which signs that are not seen, or turn the direction of others, are escaped; lines stay."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\n\t" or c in _JOINERS else c.encode("unicode_escape").decode() for c in text
    )


def clipped(text: str, most: int) -> str:
    """Return a text of at most so many characters; it ends with three dots if more was there."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def size(count_bytes: int | None) -> str:
    """Return a number of bytes as people read it."""
    if count_bytes is None:
        return "?"
    value = float(count_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"


def duration(seconds: float | None) -> str:
    """Return how long something took as people read it; empty if it is not known."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"

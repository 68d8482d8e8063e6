"""What the terminal shows: tables, sizes, ages and progress. Pure, but for `emit` and `progress`."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar
from unicodedata import combining, east_asian_width

from langgraph_statekit.extras import load
from langgraph_statekit.readable import printable

T = TypeVar("T")

_LOGIN: Final = re.compile(r"(\w[\w+.-]*://)\S*@")
_SECRET_OPTION: Final = re.compile(r"((?:password|secret_access_key|access_key_id)=)[^&\s]*", re.I)
_COLORS: Final = {"+ ": 32, "- ": 31}
_STEPS_S: Final = ((86400 * 2, 86400, "d"), (3600 * 2, 3600, "h"), (60 * 2, 60, "m"))


def without_login(text: str) -> str:
    """Return a text in which no URL has a user, a password or a key."""
    return _SECRET_OPTION.sub(r"\1***", _LOGIN.sub(r"\1***@", text))


def age(seconds: float | None) -> str:
    """Return a time that passed as people read it."""
    if seconds is None:
        return "?"
    for least, step, unit in _STEPS_S:
        if seconds >= least:
            return f"{seconds / step:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table whose columns are as wide as what they hold."""
    cells = [[printable(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = (cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(padded).rstrip()


def fields(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a line for each name and value."""
    found = [(printable(name), printable(value)) for name, value in pairs]
    width = max((_width(name) for name, _ in found), default=0)
    for name, value in found:
        yield f"{name}{' ' * (width - _width(name))}  {value}".rstrip()


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def emit(document: Any, lines: Iterable[str], as_json: bool) -> None:
    """Write one JSON document, or lines, to stdout."""
    if as_json:
        print(json.dumps(document, indent=2, allow_nan=False))
    else:
        for line in lines:
            print(line)


def in_color(asked: str) -> bool:
    """Say whether to write in colours: `always`, `never`, or `auto` where stdout is a terminal that has them."""
    if asked != "auto":
        return asked == "always"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def colored(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines, those that begin with a sign of a difference in its colour."""
    for line in lines:
        color = _COLORS.get(line[:2])
        yield f"\x1b[{color}m{line}\x1b[0m" if color else line


def progress(items: Sequence[T], what: str) -> Iterator[T]:
    """Yield the items, with a bar on stderr where that is a terminal and tqdm is installed."""
    if not sys.stderr.isatty() or len(items) < 2:
        yield from items
        return
    try:
        bar = load("checkpoint.progress_bar", "bar")
    except ModuleNotFoundError:
        yield from items
        return
    yield from bar(items, what)

"""Arrays as PostgreSQL receives them in binary.

psycopg looks at each element of a list to find the array's type, in Python; here the type is known. For a save that is
half of what its arguments cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, ClassVar, Final

from psycopg import Connection
from psycopg.abc import AdaptContext
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

_HEAD: Final = Struct(">iiiii")  # dimensions, whether an element is NULL, its type, how many, the first one's number
_EMPTY: Final = Struct(">iii")
_NULL: Final = b"\xff\xff\xff\xff"


class Blobs(list[bytes | None]):
    """A `bytea[]`."""


class Texts(list[str]):
    """A `text[]`."""


class Numbers(list[int]):
    """An `int[]`."""


class _Dumper(Dumper):
    format = Format.BINARY
    element: ClassVar[int]

    def encoded(self, items: Any) -> Sequence[bytes | None]:
        return items  # type: ignore[no-any-return]

    def dump(self, obj: Any) -> bytes:
        items = self.encoded(obj)
        if not items:
            return _EMPTY.pack(0, 0, self.element)
        parts = [_HEAD.pack(1, None in items, self.element, len(items), 1)]
        for item in items:
            parts += (_NULL,) if item is None else (len(item).to_bytes(4, "big"), item)
        return b"".join(parts)


class _BlobsDumper(_Dumper):
    oid, element = 1001, 17


class _NumbersDumper(_Dumper):
    oid, element = 1007, 23

    def encoded(self, items: Any) -> Sequence[bytes]:
        return [item.to_bytes(4, "big", signed=True) for item in items]


class _TextsDumper(_Dumper):
    oid, element = 1009, 25

    def __init__(self, cls: type, context: AdaptContext | None = None) -> None:
        super().__init__(cls, context)
        given = self.connection.info.encoding if isinstance(self.connection, Connection) else "utf-8"
        self._encoding = "utf-8" if given == "ascii" else given

    def encoded(self, items: Any) -> Sequence[bytes]:
        return [item.encode(self._encoding) for item in items]


def adapt(adapters: AdaptersMap) -> None:
    """Let a cursor send these arrays."""
    for kind, dumper in ((Blobs, _BlobsDumper), (Texts, _TextsDumper), (Numbers, _NumbersDumper)):
        adapters.register_dumper(kind, dumper)

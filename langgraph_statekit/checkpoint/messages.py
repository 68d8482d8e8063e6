"""An exact, fast codec of LangChain messages: lists of them, and single ones.

Layout: codec version (1 byte), kind (1 byte: a list or one message), msgpack. A message is the array of its field
values in the order of its class, the literal `type` among them, then a map of its extra fields where it has any. What
is not of this codec is stored as the general serializer makes it: objects inside fields as an extension, whole messages
as bytes in the list. No value refers to another, so the messages of a list that grew have the same bytes as before.

Loading runs no validation: a predicate of each class (`message_kinds`) says which field values validation would leave
as they are. `dump` gives all others to the general serializer, `load` calls them corrupt.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import ormsgpack
from langchain_core.messages import BaseMessage
from pydantic import BaseModel

from langgraph_statekit.checkpoint.fork import renew_in_child
from langgraph_statekit.checkpoint.message_kinds import KINDS, KNOWN, Row, is_text
from langgraph_statekit.errors import Corrupt, SchemaTooNew, StatekitError

TAG: Final = "messages"
"""The type tag of values in this encoding."""

_VERSION: Final = 1
_LIST: Final = bytes((_VERSION, 0))
_ONE: Final = bytes((_VERSION, 1))
_OTHER: Final = 0
_MANY_BYTES: Final = 8192

# Exact types only: what becomes of a subclass is for pydantic and the general serializer to say.
_PLAIN: Final = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_ANY: Final = _PLAIN & ~ormsgpack.OPT_PASSTHROUGH_SUBCLASS | ormsgpack.OPT_NON_STR_KEYS


def dump(value: Any, encode: Callable[[Any], bytes]) -> bytes | None:
    """Return the encoding of a message or of a list of messages, or None for what this codec does not take.

    Args:
        value: Any value.
        encode: The general serializer, called with each message and each object that this codec does not know exactly.

    Raises:
        TypeError: A text holds a lone surrogate, or an integer needs more than 64 bits.
    """
    if type(value) is not list:
        row = _rows((value,))[0]
        packed = None if row is None else _packed(row, encode)
        return None if packed is None else _ONE + packed
    if not value or not isinstance(value[0], BaseMessage):
        return None
    rows: list[Any] = _rows(value)
    if None in rows:
        if not any(rows) or not all(isinstance(message, BaseMessage) for message in value):
            return None
        rows = [encode(message) if row is None else row for message, row in zip(value, rows, strict=True)]
    packed = _packed(rows, encode)
    if packed is None:
        rows = [
            encode(message) if _packed(row, encode) is None else row for message, row in zip(value, rows, strict=True)
        ]
        packed = None if all(type(row) is bytes for row in rows) else _packed(rows, encode)
    return None if packed is None else _LIST + packed


class Known:
    """The longest list that was loaded lately: one that it begins with is taken from it, without being read."""

    def __init__(self) -> None:
        self.body = b""
        self.messages: Sequence[Any] = ()

    def beginning(self, data: bytes) -> list[Any] | None:
        """Return the messages of a list that this one begins with, byte by byte; None if it does not."""
        count, body = _counted(data)
        return list(self.messages[:count]) if count and self.body.startswith(body) else None

    def learn(self, data: bytes, messages: Sequence[Any]) -> None:
        """Take a list instead."""
        self.body, self.messages = _counted(data)[1], messages


def _counted(data: bytes) -> tuple[int, bytes]:
    """Return how many messages a list has, and their bytes; 0 of what is no list."""
    first = data[2] if data[:2] == _LIST and len(data) > 2 else 0
    for mark, size in ((0xDC, 2), (0xDD, 4)):
        if first == mark:
            return int.from_bytes(data[3 : 3 + size], "big"), data[3 + size :]
    return (first & 0x0F, data[3:]) if first & 0xF0 == 0x90 else (0, b"")


def load(data: bytes, decode: Callable[[bytes], Any]) -> Any:
    """Return the value that `dump` was given, of new objects only.

    Args:
        data: What `dump` returned.
        decode: The inverse of the `encode` that `dump` was called with.

    Raises:
        Corrupt: The bytes were altered or cut.
        SchemaTooNew: A later release wrote them.
    """
    head = data[:2]
    if head[:1] > _LIST[:1]:
        raise SchemaTooNew(f"stored messages have format {head[0]}, this release reads up to {_VERSION}: upgrade it")

    def other(code: int, part: bytes) -> Any:
        return _decoded(part if code == _OTHER else None, decode)

    try:
        with _COLLECTOR.resting(len(data)):
            body = ormsgpack.unpackb(memoryview(data)[2:], ext_hook=other) if head in (_LIST, _ONE) else None
            if type(body) is not list:
                raise _Malformed("beginning")  # noqa: TRY301
            return _messages(body, decode) if head == _LIST else _messages([body], decode)[0]
    except (_Malformed, ormsgpack.MsgpackDecodeError) as error:
        raise Corrupt(f"{len(data)} bytes of stored messages are damaged ({error}); restore a copy") from error


class _Malformed(Exception):
    """Names the part that no `dump` wrote."""


def _rows(messages: Sequence[Any]) -> list[Row | None]:
    """Return the field values of each message, None where validation may change them."""
    rows: list[Row | None] = []
    for message, kind in zip(messages, map(KNOWN.get, map(type, messages)), strict=True):
        row: Row | None = None
        if kind is not None and len(state := message.__dict__) == kind.size:
            try:
                row = kind.values(state)
            except KeyError:
                row = None
            else:
                if not (row[3] is kind.literal or is_text(row[3], kind.literal)) or not kind.fits(row):
                    row = None
                elif extra := message.__pydantic_extra__:
                    row = (*row, extra) if kind.fits_extra(extra) else None
        rows.append(row)
    return rows


def _packed(rows: Any, encode: Callable[[Any], bytes]) -> bytes | None:
    """Return msgpack, or None where something needs the general serializer for all that surrounds it."""
    try:
        return ormsgpack.packb(rows, option=_PLAIN, default=lambda part: ormsgpack.Ext(_OTHER, encode(part)))
    except ormsgpack.MsgpackEncodeError:
        # Keys that are no text are for the general serializer; what fails without them cannot be stored at all.
        ormsgpack.packb(rows, option=_ANY, default=_nothing)
        return None


def _nothing(value: Any) -> None:
    return None


class _Collector:
    """Python's garbage collector, off while many objects are built: all are new, and it would look at each anew.

    It is off for a millisecond or so, for all threads; a program that has switched it off finds it so.
    """

    def __init__(self) -> None:
        self._rests: set[int] = set()
        renew_in_child(self)

    def renew(self) -> None:
        """Switch it on where another thread of the parent was to do so."""
        if self._rests:
            self._rests.clear()
            gc.enable()

    @contextmanager
    def resting(self, size_bytes: int) -> Iterator[None]:
        if size_bytes < _MANY_BYTES or not gc.isenabled():
            yield
            return
        me = threading.get_ident()
        try:
            self._rests.add(me)
            gc.disable()
            yield
        finally:
            gc.enable()
            self._rests.discard(me)


_COLLECTOR: Final = _Collector()


def _messages(rows: Sequence[Any], decode: Callable[[bytes], Any]) -> list[Any]:
    messages: list[Any] = []
    for row in rows:
        if type(row) is not list:
            messages.append(_decoded(row, decode))
            continue
        try:
            kind = KINDS[row[3]]
        except (IndexError, KeyError, TypeError):
            raise _Malformed("type of a message") from None
        row[3] = kind.literal
        extra = row.pop() if len(row) > kind.size else None
        if len(row) != kind.size or not kind.fits(row) or not (extra is None or kind.fits_extra(extra)):
            raise _Malformed(f"fields of a message of type {kind.literal!r}")
        state = kind.state(row)
        if kind.known:
            message = _new(kind.cls)
            _set_state(message, state)
            _set_names(message, set(kind.names) if extra is None else {*kind.names, *extra})
            _set_extra(message, {} if extra is None else extra)
            _set_private(message, None)
        else:
            message = _validated(kind.cls, {**state, **(extra or {})})
        messages.append(message)
    return messages


_new: Final = cast("Callable[[type[BaseMessage]], BaseMessage]", object.__new__)
_set_state, _set_names, _set_extra, _set_private = (
    cast("Callable[[BaseMessage, Any], None]", vars(BaseModel)[name].__set__)
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


def _validated(cls: type[BaseMessage], state: dict[str, Any]) -> BaseMessage:
    try:
        return cls(**state)
    except Exception:
        return cls.model_construct(**state)


def _decoded(data: Any, decode: Callable[[bytes], Any]) -> Any:
    if type(data) is not bytes:
        raise _Malformed("element")
    try:
        return decode(data)
    except StatekitError:
        raise
    except Exception as error:
        raise _Malformed(f"value of another serializer: {error}") from error

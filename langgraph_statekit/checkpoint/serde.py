"""The serializer: LangGraph's bytes, and nothing changes silently."""

from __future__ import annotations

import pickle
import re
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import datetime, timezone
from enum import Enum
from inspect import isawaitable
from types import FunctionType
from typing import Any, Final, cast
from zoneinfo import ZoneInfo

import ormsgpack
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

from langgraph_statekit.checkpoint import messages
from langgraph_statekit.checkpoint.exact import (
    SCALARS,
    Refused,
    extras,
    importable,
    lost,
    model_fields,
    parts,
    qualname,
    rebuilds,
    short,
)
from langgraph_statekit.checkpoint.foreign import Foreign
from langgraph_statekit.checkpoint.results import SerializableResult
from langgraph_statekit.errors import Corrupt, DataError

_OPTIONS: Final = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_MAX_STEPS: Final = 200
_DUCKS: Final = ("model_dump", "get_secret_value", "dict", "_asdict")
_OWN: Final = (SerializableResult.__module__, SerializableResult.__name__)
# Loading our own class is never the surprise that LangGraph's once-only warning is for.
jsonplus._warned_unregistered_types.add(_OWN)


class StatekitSerializer(JsonPlusSerializer):
    """LangGraph's serializer that refuses what it would change.

    Bytes, allowlists and LANGGRAPH_STRICT_MSGPACK are those of `JsonPlusSerializer`, which can read all that this
    class writes but lists of messages: these have a faster form of their own (see `messages`). A value comes back
    equal and with its type, or it is refused with `DataError` before anything is written, or it is one of LangGraph's
    own conversions:

    | stored | comes back as |
    |---|---|
    | tuple (NamedTuples, dict keys and set elements stay tuples) | list |
    | bytearray inside a value, memoryview | bytes |
    | subclass of str, int, list or dict (defaultdict, Counter, numpy.str_), of bytes alone | its base |
    | str or int enum as dict key | its value, which is equal |
    | exception, unless it is a dataclass | its repr |
    | datetime with a tzinfo other than timezone or ZoneInfo | same instant with a fixed offset |
    | object whose class is not at the top level of its module | its fields as dict, or its plain value |
    | object whose class strict mode does not allow | its fields as dict, or its plain value |
    | numpy array | the same array, read-only |
    | pydantic model | an equal model whose `model_fields_set` is all fields |

    Refused: integers beyond 64 bits; lone surrogates; dict keys other than str, int, float, bool, None, bytes
    and tuples of these; enums with a tuple as value; numpy scalars, object, structured and masked arrays,
    matrices; subclasses of datetime (pandas.Timestamp), float, tuple; complex, Fraction, range; models and
    dataclasses that a copy made from their fields does not equal (changed private attributes, values that a
    validator or `__post_init__` changes, attributes that are no fields); functions, classes, locks, sockets,
    clients, file handles, generators.

    Args:
        pickle_fallback: Store with pickle what would be refused. Whoever can write to the store can then run
            code in every process that reads it. Off unless named here.
        allowed_json_modules: As in `JsonPlusSerializer`.
        allowed_msgpack_modules: As in `JsonPlusSerializer`; `SerializableResult` is always allowed.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if self._allowed_msgpack_modules is not True:
            self._allowed_msgpack_modules = {*(self._allowed_msgpack_modules or ()), _OWN}
            if not self._custom_unpack_ext_hook:
                self._unpack_ext_hook = jsonplus._create_msgpack_ext_hook(self._allowed_msgpack_modules)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the type tag and the bytes of a value.

        Raises:
            DataError: The value would not come back as it is; the message gives path, type and remedy.
        """
        if obj is None or isinstance(obj, bytes | bytearray):
            return super().dumps_typed(obj)
        if type(obj) is list and obj and isinstance(obj[0], BaseMessage) and not self._custom_unpack_ext_hook:
            try:
                packed = messages.dump(obj, _ANY_KEYS.pack)
            except (TypeError, RecursionError, Refused):
                packed = None  # explained below
            if packed is not None:
                return messages.TAG, packed
        try:
            return "msgpack", _TEXT_KEYS.pack(obj)
        except (TypeError, RecursionError):
            pass
        try:
            return "msgpack", _ANY_KEYS.pack(obj)
        except (TypeError, RecursionError, Refused) as error:
            if self.pickle_fallback:
                return "pickle", _pickled(obj)
            raise DataError(_explain(obj)) from error

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value.

        Raises:
            DataError: The tag is unknown here.
            Corrupt: The bytes cannot be read.
        """
        if data[0] == messages.TAG:
            return messages.load(data[1], lambda part: self.loads_typed(("msgpack", part)))
        try:
            return super().loads_typed(data)
        except NotImplementedError:
            raise DataError(
                f"unknown type tag {data[0]!r}: read it with the serializer that wrote it"
                " ('pickle' needs pickle_fallback=True, '+' marks encryption)"
            ) from None
        except ormsgpack.MsgpackDecodeError as error:
            raise Corrupt(f"{len(data[1])} bytes of msgpack cannot be read: {error}") from error


class _Everything(set[tuple[str, ...]]):
    def __contains__(self, _: object) -> bool:
        return True


_read_ext: Final = jsonplus._create_msgpack_ext_hook(_Everything())


class _Packer:
    """LangGraph's encoder with strict text, and a writer for each class that is chosen once."""

    def __init__(self, *, any_keys: bool) -> None:
        self._options = _OPTIONS | ormsgpack.OPT_NON_STR_KEYS if any_keys else _OPTIONS
        self._any_keys = any_keys
        self._writers: dict[type, Callable[[Any], Any]] = {}
        # The same code, but a strict encoder for what lies inside: LangGraph's replaces surrogates.
        self._langgraph = FunctionType(
            jsonplus._msgpack_default.__code__, {**vars(jsonplus), "_msgpack_enc": self.pack}
        )

    def pack(self, obj: Any) -> bytes:
        if self._any_keys:
            _check_keys(obj)
        return ormsgpack.packb(obj, default=self.write, option=self._options)

    def write(self, obj: Any) -> Any:
        writer = self._writers.get(type(obj))
        if writer is None:
            writer = self._choose(type(obj))
            if len(self._writers) < 1000 and "<locals>" not in type(obj).__qualname__:
                self._writers[type(obj)] = writer
        return writer(obj)

    def _choose(self, cls: type) -> Callable[[Any], Any]:
        known = self._by_class(cls)
        if known is not None:
            return known
        if issubclass(cls, BaseException):
            return self._exception
        if not importable(cls):
            return self._langgraph
        if issubclass(cls, BaseModel):
            return self._safe_model if (cls.__module__, cls.__name__) in SAFE_MSGPACK_TYPES else self._model
        if (cls.__module__, cls.__name__) in SAFE_MSGPACK_TYPES:
            return self._langgraph
        if issubclass(cls, Enum):
            return self._enum
        if is_dataclass(cls) and not any(hasattr(cls, name) for name in _DUCKS):
            return self._special_dataclass if rebuilds(cls) else self._dataclass
        return self._langgraph if "_fields" in cls.__dict__ else self._checked

    def _by_class(self, cls: type) -> Callable[[Any], Any] | None:
        if cls is datetime:
            return self._datetime
        if cls is set or cls is frozenset:
            return self._set
        if cls is deque:
            return self._deque
        if cls is ZoneInfo:
            return self._checked
        if cls is re.Pattern:
            return self._langgraph
        if cls is Foreign:
            return Foreign.packed
        numpy = sys.modules.get("numpy")
        if numpy is not None and issubclass(cls, numpy.ndarray):
            return self._array if cls is numpy.ndarray else _refuse_array_class
        return None

    def _ext(self, code: int, obj: Any, *content: Any) -> ormsgpack.Ext:
        return ormsgpack.Ext(code, self.pack((type(obj).__module__, type(obj).__name__, *content)))

    def _checked(self, obj: Any, ext: Any = None) -> Any:
        """Write as LangGraph does, and read it again to see that it is the same."""
        packed = ormsgpack.packb(self._langgraph(obj) if ext is None else ext, default=self.write, option=self._options)
        again = ormsgpack.unpackb(packed, ext_hook=_read_ext, option=ormsgpack.OPT_NON_STR_KEYS)
        if (what := lost(obj, again)) is not None:
            where = what if what.startswith(" ") else f" in {what}"
            raise Refused(f"it would come back different{where}: store plain values of it")
        return ormsgpack.Fragment(packed)

    def _safe_model(self, obj: BaseModel) -> ormsgpack.Ext:
        return self._ext(jsonplus.EXT_PYDANTIC_V2, obj, model_fields(obj), "model_validate_json")

    def _model(self, obj: BaseModel) -> Any:
        try:
            dump = obj.model_dump(warnings=False)
            return self._checked(obj, self._ext(jsonplus.EXT_PYDANTIC_V2, obj, dump, "model_validate_json"))
        except Exception:  # field by field keeps subclasses, excluded fields and objects in Any
            return self._checked(obj, self._safe_model(obj))

    def _dataclass(self, obj: Any) -> Any:
        if len(getattr(obj, "__dict__", ())) > len(fields(obj)) and (found := extras(obj)):
            raise Refused(f"attribute .{next(iter(found))} is no field and would be lost: make it a field")
        return self._langgraph(obj)

    def _special_dataclass(self, obj: Any) -> Any:
        try:
            return self._checked(obj)
        except Refused:
            values = {field.name: getattr(obj, field.name) for field in fields(obj) if field.init}
            return self._checked(obj, self._ext(jsonplus.EXT_CONSTRUCTOR_KW_ARGS, obj, values))

    def _enum(self, obj: Enum) -> Any:
        return self._langgraph(obj) if type(obj.value) in SCALARS else self._checked(obj)

    def _exception(self, obj: BaseException) -> Any:
        if is_dataclass(obj):
            try:
                return self._special_dataclass(obj)
            except (TypeError, Refused):
                pass  # the record of an error must not fail
        return repr(obj).encode(errors="backslashreplace").decode()

    def _datetime(self, obj: datetime) -> Any:
        zone = obj.tzinfo
        named = isinstance(zone, timezone) and len(zone.__getinitargs__()) > 1  # type: ignore[attr-defined]
        if not (obj.fold or named or type(zone) is ZoneInfo):
            return self._langgraph(obj)
        if not (zone is None or isinstance(zone, timezone) or type(zone) is ZoneInfo):
            return self._langgraph(obj)
        names = ("year", "month", "day", "hour", "minute", "second", "microsecond", "tzinfo", "fold")
        return self._ext(jsonplus.EXT_CONSTRUCTOR_KW_ARGS, obj, {name: getattr(obj, name) for name in names})

    def _set(self, obj: set[Any] | frozenset[Any]) -> Any:
        if all(type(item) in SCALARS for item in obj):
            return self._langgraph(obj)
        if all(_is_key(item) for item in obj):  # a tuple stays a tuple only as key of a map
            content = _ANY_KEYS.pack((type(obj).__module__, type(obj).__name__, dict.fromkeys(obj)))
            return ormsgpack.Ext(jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG, content)
        return self._checked(obj)

    def _deque(self, obj: deque[Any]) -> Any:
        if obj.maxlen is None:
            return self._langgraph(obj)
        return self._ext(jsonplus.EXT_CONSTRUCTOR_POS_ARGS, obj, (list(obj), obj.maxlen))

    def _array(self, obj: Any) -> Any:
        kind = obj.dtype
        known = kind.kind in "biufcmMSUV" and kind.names is None and kind.itemsize
        if not known or cast(Any, sys.modules["numpy"]).dtype(kind.str) != kind:
            raise Refused(f"an array of dtype {kind} would lose it: store plain arrays or .tolist()")
        if kind.kind not in "mM":
            return self._langgraph(obj)
        meta = (kind.str, obj.shape, "C", obj.tobytes())  # such an array gives no buffer
        return ormsgpack.Ext(jsonplus.EXT_NUMPY_ARRAY, self.pack(meta))


def _refuse_array_class(obj: Any) -> Any:
    raise Refused(f"{qualname(type(obj))} would come back as numpy.ndarray: store its plain arrays")


_TEXT_KEYS: Final = _Packer(any_keys=False)
_ANY_KEYS: Final = _Packer(any_keys=True)


def _is_key(key: Any) -> bool:
    """Say whether LangGraph keeps a dict key equal."""
    cls = type(key)
    return cls in SCALARS or isinstance(key, str | int) or (cls is tuple and all(map(_is_key, key)))


def _check_keys(obj: Any) -> None:
    if isinstance(obj, dict):
        if not SCALARS.issuperset(map(type, obj)) and not all(map(_is_key, obj)):
            raise Refused("dict key")
        obj = obj.values()
    elif not isinstance(obj, list | tuple):
        return
    for item in obj:
        if type(item) not in SCALARS:
            _check_keys(item)


def _pickled(obj: Any) -> bytes:
    try:
        return pickle.dumps(obj)
    except Exception as error:
        raise DataError(f"{_explain(obj)}; pickle cannot store it either: {error}") from error


def _explain(obj: Any) -> str:
    path, above = "", [obj]
    while len(above) < _MAX_STEPS and (inner := _failing_part(obj)) is not None:
        step, obj = inner
        path += step
        if any(obj is outer for outer in above):
            return _sentence(path, obj, "it contains itself: store a reference such as an id")
        above.append(obj)
        if step.startswith(" key ") and _packs(obj):
            return _sentence(path, obj, "as a dict key it would not stay equal: use str, int, bytes or a tuple")
    return _sentence(path, obj, _reason(obj))


def _sentence(path: str, obj: Any, reason: str) -> str:
    where = path if len(path) < 300 else f"{path[:150]}...{path[-150:]}"
    return f"at {where.strip() or 'the value itself'}: {qualname(type(obj))}: {reason}"


def _failing_part(obj: Any) -> tuple[str, Any] | None:
    if isinstance(obj, dict):
        for key in obj:
            if not _packs({key: None}):
                return f" key {short(key)}", key
    return next(((step, part) for step, part in parts(obj) if not _packs(part)), None)


def _packs(obj: Any) -> bool:
    try:
        _ANY_KEYS.pack(obj)
    except (TypeError, RecursionError, Refused):
        return False
    return True


def _reason(obj: Any) -> str:
    try:
        _ANY_KEYS.write(obj)
    except Refused as refused:
        return str(refused)
    except Exception:
        pass  # said below
    cls = type(obj)
    if cls in (dict, list, tuple, deque) or isinstance(obj, BaseModel) or is_dataclass(cls):
        return "it is nested too deeply: flatten it"
    if isinstance(obj, int):
        return "integers beyond 64 bits: store str(value) or Decimal(value)"
    if isinstance(obj, str):
        return "a lone surrogate: clean the text with errors='replace' or store bytes"
    if cls.__module__ == "numpy" and not isinstance(obj, type) and hasattr(obj, "item"):
        return "a numpy scalar: store value.item()"
    for base in (float, tuple, bytes):
        if isinstance(obj, base):
            return f"a subclass of {base.__name__} would lose its type: store the plain {base.__name__}"
    if isawaitable(obj) or hasattr(obj, "__anext__"):
        return "await it first and store the result"
    if any(hasattr(obj, name) for name in ("__next__", "read", "status_code")):
        return "wrap it with SerializableResult.of(...), or keep it outside the state"
    if callable(obj) or any(hasattr(obj, name) for name in ("__enter__", "close", "acquire")):
        return "functions, classes, locks, sockets and clients have no stored form: keep it outside the state"
    return "no stored form: store plain data or a dataclass, or wrap it with SerializableResult.of(...)"

"""Plain, size-capped data of live objects that cannot be stored themselves."""

from __future__ import annotations

import codecs
import io
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from inspect import isawaitable
from itertools import chain
from typing import Any, Final, Self
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

from langgraph_statekit.checkpoint.secret_keys import SECRET_KEYS
from langgraph_statekit.errors import Misuse

_SECRET_HEADERS: Final = SECRET_KEYS.union(
    ["proxy_authorization", "set_cookie", "set_cookie2", "x_auth_token", "x_csrf_token"]
)
_TEXT_KINDS: Final = ("text/", "json", "xml", "charset", "javascript", "form-urlencoded")
_SMALL: Final = (bool, float, datetime, date, time, timedelta, Decimal, UUID)
_GROUPS: Final = (dict, list, tuple, set, frozenset)
_PLAIN: Final = (str, bytes, int, *_SMALL, *_GROUPS)
_SMALL_BYTES: Final = 8
_MAX_DEPTH: Final = 12
_MAX_CAUSES: Final = 10
_MAX_TRACE_LINES: Final = 60
_MAX_REPR_CHARS: Final = 2_000


@dataclass(frozen=True, slots=True)
class SerializableResult:
    """What is known of an object that cannot be stored: plain data that comes back also in strict mode.

    Attributes:
        kind: `"response"`, `"exception"`, `"file"`, `"items"`, `"object"` or `"value"`.
        type: Module and name of the object's class.
        data: Plain values; which ones depends on `kind`, see `of`.
        truncated: Something was cut off to stay below the cap.
        size_bytes: Size of the whole content before the cut (a response's body, an in-memory file); None where
            there is no such content or its size is unknown.
    """

    kind: str
    type: str
    data: dict[str, Any]
    truncated: bool = False
    size_bytes: int | None = None

    @classmethod
    def of(cls, obj: Any, *, max_bytes: int = 262_144) -> Self:
        """Return the plain data of an object.

        - Response of `requests` or `httpx`: `status`, `reason`, `url` (without user and password), `headers`
          (without credentials and cookies), `encoding`, `elapsed_s`, and `body`: text, bytes, or None where a
          streamed body was not read yet (it is not read here).
        - Exception: `message`, `args`, `notes`, `traceback` (its last lines), `causes` (type and message of
          what it was raised from, nearest first), and `exceptions` of a group.
        - File: `name`, `mode`, `position`, `closed`; `content` only of `StringIO` and `BytesIO`, since reading
          would move a real file.
        - Generator or other iterator: `items` up to the cap. This consumes it, with one item more than is kept.
        - Plain value or collection: `value`.
        - Anything else: its public `attributes`, or its `repr` if there are none.

        Values inside that are not plain become text by `repr`; tuples and sets become lists; values whose key
        is the name of a credential are left out.

        Args:
            obj: The object.
            max_bytes: About how much to keep; text counts in UTF-8.

        Raises:
            Misuse: The object must be awaited first, or `max_bytes` is negative.
        """
        if max_bytes < 0:
            raise Misuse(f"max_bytes must not be negative: {max_bytes}")
        if isawaitable(obj) or hasattr(obj, "__anext__"):
            raise Misuse(
                f"{_name(obj)} is asynchronous: await it first (or collect it with `async for`) and pass the result"
            )
        budget = _Budget(max_bytes)
        size = None
        if isinstance(obj, BaseException):
            kind, data = "exception", _exception(obj, budget)
        elif hasattr(obj, "status_code") and hasattr(obj, "headers"):
            kind = "response"
            data, size = _response(obj, budget)
        elif isinstance(obj, io.IOBase) or (hasattr(obj, "read") and hasattr(obj, "mode")):
            kind = "file"
            data, size = _file(obj, budget)
        elif hasattr(obj, "__next__"):
            kind, data = "items", {"items": _items(obj, budget)}
        elif obj is None or isinstance(obj, _PLAIN):
            kind, data = "value", {"value": _plain(obj, budget)}
        else:
            kind, data = "object", _object(obj, budget)
        return cls(kind, _name(obj), data, budget.cut, size)


class _Budget:
    """Bytes that may still be kept."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.cut = False

    def take(self, size: int) -> bool:
        if size > self.left:
            self.cut = True
            return False
        self.left -= size
        return True

    def data(self, content: bytes) -> bytes:
        if len(content) > self.left:
            self.cut = True
            content = content[: self.left]
        self.left -= len(content)
        return content

    def text(self, content: str) -> str:
        raw = content.encode(errors="backslashreplace")
        return self.data(raw).decode(errors="ignore")


def _name(obj: Any) -> str:
    cls = type(obj)
    return f"{cls.__module__}.{cls.__qualname__}"


def _response(obj: Any, budget: _Budget) -> tuple[dict[str, Any], int | None]:
    content = None
    if getattr(obj, "_content", None) is not False:  # False: requests would read the network now
        with suppress(Exception):
            content = obj.content
    content = content if isinstance(content, bytes) else None
    elapsed = None
    with suppress(Exception):
        elapsed = obj.elapsed.total_seconds()
    encoding = getattr(obj, "encoding", None) if content is not None else None
    headers = {str(key): str(value) for key, value in obj.headers.items() if not _is_secret(key)}
    data: dict[str, Any] = {
        "status": int(obj.status_code),
        "reason": budget.text(str(getattr(obj, "reason", None) or getattr(obj, "reason_phrase", ""))),
        "url": budget.text(_without_login(str(obj.url))),
        "headers": _plain(headers, budget),
        "encoding": encoding if isinstance(encoding, str) else None,
        "elapsed_s": elapsed,
    }
    data["body"] = None if content is None else _body(content, headers, data["encoding"], budget)
    return data, None if content is None else len(content)


def _body(content: bytes, headers: Mapping[str, str], encoding: str | None, budget: _Budget) -> str | bytes:
    kind = next((value for key, value in headers.items() if key.lower() == "content-type"), "").lower()
    kept = budget.data(content)
    if not any(word in kind for word in _TEXT_KINDS):
        return kept
    try:
        # Not final: a character cut in two at the end is left out.
        decoder = codecs.getincrementaldecoder(encoding or "utf-8")()
        text = decoder.decode(kept, final=len(kept) == len(content))
        text.encode()
    except (LookupError, ValueError):
        return kept
    return text


def _without_login(url: str) -> str:
    try:
        pieces = urlsplit(url)
    except ValueError:
        return ""
    return urlunsplit(pieces._replace(netloc=pieces.netloc.rpartition("@")[2]))


def _is_secret(key: object) -> bool:
    return str(key).lower().replace("-", "_") in _SECRET_HEADERS


def _exception(obj: BaseException, budget: _Budget) -> dict[str, Any]:
    # What explains most comes first, since the cap cuts the rest.
    data: dict[str, Any] = {
        "message": budget.text(_text(obj)),
        "causes": [_brief(cause, budget) for cause in _causes(obj)],
        "traceback": _trace(obj, budget),
        "notes": [budget.text(str(note)) for note in getattr(obj, "__notes__", ())],
        "args": [_plain(arg, budget) for arg in obj.args],
    }
    if isinstance(obj, BaseExceptionGroup):
        data["exceptions"] = [_brief(inner, budget) for inner in obj.exceptions[:_MAX_CAUSES]]
        budget.cut |= len(obj.exceptions) > _MAX_CAUSES
    return data


def _trace(obj: BaseException, budget: _Budget) -> list[str]:
    lines = [line for entry in traceback.format_tb(obj.__traceback__) for line in entry.splitlines()]
    budget.cut |= len(lines) > _MAX_TRACE_LINES
    kept: list[str] = []
    for line in reversed(lines[-_MAX_TRACE_LINES:]):
        text = line.encode(errors="backslashreplace")
        if not budget.take(len(text)):
            break
        kept.insert(0, text.decode())
    return kept


def _brief(obj: BaseException, budget: _Budget) -> dict[str, Any]:
    return {"type": _name(obj), "message": budget.text(_text(obj))}


def _causes(obj: BaseException) -> Iterator[BaseException]:
    seen = {id(obj)}
    for _ in range(_MAX_CAUSES):
        cause = obj.__cause__ or (None if obj.__suppress_context__ else obj.__context__)
        if cause is None or id(cause) in seen:
            return
        seen.add(id(cause))
        yield cause
        obj = cause


def _text(obj: object, form: Any = str) -> str:
    try:
        return str(form(obj))
    except Exception as error:
        return f"<{_name(obj)} without text: {type(error).__name__}>"


def _file(obj: Any, budget: _Budget) -> tuple[dict[str, Any], int | None]:
    closed = bool(getattr(obj, "closed", False))
    data: dict[str, Any] = {
        "name": _plain(getattr(obj, "name", None), budget),
        "mode": _plain(getattr(obj, "mode", None), budget),
        "position": None,
        "closed": closed,
    }
    if not closed:
        with suppress(OSError, AttributeError):
            data["position"] = obj.tell()
    if closed or not isinstance(obj, io.StringIO | io.BytesIO):
        return data, None
    content = obj.getvalue()
    data["content"] = budget.text(content) if isinstance(content, str) else budget.data(content)
    return data, len(content.encode(errors="backslashreplace") if isinstance(content, str) else content)


def _items(obj: Any, budget: _Budget) -> list[Any]:
    kept = []
    for item in iter(obj.__next__, _END):
        value = _plain(item, budget)
        if budget.cut:
            break
        kept.append(value)
    return kept


_END: Final = object()


def _object(obj: Any, budget: _Budget) -> dict[str, Any]:
    slots = [cls.__dict__.get("__slots__", ()) for cls in type(obj).__mro__]
    names = chain.from_iterable((names,) if isinstance(names, str) else names for names in slots)
    values = dict(getattr(obj, "__dict__", {}))
    values.update({name: getattr(obj, name) for name in names if name != "__dict__" and hasattr(obj, name)})
    public = {name: value for name, value in values.items() if not name.startswith("_")}
    if not public or isinstance(obj, type):
        return {"repr": _repr(obj, budget)}
    return {"attributes": _plain(public, budget)}


def _repr(obj: object, budget: _Budget) -> str:
    text = _text(obj, repr)
    budget.cut |= len(text) > _MAX_REPR_CHARS
    return budget.text(text[:_MAX_REPR_CHARS])


def _plain(obj: Any, budget: _Budget, depth: int = 0) -> Any:
    if isinstance(obj, dict) and depth < _MAX_DEPTH:
        return _plain_dict(obj, budget, depth)
    if isinstance(obj, _GROUPS) and depth < _MAX_DEPTH:
        return _plain_list(obj, budget, depth)
    if type(obj) is str:
        return budget.text(obj)
    if type(obj) is bytes:
        return budget.data(obj)
    if obj is None or type(obj) in _SMALL or (type(obj) is int and -(2**63) <= obj < 2**64):
        return obj if budget.take(_SMALL_BYTES) else None
    return _repr(obj, budget)


def _plain_dict(obj: dict[Any, Any], budget: _Budget, depth: int) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in obj.items():
        if _is_secret(key):
            continue
        name = budget.text(key if isinstance(key, str) else _text(key, repr))
        if budget.cut:
            break
        kept[name] = _plain(value, budget, depth + 1)
    return kept


def _plain_list(obj: Any, budget: _Budget, depth: int) -> list[Any]:
    kept = []
    for item in obj:
        if not budget.take(1):
            break
        kept.append(_plain(item, budget, depth + 1))
    return kept

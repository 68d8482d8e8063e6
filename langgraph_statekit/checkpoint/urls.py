"""Store URLs: which saver they belong to, whether they can be read, and a saver's own options in their query.

A URL that cannot be read is not shown in an error, and no driver sees it: drivers quote what they do not
understand, and that may be a piece of a password.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Final, TypeVar, cast
from urllib.parse import unquote

from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.errors import Misuse

F = TypeVar("F", bound=Callable[..., StatekitSaver])

SAVERS: Final = {
    "memory": ("memory", "MemoryStoreSaver"),
    "sqlite": ("sqlite", "SqliteSaver"),
    "redis": ("redis", "RedisSaver"),
    "rediss": ("redis", "RedisSaver"),
    "unix": ("redis", "RedisSaver"),
    "redis+cluster": ("redis", "RedisSaver"),
    "rediss+cluster": ("redis", "RedisSaver"),
    "redis+sentinel": ("redis", "RedisSaver"),
    "rediss+sentinel": ("redis", "RedisSaver"),
    "postgres": ("postgres", "PostgresSaver"),
    "postgresql": ("postgres", "PostgresSaver"),
    "s3": ("objects", "ObjectStoreSaver"),
    "gs": ("objects", "ObjectStoreSaver"),
    "az": ("objects", "ObjectStoreSaver"),
    "file": ("objects", "ObjectStoreSaver"),
}
"""URL scheme to module and class."""
_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "int": int,
    "float": float,
    "str": str,
    "Sequence[str]": lambda text: [each for each in text.split(",") if each],
    "bool": lambda text: bool(("false", "true").index(text.lower())),
}
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SERVED: Final = ("RedisSaver", "PostgresSaver")
_CHAR: Final = r"(?:(?![%/?#@\[\]])[!-~]|%(?!00)[0-9A-Fa-f]{2})"
_PORT: Final = r"(?:6553[0-5]|655[0-2]\d|65[0-4]\d\d|6[0-4]\d{3}|[0-5]?\d{1,4}|)"
_HOST: Final = rf"(?:\[[\w.:%]+\]|(?:(?!:|,){_CHAR})*)(?::{_PORT})?"
_PLACE: Final = re.compile(rf"(?:{_CHAR}*@)?{_HOST}(?:,{_HOST})*(?:/(?:{_CHAR}|/)*)?")
_ITEM: Final = re.compile(r"[\w.-]+=.*", re.DOTALL)
_VALUES: Final = re.compile(rf"(?:{_CHAR}|[/?\[\]])*")


def query_options(from_url: F) -> F:
    """Let a `from_url` take its keyword options from the query of the URL too; arguments win."""

    @wraps(from_url)
    def opened(saver: type[StatekitSaver], url: str, **options: Any) -> StatekitSaver:
        bare, merged = own_options(saver, url, options)
        return from_url(saver, bare, **merged)

    return cast(F, opened)


def own_options(saver: type[StatekitSaver], url: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the URL with what the driver needs, and the options of the saver from its query and from `options`.

    Args:
        saver: Its constructor's and its `from_url`'s keyword options are the ones that are known.
        url: As the user gave it.
        options: What the user gave beside it; these win.

    Raises:
        Misuse: The URL is of another store or cannot be read, one of `options` is unknown, or a text in the query is
            no number where one is needed.
    """
    known = _known(saver)
    if unknown := [key for key in options if key not in known]:
        raise Misuse(
            f"{saver.__name__} has no option {', '.join(map(repr, unknown))}; it takes {', '.join(sorted(known))}"
        )
    scheme = scheme_of(url)
    names = {each.__name__ for each in saver.__mro__}
    if not scheme and "PostgresSaver" in names:
        return url, dict(options)  # a conninfo string
    allowed = [each for each, (_, name) in SAVERS.items() if name in names]
    if scheme not in allowed:
        raise Misuse(f"no URL of {saver.__name__}: it must begin with {', '.join(f'{each}://' for each in allowed)}")
    place, _, query = url[len(scheme) + 3 :].partition("?")
    if not names.isdisjoint(_SERVED) and not (_PLACE.fullmatch(place) and _VALUES.fullmatch(query)):
        raise Misuse(
            f"the {scheme}:// URL cannot be read (it is not shown, as it may hold a password): in user, password and "
            "the values of options, percent-encode / ? # % @ [ ] (%2F %3F %23 %25 %40 %5B %5D), spaces and what is not "
            "ASCII, and let each port be a number up to 65535: scheme://user:password@host:port/..."
        )
    read: dict[str, Any] = {}
    kept: list[str] = []
    for item, key, text in _items(query):
        if known.get(key) in _READERS:
            read[key] = _read(key, text, known[key])
        elif key in known:
            raise Misuse(f"the option {key} cannot stand in a URL: pass it beside the URL, {key}=...")
        else:
            kept.append(item)
    return f"{scheme}://{place}{'?' * bool(kept)}{'&'.join(kept)}", {**read, **options}


def query_split(saver: type[StatekitSaver], url: str, **also: str) -> tuple[str, dict[str, Any]]:
    """Return the URL without those options in its query that a saver knows, or that are given by type, and these."""
    known = {**_known(saver), **also}
    place, _, query = url.partition("?")
    read = {key: _read(key, text, known[key]) for _, key, text in _items(query) if known.get(key) in _READERS}
    kept = "&".join(item for item, key, _ in _items(query) if key not in read)
    return f"{place}{'?' * bool(kept)}{kept}", read


def scheme_of(url: str) -> str:
    """Return the scheme of a URL in lower case; empty if it has none.

    Raises:
        Misuse: It is no string.
    """
    if not isinstance(url, str):
        raise Misuse(f"a store URL is a string, not {type(url).__name__}")
    found = _SCHEME.match(url)
    return found[1].lower() if found else ""


def settings_of(url: str) -> dict[str, str]:
    """Return what stands in the query of a URL."""
    return {key: text for _, key, text in _items(url.partition("?")[2])}


def refuse_query(saver: type[StatekitSaver], url: str) -> None:
    """Raise `Misuse` when a URL still has settings, for a store whose driver takes none."""
    if unknown := settings_of(url):
        names = ", ".join(map(repr, unknown))
        raise Misuse(f"{saver.__name__} has no option {names}; it takes {', '.join(sorted(_known(saver)))}")


def _items(query: str) -> Sequence[tuple[str, str, str]]:
    """Return each item of a query as it stands, its name and its text; a `+` means itself, as drivers differ on it."""
    items = [item for item in query.split("&") if item]
    if not all(map(_ITEM.fullmatch, items)):
        raise Misuse("what follows the ? of the URL must be name=value&name=value: percent-encode & as %26 in values")
    return [(item, item.partition("=")[0], unquote(item.partition("=")[2])) for item in items]


def _known(saver: type[StatekitSaver]) -> dict[str, str]:
    """The keyword options of a saver, and the name of the type of each."""
    return {
        name: str(option.annotation).removesuffix(" | None")
        for source in (StatekitSaver.__init__, saver.__init__, getattr(saver, "from_url", saver.__init__))
        for name, option in inspect.signature(source).parameters.items()
        if option.kind is option.KEYWORD_ONLY
    }


def _read(key: str, text: str, kind: str) -> Any:
    try:
        return _READERS[kind](text)
    except ValueError:
        raise Misuse(f"the option {key}={text!r} in the URL is no {kind}") from None

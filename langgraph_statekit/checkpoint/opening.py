"""From a URL to a saver."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.errors import Misuse

_BACKENDS: Final = "langgraph_statekit.checkpoint.backends"
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
_EXTRAS: Final = {"redis": "redis", "postgres": "postgres", "objects": "s3"}
_READERS: Final = {"int": int, "float": float, "str": str}


def open_saver(url: str, **options: Any) -> StatekitSaver:
    """Return the saver for a store's URL; nothing is connected or created before its first use.

    Args:
        url: `sqlite:///agent.db`, `redis://host:6379/0`, `postgresql://host/db`, `s3://bucket/prefix`, `gs://`, `az://`,
            `file:///dir`, `redis+cluster://`, `redis+sentinel://`, `memory://`. Options may stand in its query:
            `redis://host/0?prefix=shop&retry_s=5`; what is no option of the saver stays in the URL for the driver.
        options: As in the saver's `from_url`; they win over the URL's query.

    Raises:
        Misuse: The URL is none of these, an option is unknown, or the store's client library is not installed.
    """
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    if scheme not in SAVERS:
        raise Misuse(f"no store URL, its scheme is {scheme!r}: it must begin with one of {', '.join(SAVERS)}, then ://")
    module, name = SAVERS[scheme]
    try:
        saver = getattr(import_module(f"{_BACKENDS}.{module}"), name)
    except ModuleNotFoundError as error:
        if module not in _EXTRAS or (error.name or "").startswith("langgraph_statekit"):
            raise
        raise Misuse(
            f"{scheme}:// needs {error.name!r}: pip install 'langgraph-statekit[{_EXTRAS[module]}]'"
        ) from error
    known = _option_names(saver)
    parts = urlsplit(url)
    kept: list[tuple[str, str]] = []
    read: dict[str, Any] = {}
    for key, text in parse_qsl(parts.query, keep_blank_values=True):
        if key in known and known[key] in _READERS:
            read[key] = _read(key, text, known[key])
        else:
            kept.append((key, text))
    if unknown := [key for key in options if key not in known]:
        raise Misuse(f"{name} has no option {', '.join(map(repr, unknown))}; it takes {', '.join(sorted(known))}")
    # urlunsplit would turn sqlite:///x into sqlite:/x, so only the query is exchanged.
    bare = url.partition("?")[0]
    opened: StatekitSaver = saver.from_url(f"{bare}?{urlencode(kept)}" if kept else bare, **{**read, **options})
    return opened


def _option_names(saver: type[StatekitSaver]) -> dict[str, str]:
    """Return the keyword options of a saver and the name of the type of each."""
    return {
        name: str(option.annotation).removesuffix(" | None")
        for source in (StatekitSaver.__init__, saver.__init__, saver.from_url)  # type: ignore[attr-defined]
        for name, option in inspect.signature(source).parameters.items()
        if option.kind is option.KEYWORD_ONLY
    }


def _read(key: str, text: str, kind: str) -> Any:
    try:
        return _READERS[kind](text)
    except ValueError as error:
        raise Misuse(f"the option {key}={text!r} in the URL is no {kind}") from error

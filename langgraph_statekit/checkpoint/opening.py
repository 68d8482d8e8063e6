"""From a URL to a saver."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

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
    if not isinstance(url, str):
        raise Misuse(f"a store URL is a string, not {type(url).__name__}")
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    if scheme not in SAVERS:
        raise Misuse(f"no store URL, its scheme is {scheme!r}: it must begin with one of {', '.join(SAVERS)}, then ://")
    module, name = SAVERS[scheme]
    try:
        saver = getattr(import_module(f"{_BACKENDS}.{module}"), name)
        opened: StatekitSaver = saver.from_url(url, **options)
    except ModuleNotFoundError as error:
        if module not in _EXTRAS or (error.name or "").startswith("langgraph_statekit"):
            raise
        raise Misuse(
            f"{scheme}:// needs {error.name!r}: pip install 'langgraph-statekit[{_EXTRAS[module]}]'"
        ) from error
    return opened

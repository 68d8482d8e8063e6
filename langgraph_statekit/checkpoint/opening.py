"""From a URL to a saver."""

from __future__ import annotations

from inspect import signature
from typing import Any

from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.urls import SAVERS, query_split, scheme_of, settings_of
from langgraph_statekit.errors import Misuse
from langgraph_statekit.extras import load


def open_saver(url: str, **options: Any) -> StatekitSaver:
    """Return the saver for a store's URL; nothing is connected or created before its first use.

    Args:
        url: `sqlite:///agent.db`, `redis://host:6379/0`, `postgresql://host/db`, `s3://bucket/prefix`, `gs://`, `az://`,
            `file:///dir`, `redis+cluster://`, `redis+sentinel://`, `memory://`. Options may stand in its query:
            `redis://host/0?prefix=shop&retry_s=5`; what is no option of the saver stays in the URL for the driver.
            Percent-encode `/ ? # % @ [ ] &` and spaces in a password and in values.
        options: As in the saver's `from_url`; they win over the URL's query. With `cold`, the URL of an object store
            which may stand in the query too, the saver is a `TieredSaver` with `url` as its hot store; `replicas` are
            further such URLs, in the query with commas between them.

    Raises:
        Misuse: The URL is none of these or cannot be read, an option is unknown or has a wrong value, or the store's
            client library is not installed.
    """
    scheme = scheme_of(url)
    if not scheme:
        raise Misuse("no store URL, as it has no scheme: a SQLite file is sqlite:///agent.db, a folder file:///dir")
    if scheme not in SAVERS:
        raise Misuse(f"no store URL, its scheme is {scheme!r}: it must begin with one of {', '.join(SAVERS)}, then ://")
    if "cold" in options or "cold" in settings_of(url):
        return _tiered(url, options)
    module, name = SAVERS[scheme]
    try:
        opened: StatekitSaver = load(f"checkpoint.backends.{module}", name).from_url(url, **options)
    except ModuleNotFoundError as error:
        if error.__cause__ is None:  # no extra would bring it
            raise
        raise Misuse(f"{scheme}:// cannot be opened: {error}") from error
    return opened


def _tiered(url: str, options: dict[str, Any]) -> StatekitSaver:
    made = load("checkpoint.backends.tiered", "TieredSaver")
    bare, read = query_split(made, url, cold="str", replicas="Sequence[str]")
    given = {**read, **options}
    own = {*signature(made.__init__).parameters, *signature(StatekitSaver.__init__).parameters}
    hot = {name: value for name, value in given.items() if name not in own or name == "tenant"}
    opened: StatekitSaver = made(open_saver(bare, **hot), **{name: given[name] for name in given if name in own})
    return opened

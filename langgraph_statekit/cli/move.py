"""The command that copies threads from one store to another, LangGraph's own savers included."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from langgraph_statekit.checkpoint.copying import copy_threads
from langgraph_statekit.checkpoint.opening import open_saver
from langgraph_statekit.checkpoint.sides import AnySaver
from langgraph_statekit.cli.serializer import ForeignSerializer
from langgraph_statekit.cli.stores import opened
from langgraph_statekit.cli.terminal import emit
from langgraph_statekit.errors import Misuse, StatekitError, Unavailable
from langgraph_statekit.extras import load

PACKAGES: Final = {
    "langgraph-checkpoint-postgres": ("langgraph.checkpoint.postgres", "PostgresSaver", ("postgresql", "postgres")),
    "langgraph-checkpoint-sqlite": ("langgraph.checkpoint.sqlite", "SqliteSaver", ("sqlite",)),
}
"""LangGraph's own savers by package: module, class, and the schemes of their URLs."""

_DRIVERS: Final = ("psycopg", "sqlite3")
_TABLES: Final = {
    "langgraph-checkpoint-postgres": "SELECT 1 WHERE to_regclass('checkpoints') IS NOT NULL",
    "langgraph-checkpoint-sqlite": "SELECT 1 FROM sqlite_master WHERE name = 'checkpoints'",
}


def copy(given: Namespace) -> int:
    """Copy threads with all they have, compare both sides, and say what was written."""
    with _side(given.source, given.from_package, create=False) as src:
        with _side(given.target, given.to_package, create=True) as dst:
            done = copy_threads(
                src,
                dst,
                given.threads or None,
                replace=given.replace,
                without_metadata=given.without_metadata,
                progress=_progress(),
            )
    document = {"threads": done.threads, "checkpoints": done.checkpoints, "skipped": done.skipped}
    counts = f"{done.checkpoints:,} checkpoints written, {done.skipped:,} there already"
    emit(document, [f"{done.threads:,} threads are equal now: {counts}"], given.json)
    return 0


def _progress() -> Callable[[str, int, int], None] | bool:
    if not sys.stderr.isatty():
        return False
    try:
        load("checkpoint.progress_bar", "ProgressBar")
    except ModuleNotFoundError:
        return False
    return True


def _side(url: str, package: str | None, *, create: bool) -> AbstractContextManager[AnySaver]:
    return opened(url, create=create) if package is None else _official(url, package, create=create)


@contextmanager
def _official(url: str, package: str, *, create: bool) -> Iterator[AnySaver]:
    module, name, schemes = PACKAGES[package]
    scheme, _, place = url.partition("://")
    if scheme.lower() not in schemes:
        raise Misuse(f"{package} opens {schemes[0]}:// URLs only")
    try:
        saver_class: Any = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise Misuse(f"{package} is not installed: pip install {package}") from error
    if "sqlite" in schemes:
        url = unquote(place.removeprefix("/"))
        if not create and not Path(url).is_file():
            raise Misuse(f"there is no file {url!r}")
    else:
        open_saver(url).close()  # refuses a URL that the driver would quote, with a piece of a password
    try:
        with saver_class.from_conn_string(url) as saver:
            saver.serde = ForeignSerializer()
            if create:
                saver.setup()
            else:
                _require_tables(saver, package)
            yield saver
    except Exception as error:
        if not type(error).__module__.startswith(_DRIVERS):
            raise
        told = _explained(error, package)
    else:
        return
    raise told  # outside of the handler, or it would carry what the driver said


def _require_tables(saver: Any, package: str) -> None:
    if not saver.conn.execute(_TABLES[package]).fetchall():
        raise Misuse(f"there are no checkpoints of {package} in this store: correct the URL")


def _explained(error: Exception, package: str) -> StatekitError:
    """Return what to raise for an error of a driver; what it says of a URL that it cannot read may show a password."""
    names = {cls.__name__ for cls in type(error).__mro__}
    if "OperationalError" in names:
        return Unavailable(f"the store of {package} did not answer: {type(error).__name__}: {error}")
    said = f": {error}" if getattr(error, "sqlstate", None) else ""
    return Misuse(f"the store of {package} cannot be used: {type(error).__name__}{said}")

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
from langgraph_statekit.checkpoint.sides import AnySaver
from langgraph_statekit.cli.serializer import ForeignSerializer
from langgraph_statekit.cli.stores import opened
from langgraph_statekit.cli.terminal import emit
from langgraph_statekit.errors import Misuse, Unavailable
from langgraph_statekit.extras import load

PACKAGES: Final = {
    "langgraph-checkpoint-postgres": ("langgraph.checkpoint.postgres", "PostgresSaver", ("postgresql", "postgres")),
    "langgraph-checkpoint-sqlite": ("langgraph.checkpoint.sqlite", "SqliteSaver", ("sqlite",)),
}
"""LangGraph's own savers by package: module, class, and the schemes of their URLs."""


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
    if scheme == "sqlite":
        path = unquote(place.removeprefix("/"))
        if not create and not Path(path).is_file():
            raise Misuse(f"there is no file {path!r}")
        url = path
    with _connected(saver_class, url) as saver:
        saver.serde = ForeignSerializer()
        if create:
            saver.setup()
        yield saver


@contextmanager
def _connected(saver_class: Any, url: str) -> Iterator[Any]:
    connecting = saver_class.from_conn_string(url)
    try:
        saver = connecting.__enter__()
    except Exception as error:
        said = f"{type(error).__name__}: the store cannot be opened"
    else:
        try:
            yield saver
        finally:
            connecting.__exit__(None, None, None)
        return
    raise Unavailable(said)  # without what the driver said, which may show a password

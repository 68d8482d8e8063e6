"""The command that brings stored threads to the newest version of their state; it alone imports the user's code."""

from __future__ import annotations

import importlib
import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from contextlib import redirect_stdout
from functools import reduce
from typing import Any

from langgraph_statekit.checkpoint.records import Query, from_text, to_text
from langgraph_statekit.checkpoint.rewriting import Step
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.serde import StatekitSerializer
from langgraph_statekit.cli.stores import missing, opened, thread_ids
from langgraph_statekit.cli.terminal import emit, progress, table
from langgraph_statekit.errors import DataError, Misuse, StatekitError
from langgraph_statekit.migrating import migrate_threads
from langgraph_statekit.versions import schema_of

_FOUND = 1
_AGAIN = 3


def migrate(given: Namespace) -> int:
    """Migrate, revert or commit threads, and say what changed; 1 if a thread cannot be, 3 if one is in use."""
    if bool(given.threads) == given.all:
        raise Misuse("name the threads to migrate, or pass --all")
    step: Step = given.step or "migrate"
    rows: list[dict[str, Any]] = []
    code = done = 0
    # What the user's code prints must not get into the document.
    with opened(given.url, serde=StatekitSerializer()) as store, redirect_stdout(sys.stderr):
        saver, newest = _with_state(store, load(given.state))
        ids = _thread_ids(saver, given)
        for id in progress(ids, "threads"):
            found = migrate_threads(saver, [id], step=step, wait_s=given.wait_s, dry_run=given.dry_run)
            done += found.threads
            if found.checkpoints or found.left:
                left = found.left.get(id)
                code = _code(left, code)
                why = None if left is None else str(left)
                rows.append({"thread": id, "checkpoints": found.checkpoints, "left": why})
    document = {
        "step": step,
        "dry_run": given.dry_run,
        "versions": newest,
        "changed": done,
        "unchanged": len(ids) - len(rows),
        "threads": rows,
    }
    head = ("THREAD", "WOULD CHANGE" if given.dry_run else "CHANGED", "LEFT")
    cells = [(row["thread"], f"{row['checkpoints']:,}", row["left"] or "") for row in rows]
    counts = f"{done:,} of {len(ids):,} threads {'would change' if given.dry_run else 'changed'}"
    emit(document, [*(table(head, cells) if cells else ()), counts], given.json)
    return code


def _code(left: StatekitError | None, code: int) -> int:
    """Return the exit code after one more thread: one that cannot be migrated counts more than one that is in use."""
    if left is None or code == _FOUND:
        return code
    return _FOUND if isinstance(left, DataError) else _AGAIN


def _thread_ids(saver: StatekitSaver, given: Namespace) -> list[str]:
    if given.all:
        return [from_text(id) for id in thread_ids(saver)]
    for id in given.threads:
        if not saver.backend.rows(Query(to_text(id), limit=1)):
            raise missing(id)
    return list(dict.fromkeys(given.threads))


def load(name: str, option: str = "--state") -> Any:
    """Return what `module:name` names, a name with dots inside of it; modules of the working directory come first.

    Raises:
        Misuse: It cannot be imported, or is not there.
    """
    module, _, inside = name.partition(":")
    if not module or not inside:
        raise Misuse(f"{option} must be MODULE:NAME, such as shop.state:Order, not {name!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:  # whatever the module does when it is imported
        raise Misuse(f"{module} cannot be imported, {type(error).__name__}: {error}") from error
    try:
        return reduce(getattr, inside.split("."), found)
    except AttributeError as error:
        raise Misuse(f"{module} has no {inside}: {error}") from error


def _with_state(store: StatekitSaver, target: Any) -> tuple[StatekitSaver, Mapping[str, int]]:
    """Return the saver with the state schemas of a class or a graph, and their versions, if above 1, by path."""
    from langgraph.graph import START, StateGraph  # not for the commands that need no graph

    builder = getattr(target, "builder", target)
    if isinstance(target, type):
        schema_of(target)
        builder = StateGraph(target).add_node("node", lambda _: {}).add_edge(START, "node")
    if not isinstance(builder, StateGraph):
        raise Misuse(f"--state must name a state class or a StateGraph, compiled or not, not {type(target).__name__}")
    try:
        graph = builder.compile(checkpointer=store)  # so that LangGraph allows the classes of the state
    except ValueError as error:
        raise Misuse(f"the graph cannot be compiled: {error}") from error
    saver: Any = graph.checkpointer
    states = {"": builder.state_schema}
    for path, each in graph.get_subgraphs(recurse=True):
        inner = getattr(getattr(each, "builder", None), "state_schema", None)
        if isinstance(inner, type) and hasattr(inner, "__annotations__"):
            states[path] = inner
    newest = {path: version for path, each in states.items() if (version := schema_of(each).version) > 1}
    if not newest:
        raise Misuse(f"no state of {getattr(target, '__name__', type(target).__name__)} has a @state_version above 1")
    return saver.with_state(states), newest

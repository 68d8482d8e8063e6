"""Where a thread stands: whether it can be resumed, by this graph, without asking anybody."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple
from langgraph.graph import START
from langgraph.pregel import Pregel
from langgraph.types import StateSnapshot

from langgraph_statekit.checkpoint.forking import NULL_TASK
from langgraph_statekit.checkpoint.sides import Side
from langgraph_statekit.compat import Graph, acheck_compat, renames_of
from langgraph_statekit.watchdog.questions import questions_of
from langgraph_statekit.watchdog.told import is_plain

UNFINISHED: Final = "unfinished"
FINISHED: Final = "finished"
WAITING: Final = "waiting"
UNFIT: Final = "unfit"
EMPTY: Final = "empty"


class Standing(NamedTuple):
    """Where a thread stands.

    Attributes:
        kind: `UNFINISHED`: it can be resumed. `FINISHED`: no task is left. `WAITING`: it waits for a human. `UNFIT`: it
            waits for nodes that the graph lacks. `EMPTY`: it has no checkpoint.
        about: The nodes, for people.
        step: Number of its newest step.
        id: Of its newest checkpoint.
    """

    kind: str
    about: str = ""
    step: int = -2
    id: str = ""


class Head(NamedTuple):
    """What a run must know of the newest checkpoint of its thread.

    Attributes:
        stored: Changes when an input reaches the thread; None: there is no checkpoint.
        done: Ids of the tasks of the next step that are done.
        plain: Whether all that LangGraph reads there is in the checkpoint as it is stored. Else a part of it must be
            converted or rebuilt, or what a `Command` changes is still to be put into a checkpoint.
    """

    stored: tuple[str, int] | None = None
    done: frozenset[str] = frozenset()
    plain: bool = True


def head_of(graph: Graph, item: CheckpointTuple | None) -> Head:
    """Return what a run must know of it."""
    if item is None:
        return Head()
    writes = item.pending_writes or ()
    done = frozenset(task for task, channel, _ in writes if channel not in WRITES_IDX_MAP)
    plain = is_plain(graph, item.checkpoint) and not any(task == NULL_TASK for task, _, _ in writes)
    return Head((item.checkpoint["id"], len(writes)), done, plain)


async def standing_of(graph: Graph, side: Side, thread_id: str) -> Standing:
    """Return where a thread stands; in doubt it waits for a human.

    A question counts as answered by an answer that no task is known to have taken. A thread that stands before or
    behind a static breakpoint waits, also if it was let go on and stopped before the next checkpoint.
    """
    config: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    drifts = await acheck_compat(graph, side.saver, [thread_id])
    missing = sorted({name for drift in drifts for name in drift.missing_nodes})
    if any(name not in renames_of(graph) for name in missing):
        return Standing(UNFIT, ", ".join(missing))
    state = await graph.aget_state(config, subgraphs=True)
    if state.created_at is None:
        return Standing(EMPTY)
    step, id = (state.metadata or {}).get("step", -2), state.config["configurable"]["checkpoint_id"]
    nodes = ", ".join(dict.fromkeys([*missing, *(task.name for task in state.tasks)]))
    if not state.tasks and not missing:
        return Standing(FINISHED, "", step, id)
    if missing or any(task.interrupts for task in state.tasks):
        asked = await questions_of(side, thread_id)
        if asked.open and not asked.is_answered:
            return Standing(WAITING, nodes, step, id)
    elif await is_paused(graph, True, state):
        return Standing(WAITING, nodes, step, id)
    return Standing(UNFINISHED, nodes, step, id)


async def is_paused(
    root: Graph, is_async: bool, state: StateSnapshot, graph: Graph | None = None, before: Any = (), after: Any = ()
) -> bool:
    """Say whether a thread stands at a static breakpoint of the graph or of a subgraph that runs.

    Args:
        root: The graph.
        is_async: Whether to call its async methods; else nothing here suspends.
        state: Where the thread stands, with the states of subgraphs.
        graph: The subgraph that is looked at; None: the graph itself.
        before: Breakpoints in place of those that the graph was compiled with, as `interrupt_before` of a call.
        after: Likewise, as `interrupt_after`.
    """
    graph = graph or root
    if _names(before or graph.interrupt_before_nodes, state):
        return True
    after = after or graph.interrupt_after_nodes
    is_input = (state.metadata or {}).get("source") == "input"  # no node ran before it
    if after and state.tasks and state.parent_config is not None and not is_input:
        before_it = await state_of(root, is_async, state.parent_config)
        if _names(after, before_it):
            return True
    below = dict(graph.get_subgraphs())
    for task in state.tasks:
        inner = below.get(task.name)
        if isinstance(inner, Pregel) and isinstance(task.state, StateSnapshot):
            paused = await is_paused(root, is_async, task.state, inner)
            if paused:
                return True
    return False


async def state_of(graph: Graph, is_async: bool, config: RunnableConfig, subgraphs: bool = False) -> StateSnapshot:
    """Return the state that a config names, and if asked those of its subgraphs."""
    if is_async:
        return await graph.aget_state(config, subgraphs=subgraphs)
    return graph.get_state(config, subgraphs=subgraphs)


def _names(breakpoints: Any, state: StateSnapshot) -> bool:
    """Say whether a task is named; all are by `"*"`, but for LangGraph's own, which hands the input out."""
    return any(task.name != START if breakpoints == "*" else task.name in breakpoints for task in state.tasks)

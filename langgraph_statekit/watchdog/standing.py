"""Where a thread stands: whether it can be resumed, by this graph, without asking anybody."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.pregel import Pregel
from langgraph.types import StateSnapshot

from langgraph_statekit.checkpoint.sides import Side
from langgraph_statekit.compat import Graph, acheck_compat, renames_of
from langgraph_statekit.watchdog.questions import questions_of

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
    elif await _paused(graph, graph, state):
        return Standing(WAITING, nodes, step, id)
    return Standing(UNFINISHED, nodes, step, id)


async def _paused(root: Graph, graph: Graph, state: StateSnapshot) -> bool:
    """Say whether a thread stands at a static breakpoint of the graph or of a subgraph that runs."""
    if _names(graph.interrupt_before_nodes, state):
        return True
    if graph.interrupt_after_nodes and state.tasks and state.parent_config is not None:
        before = await root.aget_state(state.parent_config)
        if _names(graph.interrupt_after_nodes, before):
            return True
    below = dict(graph.get_subgraphs())
    for task in state.tasks:
        inner = below.get(task.name)
        if isinstance(inner, Pregel) and isinstance(task.state, StateSnapshot):
            paused = await _paused(root, inner, task.state)
            if paused:
                return True
    return False


def _names(breakpoints: Any, state: StateSnapshot) -> bool:
    return any(breakpoints == "*" or task.name in breakpoints for task in state.tasks)

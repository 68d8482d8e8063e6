"""Questions that tasks of a step asked, and the answer that LangGraph stores: whether somebody still has to answer.

LangGraph keeps an answer with the step until the step ends, also when a task has taken it, and gives it to whichever
task asks next, on `invoke(None)` too. What a task has taken is stored when it asks again or ends. So an answer that
equals one that was taken is not one to the question that is open, or nobody can tell: then it counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME

from langgraph_statekit.checkpoint.forking import NULL_TASK
from langgraph_statekit.checkpoint.records import from_text, to_text
from langgraph_statekit.checkpoint.retention import heads
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.sides import Side

_Writes = Iterable[tuple[str, str, Any]]


class Questions(NamedTuple):
    """What the newest step of a thread asked.

    Attributes:
        open: Questions of tasks that have not ended.
        is_taken: Whether the stored answer is none to them.
        is_answered: Whether there is an answer to the one that is open.
    """

    open: Sequence[Any]
    is_taken: bool
    is_answered: bool


async def questions_of(side: Side, thread_id: str) -> Questions:
    """Return what the newest step of a thread asked, in subgraphs too."""
    config: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    item = await side.call("get_tuple", config)
    writes = () if item is None else item.pending_writes or ()
    asked = _open(writes)
    answer = next((value for task, channel, value in writes if (task, channel) == (NULL_TASK, RESUME)), None)
    if answer is None:
        return Questions(asked, False, False)
    taken = [*_taken(writes)]
    for below in await _below(side, thread_id, {task for task, _, _ in writes} - {NULL_TASK}):
        taken += _taken(below)
    is_taken = len(asked) > 1 or any(_equal(answer, each) for each in taken)
    return Questions(asked, is_taken, bool(asked) and not is_taken)


async def drop_taken_answer(side: Side, config: RunnableConfig) -> None:
    """See to it that a thread, resumed without an answer, gives no task an answer that was meant for another question.

    Args:
        side: The saver.
        config: That of the lease of the thread.
    """
    if (await questions_of(side, config["configurable"]["thread_id"])).is_taken:
        at: RunnableConfig = {"configurable": {**config["configurable"], "checkpoint_ns": ""}}
        head = await side.call("get_tuple", at)
        at["configurable"]["checkpoint_id"] = head.checkpoint["id"]
        await side.call("put_writes", at, [(RESUME, None)], NULL_TASK)  # to LangGraph None is no answer


async def _below(side: Side, thread_id: str, tasks: Iterable[str]) -> list[_Writes]:
    """Return the writes of the newest steps of subgraphs that tasks called; of those with a memory always."""
    assert isinstance(side.saver, StatekitSaver)
    cells = side.saver.async_cells if side.is_async else side.saver.cells
    found: list[_Writes] = []
    for ref in heads((await cells.outline(to_text(thread_id))).rows):
        ns = from_text(ref.ns)
        if ns and (":" not in ns or any(f":{task}" in ns for task in tasks)):
            at = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": from_text(ref.id)}}
            item = await side.call("get_tuple", at)
            found.append(() if item is None else item.pending_writes or ())
    return found


def _open(writes: _Writes) -> list[Any]:
    ended = {task for task, channel, _ in writes if channel not in WRITES_IDX_MAP}
    found = [value for task, channel, value in writes if channel == INTERRUPT and task not in ended]
    return [one for value in found for one in (value if isinstance(value, list | tuple) else [value])]


def _taken(writes: _Writes) -> list[Any]:
    """Return the last answer that each task has taken."""
    found = [value for task, channel, value in writes if channel == RESUME and task != NULL_TASK]
    return [value[-1] if isinstance(value, list) else value for value in found if value != []]


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # such as of arrays
        return True

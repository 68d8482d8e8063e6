"""A checkpoint saved again as the newest one: what goes along, and what its metadata tells of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple
from langgraph.checkpoint.base.id import uuid6

from langgraph_statekit.checkpoint.claims import TOKEN_KEY
from langgraph_statekit.checkpoint.sides import Side
from langgraph_statekit.errors import CheckpointMissing

OP_KEY: Final = "statekit_op"
REASON_KEY: Final = "statekit_reason"
ITEM_KEY: Final = "statekit_item"
ATTEMPT_KEY: Final = "statekit_attempt"
FROM_KEY: Final = "statekit_from"
"""The newest checkpoint before the fork."""
TO_KEY: Final = "statekit_to"
"""The checkpoint that a fork goes on from; the parent of a copy is that one's own parent."""
RECORD_KEYS: Final = (OP_KEY, REASON_KEY, ITEM_KEY, ATTEMPT_KEY, FROM_KEY, TO_KEY, TOKEN_KEY)
"""Metadata keys that tell how a checkpoint was made, all with plain values; a copy has its own or none."""
NULL_TASK: Final = "00000000-0000-0000-0000-000000000000"
"""The task under which LangGraph stores what no node wrote."""


async def save_again(
    side: Side, at: Callable[[str | None], RunnableConfig], id: str, told: Mapping[str, Any]
) -> RunnableConfig:
    """Save a checkpoint of the graph itself again, as the newest one, and return the config of the copy.

    It gets the parent of the original: a delta channel is rebuilt from the writes of ancestors, and those of the
    original came after it. What a `Command` wrote to the original belongs to it and goes along; the answer to a
    question does not: it is asked anew.

    Args:
        side: The saver.
        at: Makes the config of a checkpoint of the thread; of a new root for None.
        id: The original.
        told: What the metadata tells of the copy, beside what it told of the original's state.

    Raises:
        CheckpointMissing: There is no such checkpoint.
    """
    item: CheckpointTuple | None = await side.call("get_tuple", at(id))
    if item is None:
        thread_id = at(id)["configurable"]["thread_id"]
        raise CheckpointMissing(f"checkpoint {id!r} of thread {thread_id!r} was removed meanwhile")
    step = item.metadata.get("step", -1) + 1
    checkpoint: Any = {**item.checkpoint, "id": str(uuid6(clock_seq=step)), "ts": datetime.now(UTC).isoformat()}
    kept = {key: value for key, value in item.metadata.items() if key not in RECORD_KEYS}
    writes = [
        (channel, value)
        for task, channel, value in item.pending_writes or ()
        if task == NULL_TASK and channel not in WRITES_IDX_MAP
    ]
    if writes:  # first, so that nobody sees the copy without them
        await side.call("put_writes", at(checkpoint["id"]), writes, NULL_TASK)
    parent = (item.parent_config or {}).get("configurable", {}).get("checkpoint_id")
    made: RunnableConfig = await side.call(
        "put", at(parent), checkpoint, {**kept, "source": "fork", "step": step, **told}, {}
    )
    return made

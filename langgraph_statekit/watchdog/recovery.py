"""What a policy says about a finding, done: the one way back for a run that was stopped and fenced off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from langchain_core.runnables import RunnableConfig

from langgraph_statekit.checkpoint.claims import TOKEN_KEY
from langgraph_statekit.effects.ledger import EffectLedger
from langgraph_statekit.effects.rules import SettledEffects
from langgraph_statekit.errors import GaveUp
from langgraph_statekit.events import GivenUp
from langgraph_statekit.watchdog.attempts import bury, count_attempt
from langgraph_statekit.watchdog.policy import DeadLetter, Fail, Policy, Retry, Target, action_of
from langgraph_statekit.watchdog.rollback import Edit, Graph, arollback, edit_of, rollback, saver_of
from langgraph_statekit.watchdog.view import Finding

OnRollback: TypeAlias = Literal["keep", "compensate", "ask"]


async def recover(
    graph: Graph,
    is_async: bool,
    config: RunnableConfig,
    finding: Finding,
    policy: Policy,
    *,
    target: Target | None = None,
    item_key: Callable[[Any], Any] | None = None,
    saved: bool = True,
    ledger: EffectLedger | None = None,
    effects: OnRollback = "keep",
) -> int:
    """Count an attempt, do what the policy says, wait as long as it says, and return which attempt it is.

    Then the graph is to be resumed.

    Args:
        graph: The compiled graph.
        is_async: Whether to call its async methods; else nothing here suspends.
        config: That of a lease taken since the run was stopped.
        finding: What was wrong.
        policy: What to do.
        target: Where to roll back to in place of what the policy says.
        item_key: Tells the item of a state, where the policy does not.
        saved: Whether anything of the run is stored; if not, nothing is rolled back.
        ledger: Has the effects of the thread; None: they stay as they are.
        effects: What becomes of effects behind the target, see `EffectLedger.on_rollback`.

    Raises:
        GaveUp: The policy says not to go on, or somebody must decide about effects first.
        CheckpointMissing: There is nothing to roll back to.
        Fenced: Another worker took the thread over.
        Unavailable: The store did not answer.
    """
    saver = saver_of(graph)
    cells = saver.async_cells if is_async else saver.cells
    thread_id, token = str(config["configurable"]["thread_id"]), config["configurable"][TOKEN_KEY]

    async def roll(to: Target, edit: Edit | None = None, key: Callable[[Any], Any] | None = None) -> None:
        if is_async:
            await arollback(graph, config, to, finding, attempt, edit=edit, item_key=key, settle=asettle)
        else:
            rollback(graph, config, to, finding, attempt, edit=edit, item_key=key, settle=settle)

    def settle(at: RunnableConfig) -> None:
        if ledger is not None:
            _require_settled(ledger.on_rollback(at, effects), thread_id)

    async def asettle(at: RunnableConfig) -> None:
        if ledger is not None:
            _require_settled(await ledger.aon_rollback(at, effects), thread_id)

    attempt = await count_attempt(cells, thread_id, finding, token)
    action = action_of(policy, finding, attempt)
    if isinstance(action, Retry):
        if saved:
            await roll(target or action.target, key=action.item_key or item_key)
        await cells.sleep(action.wait_s)
        return attempt
    edit = edit_of(action)
    if isinstance(action, DeadLetter):
        await bury(cells, thread_id, finding, attempt - 1, token, whole=edit is None)
    if edit is not None:
        await roll("last_healthy", edit)
    if isinstance(action, DeadLetter | Fail):
        saver.tell(
            GivenUp,
            operation="fail" if isinstance(action, Fail) else "dead_letter",
            thread_id=thread_id,
            checkpoint_ns="",
            reason=finding.reason,
            item=finding.item,
            attempts=attempt - 1,
        )
    if edit is None:
        raise GaveUp(f"thread {thread_id!r}: {finding.message} (attempts made: {attempt - 1})")
    return attempt


def _require_settled(settled: SettledEffects, thread_id: str) -> None:
    if settled.open:
        keys = ", ".join(effect.key for effect in settled.open)
        raise GaveUp(f"thread {thread_id!r} was not rolled back: decide about its effects first ({keys})")

"""The command about effects: which there are, and what became of those that nobody knows of."""

from __future__ import annotations

import time
from argparse import Namespace
from dataclasses import asdict
from typing import Any

from langgraph_statekit.cli.stores import opened
from langgraph_statekit.cli.terminal import age, emit, table
from langgraph_statekit.effects.ledger import EffectLedger
from langgraph_statekit.effects.rules import NOT_SENT, SENT, Effect
from langgraph_statekit.errors import Misuse


def effects(given: Namespace) -> int:
    """List effects, or resolve one."""
    return _resolve(given) if given.action == "resolve" else _ls(given)


def _ls(given: Namespace) -> int:
    with opened(given.url) as saver:
        ledger = EffectLedger(saver)
        states = [given.state] if given.state else None
        found = [effect for thread in given.words or [None] for effect in ledger.list(thread, states)]
    found = sorted(found, key=lambda effect: -effect.changed_us)[: given.limit]
    head = ("KEY", "STATE", "THREAD", "TRIES", "AGE", "BY", "TOLD")
    emit({"effects": [_plain(each) for each in found]}, table(head, map(_row, found)), given.json)
    return 0


def _resolve(given: Namespace) -> int:
    wanted = 2 if given.is_global else 3
    if len(given.words) != wanted or given.words[-1] not in (SENT, NOT_SENT):
        names = "KEY" if given.is_global else "THREAD KEY"
        raise Misuse(f"say which effect and what became of it: statekit effects resolve {names} {SENT}|{NOT_SENT}")
    *thread, key, outcome = given.words
    with opened(given.url) as saver:
        ledger = EffectLedger(saver, scope="global" if given.is_global else "thread")
        made = ledger.resolve(key, outcome, thread_id=thread[0] if thread else None, note=given.note or "")
    emit(_plain(made), [f"{made.key}: {_state(made)}"], given.json)
    return 0


def _state(effect: Effect) -> str:
    return f"{effect.state}: {effect.outcome}" if effect.outcome else effect.state


def _row(effect: Effect) -> tuple[str, ...]:
    since = age(time.time() - effect.changed_us / 1e6)
    told = effect.note or effect.error
    return effect.key, _state(effect), effect.thread_id, str(effect.attempts), since, effect.owner, told


def _plain(effect: Effect) -> dict[str, Any]:
    """Return what is known of an effect but what it gave, which may hold a secret."""
    return {name: value for name, value in asdict(effect).items() if name != "result"}

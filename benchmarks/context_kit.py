"""What survives five rounds of compaction: `python -m benchmarks.context_kit` prints the numbers as JSON.

compaction-conformance-kit plants rules, constraints, facts, goals and preferences in a session and compacts it again,
each round the result of the round before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from compaction_kit.compacted import CompactedContext
from compaction_kit.runner import run_conformance
from compaction_kit.session import build_seeded_session
from langchain_core.messages import HumanMessage

from langgraph_statekit.context.extract import extract, find_pins

ROUNDS: Final = 5
BUDGETS: Final = (1_200, 2_000, 4_000)
PINNED_SHARE: Final = 0.8


def ours(texts: list[str], chars: int) -> str:
    return extract([HumanMessage(text) for text in texts], chars)


def pinned(texts: list[str], chars: int) -> str:
    messages = [HumanMessage(text) for text in texts]
    pins: list[str] = []
    left = int(chars * PINNED_SHARE)
    for pin in find_pins(messages):
        if len(pin) < left:
            pins.append(pin)
            left -= len(pin) + 1
    used = sum(len(pin) + 1 for pin in pins)
    return "\n".join([*pins, extract(messages, max(0, chars - used), pins)])


def lede(texts: list[str], chars: int) -> str:
    from lede import summarize

    return str(summarize("\n".join(texts), max_length=chars).summary)[:chars]


def last(texts: list[str], chars: int) -> str:
    return "\n".join(texts)[-chars:]


WAYS: Final[dict[str, Callable[[list[str], int], str]]] = {
    "the last characters": last,
    "lede 0.5.1": lede,
    "statekit extract": ours,
    "statekit extract and pins": pinned,
}


class Compactor:
    """A way to shorten, as the kit calls it."""

    def __init__(self, name: str, chars: int) -> None:
        self.name, self._chars = name, chars

    def compact(self, turns: list[Any], round_num: int = 1) -> CompactedContext:
        text = WAYS[self.name]([turn.text for turn in turns], self._chars)
        return CompactedContext(text, self.name, round_num)


def main() -> dict[str, dict[str, dict[str, list[float]]]]:
    """Return way -> budget -> type -> share that survives after the first and after the last round."""
    results: dict[str, dict[str, dict[str, list[float]]]] = {}
    for name in WAYS:
        for chars in BUDGETS:
            run = run_conformance(build_seeded_session(), Compactor(name, chars), rounds=ROUNDS)
            begin, end = run.rounds[0].survival_by_type, run.rounds[-1].survival_by_type
            results.setdefault(name, {})[str(chars)] = {kind: [begin[kind], end[kind]] for kind in begin}
    return results


if __name__ == "__main__":
    print(json.dumps(main()))

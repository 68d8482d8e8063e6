"""What survives five rounds of compaction: `python -m benchmarks.context_kit` prints the numbers as JSON.

compaction-conformance-kit plants rules, constraints, facts, goals and preferences in a session and compacts it again,
each round the result of the round before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from compaction_kit.compacted import CompactedContext
from compaction_kit.runner import run_conformance
from compaction_kit.session import build_seeded_session

from benchmarks import context_extract
from benchmarks.context_extract import ours

ROUNDS: Final = 5
BUDGETS: Final = (1_200, 2_000, 4_000)
PINNED_SHARE: Final = 0.8


def pinned(texts: Sequence[str], chars: int) -> str:
    return context_extract.pinned(texts, chars, PINNED_SHARE)


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

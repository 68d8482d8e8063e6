"""How many facts survive without a model: `python -m benchmarks.context_facts` prints the numbers as JSON.

BFCL's five scenarios are cut into windows of 15 of the user's turns. Each window becomes a text of a given size; a
question counts as kept if one of its answers stands, word for word, in the texts of its scenario. Who keeps pins keeps
them inside the same size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from statistics import median
from time import thread_time
from typing import Final

from benchmarks import context_extract
from benchmarks.context_data import memory
from benchmarks.context_extract import ours

WINDOW_TURNS: Final = 15
SIZES: Final = (200, 600, 0.1, 0.2)
"""Characters of a text, or a share of its window."""
PINNED_SHARE: Final = 0.3
Shorten = Callable[[Sequence[str], int], str]


def first(turns: Sequence[str], chars: int) -> str:
    return " ".join(turns)[:chars]


def last(turns: Sequence[str], chars: int) -> str:
    return " ".join(turns)[-chars:]


def lede(turns: Sequence[str], chars: int) -> str:
    from lede import summarize

    return str(summarize(" ".join(turns), max_length=chars).summary)


def pinned(texts: Sequence[str], chars: int) -> str:
    return context_extract.pinned(texts, chars, PINNED_SHARE)


def everything(turns: Sequence[str], chars: int) -> str:
    return " ".join(turns)


WAYS: Final[dict[str, Shorten]] = {
    "all of it (the most that can be kept)": everything,
    "the first characters": first,
    "the last characters (a sliding window)": last,
    "lede 0.5.1": lede,
    "statekit extract": ours,
    "statekit extract and pins": pinned,
}


def kept(shorten: Shorten, size: float) -> tuple[float, float]:
    """Return the share of questions that are kept, and the milliseconds of a window."""
    scenarios, questions = memory()
    found, taken = 0, []
    for name, turns in scenarios.items():
        texts = []
        for at in range(0, len(turns), WINDOW_TURNS):
            window = turns[at : at + WINDOW_TURNS]
            chars = int(size if size > 1 else size * sum(map(len, window)))
            started = thread_time()
            texts.append(shorten(window, chars))
            taken.append(thread_time() - started)
            assert shorten is everything or len(texts[-1]) <= chars, (shorten, chars)
        words = f" {_words(' '.join(texts))} "
        asked = [question["answers"] for question in questions if question["scenario"] == name]
        found += sum(any(f" {_words(answer)} " in words for answer in answers) for answers in asked)
    return found / len(questions), median(taken) * 1e3


def main() -> dict[str, dict[str, float]]:
    """Return way -> size -> share of facts kept, and the milliseconds of a window at a tenth."""
    results: dict[str, dict[str, float]] = {}
    for name, shorten in WAYS.items():
        numbers = {str(size): kept(shorten, size) for size in SIZES}
        results[name] = {**{size: share for size, (share, _) in numbers.items()}, "window_ms": numbers["0.1"][1]}
    return results


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


if __name__ == "__main__":
    print(json.dumps(main()))

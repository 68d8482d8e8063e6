"""How many facts survive without a model: `python -m benchmarks.context_facts` prints the numbers as JSON.

Our list of common words was made with these scenarios at hand. So each scenario is also measured by itself, with a list
that has no word which only this scenario could have brought in.

BFCL's five scenarios are cut into windows of 15 of the user's turns. Each window becomes a text of a given size; a
question counts as kept if one of its answers stands, word for word, in the texts of its scenario. Who keeps pins keeps
them inside the same size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from statistics import median
from time import thread_time
from typing import Any, Final

from benchmarks import context_extract
from benchmarks.context_data import memory
from benchmarks.context_extract import ours
from langgraph_statekit.context import extract

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
WEIGHTS: Final = {"_NUMBER": (2.0, 4.0), "_NAME": (1.5, 3.5), "_QUESTION": (0.5, 1.0), "_PART_COST": (4, 14)}
WORST: Final = "statekit extract, the worst of 16 settings of its weights"
HELD_OUT: Final = ("lede 0.5.1", "statekit extract", "statekit extract and pins")


def kept(shorten: Shorten, size: float, only: str = "") -> tuple[float, float]:
    """Return the share of questions that are kept, of one scenario or all, and the milliseconds of a window."""
    scenarios, questions = memory()
    found, count, taken = 0, 0, []
    for name, turns in scenarios.items():
        if only not in ("", name):
            continue
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
        count += len(asked)
    return found / count, median(taken) * 1e3


@contextmanager
def changed(**names: Any) -> Iterator[None]:
    """Have our extract work with other words and weights."""
    before = {name: getattr(extract, name) for name in names}
    for name, value in names.items():
        setattr(extract, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(extract, name, value)


def words_without(scenario: str) -> frozenset[str]:
    """Return those of our common words that the other scenarios have too."""
    texts = [" ".join(turns) for name, turns in memory()[0].items() if name != scenario]
    return extract.COMMON & {*_words(" ".join(texts)).split()}


def parts() -> dict[str, dict[str, dict[str, float]]]:
    """Return way -> scenario -> size -> share of facts kept, each scenario held out."""
    results: dict[str, dict[str, dict[str, float]]] = {}
    for scenario in memory()[0]:
        with changed(COMMON=words_without(scenario)):
            for name in HELD_OUT:
                found = {str(size): kept(WAYS[name], size, scenario)[0] for size in SIZES}
                results.setdefault(name, {})[scenario] = found
            worst = [kept(ours, size, scenario)[0] for size in SIZES]
            for weights in product(*WEIGHTS.values()):
                with changed(**dict(zip(WEIGHTS, weights, strict=True))):
                    now = [kept(ours, size, scenario)[0] for size in SIZES]
                worst = min(worst, now, key=sum)
            results.setdefault(WORST, {})[scenario] = dict(zip(map(str, SIZES), worst, strict=True))
    return results


def main() -> dict[str, Any]:
    """Return way -> size -> share of facts kept, the milliseconds of a window at a tenth, and the same in parts."""
    results: dict[str, dict[str, float]] = {}
    for name, shorten in WAYS.items():
        numbers = {str(size): kept(shorten, size) for size in SIZES}
        results[name] = {**{size: share for size, (share, _) in numbers.items()}, "window_ms": numbers["0.1"][1]}
    return {"all": results, "parts": parts()}


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


if __name__ == "__main__":
    print(json.dumps(main()))

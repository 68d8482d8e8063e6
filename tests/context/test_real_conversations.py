"""What the numbers of docs/context-numbers.md rest on, checked without a tokenizer or another project."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.context import COLUMNS, KINDS, facts, kit, others, parts, prompts, rendered
from benchmarks.context_chat import Recorder, common, violations
from benchmarks.context_data import CONVERSATIONS, airline, calls
from benchmarks.context_facts import changed, kept, ours, pinned, words_without
from benchmarks.context_peers import BY_NAME
from langgraph_statekit.context.tokens import TokenCounter, count_text

LEDE = {200: 0.149, 600: 0.394, 0.1: 0.394, 0.2: 0.523}
"""The share of facts that lede 0.5.1 keeps."""
RECOMMENDED = "statekit recommended (tool digests, 18/15/3 turns)"
OURS = [name for name in BY_NAME if name.startswith("statekit")]


@pytest.mark.parametrize("conversation", ["memory", "coding"])
@pytest.mark.parametrize("name", ["statekit defaults (20/15/5 turns)", RECOMMENDED])
def test_conversations_that_nothing_was_tuned_on_lose_nothing_either(name: str, conversation: str) -> None:
    system, history = CONVERSATIONS[conversation]()
    view = BY_NAME[name].build(Recorder(), system)
    for place in calls(history):
        assert violations(history[:place], view(history[:place])) == (False, 0)


@pytest.mark.parametrize("name", OURS)
def test_200_real_turns_cost_few_summaries_and_lose_neither_question_nor_pair(name: str) -> None:
    system, history = airline()
    recorder = Recorder()
    view = BY_NAME[name].build(recorder, system)
    counter, peak = TokenCounter(), 0
    for place in calls(history):
        shown = view(history[:place])
        assert violations(history[:place], shown) == (False, 0)
        peak = max(peak, counter(shown) + count_text(system))
    assert len(recorder.asked) <= 15
    assert peak <= (9_000 if "8000" in name else 15_000)


@pytest.mark.parametrize("size", LEDE)
def test_an_extract_keeps_more_facts_than_lede_in_the_same_size(size: float) -> None:
    assert kept(ours, size)[0] > LEDE[size] + 0.06
    assert kept(pinned, size)[0] > LEDE[size] + 0.05


LEDE_IN_PARTS = {
    "customer": (0.133, 0.5, 0.6, 0.667),
    "finance": (0.08, 0.2, 0.2, 0.36),
    "healthcare": (0.12, 0.32, 0.32, 0.44),
    "notetaker": (0.16, 0.4, 0.12, 0.32),
    "student": (0.2, 0.46, 0.54, 0.66),
}


@pytest.mark.parametrize("scenario", LEDE_IN_PARTS)
def test_an_extract_keeps_more_in_a_scenario_that_its_common_words_do_not_know(scenario: str) -> None:
    with changed(COMMON=words_without(scenario)):
        found = [kept(ours, size, scenario)[0] for size in LEDE]
    assert all(share >= theirs - 0.001 for share, theirs in zip(found, LEDE_IN_PARTS[scenario], strict=True))
    assert sum(found) > sum(LEDE_IN_PARTS[scenario]) + 0.15


def test_the_benchmark_sees_what_is_wrong_with_a_prompt() -> None:
    _, history = airline()
    place = next(n for n, message in enumerate(history) if message.type == "tool") + 1
    given = history[:place]
    assert violations(given, given) == (False, 0)
    assert violations(given, given[:-1]) == (False, 1)
    assert violations(given, given[-1:]) == (True, 1)
    assert common([(1, 2), (3, 4)], [(1, 2), (3, 5), (6,)]) == 3
    assert common([(1, 2)], [(1, 2), (3,)]) == 2


def test_a_page_gets_its_tables_anew_and_nothing_else() -> None:
    numbers: dict[str, Any] = {"calls": 2, **dict.fromkeys(COLUMNS, 0.5)}
    machine = {"cores": 2, "cpu": "some", "python": "3.11"}
    about = {"started": "2026-11-30T00:00", "machine": machine, "load": 1.0, "versions": {"a": {"langmem": "0.0.30"}}}
    results = {
        "about": about,
        "chat": {"ours": numbers, "theirs": {"fails": "no such package"}},
        "memory": {OURS[0]: numbers},
        "coding": {OURS[0]: numbers},
        "facts": {
            "all": {"ours": {"200": 0.25, "600": 0.5, "0.1": 0.5, "0.2": 0.7, "window_ms": 6.0}},
            "parts": {"ours": {"finance": {"200": 0.25}}},
        },
        "kit": {"ours": {"2000": {kind: [1.0, 0.75] for kind in KINDS}}},
    }
    marks = {
        name: f"<!-- {name}: begin -->\nold\n<!-- {name}: end -->"
        for name in ("prompts", "others", "facts", "parts", "kit")
    }
    page = rendered("\n\n".join(["# Title", *marks.values(), "end"]), results)
    assert "old" not in page
    for table in (prompts, others, facts, parts, kit):
        assert table(results) in page
    assert rendered(page, results) == page
    some = {question: found for question, found in results.items() if question in ("chat", "about")}
    assert rendered(page.replace("others: begin -->", "others: begin -->\nof before"), some).count("of before") == 1
    assert "fails: no such package" in page
    assert page.startswith("# Title")
    assert page.endswith("end")

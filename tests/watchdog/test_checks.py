"""What each check finds, of what was seen, and when it finds nothing. Pure: the clock is the test's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from langgraph_statekit import (
    Backoff,
    Budget,
    Cycle,
    ErrorRate,
    Fail,
    FailureRate,
    Finding,
    Invariant,
    ItemDeadline,
    Label,
    Misuse,
    NodeDeadline,
    NoProgress,
    Retry,
    Rollback,
    SaveFailureRate,
    Skip,
)
from langgraph_statekit.watchdog.policy import action_of
from langgraph_statekit.watchdog.seen import Seen, digest, text_of
from langgraph_statekit.watchdog.spending import with_counter
from langgraph_statekit.watchdog.view import View


class Told(Seen):
    """A run that a test makes up; `now_s` is the time."""

    def __init__(self, *checks: Any, item: Any = None, failing: float = 0.0, pool: int | None = None) -> None:
        self.now_s = 0.0
        super().__init__(checks, item, lambda: self.now_s, lambda: failing, pool)
        self.steps = 0

    def go(self, *states: Any, seconds: float = 1.0) -> Told:
        for state in states:
            self.now_s += seconds
            self.step(f"c{self.steps}", self.steps, state, ("work",))
            self.steps += 1
        return self


def test_an_item_deadline_counts_all_steps_of_an_item() -> None:
    seen = Told(ItemDeadline(seconds=10, key=lambda s: s["i"]))
    seen.go({}, {"i": 1}, {"i": 2}, {"i": 2}, {"i": 2}, seconds=5)
    assert seen.find() is None
    seen.now_s += 1
    assert seen.find() == Finding("item_deadline", "item 2 takes more than 10 s", item="2", started="c2")
    assert seen.go({"i": 3}).find() is None


def test_between_quick_steps_a_check_that_waits_for_a_time_is_asked_now_and_then() -> None:
    calls: list[float] = []

    def own(view: View) -> None:
        calls.append(view.now_s)

    deadlines = (ItemDeadline(seconds=1, key=lambda s: 0), NodeDeadline(default=1), Budget(seconds=1))
    assert all(check.timed for check in deadlines)
    assert not any(check.timed for check in (Budget(seconds=1, tokens=9), Budget(requests=9)))
    for deadline in deadlines:
        calls.clear()
        seen = Told(own, deadline).go({}, seconds=0.99)
        seen.begin("a", "work")
        assert seen.find(at_step=True) is None
        seen.now_s += 1.01
        assert seen.find(at_step=True) is not None, "the last time is long ago"
        seen.now_s += 0.01
        assert seen.find(at_step=True) is None
        assert seen.find() is not None, "whoever looks now and then asks all"
        assert len(calls) == 4, "any other check is asked each time"


def test_items_of_heartbeats_count_in_place_of_that_of_the_state() -> None:
    seen = Told(ItemDeadline(seconds=10, key=lambda s: s["batch"])).go({"batch": 1})
    seen.begin("a", "work")
    seen.begin("b", "work")
    for second in range(30):
        seen.now_s += 1
        seen.beat("a", item=second)
        seen.beat("b", item="slow", note="waits")
        found = seen.find()
        assert (found is None) == (second < 11), second
    assert found is not None and found.item == "slow"
    assert seen.view().note == "waits"


def test_a_node_deadline_is_for_one_call_of_a_node() -> None:
    seen = Told(NodeDeadline({"work": 10}, default=20), item=lambda s: s["i"]).go({"i": 7})
    for id, node in (("a", "work"), ("b", "other")):
        seen.begin(id, node)
    seen.now_s += 11
    found = seen.find()
    assert found is not None and (found.reason, found.item) == ("node_deadline", "7")
    seen.end("a", "work", None)
    assert seen.find() is None
    seen.now_s += 10
    assert seen.find() is not None
    assert Told(NodeDeadline({"work": 1})).find() is None


def test_a_call_that_waits_for_its_turn_has_not_begun() -> None:
    run = Told(NodeDeadline(default=10), pool=2)
    for each in "abcd":
        run.begin(each, "work")
    run.now_s = 9
    run.end("b", "work", None)
    run.now_s = 10.5
    run.beat("d", item="d")  # it says itself that its turn has come
    assert [task.id for task in run.view().running] == ["a", "c", "d"]
    assert run.find() is not None
    run.end("a", "work", None)
    run.now_s = 19
    assert run.find() is None
    run.now_s = 20
    assert run.find() is not None  # c began at 9


def test_a_task_that_is_done_and_stored_does_not_run() -> None:
    run = Told(NodeDeadline(default=10))
    run.restart(["a"])
    run.begin("a", "work")
    run.now_s = 11
    assert run.find() is None


def test_no_progress_is_steps_or_seconds_without_a_change() -> None:
    check = NoProgress(project=lambda s: s["i"], supersteps=3, seconds=100)
    seen = Told(check).go({"i": 0}, {"i": 1}, {"i": 1}, {"i": 1})
    assert seen.find() is None
    found = seen.go({"i": 1}).find()
    assert found is not None and found.since == "c2"  # the checkpoint before it is the one to go back to
    assert seen.go({"i": 2}).find() is None
    seen.now_s += 101
    assert seen.find() is not None
    seen.begin("a", "work")
    seen.beat("a", item="new")
    assert seen.find() is None


def test_what_is_changed_in_place_is_a_change() -> None:
    state: dict[str, list[int]] = {"done": []}
    seen = Told(NoProgress(supersteps=2))
    for item in range(10):
        state["done"].append(item)
        assert seen.go(state).find() is None


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.integers(2, 4),
)
def test_a_cycle_is_found_exactly_when_the_last_changes_repeat(states: list[int], half: int) -> None:
    found = Told(Cycle(window=2 * half, project=lambda s: s)).go(*states).find()
    changes = [state for at, state in enumerate(states) if at == 0 or states[at - 1] != state][-2 * half :]
    repeats = len(changes) == 2 * half and any(changes[period:] == changes[:-period] for period in range(2, half + 1))
    assert (found is not None) == repeats


def test_an_invariant_looks_at_two_steps_and_suspects_the_later() -> None:
    seen = Told(Invariant("grows", lambda a, b: len(b) >= len(a))).go("ab", "abc")
    assert seen.find() is None
    found = seen.go("a").find()
    assert found is not None and (found.reason, found.since) == ("grows", "c2")
    seen.restart()
    assert seen.find() is None


def test_error_and_failure_rates_and_budgets() -> None:
    seen = Told(ErrorRate(0.5, window=10, min_tasks=4))
    for at, error in enumerate([None, None, "no", "no"]):
        assert seen.find() is None
        seen.end(str(at), "work", error)
    assert seen.find() is not None
    assert Told(SaveFailureRate(0.1), failing=0.09).find() is None
    assert Told(SaveFailureRate(0.1), failing=0.1).find() is not None
    seen = Told(Budget(tokens=100, requests=2))
    model = GenericFakeChatModel(
        messages=iter(
            [AIMessage("hi", usage_metadata={"input_tokens": 1, "output_tokens": 59, "total_tokens": 60})] * 2
        )
    )
    for found in (False, True):
        model.invoke("hello", config=with_counter({}, seen))
        finding = seen.find()
        assert (finding is not None) == found
    assert finding is not None and finding.final


@settings(deadline=None)
@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text() | st.sets(st.integers()), st.lists, max_leaves=5)
)
def test_a_digest_tells_values_apart_as_equality_does(value: Any) -> None:
    assert digest(value) == digest(value)
    assert digest([value]) != digest([value, value])
    assert len(text_of("x" * 1000)) < 120 and text_of("x" * 1000) != text_of("x" * 1001)


@given(st.integers(1, 10_000), st.integers(0, 5))
def test_a_rollback_policy_escalates_then_gives_way(attempt: int, most: int) -> None:
    policy = Rollback(to=("retry_head", "parent", Label("x")), max_attempts=most, then=Skip("work"))
    action = action_of(policy, Finding("a", "b"), attempt)
    if attempt > most:
        assert action == Skip("work")
    else:
        assert isinstance(action, Retry)
        assert action.target == ("retry_head", "parent", Label("x"))[min(attempt, 3) - 1]
        assert action.wait_s == min(2.0 ** (attempt - 1), 60)
    assert action_of(policy, Finding("a", "b", final=True), attempt) == Skip("work")


def test_backoff_grows_to_its_most_and_never_overflows() -> None:
    assert [Backoff(1, 2, 10).wait_s(attempt) for attempt in (1, 2, 4, 5, 10**6)] == [1, 2, 8, 10, 10]
    assert Backoff(first_s=0).wait_s(9) == 0


def test_wrong_settings_say_what_to_do() -> None:
    for wrong in (
        lambda: ItemDeadline(seconds=-1),
        lambda: NodeDeadline({"work": -1}),
        lambda: NodeDeadline(60),  # type: ignore[arg-type]
        lambda: NoProgress(project=3),  # type: ignore[arg-type]
        lambda: NoProgress(supersteps=0),
        lambda: Cycle(window=3),
        lambda: Invariant("", lambda a, b: True),
        lambda: ErrorRate(1.5),
        lambda: SaveFailureRate(0),
        lambda: Budget(tokens=-1),
        lambda: Rollback(to="there"),  # type: ignore[arg-type]
        lambda: Rollback(to=()),
        lambda: Rollback(max_attempts=-1),
        lambda: Rollback(then="fail"),  # type: ignore[arg-type]
        lambda: Backoff(factor=0.5),
        lambda: action_of(lambda finding, attempt: "retry", Finding("a", "b"), 1),  # type: ignore[arg-type, return-value]
    ):
        with pytest.raises(Misuse):
            wrong()
    assert isinstance(action_of(Rollback(max_attempts=0), Finding("a", "b"), 1), Fail)
    assert FailureRate().rate == 0

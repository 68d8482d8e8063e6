"""A `Retention` bounds a thread's history and takes nothing that is needed; labels keep what they name."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from langgraph.checkpoint.base.id import uuid6
from langgraph.types import Command

from langgraph_statekit import CheckpointMissing, Conflict, Misuse, Retention, Unavailable, open_saver
from langgraph_statekit.checkpoint.order import id_at, step_of
from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.faces import LONG, Face, checkpoint, config, id_of, ids, listed, metadata, put
from tests.graphs.builders import DeltaLog, Log, SnapshotLog, chain, nested, question
from tests.stores_under_test import Store

THREAD = {"configurable": {"thread_id": "t"}}
SLACK = 16
LOGS = pytest.mark.parametrize("state", [Log, DeltaLog, SnapshotLog])


@pytest.fixture
async def kept(store: Store) -> AsyncIterator[Callable[[Retention], StatekitSaver]]:
    """Return a maker of savers with a retention on one store."""
    opened: list[StatekitSaver] = []

    def make(retention: Retention) -> StatekitSaver:
        opened.append(store.open(retention=retention))
        return opened[-1]

    yield make
    for saver in opened:
        await saver.aclose()


@LOGS
async def test_history_is_bounded_and_the_thread_goes_on(
    kept: Callable[[Retention], StatekitSaver], face: Callable[[StatekitSaver], Face], state: type
) -> None:
    saver = face(kept(Retention(keep_last=8)))
    app = chain(state).compile(checkpointer=saver)
    lengths = []
    for index in range(16):
        await app.ainvoke({"log": [index, LONG]}, config())
        lengths.append(len(await ids(saver, config())))
    assert max(lengths) <= 8 + SLACK
    expected = [item for run in range(16) for item in (run, LONG, "a", "b")]
    assert (await app.aget_state(config())).values["log"] == expected
    newest = [item async for item in app.aget_state_history(config(), limit=8)]
    assert len(newest) == 8
    assert newest[3].values["log"] == expected[: len(newest[3].values["log"])]


async def test_each_nth_step_stays(saver: Face) -> None:
    at = config()
    for step in range(-1, 40):
        at = await put(saver, at, {"x": [LONG, step]}, {"x": step + 2}, id=made_id(step), meta={"step": step})
    await saver.aprune(["t"], strategy=Retention(keep_every=5))
    steps = [item.metadata["step"] for item in await listed(saver, config())]
    assert steps == [39, 38, 37, 35, 30, 25, 20, 15, 10, 5, 0]
    for item in await listed(saver, config()):
        assert item.checkpoint["channel_values"]["x"] == [LONG, item.metadata["step"]]
    await saver.aprune(["t"], strategy=Retention(keep_every=10, keep_last=5))
    assert [item.metadata["step"] for item in await listed(saver, config())] == [39, 38, 37, 35, 30, 20, 10, 0]


def made_id(step: int) -> str:
    return str(uuid6(clock_seq=step))


def test_the_step_of_an_id_is_langgraphs() -> None:
    assert [step_of(made_id(step), 7) for step in (0, 1, 4711)] == [0, 1, 4711]
    assert step_of("not a time", 7) == 7


async def test_old_ones_go_and_labelled_ones_stay(saver: Face, real: StatekitSaver) -> None:
    at = config()
    made = []
    for step in range(10):
        at = await put(saver, at, {"x": [LONG, step]}, {"x": step})
        made.append(id_of(at))
    assert await real.alabel(config(id=made[2]), "before-release") == config(id=made[2])
    real.label(config(id=made[3]), "moves")
    real.label(config(id=made[4]), "moves")
    assert await real.alabels("t") == {"before-release": config(id=made[2]), "moves": config(id=made[4])}
    assert len(await ids(saver, config())) == 10, "labels are no checkpoints"
    await saver.aprune(["t"], strategy=Retention(max_age_s=3600))
    assert len(await ids(saver, config())) == 10
    await saver.aprune(["t"], strategy=Retention(max_age_s=0))
    assert await ids(saver, config()) == [made[9], made[8], made[7], made[4], made[2]]
    await saver.aprune(["t"])
    assert await ids(saver, config()) == [made[9], made[4], made[2]]
    found = await saver.aget_tuple(config(id=made[2]))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"x": [LONG, 2]}
    await saver.acopy_thread("t", "u")
    assert real.labels("u") == {"before-release": config("u", id=made[2]), "moves": config("u", id=made[4])}
    real.unlabel("t", "moves")
    await real.aunlabel("t", "never was")
    await saver.aprune(["t"], strategy=Retention(keep_last=1, keep_labels=False))
    assert await ids(saver, config()) == [made[9], made[4], made[2]], "the newest three stay"
    await saver.adelete_thread("t")
    assert real.labels("t") == {}
    with pytest.raises(CheckpointMissing):
        real.label(config(id=made[2]), "gone")


async def test_what_is_no_label_is_refused_and_changes_nothing(saver: Face, real: StatekitSaver) -> None:
    await put(saver, config(), {"v": 1}, {"v": 1})
    for label in ("", None, 3):
        with pytest.raises(Misuse, match="a label must be a text"):
            real.label(config(), label)  # type: ignore[arg-type]
        with pytest.raises(Misuse, match="a label must be a text"):
            await real.alabel(config(), label)  # type: ignore[arg-type]
    assert real.labels("t") == {}


async def test_the_latest_is_labelled_without_an_id_and_its_thread_goes_on(saver: Face, real: StatekitSaver) -> None:
    at = await put(saver, config("t", "sub"), {"x": 1})
    assert real.label(config("t", "sub"), "in a subgraph") == at
    after = await put(saver, at, {"x": 2})
    assert await ids(saver, config("t", "sub")) == [id_of(after), id_of(at)]
    await saver.aprune(["t"])
    assert await ids(saver, config("t", "sub")) == [id_of(after), id_of(at)]
    assert (await listed(saver, THREAD))[0].config == after


@LOGS
@pytest.mark.parametrize("build", [question, nested])
async def test_a_pending_question_stays_answerable(
    kept: Callable[[Retention], StatekitSaver], face: Callable[[StatekitSaver], Face], state: type, build: Any
) -> None:
    saver = face(kept(Retention(keep_last=1)))
    app = build(state).compile(checkpointer=saver)
    await app.ainvoke({"log": [LONG]}, config())
    await saver.aprune(["t"], strategy=Retention(keep_last=1, max_age_s=0))
    snapshot = await app.aget_state(config(), subgraphs=True)
    assert [each.value for task in snapshot.tasks for each in task.interrupts] == ["approve?"]
    assert "yes" in str((await app.ainvoke(Command(resume="yes"), config()))["log"])


async def test_what_subgraphs_stored_goes_with_their_callers(saver: Face) -> None:
    app = nested(Log).compile(checkpointer=saver)
    for number in range(6):
        await app.ainvoke({"log": [number, LONG]}, config())
        await app.ainvoke(Command(resume="yes"), config())
    before = await listed(saver, THREAD)
    await saver.aprune(["t"], strategy=Retention(keep_last=3))
    after = await listed(saver, THREAD)
    calls = {item.config["configurable"]["checkpoint_ns"] for item in before} - {""}
    left = {item.config["configurable"]["checkpoint_ns"] for item in after} - {""}
    assert len(calls) >= 6
    assert len(left) <= 2
    assert len((await app.aget_state(config())).values["log"]) == len(before[0].checkpoint["channel_values"]["log"])


async def test_what_a_call_stored_before_its_caller_stays_with_it(saver: Face) -> None:
    """As with durability="exit", where a subgraph stores before the checkpoint that called it, whose id is older."""
    at = config()
    for number in range(8):
        begun_s = 1_800_000_000 + 60 * number
        call = await put(saver, config(ns=f"call:{number}"), {"x": number}, {"x": number}, id=id_at(begun_s + 5))
        at = await put(saver, at, {"x": number}, {"x": number}, id=id_at(begun_s))
        await saver.aprune(["t"], strategy=Retention(keep_last=1))
        assert await saver.aget_tuple(call) is not None
    left = {item.config["configurable"]["checkpoint_ns"] for item in await listed(saver, THREAD)}
    assert {"", "call:7"} <= left < {"", *(f"call:{number}" for number in range(8))}


@pytest.mark.parametrize("how", ["prune", "latest", "delete"])
async def test_a_run_whose_checkpoint_went_meanwhile_loses_nothing(saver: Face, how: str) -> None:
    versions = {"doc": 1, "log": 1, "none": 1}
    slow = await put(saver, config(), {"doc": LONG, "log": 1}, versions)
    at = slow
    for step in range(6):
        at = await put(saver, at, {"doc": step, "log": step}, {"doc": step + 2, "log": step + 2})
    if how == "delete":
        await saver.adelete_thread("t")
    else:
        await saver.aprune(["t"], strategy="keep_latest" if how == "latest" else Retention(keep_last=1))
    late = checkpoint({"doc": LONG, "log": 7}, {**versions, "log": "late"})
    end = await saver.aput(slow, late, metadata(), {"log": "late"})
    found = await saver.aget_tuple(end)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"doc": LONG, "log": 7}


async def test_a_run_that_cannot_rebuild_its_delta_channel_fails(saver: Face) -> None:
    at = slow = await put(saver, config(), {"doc": 1}, {"doc": 1, "log": 1})
    for step in range(5):
        at = await put(saver, at, {"doc": step}, {"doc": step + 2})
    await saver.aprune(["t"])
    late = checkpoint({"doc": 1}, {"doc": 1, "log": "late"})
    deltas: Any = {**metadata(), "counters_since_delta_snapshot": {"log": (1, 1)}}
    with pytest.raises(Conflict, match="removed meanwhile"):
        await saver.aput(slow, late, deltas, {})
    assert await ids(saver, config()) == [id_of(at)]


async def test_the_ends_of_branches_stay(saver: Face) -> None:
    root = await put(saver, config(), {"x": 0})
    ends = []
    for branch in range(3):
        at = root
        for step in range(5):
            at = await put(saver, at, {"x": [branch, step]}, {"x": f"{branch}.{step}"})
        ends.append(id_of(at))
    await saver.aprune(["t"], strategy=Retention(keep_last=1))
    left = await ids(saver, config())
    assert set(ends) <= set(left)
    assert len(left) == 5


async def test_a_retention_that_fails_does_not_fail_the_put(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with store.open(retention=Retention(keep_last=1)) as saver:
        monkeypatch.setattr(
            saver.backend, "outline", lambda *args, **options: (_ for _ in ()).throw(Unavailable("gone"))
        )
        at = config()
        with caplog.at_level(logging.WARNING):
            for step in range(SLACK + 1):
                at = saver.put(at, checkpoint({"x": step}, {"x": step}), metadata(step), {"x": step})
        assert "retention of thread 't' was put off: gone" in caplog.text
        assert len([*saver.list(config())]) == SLACK + 1


def test_a_thread_of_which_all_may_stay_is_seldom_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    with open_saver("memory://", retention=Retention(keep_last=100)) as saver:
        outline = saver.backend.outline
        monkeypatch.setattr(saver.backend, "outline", lambda *args, **how: looks.append(args) or outline(*args, **how))
        at = config()
        for step in range(100):
            at = saver.put(at, checkpoint({"x": step}, {"x": step}), metadata(step), {"x": step})
    assert 1 <= len(looks) <= 3


@pytest.mark.parametrize("wrong", [{}, {"keep_last": 0}, {"keep_every": 1.5}, {"max_age_s": -1}, {"keep_last": "5"}])
def test_a_wrong_retention_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        Retention(**wrong)

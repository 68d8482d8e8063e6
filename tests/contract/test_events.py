"""What hooks are told, on real stores, by sync and async calls alike."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from langgraph_statekit import (
    FailureRate,
    Fenced,
    Misuse,
    OpenTelemetryHook,
    PrometheusHook,
    Retention,
    SessionManager,
    SessionSummarizer,
    Unavailable,
    open_saver,
)
from langgraph_statekit.checkpoint.backends.memory import MemoryBackend
from langgraph_statekit.checkpoint.engine import Engine
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.events import (
    Conflicted,
    Event,
    Failed,
    Finished,
    LeaseLost,
    Loaded,
    Pruned,
    Retried,
    Saved,
    ThreadCopied,
)
from tests.faces import LONG, Face, config, ids, put
from tests.servers import redis_server
from tests.stores_under_test import Store

pytestmark = pytest.mark.without("retention")  # a pass of which is told too, now and then

Faces = Callable[[StatekitSaver], Face]
SLACK = 16
"""Puts from one pass of retention to the next, at least; the first may come at any."""


Watched = Callable[..., Face]


@pytest.fixture
def watched(store: Store, face: Faces) -> Iterator[Watched]:
    """Return what opens a saver with the given hooks."""
    with ExitStack() as stack:
        yield lambda *hooks: face(stack.enter_context(closing(store.open(hooks=hooks))))


async def work(saver: Face) -> None:
    """Call every operation once or more."""
    first = await put(saver, config("a"), {"text": [LONG] * 9}, {"text": 1}, meta={"run_id": "r"})
    last = await put(saver, first, {"text": [LONG] * 10}, {"text": 2})
    await saver.aput_writes(last, [("text", LONG)], "task")
    await saver.aget_tuple(config("a"))
    await ids(saver, config("a"))
    await saver.aget_delta_channel_history(config=last, channels=["text"])
    await saver.acopy_thread("a", "b")
    await saver.aprune(["a"])
    await saver.adelete_for_runs(["r"])
    await saver.adelete_thread("a")


async def test_every_operation_tells_one_event_with_its_thread_and_sizes(store: Store, face: Faces) -> None:
    events: list[Event] = []
    with store.open(hooks=[events.append]) as real:
        await work(face(real))
    finished = [event for event in events if isinstance(event, Finished)]
    assert [(type(event), event.operation, event.thread_id) for event in finished] == [
        (Finished, "setup", None),
        (Saved, "put", "a"),
        (Saved, "put", "a"),
        (Saved, "put_writes", "a"),
        (Loaded, "get_tuple", "a"),
        (Loaded, "list", "a"),
        (Loaded, "get_delta_channel_history", "a"),
        (ThreadCopied, "copy_thread", "a"),
        (Pruned, "prune", "a"),
        (Pruned, "delete_for_runs", "b"),
        (Pruned, "delete_thread", "a"),
    ]
    assert all(event.latency_s > 0 for event in finished)
    assert not [event for event in events if isinstance(event, Failed | Retried | Conflicted)]
    saved, loaded = ([event for event in finished if isinstance(event, kind)] for kind in (Saved, Loaded))
    assert [event.plain_bytes > len(LONG) * many for event, many in zip(saved, (9, 10, 1), strict=True)] == [True] * 3
    assert all(0 < event.stored_bytes < event.plain_bytes for event in saved[:2])  # type: ignore[union-attr]
    assert loaded[0].plain_bytes > 11 * len(LONG) and loaded[1].plain_bytes > 20 * len(LONG)  # type: ignore[union-attr]
    assert all(event.stored_bytes > 0 for event in loaded[:2])  # type: ignore[union-attr]
    assert [(e.thread_ids, e.checkpoints) for e in finished if isinstance(e, Pruned)] == [
        (("a",), 1),
        (("b",), 1),
        (("a",), 0),
    ]
    assert LONG not in repr(events)


async def test_what_retention_removes_after_a_put_is_told_apart_from_the_put(
    store: Store, face: Faces, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = []
    with store.open(hooks=[events.append], retention=Retention(keep_last=1)) as real:
        saver, at = face(real), config("a")
        for step in range(2 * SLACK):
            at = await put(saver, at, {"x": step}, {"x": step})
        removed = 2 * SLACK - len(await ids(saver, config("a")))
        told = [event for event in events if isinstance(event, Pruned)]
        assert {(event.operation, event.thread_id) for event in told} == {("retention", "a")}
        assert {event.thread_ids for event in told if event.checkpoints} == {("a",)}
        assert sum(event.checkpoints for event in told) == removed > 0
        assert sum(isinstance(event, Saved) for event in events) == 2 * SLACK

        def gone(*args: Any, **options: Any) -> Any:
            raise Unavailable("gone")

        monkeypatch.setattr(real.backend, "outline", gone)
        for step in range(SLACK):
            at = await put(saver, at, {"x": step}, {"x": -step})
    failed = [event for event in events if isinstance(event, Failed)]
    assert {(event.operation, event.thread_id, event.error) for event in failed} == {("retention", "a", "Unavailable")}


async def test_a_refused_value_is_a_failure_that_shows_nothing_of_it(watched: Watched) -> None:
    events: list[Event] = []
    saver = watched(events.append)
    with pytest.raises(ValueError, match="text"):
        await put(saver, config("a"), {"text": object()})
    (failed,) = events
    assert isinstance(failed, Failed)
    assert (failed.operation, failed.thread_id, failed.checkpoint_ns, failed.error) == ("put", "a", "", "DataError")


async def test_a_hook_that_raises_breaks_no_save_and_is_logged_once(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: Event) -> None:
        raise RuntimeError("the hook is broken")

    events: list[Event] = []
    saver = watched(broken, events.append)
    with caplog.at_level(logging.ERROR):
        await work(saver)
    assert len(await ids(saver, config("b"))) == 1
    assert len([each for each in caplog.records if each.name == "langgraph_statekit"]) == 1
    assert "the hook is broken" in caplog.text
    assert len(events) == 11


async def test_a_list_tells_when_its_reader_has_enough_and_not_what_the_reader_took(store: Store) -> None:
    events: list[Event] = []
    with store.open(hooks=[events.append]) as saver:
        for step in range(3):
            await put(saver, config("a"), {"n": step})
        events.clear()
        for _ in saver.list(config("a")):
            break
        gc.collect()
        items = saver.alist(config("a"))
        await anext(items)
        await items.aclose()  # type: ignore[attr-defined]
    assert [type(event) for event in events] == [Loaded, Loaded]


async def test_saves_that_share_a_request_each_tell_their_own(store: Store) -> None:
    events: list[Event] = []
    async with store.open(hooks=[events.append]) as saver:
        await asyncio.gather(*(put(saver, config(f"t{n}"), {"n": [n] * n}) for n in range(20)))
    assert {event.thread_id for event in events if isinstance(event, Saved)} == {f"t{n}" for n in range(20)}


async def test_an_unreachable_store_is_told_as_retries_and_a_failure(face: Faces) -> None:
    events: list[Event] = []
    rate = FailureRate()
    with redis_server() as server, ExitStack() as stack:
        opened = open_saver(server.url, retry_s=0.05, hooks=[events.append, rate])
        stack.callback(opened.close)
        saver = face(opened)
        await put(saver, config("a"), {"n": 1})
        server.kill()
        events.clear()
        for call in (put(saver, config("a"), {"n": 2}), saver.aget_tuple(config("a"))):
            with pytest.raises(Unavailable):
                await call
        server.start()
        await put(saver, config("a"), {"n": 3})
    assert rate.rate == 0.5
    assert [(type(e), e.operation, e.thread_id) for e in events if not isinstance(e, Retried)] == [
        (Failed, "put", "a"),
        (Failed, "get_tuple", "a"),
        (Saved, "put", "a"),
    ]
    retried = [event for event in events if isinstance(event, Retried)]
    assert {(event.operation, event.thread_id) for event in retried} >= {("save", "a"), ("get_tuple", "a")}
    assert all("Error" in event.error for event in retried)


class Contended(MemoryBackend):
    """A store in which another process gets in first, once, and then takes the thread over."""

    moved = False

    def apply(self, *args: Any) -> bool:
        if not self.moved:
            self.moved = True
            return False
        return super().apply(*args)

    def drop_thread(self, thread: str) -> None:
        raise Fenced("a newer holder owns the thread")


async def test_a_lost_race_is_a_conflict_and_a_refused_holder_a_lost_lease(face: Faces) -> None:
    events: list[Event] = []
    saver = face(StatekitSaver(Contended(), hooks=[events.append]))
    await put(saver, await put(saver, config("a"), {"n": 1}), {"n": 2}, {"n": 2})
    events.clear()
    await saver.aprune(["a"])
    with pytest.raises(Fenced):
        await saver.adelete_thread("a")
    assert [(type(e), e.operation, e.thread_id) for e in events] == [
        (Conflicted, "prune", "a"),
        (Pruned, "prune", "a"),
        (LeaseLost, "delete_thread", "a"),
        (Failed, "delete_thread", "a"),
    ]


def test_without_hooks_the_plain_engine_runs() -> None:
    saver = open_saver("memory://")
    assert type(saver._sync) is type(saver._async) is Engine
    assert saver._sync._saves._call == saver.backend.save


def test_hooks_that_cannot_be_called_are_refused() -> None:
    for wrong in ("print", [1], 7, print):
        with pytest.raises(Misuse, match="hooks"):
            open_saver("memory://", hooks=wrong)
        with open_saver("memory://") as saver, pytest.raises(Misuse, match="hooks"):
            SessionManager(saver, hooks=wrong)
        with pytest.raises(Misuse, match="hooks"):
            SessionSummarizer(lambda prompt: "", hooks=wrong)  # type: ignore[arg-type]


async def test_opentelemetry_gets_metrics_and_spans_below_the_callers(watched: Watched) -> None:
    reader, exporter = InMemoryMetricReader(), InMemorySpanExporter()
    meters, tracers = MeterProvider([reader]), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    saver = watched(OpenTelemetryHook(meters, tracers))
    with tracers.get_tracer("test").start_as_current_span("turn") as turn:
        await work(saver)
        with suppress(Misuse):
            await saver.aget_tuple({"configurable": {}})
    data = reader.get_metrics_data()
    assert data is not None
    metrics: dict[str, Any] = {
        metric.name: metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    durations = {point.attributes["statekit.operation"]: point for point in metrics[DURATION].data.data_points}
    assert metrics[DURATION].unit == "s"
    assert durations["put"].count == 2
    assert 0 < durations["put"].sum < 60
    assert max(durations["put"].explicit_bounds) < 60
    points = [point for metric in metrics.values() for point in metric.data.data_points]
    names = {"statekit.store", "statekit.operation", "error.type"}
    assert all(point.attributes.keys() <= names for point in points)
    plain, stored = (metrics[f"statekit.operation.{kind}_size"] for kind in ("plain", "stored"))
    assert plain.unit == stored.unit == "By"
    assert sum(p.sum for p in plain.data.data_points) > sum(p.sum for p in stored.data.data_points) > 0
    assert [p.value for p in metrics["statekit.pruned_checkpoints"].data.data_points if p.value] == [1, 1]
    (failure,) = metrics["statekit.failures"].data.data_points
    assert failure.attributes["error.type"] == "Misuse"

    spans = [span for span in exporter.get_finished_spans() if span.name != "turn"]
    assert [span.name for span in spans][:3] == ["statekit put"] * 2 + ["statekit put_writes"]
    assert all(span.parent and span.parent.span_id == turn.get_span_context().span_id for span in spans)
    assert all(span.start_time <= span.end_time for span in spans)  # type: ignore[operator]
    assert spans[0].attributes["statekit.thread_id"] == "a"  # type: ignore[index]
    assert [span.status.is_ok for span in spans] == [True] * (len(spans) - 1) + [False]


DURATION = "statekit.operation.duration"


async def test_prometheus_gets_metrics_which_savers_on_one_registry_share(watched: Watched) -> None:
    registry = CollectorRegistry()
    first, second = (watched(PrometheusHook(registry)) for _ in range(2))
    await work(first)
    await first.adelete_thread("b")
    await work(second)
    with suppress(Misuse):
        await second.aget_tuple({"configurable": {}})
    (kind,) = {s.labels["store"] for m in registry.collect() for s in m.samples}
    of_put = {"store": kind, "operation": "put"}
    assert registry.get_sample_value("statekit_operation_duration_seconds_count", {**of_put, "outcome": "ok"}) == 4
    plain = registry.get_sample_value("statekit_operation_plain_bytes_sum", of_put)
    stored = registry.get_sample_value("statekit_operation_stored_bytes_sum", of_put)
    assert plain is not None and stored is not None and plain > stored > 0
    assert registry.get_sample_value("statekit_pruned_checkpoints_total", {**of_put, "operation": "prune"}) == 2
    failed = {**of_put, "operation": "get_tuple", "error": "Misuse"}
    assert registry.get_sample_value("statekit_failures_total", failed) == 1


@pytest.mark.parametrize(
    ("hook", "library", "extra"),
    [("OpenTelemetryHook", "opentelemetry", "otel"), ("PrometheusHook", "prometheus_client", "prometheus")],
)
def test_a_missing_library_is_named_with_its_extra(hook: str, library: str, extra: str) -> None:
    code = f"import sys; sys.modules['{library}'] = None\nfrom langgraph_statekit import {hook}"
    error = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert f"pip install 'langgraph-statekit[{extra}]'" in error

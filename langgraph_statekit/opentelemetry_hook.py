"""Events as OpenTelemetry metrics and spans."""

from __future__ import annotations

import time
from typing import Any

from opentelemetry import metrics, trace

from langgraph_statekit.events import (
    BYTES,
    SECONDS,
    Compacted,
    Conflicted,
    Event,
    Failed,
    Finished,
    Found,
    GivenUp,
    LeaseLost,
    Loaded,
    Pruned,
    Retried,
    RolledBack,
    Saved,
)


class OpenTelemetryHook:
    """A hook for metrics, and a span for each operation below the span of its caller.

    Metrics have `statekit.store`, `statekit.operation` and, of failures and retries, `error.type`; spans also have the
    thread.

    Args:
        meter_provider: None for the global one.
        tracer_provider: None for the global one.
    """

    def __init__(
        self,
        meter_provider: metrics.MeterProvider | None = None,
        tracer_provider: trace.TracerProvider | None = None,
    ) -> None:
        name = "langgraph_statekit"
        self._tracer = trace.get_tracer(name, tracer_provider=tracer_provider)
        meter = metrics.get_meter(name, meter_provider=meter_provider)

        def sizes(kind: str, what: str) -> metrics.Histogram:
            return meter.create_histogram(
                f"statekit.operation.{kind}_size", "By", what, explicit_bucket_boundaries_advisory=BYTES
            )

        self._duration = meter.create_histogram(
            "statekit.operation.duration",
            "s",
            "How long callers waited",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._plain = sizes("plain", "Serialized bytes before compression and deltas")
        self._stored = sizes("stored", "Bytes sent to or read from the store")
        self._pruned = meter.create_counter("statekit.pruned_checkpoints", "{checkpoint}", "Checkpoints removed")
        self._summarized = meter.create_counter("statekit.summarized_tokens", "{token}", "Tokens that became summaries")
        self._counters = {
            Failed: meter.create_counter("statekit.failures", "{operation}", "Operations that raised"),
            Retried: meter.create_counter("statekit.retries", "{request}", "Requests repeated"),
            Conflicted: meter.create_counter("statekit.conflicts", "{conflict}", "Threads that changed meanwhile"),
            LeaseLost: meter.create_counter("statekit.lease_losses", "{lease}", "Operations of a former holder"),
            Pruned: meter.create_counter("statekit.prunes", "{operation}", "Removals done"),
            Found: meter.create_counter("statekit.findings", "{finding}", "What checks found wrong with runs"),
            RolledBack: meter.create_counter("statekit.rollbacks", "{rollback}", "Threads rolled back"),
            GivenUp: meter.create_counter("statekit.given_up", "{thread}", "Threads and items not tried again"),
        }

    def __call__(self, event: Event, /) -> None:
        """Record an event."""
        attributes = {"statekit.store": event.store, "statekit.operation": event.operation}
        if isinstance(event, Failed | Retried):
            attributes["error.type"] = event.error
        if counter := self._counters.get(type(event)):
            counter.add(1, attributes)
        if isinstance(event, Finished):
            self._duration.record(event.latency_s, attributes)
            self._span(event, dict(attributes))
        if isinstance(event, Saved | Loaded):
            self._plain.record(event.plain_bytes, attributes)
            self._stored.record(event.stored_bytes, attributes)
        if isinstance(event, Pruned):
            self._pruned.add(event.checkpoints, attributes)
        if isinstance(event, Compacted):
            self._summarized.add(event.tokens_in, {**attributes, "statekit.by": event.by})

    def _span(self, event: Finished, attributes: dict[str, Any]) -> None:
        end_ns = time.time_ns()
        if event.thread_id is not None:
            attributes["statekit.thread_id"] = event.thread_id
        if event.checkpoint_ns is not None:
            attributes["statekit.checkpoint_ns"] = event.checkpoint_ns
        if isinstance(event, Saved | Loaded):
            attributes["statekit.plain_size"] = event.plain_bytes
            attributes["statekit.stored_size"] = event.stored_bytes
        span = self._tracer.start_span(
            f"statekit {event.operation}",
            kind=trace.SpanKind.CLIENT,
            attributes=attributes,
            start_time=end_ns - int(event.latency_s * 1e9),
        )
        if isinstance(event, Failed):
            span.set_status(trace.StatusCode.ERROR)
        span.end(end_ns)

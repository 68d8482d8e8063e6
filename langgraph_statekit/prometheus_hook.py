"""Events as Prometheus metrics."""

from __future__ import annotations

from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

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


class _Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("store", "operation")
        self.duration = Histogram(
            "statekit_operation_duration_seconds",
            "How long callers waited",
            (*labels, "outcome"),
            buckets=SECONDS,
            registry=registry,
        )
        self.plain = Histogram(
            "statekit_operation_plain_bytes",
            "Serialized bytes before compression and deltas",
            labels,
            buckets=BYTES,
            registry=registry,
        )
        self.stored = Histogram(
            "statekit_operation_stored_bytes",
            "Bytes sent to or read from the store",
            labels,
            buckets=BYTES,
            registry=registry,
        )
        self.pruned = Counter("statekit_pruned_checkpoints", "Checkpoints removed", labels, registry=registry)
        self.summarized = Counter(
            "statekit_summarized_tokens", "Tokens that became summaries", (*labels, "by"), registry=registry
        )
        self.failures = Counter("statekit_failures", "Operations that raised", (*labels, "error"), registry=registry)
        self.retries = Counter("statekit_retries", "Requests repeated", (*labels, "error"), registry=registry)
        self.others = {
            Conflicted: Counter("statekit_conflicts", "Threads that changed meanwhile", labels, registry=registry),
            LeaseLost: Counter("statekit_lease_losses", "Operations of a former holder", labels, registry=registry),
            Pruned: Counter("statekit_prunes", "Removals done", labels, registry=registry),
            Found: Counter("statekit_findings", "What checks found wrong with runs", labels, registry=registry),
            RolledBack: Counter("statekit_rollbacks", "Threads rolled back", labels, registry=registry),
            GivenUp: Counter("statekit_given_up", "Threads and items not tried again", labels, registry=registry),
        }


_made: Final[WeakKeyDictionary[CollectorRegistry, _Metrics]] = WeakKeyDictionary()
_lock: Final = Lock()


class PrometheusHook:
    """A hook for metrics; all hooks on one registry share them.

    Args:
        registry: Where they are collected.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        with _lock:
            if registry not in _made:
                _made[registry] = _Metrics(registry)
            self._metrics = _made[registry]

    def __call__(self, event: Event, /) -> None:
        """Record an event."""
        metrics, labels = self._metrics, (event.store, event.operation)
        if isinstance(event, Finished):
            outcome = "error" if isinstance(event, Failed) else "ok"
            metrics.duration.labels(*labels, outcome).observe(event.latency_s)
        if isinstance(event, Saved | Loaded):
            metrics.plain.labels(*labels).observe(event.plain_bytes)
            metrics.stored.labels(*labels).observe(event.stored_bytes)
        if isinstance(event, Failed):
            metrics.failures.labels(*labels, event.error).inc()
        if isinstance(event, Retried):
            metrics.retries.labels(*labels, event.error).inc()
        if isinstance(event, Pruned):
            metrics.pruned.labels(*labels).inc(event.checkpoints)
        if isinstance(event, Compacted):
            metrics.summarized.labels(*labels, event.by).inc(event.tokens_in)
        if counter := metrics.others.get(type(event)):
            counter.labels(*labels).inc()

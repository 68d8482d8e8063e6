"""Durable, inspectable, recoverable state for LangGraph agents. Importing it loads no client library of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langgraph_statekit.checkpoint.backends.objects import ObjectStoreSaver
    from langgraph_statekit.checkpoint.backends.postgres import PostgresSaver
    from langgraph_statekit.checkpoint.backends.redis import RedisSaver
    from langgraph_statekit.checkpoint.backends.sqlite import SqliteSaver
    from langgraph_statekit.checkpoint.copying import Copied, acopy_threads, copy_threads
    from langgraph_statekit.checkpoint.opening import open_saver
    from langgraph_statekit.checkpoint.results import SerializableResult
    from langgraph_statekit.checkpoint.retention_policy import Retention
    from langgraph_statekit.checkpoint.sampled import Sampled
    from langgraph_statekit.checkpoint.saver import StatekitSaver
    from langgraph_statekit.checkpoint.serde import StatekitSerializer
    from langgraph_statekit.errors import (
        CheckpointMissing,
        Conflict,
        Corrupt,
        DataError,
        Fenced,
        Misuse,
        SchemaTooNew,
        StatekitError,
        Unavailable,
    )
    from langgraph_statekit.events import FailureRate
    from langgraph_statekit.leases import Lease
    from langgraph_statekit.opentelemetry_hook import OpenTelemetryHook
    from langgraph_statekit.prometheus_hook import PrometheusHook

_HOMES = {
    "open_saver": "checkpoint.opening",
    "copy_threads": "checkpoint.copying",
    "acopy_threads": "checkpoint.copying",
    "Copied": "checkpoint.copying",
    "Retention": "checkpoint.retention_policy",
    "Sampled": "checkpoint.sampled",
    "StatekitSaver": "checkpoint.saver",
    "SqliteSaver": "checkpoint.backends.sqlite",
    "RedisSaver": "checkpoint.backends.redis",
    "PostgresSaver": "checkpoint.backends.postgres",
    "ObjectStoreSaver": "checkpoint.backends.objects",
    "StatekitSerializer": "checkpoint.serde",
    "SerializableResult": "checkpoint.results",
    "FailureRate": "events",
    "Lease": "leases",
    "OpenTelemetryHook": "opentelemetry_hook",
    "PrometheusHook": "prometheus_hook",
    "CheckpointMissing": "errors",
    "Conflict": "errors",
    "Corrupt": "errors",
    "DataError": "errors",
    "Fenced": "errors",
    "Misuse": "errors",
    "SchemaTooNew": "errors",
    "StatekitError": "errors",
    "Unavailable": "errors",
}

__all__ = [
    "CheckpointMissing",
    "Conflict",
    "Copied",
    "Corrupt",
    "DataError",
    "FailureRate",
    "Fenced",
    "Lease",
    "Misuse",
    "ObjectStoreSaver",
    "OpenTelemetryHook",
    "PostgresSaver",
    "PrometheusHook",
    "RedisSaver",
    "Retention",
    "Sampled",
    "SchemaTooNew",
    "SerializableResult",
    "SqliteSaver",
    "StatekitError",
    "StatekitSaver",
    "StatekitSerializer",
    "Unavailable",
    "acopy_threads",
    "copy_threads",
    "open_saver",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from langgraph_statekit.extras import load  # the package itself loads none of its modules

    value = load(_HOMES[name], name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

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
    from langgraph_statekit.checkpoint.sealing import Encryption
    from langgraph_statekit.checkpoint.serde import StatekitSerializer
    from langgraph_statekit.checkpoint.tenants import tenant_name
    from langgraph_statekit.compat import Drift, acheck_compat, check_compat, guard
    from langgraph_statekit.effect_rules import Effect, SettledEffects
    from langgraph_statekit.effects import EffectLedger, effect
    from langgraph_statekit.errors import (
        CheckpointMissing,
        Conflict,
        Corrupt,
        DataError,
        EffectUnknown,
        Fenced,
        Misuse,
        NotMade,
        SchemaTooNew,
        StatekitError,
        TopologyDrift,
        Unavailable,
    )
    from langgraph_statekit.events import FailureRate
    from langgraph_statekit.leases import Lease
    from langgraph_statekit.migrating import Migrated, amigrate_threads, migrate_threads
    from langgraph_statekit.opentelemetry_hook import OpenTelemetryHook
    from langgraph_statekit.prometheus_hook import PrometheusHook
    from langgraph_statekit.thread_ids import ThreadId, parse_thread_id, thread_id
    from langgraph_statekit.timetravel.purity import pure
    from langgraph_statekit.timetravel.travel import TimeTravel
    from langgraph_statekit.versions import migrates, state_version

_HOMES = {
    "open_saver": "checkpoint.opening",
    "copy_threads": "checkpoint.copying",
    "acopy_threads": "checkpoint.copying",
    "Copied": "checkpoint.copying",
    "Retention": "checkpoint.retention_policy",
    "Sampled": "checkpoint.sampled",
    "Encryption": "checkpoint.sealing",
    "StatekitSaver": "checkpoint.saver",
    "SqliteSaver": "checkpoint.backends.sqlite",
    "RedisSaver": "checkpoint.backends.redis",
    "PostgresSaver": "checkpoint.backends.postgres",
    "ObjectStoreSaver": "checkpoint.backends.objects",
    "StatekitSerializer": "checkpoint.serde",
    "SerializableResult": "checkpoint.results",
    "FailureRate": "events",
    "Effect": "effect_rules",
    "EffectLedger": "effects",
    "EffectUnknown": "errors",
    "SettledEffects": "effect_rules",
    "effect": "effects",
    "Lease": "leases",
    "OpenTelemetryHook": "opentelemetry_hook",
    "PrometheusHook": "prometheus_hook",
    "check_compat": "compat",
    "acheck_compat": "compat",
    "guard": "compat",
    "Drift": "compat",
    "migrate_threads": "migrating",
    "amigrate_threads": "migrating",
    "Migrated": "migrating",
    "ThreadId": "thread_ids",
    "tenant_name": "checkpoint.tenants",
    "parse_thread_id": "thread_ids",
    "thread_id": "thread_ids",
    "TimeTravel": "timetravel.travel",
    "pure": "timetravel.purity",
    "migrates": "versions",
    "state_version": "versions",
    "CheckpointMissing": "errors",
    "Conflict": "errors",
    "Corrupt": "errors",
    "DataError": "errors",
    "Fenced": "errors",
    "Misuse": "errors",
    "NotMade": "errors",
    "SchemaTooNew": "errors",
    "StatekitError": "errors",
    "TopologyDrift": "errors",
    "Unavailable": "errors",
}

__all__ = [
    "CheckpointMissing",
    "Conflict",
    "Copied",
    "Corrupt",
    "DataError",
    "Drift",
    "Effect",
    "EffectLedger",
    "EffectUnknown",
    "Encryption",
    "FailureRate",
    "Fenced",
    "Lease",
    "Migrated",
    "Misuse",
    "NotMade",
    "ObjectStoreSaver",
    "OpenTelemetryHook",
    "PostgresSaver",
    "PrometheusHook",
    "RedisSaver",
    "Retention",
    "Sampled",
    "SchemaTooNew",
    "SerializableResult",
    "SettledEffects",
    "SqliteSaver",
    "StatekitError",
    "StatekitSaver",
    "StatekitSerializer",
    "ThreadId",
    "TimeTravel",
    "TopologyDrift",
    "Unavailable",
    "acheck_compat",
    "acopy_threads",
    "amigrate_threads",
    "check_compat",
    "copy_threads",
    "effect",
    "guard",
    "migrate_threads",
    "migrates",
    "open_saver",
    "parse_thread_id",
    "pure",
    "state_version",
    "tenant_name",
    "thread_id",
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

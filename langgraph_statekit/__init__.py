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
        CannotStop,
        CheckpointMissing,
        Conflict,
        Corrupt,
        DataError,
        EffectUnknown,
        Fenced,
        GaveUp,
        Misuse,
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
    from langgraph_statekit.versions import migrates, state_version
    from langgraph_statekit.watchdog.beat import heartbeat
    from langgraph_statekit.watchdog.checks import (
        Budget,
        Cycle,
        ErrorRate,
        Invariant,
        ItemDeadline,
        NodeDeadline,
        NoProgress,
        SaveFailureRate,
    )
    from langgraph_statekit.watchdog.errors import ChildError, RollbackRequested, WatchdogWarning
    from langgraph_statekit.watchdog.node import error_handler, rollback_node, watchdog_node
    from langgraph_statekit.watchdog.policy import Backoff, DeadLetter, Fail, Interrupt, Label, Retry, Rollback, Skip
    from langgraph_statekit.watchdog.rollback import Edit, Rolled, arollback, rollback
    from langgraph_statekit.watchdog.supervisor import Supervisor
    from langgraph_statekit.watchdog.view import Finding, Step, View
    from langgraph_statekit.watchdog.watchdog import Watchdog

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
    "Supervisor": "watchdog.supervisor",
    "ThreadId": "thread_ids",
    "tenant_name": "checkpoint.tenants",
    "parse_thread_id": "thread_ids",
    "thread_id": "thread_ids",
    "migrates": "versions",
    "state_version": "versions",
    "Watchdog": "watchdog.watchdog",
    "heartbeat": "watchdog.beat",
    "ItemDeadline": "watchdog.checks",
    "NodeDeadline": "watchdog.checks",
    "NoProgress": "watchdog.checks",
    "Cycle": "watchdog.checks",
    "Invariant": "watchdog.checks",
    "ErrorRate": "watchdog.checks",
    "SaveFailureRate": "watchdog.checks",
    "Budget": "watchdog.checks",
    "Rollback": "watchdog.policy",
    "Backoff": "watchdog.policy",
    "Label": "watchdog.policy",
    "Retry": "watchdog.policy",
    "Skip": "watchdog.policy",
    "DeadLetter": "watchdog.policy",
    "Interrupt": "watchdog.policy",
    "Fail": "watchdog.policy",
    "Finding": "watchdog.view",
    "View": "watchdog.view",
    "Step": "watchdog.view",
    "rollback": "watchdog.rollback",
    "arollback": "watchdog.rollback",
    "Rolled": "watchdog.rollback",
    "Edit": "watchdog.rollback",
    "watchdog_node": "watchdog.node",
    "rollback_node": "watchdog.node",
    "error_handler": "watchdog.node",
    "RollbackRequested": "watchdog.errors",
    "ChildError": "watchdog.errors",
    "WatchdogWarning": "watchdog.errors",
    "CheckpointMissing": "errors",
    "CannotStop": "errors",
    "GaveUp": "errors",
    "Conflict": "errors",
    "Corrupt": "errors",
    "DataError": "errors",
    "Fenced": "errors",
    "Misuse": "errors",
    "SchemaTooNew": "errors",
    "StatekitError": "errors",
    "TopologyDrift": "errors",
    "Unavailable": "errors",
}

__all__ = [
    "Backoff",
    "Budget",
    "CannotStop",
    "CheckpointMissing",
    "ChildError",
    "Conflict",
    "Copied",
    "Corrupt",
    "Cycle",
    "DataError",
    "DeadLetter",
    "Drift",
    "Edit",
    "Effect",
    "EffectLedger",
    "EffectUnknown",
    "Encryption",
    "ErrorRate",
    "Fail",
    "FailureRate",
    "Fenced",
    "Finding",
    "GaveUp",
    "Interrupt",
    "Invariant",
    "ItemDeadline",
    "Label",
    "Lease",
    "Migrated",
    "Misuse",
    "NoProgress",
    "NodeDeadline",
    "ObjectStoreSaver",
    "OpenTelemetryHook",
    "PostgresSaver",
    "PrometheusHook",
    "RedisSaver",
    "Retention",
    "Retry",
    "Rollback",
    "RollbackRequested",
    "Rolled",
    "Sampled",
    "SaveFailureRate",
    "SchemaTooNew",
    "SerializableResult",
    "SettledEffects",
    "Skip",
    "SqliteSaver",
    "StatekitError",
    "StatekitSaver",
    "StatekitSerializer",
    "Step",
    "Supervisor",
    "ThreadId",
    "TopologyDrift",
    "Unavailable",
    "View",
    "Watchdog",
    "WatchdogWarning",
    "acheck_compat",
    "acopy_threads",
    "amigrate_threads",
    "arollback",
    "check_compat",
    "copy_threads",
    "effect",
    "error_handler",
    "guard",
    "heartbeat",
    "migrate_threads",
    "migrates",
    "open_saver",
    "parse_thread_id",
    "rollback",
    "rollback_node",
    "state_version",
    "tenant_name",
    "thread_id",
    "watchdog_node",
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

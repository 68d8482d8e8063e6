"""Durable, inspectable, recoverable state for LangGraph agents. Importing it loads no client library of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langgraph_statekit.checkpoint.backends.objects import ObjectStoreSaver
    from langgraph_statekit.checkpoint.backends.postgres import PostgresSaver
    from langgraph_statekit.checkpoint.backends.redis import RedisSaver
    from langgraph_statekit.checkpoint.backends.sqlite import SqliteSaver
    from langgraph_statekit.checkpoint.backends.tiered import TieredSaver
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
    from langgraph_statekit.context.builder import ContextBuilder, Prompt, pre_model_hook
    from langgraph_statekit.context.compress import ContextCompressor
    from langgraph_statekit.context.core import Compaction, Context, abuild_context, build_context
    from langgraph_statekit.context.faces import ContextState
    from langgraph_statekit.context.knowledge import KnowledgePolicy
    from langgraph_statekit.context.lint import lint_system
    from langgraph_statekit.context.middleware import ContextMiddleware
    from langgraph_statekit.context.placeholders import expand
    from langgraph_statekit.context.policy import ContextPolicy, ToolResultPolicy
    from langgraph_statekit.context.recall import recall_tool
    from langgraph_statekit.context.report import Prices
    from langgraph_statekit.context.resources import ResourcePolicy, ResourceState, spent, used_by, used_by_summaries
    from langgraph_statekit.context.summaries import originals
    from langgraph_statekit.context.summarize import SessionSummarizer
    from langgraph_statekit.context.tokens import TokenCounter
    from langgraph_statekit.effects.ledger import EffectLedger, effect
    from langgraph_statekit.effects.rules import Effect, SettledEffects
    from langgraph_statekit.errors import (
        BudgetExceeded,
        CannotStop,
        CheckpointMissing,
        Conflict,
        Corrupt,
        DataError,
        EffectUnknown,
        Fenced,
        GaveUp,
        Misuse,
        NotMade,
        SchemaTooNew,
        SessionEnded,
        SessionMissing,
        StatekitError,
        SummaryFailed,
        TopologyDrift,
        Unavailable,
    )
    from langgraph_statekit.events import Compacted, FailureRate
    from langgraph_statekit.leases import Lease
    from langgraph_statekit.migrating import Migrated, amigrate_threads, migrate_threads
    from langgraph_statekit.opentelemetry_hook import OpenTelemetryHook
    from langgraph_statekit.prometheus_hook import PrometheusHook
    from langgraph_statekit.sessions.manager import SessionManager
    from langgraph_statekit.sessions.memories import Memories, Memory
    from langgraph_statekit.sessions.memory_nodes import memory_node, memory_tools
    from langgraph_statekit.sessions.records import Session
    from langgraph_statekit.sessions.search import MessageSearch
    from langgraph_statekit.thread_ids import ThreadId, parse_thread_id, thread_id
    from langgraph_statekit.timetravel.purity import pure
    from langgraph_statekit.timetravel.travel import TimeTravel
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
    "TieredSaver": "checkpoint.backends.tiered",
    "StatekitSerializer": "checkpoint.serde",
    "SerializableResult": "checkpoint.results",
    "FailureRate": "events",
    "Effect": "effects.rules",
    "EffectLedger": "effects.ledger",
    "EffectUnknown": "errors",
    "SettledEffects": "effects.rules",
    "effect": "effects.ledger",
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
    "Memories": "sessions.memories",
    "Memory": "sessions.memories",
    "memory_node": "sessions.memory_nodes",
    "memory_tools": "sessions.memory_nodes",
    "MessageSearch": "sessions.search",
    "Session": "sessions.records",
    "SessionManager": "sessions.manager",
    "Supervisor": "watchdog.supervisor",
    "ThreadId": "thread_ids",
    "tenant_name": "checkpoint.tenants",
    "parse_thread_id": "thread_ids",
    "thread_id": "thread_ids",
    "TimeTravel": "timetravel.travel",
    "pure": "timetravel.purity",
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
    "ContextPolicy": "context.policy",
    "ToolResultPolicy": "context.policy",
    "build_context": "context.core",
    "abuild_context": "context.core",
    "Context": "context.core",
    "Compaction": "context.core",
    "SessionSummarizer": "context.summarize",
    "ContextCompressor": "context.compress",
    "ContextBuilder": "context.builder",
    "pre_model_hook": "context.builder",
    "Prompt": "context.builder",
    "ContextMiddleware": "context.middleware",
    "KnowledgePolicy": "context.knowledge",
    "ContextState": "context.faces",
    "ResourcePolicy": "context.resources",
    "ResourceState": "context.resources",
    "spent": "context.resources",
    "used_by": "context.resources",
    "used_by_summaries": "context.resources",
    "TokenCounter": "context.tokens",
    "Prices": "context.report",
    "recall_tool": "context.recall",
    "expand": "context.placeholders",
    "originals": "context.summaries",
    "lint_system": "context.lint",
    "SummaryFailed": "errors",
    "BudgetExceeded": "errors",
    "Compacted": "events",
    "CheckpointMissing": "errors",
    "CannotStop": "errors",
    "GaveUp": "errors",
    "Conflict": "errors",
    "Corrupt": "errors",
    "DataError": "errors",
    "Fenced": "errors",
    "Misuse": "errors",
    "NotMade": "errors",
    "SchemaTooNew": "errors",
    "SessionEnded": "errors",
    "SessionMissing": "errors",
    "StatekitError": "errors",
    "TopologyDrift": "errors",
    "Unavailable": "errors",
}

__all__ = [
    "Backoff",
    "Budget",
    "BudgetExceeded",
    "CannotStop",
    "CheckpointMissing",
    "ChildError",
    "Compacted",
    "Compaction",
    "Conflict",
    "Context",
    "ContextBuilder",
    "ContextCompressor",
    "ContextMiddleware",
    "ContextPolicy",
    "ContextState",
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
    "KnowledgePolicy",
    "Label",
    "Lease",
    "Memories",
    "Memory",
    "MessageSearch",
    "Migrated",
    "Misuse",
    "NoProgress",
    "NodeDeadline",
    "NotMade",
    "ObjectStoreSaver",
    "OpenTelemetryHook",
    "PostgresSaver",
    "Prices",
    "PrometheusHook",
    "Prompt",
    "RedisSaver",
    "ResourcePolicy",
    "ResourceState",
    "Retention",
    "Retry",
    "Rollback",
    "RollbackRequested",
    "Rolled",
    "Sampled",
    "SaveFailureRate",
    "SchemaTooNew",
    "SerializableResult",
    "Session",
    "SessionEnded",
    "SessionManager",
    "SessionMissing",
    "SessionSummarizer",
    "SettledEffects",
    "Skip",
    "SqliteSaver",
    "StatekitError",
    "StatekitSaver",
    "StatekitSerializer",
    "Step",
    "SummaryFailed",
    "Supervisor",
    "ThreadId",
    "TieredSaver",
    "TimeTravel",
    "TokenCounter",
    "ToolResultPolicy",
    "TopologyDrift",
    "Unavailable",
    "View",
    "Watchdog",
    "WatchdogWarning",
    "abuild_context",
    "acheck_compat",
    "acopy_threads",
    "amigrate_threads",
    "arollback",
    "build_context",
    "check_compat",
    "copy_threads",
    "effect",
    "error_handler",
    "expand",
    "guard",
    "heartbeat",
    "lint_system",
    "memory_node",
    "memory_tools",
    "migrate_threads",
    "migrates",
    "open_saver",
    "originals",
    "parse_thread_id",
    "pre_model_hook",
    "pure",
    "recall_tool",
    "rollback",
    "rollback_node",
    "spent",
    "state_version",
    "tenant_name",
    "thread_id",
    "used_by",
    "used_by_summaries",
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

"""Versions of a state schema, and what brings an older state to the newest one. Pure.

The version of a checkpoint stands in its metadata, so that every saver and every copy keeps it. What stands nowhere
is version 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, get_type_hints

from langgraph_statekit.errors import DataError, Misuse

VERSION_KEY: Final = "statekit_state_version"
"""The metadata key of a checkpoint's version."""
_SCHEMA: Final = "__statekit_schema__"
_FROM: Final = "__statekit_from__"

State = dict[str, Any]
Migration = Callable[[State], State]
C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Migration)


@dataclass(frozen=True, slots=True)
class Schema:
    """One version of a state schema.

    Attributes:
        name: Name of the class.
        version: Its version.
        steps: By version, the function that leads to the next one.
        channels: The names of its keys.
        deltas: Those of them that are a `DeltaChannel`.
    """

    name: str
    version: int = 1
    steps: Mapping[int, Migration] = field(default_factory=dict)
    channels: frozenset[str] = frozenset()
    deltas: frozenset[str] = frozenset()


def migrates(*, from_: int) -> Callable[[F], F]:
    """Return a decorator for a function that brings a state from one version to the next.

    The function gets the state as a dict and returns it, changed in place or new; a key that is missing in what it
    returns is removed. It must be pure. A key that was not written yet is missing, so take none for granted.

    Args:
        from_: The version that it gets; the one that it returns is one more.
    """

    def mark(function: F) -> F:
        setattr(function, _FROM, from_)
        return function

    return mark


def state_version(version: int, *migrations: Migration) -> Callable[[C], C]:
    """Return a decorator that gives a state schema a version.

    Args:
        version: A whole number, 1 or more; what was stored without one is version 1.
        migrations: Functions with `@migrates`, one for each older version whose threads are still read.

    Raises:
        Misuse: It is no version, or the functions do not lead to it one by one.
    """
    if type(version) is not int or version < 1:
        raise Misuse(f"a state version must be a whole number from 1, not {version!r}")
    steps: dict[int, Migration] = {getattr(each, _FROM, 0): each for each in migrations}
    if sorted(steps) != list(range(version - len(migrations), version)) or 0 in steps:
        raise Misuse(
            f"the migrations of version {version} must be functions with @migrates(from_=...), one for each version up "
            f"to {version - 1}, without a gap; these are from {sorted(steps)}"
        )

    def mark(cls: C) -> C:
        setattr(cls, _SCHEMA, (version, steps))
        return cls

    return mark


def schema_of(state: type) -> Schema:
    """Return what is known of a state schema; one without `@state_version` is version 1.

    Raises:
        Misuse: It is no class with annotated keys.
    """
    if not isinstance(state, type) or not hasattr(state, "__annotations__"):
        raise Misuse(f"a state schema must be a class with annotated keys, not {state!r}")
    hints = get_type_hints(state, include_extras=True)
    version, steps = vars(state).get(_SCHEMA, (1, {}))
    deltas = frozenset(name for name, hint in hints.items() if _is_delta(hint))
    return Schema(state.__name__, version, steps, frozenset(hints), deltas)


def _is_delta(hint: Any) -> bool:
    from langgraph.channels.delta import DeltaChannel  # brings a large part of LangGraph, which most savers need not

    while hasattr(hint, "__origin__"):
        if any(isinstance(each, DeltaChannel) or each is DeltaChannel for each in getattr(hint, "__metadata__", ())):
            return True
        hint = getattr(hint, "__args__", (None,))[0] if str(hint.__origin__).endswith("equired") else None
    return False


def version_in(metadata: Mapping[str, Any]) -> int:
    """Return the version of the state that a checkpoint's metadata names."""
    version = metadata.get(VERSION_KEY, 1)
    if type(version) is not int:
        raise DataError(f"the metadata key {VERSION_KEY!r} must be a whole number, not {version!r}")
    return version


def migrated(schema: Schema, version: int, state: State) -> State:
    """Return a state of an older version as one of the newest.

    Raises:
        DataError: No function leads from this version to the next, or one of them failed.
    """
    for step in range(version, schema.version):
        function = schema.steps.get(step)
        if function is None:
            raise DataError(
                f"a thread has version {step} of the state {schema.name}, which is now {schema.version}: "
                f"add a function with @migrates(from_={step})"
            )
        try:
            state = function(state)
        except Exception as error:
            raise DataError(
                f"the migration of {schema.name} from version {step} failed with {type(error).__name__}: {error} "
                "(a key that was not written yet is missing)"
            ) from error
        if not isinstance(state, dict):
            raise DataError(f"the migration of {schema.name} from version {step} must return the state as a dict")
    return state


def migrated_update(schema: Schema, version: int, update: State) -> State:
    """Return an input or an update of an older version as one of the newest, without the defaults of new keys."""
    given = set(update)
    after, defaults = migrated(schema, version, dict(update)), migrated(schema, version, {})
    return {name: value for name, value in after.items() if name in given or name not in defaults}


def path_of(ns: str) -> str:
    """Return the names of the nodes that lead to a checkpoint namespace: `outer|inner`, empty for the root."""
    return "|".join(part.split(":")[0] for part in ns.split("|") if not part.isdigit())


def schemas_of(state: type | Mapping[str, type] | None) -> dict[str, Schema]:
    """Return schemas by the path of their graph; a single class is that of the root."""
    states: Iterable[tuple[str, type]] = (
        () if state is None else state.items() if isinstance(state, Mapping) else (("", state),)
    )
    return {path: schema_of(each) for path, each in states}

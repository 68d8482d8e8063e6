"""The effect ledger: what a graph does to the world outside is done once, also across crashes, forks and workers."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial, wraps
from inspect import iscoroutinefunction, signature
from typing import Any, Final, TypedDict, TypeVar, Unpack, cast

from langchain_core.runnables import RunnableConfig

from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.checkpoint.records import to_text
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.checkpoint.sampled import Sampled
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.effects.attempts import THREAD, Settings, Side, Wish, name_of
from langgraph_statekit.effects.engine import EffectEngine
from langgraph_statekit.effects.rules import NOT_SENT, SENT, STATES, Effect, SettledEffects
from langgraph_statekit.errors import Misuse
from langgraph_statekit.rehearsal import EFFECT_MARK

F = TypeVar("F", bound=Callable[..., Any])

_POLICIES: Final = ("stop", "verify", "retry")
_ON_ROLLBACK: Final = ("keep", "compensate", "ask")
_INJECTED: Final = frozenset({"state", "config", "runtime", "store", "writer", "previous", "idempotency_key"})
"""Parameters of nodes and tools that are no part of a request."""
_ARGUMENTS: Final = object()
Failures = type[Exception] | tuple[type[Exception], ...]


class Options(TypedDict, total=False):
    """How one effect is made; told in `EffectLedger.run`."""

    request: object
    verify: Callable[[str], Any] | None
    on_unknown: str | None
    failed_on: Failures
    compensate: Callable[[Effect], Any] | None
    config: RunnableConfig | None


class EffectLedger:
    """Makes effects on the world outside once: on a saver's own store, and not rolled back with its checkpoints.

    An effect is claimed in the store before its function is called, and marked after it. Who finds it marked gets the
    stored result; who finds it claimed and not marked, since a process died in between, does not know whether it was
    made: it is `unknown`, and never made again by itself. So an effect is made at most once. It is made exactly once if
    `verify` can ask the provider, or if the provider refuses a repeated idempotency key and `on_unknown="retry"`.

    Under a lease of the thread, whoever lost it claims nothing any more. One window is left: a worker that is stopped
    between its claim and its effect makes the effect when it goes on, though another has the thread by then.

    Args:
        saver: Its store holds the effects, apart from the threads: they outlive `ttl_s`, retention and rollbacks.
        scope: `"thread"`: a key is one effect in its thread. `"global"`: in the whole store; the lease is then looked
            at after the claim.
        lease_s: Seconds, by the server's clock, after which an attempt that was not marked counts as unknown. More than
            any of the functions takes. Another worker waits for that long, but not for one whose lease of the thread it
            has taken over.
        keep_s: Seconds for which a finished effect is kept; after that its key may be used anew. None: for ever.
        effects_keep_s: Seconds for which the hash of the key of an effect is kept after its thread was deleted, so that
            it is not made again; None: for ever.
        compensations: Functions that undo effects, by which `on_rollback` finds them after a restart. Each takes the
            `Effect`.
        owner: Who makes the effects, for people; None for host and process.

    Raises:
        Misuse: The saver is none of this package, or an option has a wrong value.
    """

    def __init__(
        self,
        saver: StatekitSaver | Sampled,
        *,
        scope: str = THREAD,
        lease_s: float = 60.0,
        keep_s: float | None = None,
        effects_keep_s: float | None = 30 * 86400.0,
        compensations: Iterable[Callable[[Effect], Any]] = (),
        owner: str | None = None,
    ) -> None:
        inner = saver.saver if isinstance(saver, Sampled) else saver
        if not isinstance(inner, StatekitSaver):
            raise Misuse(f"an EffectLedger needs a saver of langgraph_statekit, not {type(inner).__name__}")
        if scope not in (THREAD, "global"):
            raise Misuse(f"the option scope must be 'thread' or 'global', not {scope!r}")
        require_numbers(float, 1e-3, lease_s=lease_s)
        for name, value in (("keep_s", keep_s), ("effects_keep_s", effects_keep_s)):
            if value is not None:
                require_numbers(float, 1e-3, **{name: value})
        named = f"{platform.node()}:{os.getpid()}" if owner is None else str(owner)
        settings = Settings(scope, int(lease_s * 1e6), _us(keep_s), _us(effects_keep_s), named)
        self._engine = EffectEngine(inner, settings)
        self._compensations = {name_of(fn): fn for fn in compensations}
        self._sync, self._async = Side(inner.cells, False), Side(inner.async_cells, True)

    def run(self, key: str, fn: Callable[..., Any], *args: Any, **options: Unpack[Options]) -> Any:
        """Return what an effect gives: of `fn(*args)`, or as stored if it was made before.

        What is returned is always as the saver's serializer gives it back; a live object, such as a response, becomes
        its `SerializableResult`. A parameter `idempotency_key` of `fn` gets the key for the provider.

        Args:
            key: The business identity, such as `"spring-sale:sku-17:price"`: not the id of a checkpoint or task, which
                forks change.
            fn: Makes the effect. If it raises, nobody knows whether it did, but for `failed_on`. It must not call
                `interrupt`: ask before the effect; nor may it be a generator.
            args: Its arguments.
            request: What the key stands for, compared on every call; the arguments by default.
            verify: Asks the provider about the idempotency key: returns None if it has not made the effect and will
                not any more, else what the effect gave (`True` if it gives nothing). False is refused.
            on_unknown: `"stop"` raises `EffectUnknown`, `"verify"` asks, `"retry"` makes it again, for providers that
                refuse a repeated key. None: `"verify"` if there is one, else `"stop"`.
            failed_on: Errors of `fn` after which the effect was certainly not made; it may be tried again.
            compensate: Undoes it, for `on_rollback`; also give it to the ledger, which finds it there after a restart.
            config: Names thread and lease; None: those of the run that this is called in.

        Raises:
            EffectUnknown: Nobody knows whether it was made; it was not made now.
            Conflict: The key stands for another request.
            Fenced: The thread's lease was lost; nothing was made.
            Unavailable: The store did not answer. If that was after the effect, it is unknown to the next call.
            DataError: The arguments cannot be compared; pass `request`.
            NotMade: A replay of `TimeTravel` asked for it, and it is not recorded.
            Misuse: There is no thread, or an argument has a wrong value.
        """
        wish, config = self._wish(key, fn, args, **options)
        return run_sync(self._engine.run(self._sync, wish, config))

    async def arun(self, key: str, fn: Callable[..., Any], *args: Any, **options: Unpack[Options]) -> Any:
        """Async version of `run`; the functions may be plain ones, which are called in a thread."""
        wish, config = self._wish(key, fn, args, **options)
        return await self._engine.run(self._async, wish, config)

    def _wish(
        self,
        key: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        *,
        request: object = _ARGUMENTS,
        verify: Callable[[str], Any] | None = None,
        on_unknown: str | None = None,
        failed_on: Failures = (),
        compensate: Callable[[Effect], Any] | None = None,
        config: RunnableConfig | None = None,
    ) -> tuple[Wish, RunnableConfig | None]:
        if not isinstance(key, str) or not key:
            raise Misuse(f"the key of an effect must be a text that is not empty, not {key!r}")
        for name, value in (("fn", fn), ("verify", verify or fn), ("compensate", compensate or fn)):
            if not callable(value):
                raise Misuse(f"{name} of effect {key!r} must be a function, not {value!r}")
        policy = on_unknown or ("verify" if verify else "stop")
        if policy not in _POLICIES or (policy == "verify" and verify is None):
            raise Misuse(
                f"on_unknown of effect {key!r} must be 'stop', 'verify' (with verify=) or 'retry', not {policy!r}"
            )
        failures = failed_on if isinstance(failed_on, tuple) else (failed_on,)
        if not all(isinstance(each, type) and issubclass(each, Exception) for each in failures):
            raise Misuse(f"failed_on of effect {key!r} must be classes of exceptions, not {failed_on!r}")
        if compensate is not None:
            self._compensations[name_of(compensate)] = compensate
        compensation = name_of(compensate) if compensate is not None else ""
        asked = list(args) if request is _ARGUMENTS else request
        return Wish(key, fn, args, asked, verify, policy, failures, compensation), config

    def list(self, thread_id: str | None = None, states: Collection[str] | None = None) -> Sequence[Effect]:
        """Return effects, those that changed last first; what was kept of deleted threads is not shown.

        Args:
            thread_id: Only those made for this thread; None: all of the store.
            states: Only these, such as `["unknown"]`; None: all.

        Raises:
            Misuse: There is no such state.
            DataError: A result cannot be read.
            Unavailable: The store did not answer; call again.
        """
        return run_sync(
            self._engine.listed(self._sync, None if thread_id is None else to_text(thread_id), _states(states))
        )

    async def alist(self, thread_id: str | None = None, states: Collection[str] | None = None) -> Sequence[Effect]:
        """Async version of `list`."""
        return await self._engine.listed(
            self._async, None if thread_id is None else to_text(thread_id), _states(states)
        )

    def find(self, key: str, thread_id: str | None = None) -> Effect | None:
        """Return what is known of an effect; None if nothing is.

        Args:
            key: Its business identity.
            thread_id: Its thread; with `scope="global"` it does not matter.

        Raises:
            Unavailable: The store did not answer; call again.
        """
        return run_sync(self._find(self._sync, key, thread_id))

    async def afind(self, key: str, thread_id: str | None = None) -> Effect | None:
        """Async version of `find`."""
        return await self._find(self._async, key, thread_id)

    async def _find(self, side: Side, key: str, thread_id: str | None) -> Effect | None:
        found = await self._engine.find(side, key, _thread(thread_id))
        return None if found is None else self._engine.shown(*found)

    def resolve(
        self, key: str, outcome: str, *, thread_id: str | None = None, result: object = None, note: str = ""
    ) -> Effect:
        """Tell what became of an unknown effect, and return what is known of it now.

        Args:
            key: Its business identity.
            outcome: `"sent"`: it was made, and is not made again; `"not_sent"`: it was not and will not be by the
                attempt that is known, and the next call makes it.
            thread_id: Its thread; with `scope="global"` it does not matter.
            result: What it gave, for the next call.
            note: For people.

        Raises:
            Misuse: There is no such effect, or no such outcome.
            Conflict: It is not unknown, or changed meanwhile.
            Unavailable: The store did not answer; call again.
        """
        return run_sync(self._resolve(self._sync, key, outcome, thread_id, result, note))

    async def aresolve(
        self, key: str, outcome: str, *, thread_id: str | None = None, result: object = None, note: str = ""
    ) -> Effect:
        """Async version of `resolve`."""
        return await self._resolve(self._async, key, outcome, thread_id, result, note)

    async def _resolve(
        self, side: Side, key: str, outcome: str, thread_id: str | None, result: object, note: str
    ) -> Effect:
        if outcome not in (SENT, NOT_SENT):
            raise Misuse(f"the outcome of an effect is 'sent' or 'not_sent', not {outcome!r}")
        return await self._engine.resolve(side, key, _thread(thread_id), outcome, result, note)

    def on_rollback(self, config: RunnableConfig, policy: str = "keep") -> SettledEffects:
        """Settle the effects of all steps behind a checkpoint, before its thread goes back to it; return what became
        of them.

        Args:
            config: Thread and checkpoint to go back to, and the token of the lease under which that is done; without a
                checkpoint all effects of the thread.
            policy: `"keep"`: they stay, and steps that run again get their results. `"compensate"`: they are undone,
                newest first, each once, and may be made again. `"ask"`: nothing is done.

        Raises:
            CheckpointMissing: There is no such checkpoint.
            Fenced: The token is that of a lease that is over.
            Unavailable: The store did not answer; call again: what is compensated is not compensated twice.
            Misuse: There is no such policy, or the config names no thread.
        """
        return run_sync(self._on_rollback(self._sync, config, policy))

    async def aon_rollback(self, config: RunnableConfig, policy: str = "keep") -> SettledEffects:
        """Async version of `on_rollback`."""
        return await self._on_rollback(self._async, config, policy)

    async def _on_rollback(self, side: Side, config: RunnableConfig, policy: str) -> SettledEffects:
        if policy not in _ON_ROLLBACK:
            raise Misuse(f"the policy must be 'keep', 'compensate' or 'ask', not {policy!r}")
        if config.get("configurable", {}).get("thread_id") is None:
            raise Misuse("the config names no thread")
        return await self._engine.settle(side, config, policy, self._compensations)


def effect(
    *,
    key: Callable[..., str],
    ledger: EffectLedger | Callable[[], EffectLedger],
    request: Callable[..., object] | None = None,
    verify: Callable[[str], Any] | None = None,
    on_unknown: str | None = None,
    failed_on: Failures = (),
    compensate: Callable[[Effect], Any] | None = None,
) -> Callable[[F], F]:
    """Make a node or a tool an effect: it runs once for each key, and else gives what it gave then.

    Its parameter `idempotency_key`, if it has one, is filled in and hidden from LangGraph and from models.

    Args:
        key: Makes the business identity of some of the function's arguments, which it names as the function does:
            `lambda state: f"order-{state['id']}"`.
        ledger: The ledger, or what returns it.
        request: Makes what the key stands for, in the same way. None: the arguments, without the state and what
            LangGraph hands in.
        verify: As in `EffectLedger.run`, and so are the others.
        on_unknown: See there.
        failed_on: See there.
        compensate: See there.

    Raises:
        Misuse: `key` or `request` has a parameter that the function has not.
    """

    def decorate(fn: F) -> F:
        shape = signature(fn)
        for part in (key, request or key):
            if unknown := [name for name in signature(part).parameters if name not in shape.parameters]:
                raise Misuse(f"{name_of(fn)} has no parameter {unknown[0]!r}, which its key or request takes")

        def prepared(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[EffectLedger, str, Any, Options]:
            bound = shape.bind_partial(*args, **kwargs)
            bound.apply_defaults()

            def made(part: Callable[..., Any]) -> Any:
                return part(**{name: bound.arguments[name] for name in signature(part).parameters})

            plain = {name: value for name, value in bound.arguments.items() if name not in _INJECTED}
            options: Options = {
                "request": plain if request is None else made(request),
                "verify": verify,
                "on_unknown": on_unknown,
                "failed_on": failed_on,
                "compensate": compensate,
            }
            return (
                ledger if isinstance(ledger, EffectLedger) else ledger(),
                made(key),
                partial(fn, *args, **kwargs),
                options,
            )

        if iscoroutinefunction(fn):

            @wraps(fn)
            async def acalled(*args: Any, **kwargs: Any) -> Any:
                effects, name, call, options = prepared(args, kwargs)
                return await effects.arun(name, call, **options)

            return _hiding(cast(F, acalled), shape)

        @wraps(fn)
        def called(*args: Any, **kwargs: Any) -> Any:
            effects, name, call, options = prepared(args, kwargs)
            return effects.run(name, call, **options)

        return _hiding(cast(F, called), shape)

    return decorate


def _hiding(fn: F, shape: Any) -> F:
    """Return a function that does not show its parameter for the idempotency key, and tells that it is an effect."""
    setattr(fn, EFFECT_MARK, True)
    shown = [each for name, each in shape.parameters.items() if name != "idempotency_key"]
    fn.__signature__ = shape.replace(parameters=shown)  # type: ignore[attr-defined]
    fn.__annotations__ = {name: hint for name, hint in fn.__annotations__.items() if name != "idempotency_key"}
    return fn


def _us(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e6)


def _thread(thread_id: str | None) -> str:
    return "" if thread_id is None else to_text(thread_id)


def _states(states: Collection[str] | None) -> Collection[str]:
    if states is None:
        return STATES
    if isinstance(states, str) or not set(states) <= set(STATES):
        raise Misuse(f"states must be some of {list(STATES)}, not {states!r}")
    return states

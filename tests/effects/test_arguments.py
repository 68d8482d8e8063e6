"""What the ledger is given and what it gives back: results, requests, and arguments that are wrong."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from langgraph_statekit import Conflict, DataError, EffectLedger, Misuse, SerializableResult
from tests.faces import config
from tests.stores_under_test import Store

AT = config()


class Response:
    """Looks like one of `requests`."""

    status_code, reason, url, headers, encoding = 200, "OK", "http://provider/charges", {}, "utf-8"
    content = b"charged"


def test_whatever_an_effect_gives_it_counts_as_made(new_store: Callable[[str], Store]) -> None:
    with new_store("memory").open() as saver:
        ledger, calls = EffectLedger(saver), []

        def give(value: Any) -> Any:
            calls.append(value)
            return value

        response = ledger.run("response", give, Response(), request=1, config=AT)
        assert isinstance(response, SerializableResult)
        assert (response.kind, response.data["status"]) == ("response", 200)
        assert ledger.run("response", give, None, request=1, config=AT) == response

        async def endless() -> Any:
            yield 1

        assert ledger.run("endless", give, endless(), request=1, config=AT).kind == "value"
        for value in (None, 0, "", [1, 2], {3}, b"\0"):
            assert ledger.run(f"{value!r}", give, value, config=AT) == value
            assert ledger.run(f"{value!r}", give, value, config=AT) == value
        assert len(calls) == 8


class Lazy:
    def __call__(self) -> Any:
        yield 1

    async def asynchronous(self) -> Any:
        yield 1


class Later:
    async def __call__(self) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("fn", "told"),
    [(Lazy(), "yield"), (Lazy().asynchronous, "yield"), (partial(Lazy()), "yield"), (Later(), "arun")],
    ids=["generator", "async generator", "partial", "async call"],
)
def test_what_has_made_nothing_when_it_returns_is_refused_and_claims_nothing(
    new_store: Callable[[str], Store], fn: Any, told: str
) -> None:
    with new_store("memory").open() as saver:
        ledger = EffectLedger(saver)
        with pytest.raises(Misuse, match=told):
            ledger.run("key", fn, config=AT)
        if not isinstance(fn, Later):
            with pytest.raises(Misuse, match=told):
                asyncio.run(ledger.arun("key", fn, config=AT))
            with pytest.raises(Misuse, match=told):
                ledger.run("key", list, verify=fn, config=AT)
        assert ledger.list() == []


def test_a_verify_that_says_false_decides_nothing(new_store: Callable[[str], Store]) -> None:
    with new_store("memory").open() as saver:
        ledger = EffectLedger(saver)
        with pytest.raises(ZeroDivisionError):
            ledger.run("key", lambda: 1 // 0, config=AT)
        with pytest.raises(Misuse, match="None"):
            ledger.run("key", list, verify=lambda key: False, config=AT)
        assert [effect.state for effect in ledger.list()] == ["unknown"]
        assert ledger.run("key", lambda: 5, verify=lambda key: None, config=AT) == 5


def test_requests_are_compared_by_what_they_say(new_store: Callable[[str], Store]) -> None:
    with new_store("memory").open() as saver:
        ledger = EffectLedger(saver)

        def same(key: str, *requests: Any) -> None:
            for request in requests:
                ledger.run(key, list, request=request, config=AT)

        same("dicts", {"a": 1, "b": {"x", "y", "z"}}, {"b": {"z", "x", "y"}, "a": 1})
        same("lists", [1, (2, 3)], (1, [2, 3]))
        for number, (one, other) in enumerate(
            [(1, True), (1, "1"), ({"a": 1}, {"a": 2}), ([1, 2], [2, 1]), ("", None)]
        ):
            same(f"{number}", one)
            with pytest.raises(Conflict):
                same(f"{number}", other)
        with pytest.raises(DataError, match="request="):
            ledger.run("live", print, threading.Lock(), config=AT)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"key": ""}, "key"),
        ({"fn": 5}, "function"),
        ({"on_unknown": "hope"}, "on_unknown"),
        ({"on_unknown": "verify"}, "verify="),
        ({"verify": 5}, "verify"),
        ({"failed_on": BaseException}, "failed_on"),
    ],
)
def test_a_wrong_argument_is_refused(new_store: Callable[[str], Store], wrong: dict[str, Any], told: str) -> None:
    with new_store("memory").open() as saver:
        given = {"key": "key", "fn": list, "config": AT, **wrong}
        with pytest.raises(Misuse, match=told):
            EffectLedger(saver).run(given.pop("key"), given.pop("fn"), **given)
        assert EffectLedger(saver).list() == []


def test_a_wrong_setting_is_refused(new_store: Callable[[str], Store]) -> None:
    with new_store("memory").open() as saver:
        for wrong in ({"scope": "world"}, {"lease_s": 0}, {"keep_s": -1}, {"effects_keep_s": "1"}):
            with pytest.raises(Misuse):
                EffectLedger(saver, **wrong)  # type: ignore[arg-type]
        with pytest.raises(Misuse, match="saver"):
            EffectLedger(object())  # type: ignore[arg-type]
        ledger = EffectLedger(saver)
        with pytest.raises(Misuse, match="outcome"):
            ledger.resolve("key", "perhaps", thread_id="t")
        with pytest.raises(Misuse, match="no effect"):
            ledger.resolve("key", "sent", thread_id="t")
        with pytest.raises(Misuse, match="states"):
            ledger.list(states=["gone"])

        async def later() -> None:
            """Never awaited."""

        with pytest.raises(Misuse, match="arun"):
            ledger.run("key", later, config=AT)
        assert ledger.list() == []

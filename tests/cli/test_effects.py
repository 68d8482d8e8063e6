"""What `statekit effects` shows and resolves, on every store."""

from __future__ import annotations

from pathlib import Path

import pytest

from langgraph_statekit import EffectLedger, StatekitSaver, open_saver
from tests.cli.kit import Run, address, named
from tests.stores_under_test import Store


def leave_unknown(saver: StatekitSaver, scope: str = "thread") -> None:
    """Make an effect of thread `t`, and another one of which nobody knows whether it was made."""

    def fails() -> None:
        raise TimeoutError("no reply")

    ledger = EffectLedger(saver, scope=scope, owner="worker 7")
    ledger.run("order 1", dict, {"token": "the secret"}, config=named("t"))
    with pytest.raises(TimeoutError):
        ledger.run("order 2", fails, config=named("t"))


def test_unknown_effects_are_listed_and_resolved(durable_store: Store, run: Run) -> None:
    url = ("--url", address(durable_store))
    with durable_store.open() as saver:
        leave_unknown(saver)
        told = run("effects", "ls", *url)
        assert told.code == 0, told.err
        assert "the secret" not in told.out
        head, *lines = told.out.splitlines()
        assert head.split() == ["KEY", "STATE", "THREAD", "TRIES", "AGE", "BY", "TOLD"]
        assert [line.split()[:3] for line in lines] == [["order", "2", "unknown"], ["order", "1", "sent"]]
        assert "worker 7" in lines[0]
        assert lines[0].endswith("TimeoutError: no reply")
        assert [each["key"] for each in run("effects", "ls", "t", "--json", *url).json["effects"]] == [
            "order 2",
            "order 1",
        ]
        assert len(run("effects", "ls", "-n", "1", "--json", *url).json["effects"]) == 1
        assert run("effects", "ls", "u", "--json", *url).json == {"effects": []}
        [unknown] = run("effects", "ls", "--state", "unknown", "--json", *url).json["effects"]
        assert (unknown["key"], unknown["thread_id"], "result" in unknown) == ("order 2", "t", False)
        told = run("effects", "resolve", "t", "order 2", "not_sent", "--note", "asked them", *url)
        assert (told.code, told.out) == (0, "order 2: resolved: not_sent\n")
        assert run("effects", "resolve", "t", "order 2", "sent", *url).code == 3, "it is unknown no more"
        assert EffectLedger(saver).run("order 2", dict, config=named("t")) == {}


def test_an_effect_of_the_whole_store_is_resolved_without_its_thread(tmp_path: Path, run: Run) -> None:
    url = ("--url", f"sqlite:///{tmp_path}/agent.db")
    with open_saver(url[1]) as saver:
        leave_unknown(saver, "global")
    assert run("effects", "resolve", "order 2", "sent", "--global", *url).code == 0
    [resolved] = run("effects", "ls", "--state", "resolved", "--json", *url).json["effects"]
    assert resolved["outcome"] == "sent"


@pytest.mark.parametrize(
    "words", [("resolve", "t", "none", "sent"), ("resolve", "t", "sent"), ("resolve", "t", "k", "x"), ("fix",)]
)
def test_what_cannot_be_resolved_is_refused(tmp_path: Path, run: Run, words: tuple[str, ...]) -> None:
    url = ("--url", f"sqlite:///{tmp_path}/agent.db")
    with open_saver(url[1]) as saver:
        leave_unknown(saver)
    told = run("effects", *words, *url)
    assert told.code == 2
    assert told.err

"""Archive, restore and verify, and the proof of a deletion."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pytest

from langgraph_statekit import Encryption, SqliteSaver, open_saver
from tests.cli.kit import Run, address
from tests.faces import checkpoint, config, metadata
from tests.stores_under_test import DEFAULTS, Store


@pytest.fixture
def store(new_store: Callable[[str], Store]) -> Store:
    made = new_store("tiered")
    with made.open() as saver:
        for thread in ("one", "two"):
            at = config(thread)
            for number in range(4):
                at = saver.put(at, checkpoint({"x": number}, {"x": number}), metadata(number), {"x": number})
    return made


@pytest.mark.without("ttl_s")  # with which a thread stays in the hot store
def test_threads_are_archived_verified_and_restored_to_an_empty_hot_store(
    store: Store, run: Run, tmp_path: Path
) -> None:
    url = address(store)
    assert run("archive", "one", "--json", "--url", url).json == {"archived": 1, "stay": []}
    told = run("archive", "one", "--json", "--url", url)
    assert (told.code, told.json["stay"]) == (1, ["one"])
    assert run("archive", "--all", "--url", url).code == 0
    assert {each["thread"] for each in run("ls", "--json", "--url", url).json} == {"one", "two"}
    told = run("verify", "--all", "--json", "--url", url)
    assert (told.code, told.json) == (0, {"threads": 2, "checkpoints": 8, "problems": []})
    hot = tmp_path / "new.db"
    elsewhere = f"sqlite:///{hot}?cold={quote(store.options['cold'], safe='')}"
    assert run("restore", "--all", "--json", "--url", elsewhere).json == {"restored": 2}
    with SqliteSaver(hot, **DEFAULTS) as alone:
        assert [each.checkpoint["channel_values"]["x"] for each in alone.list(config("two"))] == [3, 2, 1, 0]
    assert run("restore", "three", "--url", url).code == 2


def test_threads_are_restored_as_they_were(store: Store, run: Run, tmp_path: Path) -> None:
    url = address(store)
    with store.open() as saver:
        first = next(each.checkpoint["id"] for each in saver.list(config("one")) if each.metadata["step"] == 1)
        later = datetime.now(UTC).isoformat()
        saver.put(config("three"), checkpoint({"x": 1}), metadata(), {"x": 1})
    told = run("restore", "one", "--at", first, "--suffix", "@", "--json", "--url", url)
    assert told.json == {"restored": 1, "threads": ["one@"]}
    elsewhere = f"sqlite:///{tmp_path}/new.db?cold={quote(f'file://{tmp_path}/elsewhere', safe='')}"
    told = run("restore", "--all", "--at", later, "--to", elsewhere, "--json", "--url", url)
    assert (told.json["restored"], sorted(told.json["threads"])) == (3, ["one", "one@", "two"])
    assert run("restore", "--all", "--prefix", "t", "--suffix", "!", "--url", url).out.splitlines()[-1].startswith("2 ")
    with SqliteSaver(tmp_path / "new.db", **DEFAULTS) as alone:
        found = {id: [each.metadata["step"] for each in alone.list(config(id))] for id in ("one", "one@", "three")}
    assert found == {"one": [3, 2, 1, 0], "one@": [1, 0], "three": []}
    assert run("restore", "one", "--at", later, "--url", url).code == 2
    assert run("restore", "--all", "--at", first, "--suffix", "@", "--url", url).code == 2
    assert run("restore", "one", "--at", "2001-01-01", "--suffix", "!", "--url", url).code == 2


@pytest.mark.without("ttl_s")
def test_verify_finds_a_damaged_pack(store: Store, run: Run) -> None:
    assert run("archive", "--all", "--url", address(store)).code == 0
    root = Path(store.options["cold"].removeprefix("file://"))
    pack = max(_packs(root), key=lambda path: path.name)
    pack.write_bytes(pack.read_bytes()[:-1] + b"?")
    told = run("verify", "--all", "--json", "--url", address(store))
    assert told.code == 1
    assert [each["where"] for each in told.json["problems"]] == ["the cold store"]


def _packs(root: Path) -> list[Path]:
    return [path for path in root.rglob("00*") if path.is_file()]


@pytest.mark.without("ttl_s")
def test_verify_finds_a_head_that_is_missing_or_damaged_and_repairs_it(store: Store, run: Run) -> None:
    url = address(store)
    assert run("archive", "--all", "--url", url).code == 0
    missing, damaged = sorted(Path(store.options["cold"].removeprefix("file://")).rglob("head"))
    missing.unlink()
    damaged.write_bytes(damaged.read_bytes()[:9])
    told = run("verify", "--all", "--json", "--url", url)
    assert (told.code, told.json["checkpoints"]) == (1, 8)
    assert {each["thread"] for each in told.json["problems"]} == {"one", "two"}
    told = run("verify", "--all", "--repair", "--json", "--url", url)
    assert (told.code, told.json) == (0, {"threads": 2, "checkpoints": 8, "problems": [], "repaired": 2})
    told = run("verify", "--all", "--json", "--url", url)
    assert (told.code, told.json["problems"]) == (0, [])


@pytest.mark.without("ttl_s")
def test_verify_advises_on_keys_that_have_no_copy(
    new_store: Callable[[str], Store], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, secret = new_store("tiered"), b"k" * 32
    with made.open(encryption=Encryption({"k": secret}, "k")) as saver:
        saver.put(config("one"), checkpoint({"x": 1}, {"x": 1}), metadata(), {"x": 1})
    copies = [path for path in Path(made.options["cold"].removeprefix("file://")).rglob("?" * 16) if path.is_file()]
    for path in copies:
        path.unlink()
    monkeypatch.setenv("STATEKIT_KEYS", f"k={b64encode(secret).decode()}")
    told = run("verify", "--all", "--json", "--url", address(made))
    assert (told.code, told.json["problems"], told.json["without_key_copy"]) == (0, [], ["one"])
    assert run("verify", "--all", "--repair", "--url", address(made)).code == 0
    assert "without_key_copy" not in run("verify", "--all", "--json", "--url", address(made)).json


@pytest.mark.without("ttl_s")
def test_replicas_are_filled_verified_and_told_of(store: Store, run: Run, tmp_path: Path) -> None:
    assert run("archive", "--all", "--url", address(store)).code == 0
    replica = f"file://{tmp_path}/replica"
    url = f"{address(store)}&replicas={quote(replica, safe='')}"
    told = run("verify", "--all", "--json", "--url", url)
    assert told.code == 1
    expected = {"where": f"the replica {replica}", "problem": "it has 0 of 4 checkpoints, and 0 others"}
    assert sorted(told.json["problems"], key=lambda each: each["thread"]) == [
        {"thread": id, **expected} for id in ("one", "two")
    ]
    assert run("replicate", "--json", "--url", url).json == {"threads": 2}
    told = run("verify", "--all", "--json", "--url", url)
    assert (told.code, told.json) == (0, {"threads": 2, "checkpoints": 8, "problems": []})
    pack = _packs(tmp_path / "replica")[0]
    pack.write_bytes(pack.read_bytes()[:-1] + b"?")
    told = run("verify", "--all", "--json", "--url", url)
    assert [each["where"] for each in told.json["problems"]] == [f"the replica {replica}"]
    facts = {fact["name"]: fact["value"] for fact in run("doctor", "--json", "--url", url).json["facts"]}
    assert (facts["replicas"], facts["replica"]) == ("0 threads behind", replica)


def test_doctor_proves_that_a_thread_is_deleted(store: Store, run: Run) -> None:
    url = address(store)
    assert run("doctor", "--deleted", "one", "--url", url).code == 1
    with store.open() as saver:
        saver.delete_thread("one")
    assert run("doctor", "--deleted", "one", "--json", "--url", url).json == {"thread": "one", "deleted": True}
    assert run("doctor", "--deleted", "two", "--url", url).code == 1


def test_a_url_without_a_cold_store_is_refused(store: Store, run: Run) -> None:
    told = run("verify", "--all", "--url", store.url)
    assert told.code == 2
    assert "?cold=" in told.err


def test_a_cold_store_may_stand_in_the_query(tmp_path: Path) -> None:
    cold = quote(f"file://{tmp_path}/cold", safe="")
    with open_saver(f"sqlite:///{tmp_path}/a.db?cold={cold}&mode=write_through&lock_wait_s=5") as saver:
        saver.put(config(), checkpoint({"x": 1}), metadata(), {"x": 1})
    assert list((tmp_path / "cold").rglob("head"))

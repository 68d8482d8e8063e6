"""What a migration does to a checkpoint: values, versions, who has seen them, and nothing else."""

from __future__ import annotations

from typing import Any

import ormsgpack
import pytest

from langgraph_statekit import DataError, migrates, state_version
from langgraph_statekit.checkpoint.migrations import is_marked, migrate, stamp_of, stamped
from langgraph_statekit.versions import migrated_update, path_of, schema_of, version_in


@migrates(from_=1)
def _to_2(state: dict[str, Any]) -> dict[str, Any]:
    if "a" in state:
        state["b"] = state.pop("a")
    state.setdefault("lang", "en")
    state.get("grown", []).append(1)
    return state


@state_version(2, _to_2)
class State:
    b: int
    lang: str
    grown: list[int]


def _dump(name: str, value: Any) -> bytes:
    return ormsgpack.packb(value)


def _checkpoint() -> Any:
    versions = {"a": "1.0", "grown": "2.0", "kept": "2.0", "branch:to:n": "3.0"}
    return {
        "channel_values": {"a": 5, "grown": [0], "kept": "x", "branch:to:n": None},
        "channel_versions": versions,
        "versions_seen": {"n": {"grown": "2.0"}, "m": {"grown": "1.0"}, "__interrupt__": dict(versions)},
    }


def test_a_migration_changes_what_it_changes_and_triggers_nothing() -> None:
    checkpoint = _checkpoint()
    migrate(schema_of(State), 1, checkpoint, (), _dump)
    values = {"b": 5, "lang": "en", "grown": [0, 1], "kept": "x", "branch:to:n": None}
    assert checkpoint["channel_values"] == values
    versions, seen = checkpoint["channel_versions"], checkpoint["versions_seen"]
    assert versions.keys() == values.keys()
    assert {name for name, version in versions.items() if is_marked(version)} == {"b", "lang", "grown"}
    assert versions["grown"].startswith("2.0~")
    assert versions["b"].startswith("3.0~")
    assert seen["n"]["grown"] == versions["grown"]
    assert seen["m"]["grown"] == "1.0"
    assert all(seen["__interrupt__"][name] == version for name, version in versions.items())


def test_equal_values_get_equal_versions_and_others_do_not() -> None:
    first, second, third = _checkpoint(), _checkpoint(), _checkpoint()
    third["channel_values"]["grown"] = [7]
    for each in (first, second, third):
        migrate(schema_of(State), 1, each, (), _dump)
    assert first["channel_versions"] == second["channel_versions"]
    assert first["channel_versions"]["grown"] != third["channel_versions"]["grown"]


def test_a_second_migration_replaces_the_mark_of_the_first() -> None:
    checkpoint = _checkpoint()
    for _ in range(2):
        migrate(schema_of(State), 1, checkpoint, (), _dump)
    assert checkpoint["channel_versions"]["grown"].count("~") == 1
    assert checkpoint["channel_values"]["grown"] == [0, 1, 1]


def test_an_update_gets_no_defaults_of_new_keys() -> None:
    assert migrated_update(schema_of(State), 1, {"a": 1}) == {"b": 1}
    assert migrated_update(schema_of(State), 1, {"lang": "de"}) == {"lang": "de"}


@pytest.mark.parametrize("path", ["", "~__pregel_pull, node", "x\x01y", "\x017"])
def test_the_version_of_a_writer_goes_along_with_a_task_path(path: str) -> None:
    assert stamp_of(stamped(path, 12)) == 12
    assert stamped(path, 1) == path
    paths = ["", "a", "a, b", "b"]
    assert sorted(stamped(each, 2) for each in paths) == [stamped(each, 2) for each in paths]
    assert stamp_of("~__pregel_pull, node") == 1


def test_a_namespace_is_found_by_the_names_of_its_nodes() -> None:
    assert [path_of(ns) for ns in ("", "a:1", "a:1|b:2", "a|1|b:2")] == ["", "a", "a|b", "a|b"]


def test_a_version_that_is_no_number_is_refused() -> None:
    assert version_in({}) == 1
    with pytest.raises(DataError):
        version_in({"statekit_state_version": "2"})

"""The command line on a Redis cluster and on a replica."""

from __future__ import annotations

from pathlib import Path

from langgraph_statekit import open_saver
from tests.cli.kit import Run, fill
from tests.stores.redis_nodes import cluster, port_of, sentinel


def test_every_primary_of_a_cluster_is_asked(tmp_path: Path, run: Run) -> None:
    with cluster(tmp_path) as nodes:
        url = f"redis+cluster://127.0.0.1:{port_of(nodes[0])}"
        with open_saver(url) as saver:
            expected = fill(saver)
        listed = run("ls", "--json", "--url", url)
        assert {each["thread"]: each["status"] for each in listed.json} == expected
        assert all(each["size_bytes"] > 100 for each in listed.json)
        told = run("doctor", "--json", "--url", url).json
    assert told["checked"]["problems"] == []
    policies = [each["name"] for each in told["facts"] if each["name"].startswith("maxmemory-policy")]
    assert {str(port_of(node)) for node in nodes} == {name.rpartition(":")[2] for name in policies}


def test_replicas_are_told_and_a_replica_is_no_place_to_save(tmp_path: Path, run: Run) -> None:
    with sentinel(tmp_path, "main") as (_, replica, watcher):
        url = f"redis+sentinel://127.0.0.1:{port_of(watcher)}/main"
        with open_saver(url) as saver:
            fill(saver)
        told = run("doctor", "--json", "--url", url)
        assert told.code == 0, told.json
        (fact,) = [each for each in told.json["facts"] if each["name"] == "replicas"]
        assert (fact["value"], fact["verdict"]) == ("1", "note")
        assert "failover" in fact["meaning"]
        told = run("doctor", "--json", "--no-write", "--url", f"redis://127.0.0.1:{port_of(replica)}/0")
        assert told.code == 1
        assert [each["value"] for each in told.json["facts"] if each["name"] == "role"] == ["replica"]

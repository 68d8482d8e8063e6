"""The rights that docs/tiered.md tells are enough, and none of them is too many; the server enforces them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from langgraph_statekit import SqliteSaver, TieredSaver, open_saver
from langgraph_statekit.errors import Misuse
from tests.faces import config
from tests.servers import S3_BUCKET, S3_KEY, S3_SECRET, s3_server
from tests.tiers.kit import grow, history

PAGE = (Path(__file__).parents[2] / "docs/tiered.md").read_text(encoding="utf-8")
[POLICY] = [
    json.loads(found.replace("BUCKET", S3_BUCKET).replace("PREFIX", "ours"))
    for found in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
]
ACTIONS = ("GetObject", "PutObject", "DeleteObject", "ListBucket")


def without(*actions: str) -> dict[str, Any]:
    policy: dict[str, Any] = deepcopy(POLICY)
    for statement in policy["Statement"]:
        named = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        statement["Action"] = [action for action in named if action.removeprefix("s3:") not in actions]
    policy["Statement"] = [statement for statement in policy["Statement"] if statement["Action"]]
    return policy


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of a server with a user for each set of rights, whose key is its name."""
    policies = {"worker": POLICY, "reader": without("PutObject", "DeleteObject")}
    policies |= {f"without{action}": without(action) for action in ACTIONS}
    owner = {"name": "owner", "credentials": [{"accessKey": S3_KEY, "secretKey": S3_SECRET}], "actions": ["Admin"]}
    users = [
        {"name": name, "credentials": [{"accessKey": name, "secretKey": f"{name}-secret"}], "policyNames": [name]}
        for name in policies
    ]
    told = {
        "identities": [owner, *users],
        "policies": [{"name": name, "content": json.dumps(policy)} for name, policy in policies.items()],
    }
    path = tmp_path_factory.mktemp("s3") / "users.json"
    path.write_text(json.dumps(told))
    with s3_server(f"-s3.config={path}") as found:
        yield found.url


def url_of(server: str, user: str, prefix: str) -> str:
    parts = urlsplit(server)
    options = dict(parse_qsl(parts.query))
    if user != "owner":
        options |= {"access_key_id": user, "secret_access_key": f"{user}-secret"}
    return f"s3://{parts.netloc}/{prefix}?{urlencode(options)}"


def opened(server: str, user: str, hot: Path, prefix: str = "ours", **options: Any) -> TieredSaver:
    above = SqliteSaver(hot, tenant=options.get("tenant"))
    return TieredSaver(above, url_of(server, user, prefix), **{"grace_s": 0.0, **options})


def work(saver: TieredSaver, thread: str) -> None:
    """Do all that workers do: uploads, compactions, thaws, listings, expiry, removals and deletions."""
    for each in (thread, f"{thread} copied"):
        assert len([*grow(saver, 5, each)]) == 15
        assert saver.archive(each)
        assert len([*grow(saver, 1, each)]) == 3
        saver.prune([each])
    assert {item.config["configurable"]["thread_id"] for item in saver.list(None)} >= {thread}
    saver.sweep()
    saver.delete_thread(thread)
    assert saver.deleted(thread)


def test_the_policy_suffices_for_all_that_workers_do(server: str, tmp_path: Path) -> None:
    with opened(server, "worker", tmp_path / "hot.db", mode="write_through") as saver:
        work(saver, "one")
    with opened(server, "worker", tmp_path / "mortal.db", mode="write_through", ttl_s=3600) as saver:
        assert len([*grow(saver, 2, "mortal")]) == 6
        saver.sweep()
    with opened(server, "worker", tmp_path / "acme.db", mode="write_through", tenant="acme") as saver:
        work(saver, "two")


@pytest.mark.parametrize("action", ACTIONS)
def test_no_right_of_the_policy_is_too_many(server: str, tmp_path: Path, action: str) -> None:
    with opened(server, f"without{action}", tmp_path / "hot.db", mode="write_through") as saver:
        with pytest.raises(Misuse, match="refused the credentials"):
            work(saver, f"three {action}")


@pytest.mark.parametrize("prefix", ["theirs", "ours2", ""])
def test_the_policy_opens_no_other_place(server: str, tmp_path: Path, prefix: str) -> None:
    with opened(server, "owner", tmp_path / "theirs.db", prefix, mode="write_through") as saver:
        assert len([*grow(saver, 1, "secret")]) == 3
    with opened(server, "worker", tmp_path / "hot.db", prefix) as saver:
        for call in (lambda: saver.get_tuple(config("secret")), lambda: saver.delete_thread("secret")):
            with pytest.raises(Misuse, match="refused the credentials"):
                call()
        with pytest.raises(Misuse, match="refused the credentials"):
            [*saver.list(None)]


def test_who_may_only_read_reads_and_restores_and_changes_nothing(server: str, tmp_path: Path) -> None:
    with opened(server, "worker", tmp_path / "hot.db", mode="write_through", ttl_s=3600) as saver:
        assert len([*grow(saver, 3, "read")]) == 9
        before = history(saver, "read")
    with opened(server, "reader", tmp_path / "own.db") as reader:
        assert history(reader, "read") == before
        assert "read" in {item.config["configurable"]["thread_id"] for item in reader.list(None)}
        assert reader.tiers.moving.thaw("read")
        assert len([*grow(reader, 1, "read")]) == 3  # in its own hot store
        for call in (reader.flush, lambda: reader.delete_thread("read")):
            with pytest.raises(Misuse, match="refused the credentials"):
                call()
    with opened(server, "reader", tmp_path / "other.db", mode="write_through") as reader:
        with pytest.raises(Misuse, match="refused the credentials"):
            [*grow(reader, 1, "read")]
    with open_saver(f"sqlite:///{tmp_path}/empty.db", cold=url_of(server, "owner", "ours")) as left:
        assert history(left, "read") == before

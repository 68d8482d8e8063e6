"""What an auditor reads of sessions in PostgreSQL."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from langgraph_statekit import Encryption, SessionManager, Unavailable
from tests.sessions.kit import chat, eventually, says
from tests.stores_under_test import Store


def sessions_in(store: Store) -> list[dict[str, Any]]:
    with psycopg.connect(store.url, row_factory=dict_row) as db:
        return db.execute(f'SELECT * FROM "{store.options["schema"]}".sessions ORDER BY created_at').fetchall()


@pytest.fixture
def postgres(new_store: Callable[[str], Store], pytestconfig: pytest.Config) -> Store:
    if "postgres" not in pytestconfig.getoption("--stores"):
        pytest.skip("not asked for")
    return new_store("postgres")


async def test_sessions_are_a_view(postgres: Store) -> None:
    async with postgres.open(encryption=None, ttl_s=None) as saver:
        everyone = SessionManager(saver, warn_s=0)
        quick = SessionManager(saver, agent="quick", version=2, idle_s=0.05)
        made = [
            await everyone.acreate("ann", "support", 1, metadata={"topic": "tea", "odd": "\\ é 💥"}),
            await everyone.acreate("bob", "support", 1),
            await quick.acreate("o'neil"),
            await everyone.acreate("nul\0user", "support", 1),
        ]
        async with everyone.turn(made[0].session_id, agent="support", version=1) as turn:
            await chat(saver).ainvoke(says("ask"), turn.config)
        await everyone.aclose(made[1].session_id)

        async def over() -> bool:
            return bool((await quick.aget(made[2].session_id)).status == "expired")

        await eventually(over)
        found = sessions_in(postgres)
        assert len(found) == 4
        for row, one in zip(found[:3], [await everyone.aget(each.session_id) for each in made[:3]], strict=True):
            assert row == {
                "session_id": one.session_id,
                "user_id": one.user_id,
                "agent": one.agent,
                "version": one.version,
                "status": one.status,
                "metadata": one.metadata,
                "created_at": one.created_at,
                "updated_at": one.updated_at,
                "active_at": one.active_at,
                "expires_at": one.expires_at,
                "message_count": one.message_count,
                "size_bytes": one.size_bytes,
                "left": one.left,
            }
        assert [row["status"] for row in found[:3]] == ["waiting", "closed", "expired"]
        assert (found[3]["session_id"], found[3]["user_id"]) == (made[3].session_id, "nul\ufffduser")
        await everyone.adelete(made[0].session_id)
        assert [row["session_id"] for row in sessions_in(postgres)] == [one.session_id for one in made[1:]]


@pytest.mark.parametrize(
    "text",
    [
        "\0",
        "\\\0\\\\",
        "\\u0000\0",
        "\ud800",
        "\udfff\\",
        "\\ud83d\udca5",
        "💥\0💥",
        "\udc00\ud800",
        "\ud800💥\udc00\uffff",
    ],
)
async def test_no_text_keeps_a_session_out_of_the_view(postgres: Store, text: str) -> None:
    async with postgres.open(encryption=None) as saver:
        made = await SessionManager(saver, agent="support", version=1).acreate("ann", metadata={text: ["é", text]})
        (row,) = sessions_in(postgres)
        shown = re.sub("[\0\ud800-\udfff]", "\ufffd", text)
        assert (row["session_id"], row["user_id"], row["status"]) == (made.session_id, "ann", "idle")
        assert row["metadata"] == {shown: ["é", shown]}


async def test_sessions_that_are_sealed_are_not_shown(postgres: Store) -> None:
    async with postgres.open(encryption=Encryption({"k": b"k" * 32}, "k")) as saver:
        made = await SessionManager(saver, agent="support", version=1).acreate("ann")
        (row,) = sessions_in(postgres)
        assert row["session_id"] == made.session_id
        assert {row[name] for name in ("user_id", "agent", "status", "metadata", "message_count")} == {None}


async def test_an_import_that_broke_off_is_seen_by_the_auditor_alone(postgres: Store, monkeypatch: Any) -> None:
    async with postgres.open(encryption=None, ttl_s=None) as saver:
        manager, file = SessionManager(saver, agent="support", version=1), io.BytesIO()
        made = await manager.acreate("ann")
        async with manager.turn(made.session_id) as turn:
            await chat(saver).ainvoke(says("hello"), turn.config)
        await manager.aexport_session(made.session_id, file)
        await manager.adelete(made.session_id)
        file.seek(0)

        def breaks(saves: Any) -> Any:
            raise Unavailable("broken off")

        with monkeypatch.context() as patch:
            patch.setattr(saver.backend, "save", breaks)
            with pytest.raises(Unavailable):
                await manager.aimport_sessions(file)
        assert await manager.alist() == []
        (row,) = sessions_in(postgres)
        assert (row["session_id"], row["user_id"], row["status"]) == (made.session_id, "ann", "importing")

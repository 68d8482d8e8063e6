"""Sessions: made, found, changed and ended, and opened by nobody else."""

from __future__ import annotations

import asyncio
import io
import json
import uuid
from typing import Any

import pytest

from langgraph_statekit import (
    Conflict,
    Misuse,
    SessionEnded,
    SessionManager,
    SessionMissing,
    StatekitSaver,
    parse_thread_id,
    thread_id,
)
from tests.sessions.kit import chat, says
from tests.stores_under_test import Store

HOSTILE = [
    *(
        "",
        " ",
        "ann",
        "Ann",
        "ann ",
        "a%",
        "a_",
        "*",
        "?",
        "a:b",
        "{a}",
        "a/../b",
        "..",
        "a'b",
        'a"b',
        "'; DROP TABLE x",
    ),
    *("é", "e\u0301", "💥", "a\nb", "a\0b", "\\ud800", "\\u0000", "x" * 300, "null", "0", "\x1f", "user"),
]


async def test_a_session_is_a_thread_with_a_user_and_an_id_that_nobody_guesses(sessions: Any) -> None:
    made = await sessions.acreate("ann", metadata={"device": "phone", "n": [1, None, {"deep": True}]})
    parsed = parse_thread_id(made.session_id)
    assert (parsed.agent, parsed.version) == ("support", 1)
    assert uuid.UUID(parsed.instance).version == 4
    assert (made.user_id, made.agent, made.version, made.status) == ("ann", "support", 1, "idle")
    assert made.message_count == 0
    assert made.metadata == {"device": "phone", "n": [1, None, {"deep": True}]}
    assert made.created_at == made.updated_at == made.active_at
    assert (made.expires_at - made.active_at).total_seconds() == 1800
    assert await sessions.aget(made.session_id) == made
    assert await sessions.aconfig(made.session_id) == {"configurable": {"thread_id": made.session_id, "user_id": "ann"}}


async def test_a_turn_tells_messages_size_and_whether_a_human_is_waited_for(
    manager: SessionManager, sessions: Any, real: StatekitSaver
) -> None:
    graph = chat(real)
    made = await sessions.acreate("ann")
    async with sessions.turn(made.session_id, "ann", device="phone") as turn:
        during = await sessions.aget(made.session_id)
        assert (during.status, during.device, during.expires_at) == ("active", "phone", None)
        await graph.ainvoke(says("hello"), turn.config)
    after = await sessions.aget(made.session_id)
    assert (after.status, after.device, after.message_count) == ("idle", "", 2)
    assert after.size_bytes is None or after.size_bytes > 0
    assert after.created_at == made.created_at
    assert after.active_at == after.updated_at > made.active_at
    async with sessions.turn(made.session_id) as turn:
        await graph.ainvoke(says("ask"), turn.config)
    waiting = await sessions.aget(made.session_id)
    assert (waiting.status, waiting.message_count, waiting.expires_at) == ("waiting", 3, None)
    assert (await graph.aget_state(await sessions.aconfig(made.session_id))).interrupts


async def test_a_graph_without_turns_is_told_by_touch(sessions: Any, real: StatekitSaver) -> None:
    made = await sessions.acreate("ann")
    await chat(real).ainvoke(says("ask"), await sessions.aconfig(made.session_id))
    touched = await sessions.atouch(made.session_id)
    assert (touched.status, touched.message_count) == ("waiting", 1)
    assert touched.active_at > made.active_at


async def test_ids_that_could_be_guessed_are_refused(manager: SessionManager) -> None:
    for instance in (
        *(
            "1",
            "ann",
            "",
            "order-17",
            str(uuid.uuid1()),
            str(uuid.uuid5(uuid.NAMESPACE_DNS, "ann")),
            str(uuid.uuid4())[:-1],
        ),
        *("00000000-0000-4000-8000-000000000000", "11111111-2222-4111-8111-222222222222", str(uuid.uuid4()).upper()),
    ):
        with pytest.raises(Misuse, match="random UUID"):
            manager.create("ann", instance=instance)
        for session_id in (thread_id("support", 1, instance or "x"), instance):
            with pytest.raises(SessionMissing):
                manager.get(session_id)
    with pytest.raises(Misuse, match="version line"):
        manager.create("ann", version="1" * 5_000)
    for wrong in (None, 7, b"x", "x" * 5000, "support_v1_" + str(uuid.uuid4()) + "\n"):
        with pytest.raises(SessionMissing):
            manager.get(wrong)  # type: ignore[arg-type]


async def test_a_repeated_create_makes_one_session(sessions: Any) -> None:
    instance = str(uuid.uuid4())
    made = await sessions.acreate("ann", instance=instance)
    with pytest.raises(Conflict, match="already"):
        await sessions.acreate("ann", instance=instance)
    assert await sessions.alist(user_id="ann") == [made]


async def test_nobody_opens_the_session_of_another_user_agent_or_version(sessions: Any, real: StatekitSaver) -> None:
    made = await sessions.acreate("ann", metadata={"secret": 1})
    id = made.session_id
    other_agent, other_version = (
        SessionManager(real, agent="billing", version=1),
        SessionManager(real, agent="support", version=2),
    )
    anyone = SessionManager(real)
    for use in (
        lambda: sessions.aget(id, "bob"),
        lambda: sessions.aconfig(id, "bob"),
        lambda: sessions.atouch(id, "bob"),
        lambda: sessions.aclose(id, "bob"),
        lambda: sessions.adelete(id, "bob"),
        lambda: sessions.aupdate_metadata(id, {"x": 1}, "bob"),
        lambda: sessions.turn(id, "bob").__aenter__(),
        lambda: anext(other_agent.awatch(id)),
        lambda: anext(other_version.awatch(id, "ann")),
        *(
            use
            for other in (other_agent, other_version)
            for use in (
                lambda other=other: other.aget(id),
                lambda other=other: other.aconfig(id),
                lambda other=other: other.adelete(id),
                lambda other=other: other.aclose(id),
                lambda other=other: other.aupdate_metadata(id, {}),
                lambda other=other: other.turn(id).__aenter__(),
            )
        ),
        lambda: anyone.aconfig(id, agent="billing", version=1),
        lambda: anyone.aconfig(id, agent="support", version="2"),
        lambda: anyone.turn(id, agent="billing").__aenter__(),
    ):
        with pytest.raises(SessionMissing):
            await use()
    with pytest.raises(Misuse, match="version line"):
        await anyone.aconfig(id, version="one")
    assert await sessions.aget(id, "ann") == made
    assert await anyone.aconfig(id, agent="support", version="1")
    assert other_agent.list() == other_version.list() == []


async def test_a_manager_of_no_agent_opens_another_line_only_by_its_name(real: StatekitSaver, shown: Any) -> None:
    sessions = shown(SessionManager(real))
    of_agent = shown(SessionManager(real, agent="support"))
    made = [
        await sessions.acreate("ann"),
        await sessions.acreate("ann", "billing"),
        await sessions.acreate("ann", "b", 7),
    ]
    assert [(one.agent, one.version) for one in made] == [("support", 1), ("billing", 1), ("b", 7)]
    for one in made:
        line = {} if one is made[0] else {"agent": one.agent, "version": one.version}
        assert (await sessions.aconfig(one.session_id, **line))["configurable"]["thread_id"] == one.session_id
        async with sessions.turn(one.session_id, **line) as turn:
            await chat(real).ainvoke(says("hello"), turn.config)
        assert (await sessions.aget(one.session_id)).message_count == 2
        assert (await sessions.atouch(one.session_id)).session_id in [
            each.session_id for each in await sessions.alist()
        ]
    next_line = await of_agent.acreate("ann", version=2)
    for opens, one in ((sessions, made[1]), (sessions, made[2]), (sessions, next_line), (of_agent, next_line)):
        named = rf"a manager of agent='{one.agent}', version={one.version}$"
        with pytest.raises(SessionMissing, match=named):
            await opens.aconfig(one.session_id)
        with pytest.raises(SessionMissing, match=named):
            await opens.turn(one.session_id).__aenter__()
    assert await of_agent.aconfig(made[0].session_id)
    assert await of_agent.aconfig(next_line.session_id, version="2")


async def test_a_session_of_another_tenant_is_not_there(durable_store: Store) -> None:
    async with (
        durable_store.open(tenant="acme") as acme,
        durable_store.open(tenant="Acme") as other,
        durable_store.open() as nobody,
    ):
        own, *strangers = (SessionManager(saver, agent="support", version=1) for saver in (acme, other, nobody))
        made = await own.acreate("ann", metadata={"secret": 1})
        async with own.turn(made.session_id) as turn:
            await chat(acme).ainvoke(says("hello"), turn.config)
        kept, id = await own.aget(made.session_id), made.session_id
        for stranger in strangers:
            for use in (
                lambda it=stranger: it.aget(id, "ann"),
                lambda it=stranger: it.aconfig(id, "ann"),
                lambda it=stranger: it.turn(id, "ann").__aenter__(),
                lambda it=stranger: it.atouch(id),
                lambda it=stranger: it.aclose(id),
                lambda it=stranger: it.aupdate_metadata(id, {"x": 1}),
                lambda it=stranger: it.aexport_session(id, io.BytesIO()),
                lambda it=stranger: anext(it.awatch(id)),
            ):
                with pytest.raises(SessionMissing):
                    await use()
            await stranger.adelete(id)
            assert await stranger.alist() == await stranger.alist(user_id="ann") == []
            assert (await stranger.aerase_user("ann")).session_ids == ()
            assert (await stranger.aexport_user("ann", io.BytesIO())).session_ids == ()
        assert await own.aget(id, "ann") == kept
        assert len(texts := (await chat(acme).aget_state(await own.aconfig(id))).values["messages"]) == 2, texts


async def test_users_with_hostile_ids_are_kept_apart(sessions: Any, real: StatekitSaver) -> None:
    users = [user for user in HOSTILE if user]
    made = {user: await sessions.acreate(user, metadata={"of": user}) for user in users}
    for user in users:
        (found,) = await sessions.alist(user_id=user)
        assert found == made[user]
        assert (found.user_id, found.metadata) == (user, {"of": user})
    assert len(await sessions.alist(limit=1000)) == len(users)
    for user in ("*", "a\0b", "'; DROP TABLE x", "\\u0000", "💥"):
        async with sessions.turn(made[user].session_id, user) as turn:
            await chat(real).ainvoke(says(f"I am {user}"), turn.config)
        assert (await sessions.aget(made[user].session_id, user)).message_count == 2
        await sessions.adelete(made[user].session_id, user)
        assert await sessions.alist(user_id=user) == []
    assert len(await sessions.alist(limit=1000)) == len(users) - 5
    for wrong in ("", "\ud800", "\ud83d\ude00"):  # JSON makes the user "😀" of the last one
        with pytest.raises(Misuse, match="user_id"):
            await sessions.acreate(wrong)


async def test_agents_with_hostile_names_are_kept_apart(manager: SessionManager) -> None:
    everyone = SessionManager(manager.saver)
    agents = [*(agent for agent in HOSTILE if agent), "\ud800", "a_v1", "a_v1_b", "%5F", "support_v1_x"]
    made = {agent: await everyone.acreate("ann", agent, 1) for agent in agents}
    for agent in agents:
        (found,) = await everyone.alist(agent=agent)
        assert (found, found.agent) == (made[agent], agent)
        assert await everyone.aconfig(found.session_id, agent=agent, version=1)
    assert len(await everyone.alist(user_id="ann", limit=1000)) == len(agents)
    with pytest.raises(Misuse, match="shorter"):
        await everyone.acreate("ann", "x" * 2000, 1)


async def test_lists_are_paged_newest_first_by_user_agent_and_status(real: StatekitSaver, sessions: Any) -> None:
    everyone = SessionManager(real)
    made = [await sessions.acreate(f"user {n % 2}") for n in range(7)]
    other = await everyone.acreate("user 0", "billing", 3)
    await sessions.aclose(made[2].session_id)
    newest = [made[n].session_id for n in (2, 6, 5, 4, 3, 1, 0)]
    found: list[str] = []
    page = await sessions.alist(limit=3)
    while page:
        found += [session.session_id for session in page]
        page = await sessions.alist(limit=3, before=page[-1])
    assert found == newest
    assert [one.session_id for one in await sessions.alist(user_id="user 1")] == [made[n].session_id for n in (5, 3, 1)]
    assert [one.session_id for one in await sessions.alist(status="closed")] == [made[2].session_id]
    assert len(await sessions.alist(status="idle")) == 6
    assert len(await sessions.alist(user_id="user 0", status="idle")) == 3
    assert {one.session_id for one in await everyone.alist(user_id="user 0")} >= {other.session_id, made[0].session_id}
    assert [one.session_id for one in await everyone.alist(agent="billing")] == [other.session_id]
    assert len(await everyone.alist()) == 8
    with pytest.raises(Misuse, match="no status"):
        await sessions.alist(status="open")
    with pytest.raises(Misuse, match="limit"):
        await sessions.alist(limit=0)
    third = [one.session_id for one in await sessions.alist(before=made[4].session_id)]
    assert third == newest[newest.index(made[4].session_id) + 1 :]
    for stranger in ("*", made[0].session_id.replace("_v1_", "_v2_"), other.session_id):
        with pytest.raises(SessionMissing):
            await sessions.alist(before=stranger)
    with pytest.raises(Misuse, match="before must be"):
        await sessions.alist(before=7)
    with pytest.raises(Misuse, match="agent"):
        await sessions.alist(agent=["support"])
    with pytest.raises(SessionMissing):
        await everyone.turn(["support"], agent="support", version=1).__aenter__()  # type: ignore[arg-type]


async def test_metadata_that_many_change_at_once_loses_nothing(manager: SessionManager) -> None:
    made = await manager.acreate("ann", metadata={"first": 1})
    await asyncio.gather(*(manager.aupdate_metadata(made.session_id, {f"key {n}": n}) for n in range(12)))
    found = await manager.aget(made.session_id)
    assert found.metadata == {"first": 1, **{f"key {n}": n for n in range(12)}}
    assert (await manager.aupdate_metadata(made.session_id, {"only": 1}, replace=True)).metadata == {"only": 1}


async def test_metadata_that_json_cannot_hold_is_refused(manager: SessionManager) -> None:
    made = await manager.acreate("ann")
    for wrong in (
        {1: 2},
        {"a": object()},
        {"a": (1,)},
        {"a": float("nan")},
        ["a"],
        "a",
        {"a": "x" * 70_000},
        {"a": {2: 3}},
        json.loads('{"a":' * 400 + "1" + "}" * 400),
    ):
        with pytest.raises(Misuse, match="metadata"):
            await manager.aupdate_metadata(made.session_id, wrong)  # type: ignore[arg-type]
        with pytest.raises(Misuse, match="metadata"):
            await manager.acreate("ann", metadata=wrong)  # type: ignore[arg-type]
    assert (await manager.aget(made.session_id)) == made


async def test_a_closed_session_can_be_read_but_not_gone_on_with(sessions: Any, real: StatekitSaver) -> None:
    made = await sessions.acreate("ann")
    async with sessions.turn(made.session_id) as turn:
        await chat(real).ainvoke(says("hello"), turn.config)
    closed = await sessions.aclose(made.session_id, "ann")
    assert closed.status == "closed"
    assert await sessions.aclose(made.session_id) == closed
    assert closed.active_at < closed.updated_at
    for use in (
        lambda: sessions.aconfig(made.session_id),
        lambda: sessions.atouch(made.session_id),
        lambda: sessions.turn(made.session_id).__aenter__(),
    ):
        with pytest.raises(SessionEnded, match="closed"):
            await use()
    noted = await sessions.aupdate_metadata(made.session_id, {"rating": 5})
    assert (noted.status, noted.metadata, noted.message_count) == ("closed", {"rating": 5}, 2)


async def test_a_deleted_session_is_gone_with_its_thread(sessions: Any, real: StatekitSaver) -> None:
    made = await sessions.acreate("ann")
    async with sessions.turn(made.session_id) as turn:
        await chat(real).ainvoke(says("hello"), turn.config)
    await sessions.adelete(made.session_id, "ann")
    await sessions.adelete(made.session_id, "ann")
    with pytest.raises(SessionMissing):
        await sessions.aget(made.session_id)
    assert await sessions.alist(user_id="ann") == []
    assert [item async for item in real.alist({"configurable": {"thread_id": made.session_id}})] == []


async def test_a_manager_refuses_what_is_no_saver_and_options_that_are_none(real: StatekitSaver) -> None:
    with pytest.raises(Misuse, match="open_saver"):
        SessionManager("sqlite:///agent.db")  # type: ignore[arg-type]
    for options in (
        *({"idle_s": 0}, {"idle_s": "1"}, {"on_expiry": "forget"}, {"version": "1.0"}, {"version": -1}, {"agent": 1}),
        *({"expire_waiting": 1}, {"delete_after_s": -1}, {"poll_s": 0}, {"hooks": ()} | {"warn_s": None}),
    ):
        with pytest.raises(Misuse):
            SessionManager(real, **options)

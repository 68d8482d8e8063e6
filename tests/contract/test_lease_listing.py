"""What leases tell of their holders, and which of them are listed as running or as over."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit import Conflict
from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.backends.memory import MemoryBackend
from langgraph_statekit.checkpoint.claims import DRAIN, About, Claim, Held, LeaseQuery
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.processes import GONE, RUNNING, Process
from tests.faces import put
from tests.servers import wait_until
from tests.stores_under_test import Store

LONG_S = 600


@pytest.fixture
async def real(store: Store) -> AsyncIterator[StatekitSaver]:
    async with store.open() as saver:
        yield saver


def claim(real: StatekitSaver, thread: str = "t", **fields: Any) -> Held | None:
    (held,) = real.backend.claim([Claim(**{"thread": thread, "holder": "h", "owner": "o", "ttl_us": 10**9, **fields})])
    assert not isinstance(held, Exception)
    return held


def listed(real: StatekitSaver, ended: bool | None = None, limit: int = 100) -> dict[str, Held]:
    found: list[tuple[str, Held]] = []
    after = ""
    while True:
        page = real.backend.leases(LeaseQuery(ended, after, limit))
        found += page.leases
        after = page.after
        if not after:
            assert len({thread for thread, _ in found}) == len(found)
            return dict(found)


def test_leases_that_ended_without_being_given_back_are_listed_apart_from_those_that_run(
    real: StatekitSaver, store: Store
) -> None:
    for number in range(25):
        assert claim(real, f"lost {number}") is not None
    store.advance(1001)
    for number in range(7):
        assert claim(real, f"runs {number}") is not None
    given_back = claim(real, "given back")
    assert given_back is not None
    claim(real, "given back", token=given_back.token, ttl_us=0)
    claim(real, "deleted")
    real.delete_thread("deleted")
    for limit in (3, 25, 100):
        assert set(listed(real, True, limit)) == {f"lost {number}" for number in range(25)}
        assert set(listed(real, False, limit)) == {f"runs {number}" for number in range(7)}
        assert len(listed(real, None, limit)) == 32
    page = real.backend.leases(LeaseQuery(True))
    assert page.leases[0][1].until_us <= page.now_us
    # Who takes over and gives back takes it out of the list; a renewal by the late holder brings it back as running.
    for number in range(24):
        taken = claim(real, f"lost {number}", holder="other")
        assert taken is not None
        claim(real, f"lost {number}", holder="other", token=taken.token, ttl_us=0)
    (late,) = listed(real, True).values()
    claim(real, "lost 24", token=late.token)
    assert listed(real, True) == {}
    assert "lost 24" in listed(real, False)


def test_a_lease_tells_of_its_holder_and_its_work(real: StatekitSaver) -> None:
    about = About("graph", str(Process.here()), 'item "é" 1').packed()
    held = claim(real, about=about)
    assert held is not None
    assert (held.owner, held.about, held.control) == ("o", about, "")
    assert held.beat_us == held.progress_us == held.until_us - 10**9
    renewed = claim(real, token=held.token, about=About(item="2").packed(), idle_us=10**6)
    assert renewed is not None
    assert renewed.beat_us >= held.beat_us
    assert held.progress_us <= renewed.progress_us <= renewed.beat_us
    assert About.unpacked(renewed.about) == About(item="2")
    again = claim(real, token=held.token)
    assert again is not None
    assert again.progress_us == again.beat_us
    assert listed(real) == {"t": again}
    assert Process.parse(About.unpacked(about).process).state == RUNNING


def test_a_control_word_reaches_the_holder_and_leaves_the_lease_as_it_is(real: StatekitSaver) -> None:
    told: list[str] = []
    lease = real.lease("t", graph="shop", ttl_s=1.5, on_control=lambda each: told.append(each.control))
    before = listed(real)["t"]
    assert claim(real, token=lease.token + 1, holder="", control=DRAIN) == before._replace()
    asked = claim(real, token=lease.token, holder="", control=DRAIN)
    assert asked is not None
    assert (asked.token, asked.holder, asked.control) == (before.token, before.holder, DRAIN)
    wait_until(lambda: told == [DRAIN], "told")
    assert not lease.lost
    assert lease.control == DRAIN
    lease.release()
    # It was drained, not done: it is for whoever asked for it.
    assert set(listed(real, True)) == {"t"}
    with real.lease("t", ttl_s=LONG_S) as next_lease:
        assert next_lease.token > lease.token
        assert listed(real)["t"].control == ""
    assert listed(real) == {}
    # Its holder may hand it over by itself.
    with real.lease("t", ttl_s=LONG_S) as lease:
        lease.hand_over("failed")
        assert lease.lost
    assert listed(real, True)["t"].control == "failed"
    assert listed(real, True)["t"].token == lease.token


async def test_saves_under_a_lease_and_what_its_holder_tells_are_its_progress(real: StatekitSaver) -> None:
    async with await real.alease("t", graph="shop", ttl_s=LONG_S) as lease:
        lease._progress_s -= 100
        assert lease.renewal().idle_us >= 10**8
        await put(real, {"configurable": {"checkpoint_ns": "", **lease.config["configurable"]}}, {"x": 1})
        assert lease.renewal().idle_us < 10**8
        lease._progress_s -= 100
        lease.progress("x" * 1000)
        told = lease.renewal()
        assert told.idle_us < 10**8
        about = About.unpacked(told.about)
        assert (about.graph, Process.parse(about.process)) == ("shop", Process.here())
        item = "x" * 200 if real._keeper.tells_items else ""  # an encrypted store does not learn it
        assert about.item == item
        lease.progress()
        assert About.unpacked(lease.renewal().about).item == item


def test_one_of_many_who_saw_a_lease_that_is_over_gets_it(real: StatekitSaver, store: Store) -> None:
    first = claim(real)
    assert first is not None
    assert claim(real, holder="early", instead=first.token) == first, "it runs"
    store.advance(1001)
    assert claim(real, "none", instead=1) is None
    results: list[Held | None] = [None] * 8

    def work(number: int) -> None:
        results[number] = claim(real, holder=f"w{number}", instead=first.token)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    won = [held for number, held in enumerate(results) if held and held.holder == f"w{number}"]
    assert len(won) == 1
    assert won[0].token > first.token
    repeated = claim(real, holder=won[0].holder, instead=first.token)
    assert repeated is not None
    assert repeated.token == won[0].token
    # One that runs is taken from the holder that was seen, and from no later one.
    assert claim(real, holder="x", instead=first.token, steal=True) == repeated
    stolen = claim(real, holder="x", instead=repeated.token, steal=True)
    assert stolen is not None
    assert stolen.holder == "x"


def test_a_lease_of_an_encrypted_thread_does_not_tell_its_item(new_store: Callable[[str], Store]) -> None:
    from langgraph_statekit import Encryption

    with new_store("memory").open(encryption=Encryption({"k": b"k" * 32}, "k")) as saver:
        lease = saver.lease("t", graph="shop", ttl_s=LONG_S)
        lease.progress("secret")
        assert About.unpacked(lease.renewal().about)._replace(process="") == About("shop")


def test_a_lease_whose_process_of_this_host_has_ended_is_free_at_once(real: StatekitSaver) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        told = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        gone = Process(Process.here().host, process.pid, told[19])
        assert gone.state == RUNNING
        held = claim(real, about=About("shop", str(gone)).packed())
        with pytest.raises(Conflict):
            real.lease("t")
        process.kill()
    assert gone.state == GONE
    assert held is not None
    with real.lease("t") as lease:
        assert lease.token > held.token
    # Of a process of another host, or of a later one of the same number, nobody knows.
    other = claim(real, about=About("shop", str(gone._replace(host="elsewhere"))).packed())
    assert other is not None
    with pytest.raises(Conflict):
        real.lease("t")


@pytest.mark.parametrize("seed", range(3))
def test_every_store_decides_claims_as_the_reference_does(real: StatekitSaver, seed: int) -> None:
    pick = random.Random(seed)
    reference = MemoryBackend()
    tokens: dict[str, list[tuple[int, int]]] = {}
    for _ in range(60):
        thread, holder = pick.choice("ab"), pick.choice("xyz")
        known = pick.choice([*tokens.get(thread, []), (1, 1)])
        kind = pick.choice(["acquire", "acquire", "steal", "instead", "steal instead", "renew", "release", "control"])
        fields: dict[str, Any] = {"holder": holder, "owner": holder.upper(), "about": pick.choice(["", "é"])}
        fields |= {"ttl_us": pick.choice([1000, 10**9]) if kind in ("acquire", "steal") else 10**9}
        fields |= {"steal": "steal" in kind, "idle_us": pick.choice([0, 10**6])}
        pairs = [dict(fields), dict(fields)]
        for side, each in enumerate(pairs):
            if "instead" in kind:
                each["instead"] = known[side]
            elif kind in ("renew", "release", "control"):
                each["token"] = known[side]
            if kind == "release":
                each["ttl_us"] = 0
            if kind == "control":
                each["control"] = pick.choice(["", DRAIN]) if side == 0 else pairs[0]["control"]
        found = claim(real, thread, **pairs[0])
        (want,) = reference.claim([Claim(thread=thread, **pairs[1])])
        wait_until(lambda want=want: all(_over(each, thread, want) for each in (real.backend, reference)), kind)
        assert (found is None) == (want is None), (kind, pairs)
        if found is not None and want is not None:
            assert _shape(found) == _shape(want), (kind, pairs)
            pair = found.token, want.token
            assert all((pair[0] == one[0]) == (pair[1] == one[1]) for one in tokens.get(thread, [])), (kind, pairs)
            tokens.setdefault(thread, []).append(pair)
    assert {thread for thread, _ in real.backend.leases(LeaseQuery()).leases} == {
        thread for thread, _ in reference.leases(LeaseQuery()).leases
    }


def _shape(held: Held) -> tuple[Any, ...]:
    return held.holder, held.owner, held.about, held.control, held.until_us == 0, held.until_us == held.beat_us


def _over(store: Backend, thread: str, want: Held | None) -> bool:
    """Whether a lease that lasts next to nothing is over in a store."""
    if want is None or want.until_us == 0 or want.until_us - want.beat_us > 1000:
        return True
    return thread in {name for name, _ in store.leases(LeaseQuery(True)).leases}

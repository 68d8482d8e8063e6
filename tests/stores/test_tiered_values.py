"""Large values in the cold store: objects of their own, stored once, and whole or not at all."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from langgraph_statekit import Encryption, TieredSaver
from langgraph_statekit.checkpoint.backends.objects.obstore_driver import connect
from langgraph_statekit.checkpoint.backends.tiered.layout import ValueRef
from tests.faces import checkpoint, config, metadata
from tests.servers import Servers
from tests.stores.objects_kit import Rounds, bucket_driver, bucket_url
from tests.stores.test_tiered import THREAD, Cold, Place, here, local, seen
from tests.stores.test_tiered_replicas import Two, two
from tests.stores.test_tiered_sweeping import LOST_S

__all__ = ["here", "local", "two"]

LARGE = 300_000
"""Bytes of a random value, which is stored in as many."""


def large(seed: int) -> bytes:
    return random.Random(seed).randbytes(LARGE)


def put(saver: TieredSaver, values: dict[str, Any], step: int, at: Any = None) -> Any:
    versions: dict[str, str | int | float] = dict.fromkeys(values, f"{step:04}.x")
    if at is None:
        found = saver.get_tuple(config())
        at = found.config if found else config()
    return saver.put(at, checkpoint(values, versions), metadata(step), versions)


def objects_of(saver: TieredSaver) -> list[str]:
    """Return the keys of large values."""
    cold = saver.tiers._cold
    stats = cold.bucket.stats(f"{cold.folder}")
    return [key for key, stat in stats.items() if stat.size_bytes >= LARGE]


def named(saver: TieredSaver) -> dict[bytes, ValueRef]:
    cold = saver.tiers._cold
    head, _ = cold.head(THREAD)
    return {key: ref for pack in cold.packs.read(head, head.packs) for key, ref in pack.values.items()}


def test_equal_large_values_of_a_thread_are_one_object(here: Place) -> None:
    with here.open(retry_s=10.0, mode="write_through") as saver:
        for step, seed in enumerate((1, 2, 1, 2, 1)):
            put(saver, {"x": large(seed), "y": large(seed), "z": step}, step)
        assert len(named(saver)) == 10
        assert len(objects_of(saver)) == 2
        before = seen(saver)
    here.lose_hot()
    with here.open(retry_s=10.0) as saver:
        rounds = Rounds(saver.tiers._cold.bucket)
        assert saver.get_tuple(config()) is not None
        assert rounds.count <= 3
    with here.open(retry_s=10.0) as saver:
        rounds = Rounds(saver.tiers._cold.bucket)
        assert saver.tiers.moving.thaw(THREAD)
        assert rounds.count <= 3
        assert seen(saver) == before
        put(saver, {"x": large(3)}, 5)
        assert saver.archive(THREAD)
        assert len(objects_of(saver)) == 3
        assert len(seen(saver)) == 6


def test_large_values_are_not_copied_when_packs_become_one(local: Place) -> None:
    cold = Cold(local.driver)
    with local.open(cold, mode="write_through") as saver:
        for step in range(24):
            put(saver, {"x": large(step)}, step)
        head, _ = saver.tiers._cold.head(THREAD)
        assert len(head.packs) < 24
        assert sum(size for _, size in cold.requests) < 24 * (LARGE + 20_000)
        cold.requests.clear()
        saver.prune([THREAD])
        assert sum(size for _, size in cold.requests) < 20_000
        assert len(objects_of(saver)) == 1


@pytest.mark.parametrize("encryption", [None, Encryption({"k": b"k" * 32}, "k")], ids=["plain", "encrypted"])
def test_a_removal_takes_large_values_that_nothing_names_any_more(local: Place, encryption: Encryption | None) -> None:
    with local.open(mode="write_through", encryption=encryption) as saver:
        for step, seed in enumerate((1, 2, 1)):
            put(saver, {"x": large(seed)}, step)
        saver.prune([THREAD])  # what the first and the last checkpoint share stays
        put(saver, {"y": 1}, 3)
        assert len(objects_of(saver)) == 1
        assert saver.archive(THREAD)
        assert next(iter(seen(saver).values()))[0]["y"] == 1
        assert [values.get("x") for values, *_ in seen(saver).values()].count(large(1)) == 1
        saver.delete_thread(THREAD)
        assert objects_of(saver) == []
        assert saver.deleted(THREAD)


def test_threads_do_not_share_values(local: Place) -> None:
    """A thread's folder is all that there is of it, so that its deletion is proven; and no copy tells of another."""
    with local.open(mode="write_through") as saver:
        put(saver, {"x": large(1)}, 0)
        saver.copy_thread(THREAD, "copy")
        assert len(objects_of(saver)) == 2
        saver.delete_thread(THREAD)
        assert saver.archive("copy")
        assert [values["x"] for values, *_ in seen(saver, "copy").values()] == [large(1)]


def test_replicas_have_large_values_once_too_and_give_them_back(two: Two) -> None:
    with two.open(mode="write_through") as saver:
        for step, seed in enumerate((1, 2, 1, 2)):
            put(saver, {"x": large(seed)}, step)
        saver.flush()
        place = saver.tiers.replicas.all[0].place
        copies = [key for key, stat in place.bucket.stats(place.folder).items() if stat.size_bytes >= LARGE]
        assert len(copies) == 2
        before = seen(saver)
        saver.tiers.sweep_cold(LOST_S)
        assert len(objects_of(saver)) == 2
        two.driver.delete(objects_of(saver))
    two.lose_hot()
    with two.open() as saver:
        assert seen(saver) == before
        assert len(objects_of(saver)) == 2
        two.second.delete(copies)
        saver.replicate()
        stats = place.bucket.stats(place.folder)
        assert sorted(key for key, stat in stats.items() if stat.size_bytes >= LARGE) == sorted(copies)


def test_an_upload_that_dies_leaves_no_half_of_a_large_object(servers: Servers) -> None:
    given = urlsplit(bucket_url(servers, "s3"))
    options = dict(parse_qsl(given.query))
    data, key = os.urandom(20 << 20), f"{os.urandom(6).hex()}/large"
    driver = bucket_driver(servers, "s3")
    with _cut_off(options["endpoint"], 13 << 20) as (endpoint, mend):
        cut = connect("s3", given.netloc, **{**options, "endpoint": endpoint})
        with pytest.raises(cut.transient):
            cut.put(key, data)
        assert driver.get(key) is None
        assert driver.list(key.partition("/")[0]) == []
        mend()
        tag = cut.put(key, data)
    assert tag.strip().strip('"').endswith("-3")  # parts of 8 MB
    found = driver.get(key)
    assert found is not None
    assert found.data == data
    driver.delete([key])


@contextmanager
def _cut_off(endpoint: str, after_bytes: int) -> Iterator[tuple[str, Any]]:
    """Yield the address of a relay that goes dead after so many bytes, and what mends it."""
    goal = urlsplit(endpoint)
    left, lock, ends = [after_bytes], threading.Lock(), list[socket.socket]()

    def pump(source: socket.socket, target: socket.socket, counted: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                with lock:
                    left[0] -= len(data) if counted else 0
                    if left[0] < 0:
                        break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection((goal.hostname or "", goal.port or 80))
                ends.extend((near, far))
                for args in ((near, far, True), (far, near, False)):
                    threading.Thread(target=pump, args=args, daemon=True).start()

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", lambda: left.__setitem__(0, 1 << 40)
        listener.shutdown(socket.SHUT_RDWR)
    for end in ends:
        end.close()


def test_who_never_heard_that_its_upload_counted_takes_no_value_from_later_packs(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with here.open(mode="write_through", grace_s=0.0) as saver, here.open(grace_s=0.0) as other:
        for step in range(7):
            put(saver, {"z": step}, step)
        swap, lost = saver.tiers._cold.bucket.swap, [True]

        def swapped(*args: Any) -> Any:
            made = swap(*args)
            if not lost:
                return made
            lost.pop()
            other.tiers._cold.head(THREAD)
            assert other.tiers._cold.compact(THREAD)
            return None  # as when the reply is lost, and the repeated request finds another head

        monkeypatch.setattr(saver.tiers._cold.bucket, "swap", swapped)
        put(saver, {"x": large(1), "z": 7}, 7)
        assert not lost
        found = saver.tiers.image(THREAD)
        assert found is not None
        assert seen(saver)
        other.tiers.evict(THREAD)
    with here.open() as saver:
        left = saver.get_tuple(config())
        assert left is not None
        assert left.checkpoint["channel_values"]["x"] == large(1)

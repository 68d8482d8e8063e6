"""Objects in files: killed writers, what they leave, damage, and readers under way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit.checkpoint.backends.objects import ObjectBackend, ObjectStoreSaver
from langgraph_statekit.checkpoint.backends.objects.file_driver import FileDriver
from langgraph_statekit.checkpoint.records import Change, Ref, Write
from langgraph_statekit.checkpoint.retention import keep_latest
from langgraph_statekit.errors import Corrupt, SchemaTooNew
from tests.faces import checkpoint, config, metadata
from tests.stores.objects_kit import Watched, chain, look
from tests.stores.verbs import row, save, save_writes


def test_what_a_crash_left_unnamed_is_swept_when_it_is_old(tmp_path: Path) -> None:
    driver = FileDriver(tmp_path)
    backend = ObjectBackend(driver)
    chain(backend, 3)
    folder = next(item for item in driver.list("t") if not item.endswith("head") and "/w/" not in item).rpartition("/")[
        0
    ]
    old, young = (f"{folder}/{number:032x}" for number in range(2))
    for name in (old, young):
        driver.put(name, b"left")
    os.utime(tmp_path / old, (time.time() - 10000,) * 2)
    outline = backend.outline("a")
    assert backend.apply("a", outline.rev, Change(drop=[outline.rows[0].ref]))
    assert old not in driver.list("t")
    assert young in driver.list("t")
    assert len(look(backend, ["a"])["a"]["rows"]) == 2


def test_a_reader_under_way_sees_the_thread_whole_when_it_is_pruned(tmp_path: Path) -> None:
    driver = FileDriver(tmp_path)
    writer = ObjectBackend(driver, grace_s=0)
    chain(writer, 10)
    pruned: list[bool] = []

    class Slow(Watched):
        def get(self, key: str) -> Any:
            if not key.endswith("head") and not pruned:
                pruned.append(True)
                outline = writer.outline("a")
                writer.apply("a", outline.rev, keep_latest(outline))
            return super().get(key)

    reader = ObjectBackend(Slow(driver), parallel=1)
    stored = reader.load("a", "", None)
    assert stored is not None
    assert len(stored.frames) == 2
    assert len(stored.writes) == 1
    assert pruned
    for made in (reader, writer):
        made.close()


def test_damaged_and_newer_objects_are_named(tmp_path: Path) -> None:
    driver = FileDriver(tmp_path)
    backend = ObjectBackend(driver)
    chain(backend, 2)
    head = backend._reader.keys("a").head
    good = driver.get(head)
    assert good is not None
    for data, error in ((good.data[:-4], Corrupt), (b"", Corrupt), (b"\xff" + good.data[1:], SchemaTooNew)):
        driver.put(head, data)
        with pytest.raises(error):
            ObjectBackend(driver).outline("a")
    driver.put(head, good.data)
    driver.delete([name for name in driver.list("t") if name != head])
    with pytest.raises(Corrupt, match="missing"):
        ObjectBackend(driver).load("a", "", None)


WRITER = """
import sys
from langgraph_statekit.checkpoint.backends.objects import ObjectStoreSaver
from tests.faces import checkpoint, config, metadata
saver = ObjectStoreSaver.from_url(sys.argv[1])
at, step = config("t"), int(sys.argv[2])
while True:
    version = f"{step:032}.0"
    made = checkpoint({"v": [step] * 2000}, {"v": version})
    at = saver.put(at, made, metadata(step), {"v": version})
    print(made["id"], flush=True)
    saver.put_writes(at, [("v", step), ("w", step)], "task")
    step += 1
"""


def test_files_survive_a_killed_writer(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    for life in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, f"file://{tmp_path}/store", str(life * 1000)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert process.stdout is not None
        acknowledged += [process.stdout.readline().strip() for _ in range(5 + 7 * life)]
        process.send_signal(signal.SIGKILL)
        acknowledged += process.stdout.read().split("\n")[:-1]
        process.wait()
        process.stdout.close()
        with ObjectStoreSaver.from_url(f"file://{tmp_path}/store") as saver:
            found = list(saver.list(config("t")))
        assert set(acknowledged) <= {item.checkpoint["id"] for item in found}
        for item in found:
            assert len(item.checkpoint["channel_values"]["v"]) == 2000
            assert len(item.pending_writes or ()) in (0, 2)
    with ObjectStoreSaver.from_url(f"file://{tmp_path}/store") as saver:
        (tmp_path / "store/.tmp/left").write_bytes(b"by a killed writer")
        saver.delete_thread("t")
        saver.put(config("u"), checkpoint({"v": 1}), metadata(), {"v": 1})
        assert list((tmp_path / "store/.tmp").iterdir()) == []
        saver.delete_thread("u")
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]


@pytest.mark.parametrize("number", range(1, 12))
def test_a_copy_of_a_thread_that_is_deleted_meanwhile_is_whole_or_none(tmp_path: Path, number: int) -> None:
    class Deletes(Watched):
        def _do(self, verb: str, *args: Any) -> Any:
            if len(self.requests) + 1 == number:
                first.drop_thread("source")
            return super()._do(verb, *args)

    driver = FileDriver(tmp_path)
    with closing(ObjectBackend(driver)) as first, closing(ObjectBackend(Deletes(driver), parallel=1)) as second:
        save(first, row("source", "1"))
        for task in "abc":
            save_writes(first, Ref("source", "", "1"), [Write(task, 0, "c", "", b"1")])
        assert second.copy_thread("source", "target", "operation")
        found = first.load("target", "", None)
        assert found is None or len(found.writes) == 3

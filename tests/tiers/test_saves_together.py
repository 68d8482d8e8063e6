"""Saves of many threads that go together: one whose thread cannot be had fails alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit import Corrupt, TieredSaver
from tests.faces import config
from tests.servers import Servers
from tests.tiers.kit import Tiers, grow, history


@pytest.fixture
def tiers(servers: Servers, tmp_path: Path) -> Iterator[Tiers]:
    made = Tiers.of("sqlite-file", servers.url, tmp_path)
    yield made
    made.clean()


def damage(saver: TieredSaver, thread: str, directory: Path) -> None:
    pack = next(name for name in saver.tiers._cold.objects(thread) if not name.endswith("/head"))
    [path] = directory.rglob(pack.rpartition("/")[2])
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("mode", ["write_behind", "write_through"])
async def test_a_damaged_thread_takes_no_other_with_it(
    tiers: Tiers, monkeypatch: pytest.MonkeyPatch, mode: str, tmp_path: Path
) -> None:
    names = ["good", "bad", "better"]
    with tiers.open(mode=mode) as saver:
        for thread in names:
            for _ in grow(saver, 2, thread):
                pass
            assert saver.archive(thread)
        damage(saver, "bad", tmp_path)
    with tiers.open(mode=mode) as saver:
        calls: list[int] = []
        save = saver.tiers.saving.save

        def counted(saves: Any) -> Any:
            calls.append(len(saves))
            return save(saves)

        monkeypatch.setattr(saver.tiers.saving, "save", counted)
        at = {name: config(name, id="1f0") for name in names}
        writes = [saver.aput_writes(at[name], [("log", 1)], "task") for name in names]
        done = await asyncio.gather(*writes, return_exceptions=True)
        assert max(calls) > 1
        assert [type(each) for each in done] == [type(None), Corrupt, type(None)]
        assert len(history(saver, "good")) == len(history(saver, "better")) == 2

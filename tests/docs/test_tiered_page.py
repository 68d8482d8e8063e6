"""What docs/tiered.md shows runs."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path

import pytest

from langgraph_statekit import TieredSaver

PAGE = (Path(__file__).parents[2] / "docs" / "tiered.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS, ids=range(1, len(BLOCKS) + 1))
def test_the_code_of_the_page_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = block.replace("/tmp/statekit-cold-example", f"{tmp_path}/cold")
    assert shown != block
    exec(compile(shown, "tiered.md", "exec"), {"__name__": "tiered"})


def test_the_page_tells_the_defaults() -> None:
    defaults = {name: each.default for name, each in signature(TieredSaver.__init__).parameters.items()}
    for name in ("max_lag_s", "max_lag_checkpoints", "idle_s", "max_backlog", "grace_s"):
        assert re.search(rf"`{name}` \({defaults[name]:,g}\)|`{name}` \({defaults[name]:g}\)", PAGE), name

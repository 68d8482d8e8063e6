"""What docs/tiered.md tells is so."""

from __future__ import annotations

from inspect import signature
from pathlib import Path

from langgraph_statekit import TieredSaver

PAGE = (Path(__file__).parents[2] / "docs" / "tiered.md").read_text(encoding="utf-8")


def test_the_page_tells_the_defaults() -> None:
    defaults = {name: each.default for name, each in signature(TieredSaver.__init__).parameters.items()}
    for name in ("max_lag_s", "max_lag_checkpoints", "idle_s", "max_backlog", "grace_s", "offload_bytes"):
        assert f"`{name}` ({defaults[name]:,})" in PAGE or f"`{name}` ({defaults[name]:g})" in PAGE, name

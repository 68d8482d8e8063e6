"""The example of moving over runs, without a key."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest


def test_both_moves_keep_the_history_and_make_summaries(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("langchain")
    example = Path(__file__).parents[2] / "examples" / "context_move.py"
    runpy.run_path(str(example), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["SummarizationMiddleware", "SummarizationNode"]

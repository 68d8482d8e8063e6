"""Requests to chat models and their tokens, counted while a run makes them."""

from __future__ import annotations

from typing import Any, Protocol

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.outputs import LLMResult
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs


class Purse(Protocol):
    """What takes note of spending."""

    def spend(self, requests: int, tokens: int) -> None:
        """Take note, from any thread."""


class _Counter(BaseCallbackHandler):
    def __init__(self, purse: Purse) -> None:
        self._purse = purse

    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        tokens = 0
        for generations in response.generations:
            for generation in generations:
                usage = getattr(getattr(generation, "message", None), "usage_metadata", None)
                tokens += usage["total_tokens"] if usage else 0
        self._purse.spend(1, tokens)


def with_counter(config: RunnableConfig, purse: Purse) -> RunnableConfig:
    """Return the config with a callback that counts."""
    return merge_configs(config, {"callbacks": [_Counter(purse)]})

"""A tool with which the model gets back what its prompt shows shortened."""

from __future__ import annotations

from typing import Annotated, Any, Final

from langchain_core.tools import BaseTool, StructuredTool
from langgraph.prebuilt import InjectedState

from langgraph_statekit.context.asking import transcript
from langgraph_statekit.context.faces import MESSAGES, SUMMARY, messages_of, value_of
from langgraph_statekit.context.placeholders import original
from langgraph_statekit.context.plain_text import plain_text
from langgraph_statekit.context.summaries import loaded, originals
from langgraph_statekit.errors import Misuse

_WHAT: Final = (
    "Get back what is shown shortened: the messages behind a summary such as s3, or the whole text behind a mark"
    " such as [TOOL_RESULT:1f0c5d2a9b3e]."
)


def recall_tool(*, messages_key: str = MESSAGES, summary_key: str = SUMMARY, max_chars: int = 20_000) -> BaseTool:
    """Return a tool that gives the model the messages behind a summary, or the text behind a mark.

    It reads the history of the graph's state, so it works where that is whole: not after `mode="replace"`.

    Args:
        messages_key: The channel of the history.
        summary_key: The channel of the summary.
        max_chars: Characters of the answer at most; it says what is missing.
    """

    def recall(handle: str, state: Annotated[Any, InjectedState]) -> str:
        try:
            text = _behind(handle.strip().strip("[]"), state, messages_key, summary_key)
        except Misuse as error:
            return str(error)
        gone = len(text) - max_chars
        return text if gone <= 0 else f"{text[:max_chars]}\n[{gone} more characters]"

    return StructuredTool.from_function(recall, name="recall", description=_WHAT)


def _behind(handle: str, state: Any, messages_key: str, summary_key: str) -> str:
    messages, summary = messages_of(state, messages_key), value_of(state, summary_key)
    if any(node["id"] == handle for node in loaded(summary)["nodes"]):
        return transcript(originals(messages, summary, handle))
    return plain_text(original(handle.rpartition(":")[2], messages))

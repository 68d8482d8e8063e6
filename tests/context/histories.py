"""Histories for the tests of the context nodes: calls in parallel, re-used ids, orphans, media, reasoning, long texts."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage

FEW = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""On a busy machine it takes a while to think of a history."""
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [
            "Please book flight HAT136 for 305 dollars. I do not want to fly before 11 AM, it makes me tired.",
            "我叫王小明，住在北京朝阳区。请不要选早上8点以前的航班，预算不超过1200元！",
            "Let me look that up for you: I will search the direct flights on that day first of all.",
            "> quoted line\nmy answer\n```python\nprint('x')\n```\n",
            "Traceback (most recent call last):\n  File 'x.py', line 3, in f\nValueError: no such seat",
            "| name | price |\n|---|---|\n| HAT136 | 152 |\n| HAT039 | 103 |",
        ]
    ),
)
KEYS = st.sampled_from(["id", "status", "total", "prices", "unit", "temp_c", "编号", "", "user_id", "rows"])
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=10)
    | st.sampled_from(["HAT136", "x" * 300]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=10,
)
MEDIA = st.sampled_from(
    [
        {"type": "image_url", "image_url": {"url": "https://example.org/INVOICE-77.png"}},
        {"type": "image", "base64": "A" * 4000, "mime_type": "image/png"},
        {"type": "file", "file": {"filename": "terms.pdf", "file_data": "data:application/pdf;base64," + "A" * 4000}},
        {"type": "text", "text": "look at this"},
        {"type": "thinking", "thinking": "hm " * 40, "signature": "s" * 100},
    ]
)
LONG_ID = "chatcmpl-tool-0123456789abcdef0123456789abcdef"
"""As vLLM makes them: longer than OpenAI takes."""
SIGNED_ID = "call_0123456789abcdef0123456789ab__thought__" + "Cq4HAdHtim9" * 85
"""As LiteLLM makes them of Gemini's calls."""
IDS = st.sampled_from(["c1", "c2", "c3", "c4", LONG_ID, SIGNED_ID])
CALLS = st.builds(
    lambda name, args, id: {"name": name, "args": args, "id": id, "type": "tool_call"},
    st.sampled_from(["weather", "pay", "search"]),
    st.dictionaries(KEYS, JSON, max_size=2),
    IDS,
)


@st.composite
def histories(draw: st.DrawFn, most: int = 14) -> list[BaseMessage]:
    """Any sequence of messages, valid for a provider or not, each with an id of its own."""
    messages: list[BaseMessage] = []
    for index in range(draw(st.integers(0, most))):
        content: Any = draw(TEXTS | st.lists(MEDIA, max_size=3))
        kind = draw(st.sampled_from(["human", "ai", "calls", "chunk", "blocks", "tool", "tool", "system"]))
        id = f"m{index}"
        if kind == "human":
            messages.append(HumanMessage(content, id=id))
        elif kind == "system":
            messages.append(SystemMessage(draw(TEXTS), id=id))
        elif kind == "ai":
            messages.append(AIMessage(content, id=id))
        elif kind == "calls":
            messages.append(AIMessage(draw(TEXTS), tool_calls=draw(st.lists(CALLS, min_size=1, max_size=3)), id=id))
        elif kind == "chunk":
            parts: Any = [{"name": "pay", "args": draw(st.sampled_from(["{}", "{"])), "id": draw(IDS), "index": 0}]
            messages.append(AIMessageChunk(draw(TEXTS), tool_call_chunks=parts, id=id))
        elif kind == "blocks":
            calls = draw(st.lists(CALLS, min_size=1, max_size=3))
            blocks = [{"type": "tool_use", "id": c["id"], "name": c["name"], "input": c["args"]} for c in calls]
            kept = draw(st.integers(0, len(calls)))  # the app took the others back
            messages.append(AIMessage(draw(st.just([]) | st.just([""])) + blocks, tool_calls=calls[:kept], id=id))  # type: ignore[operator,arg-type]
        else:
            found = draw(TEXTS | JSON.map(json.dumps) | st.lists(MEDIA, max_size=2))
            status = draw(st.sampled_from(["success", "success", "error"]))
            messages.append(ToolMessage(found, tool_call_id=draw(IDS), name="weather", status=status, id=id))
    return messages

"""The knowledge layer: looked up only when a turn needs it, and within its budget."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypedDict

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableLambda
from langgraph.store.base import BaseStore

from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.context.plain_text import plain_text
from langgraph_statekit.context.tokens import TokenCounter, plain_json
from langgraph_statekit.context.window import AI, MARK, key_of, live_question
from langgraph_statekit.errors import Misuse

TAG: Final = "knowledge"
TRIGGERS: Final = "explicit, self_assessed, every:N, tool"
_EVERY: Final = re.compile(r"every:([1-9]\d*)")
EXPLICIT: Final = (
    r"[?？]\s*$",
    r"^\W*(?:what|who|whom|whose|when|where|which|why|how|is|are|was|were|do|does|did|can|could|should)\b",
    r"\b(?:look(?:ing)? (?:it |this |that )?up|according to|find out|search (?:for|in|the|our)|tell me|remind me"
    r"|explain|describe|i(?:['’]d| would) like to know|i want to know"
    r"|in (?:the|our) (?:docs?|documents?|documentation|manual|handbook|knowledge base|policy)"
    r"|last time|previously|do you (?:know|remember))\b",
    r"什么|谁|哪[里个些儿]|何时|为什么|怎么|如何|多少|是否|[吗呢]\s*$|查一下|查询|根据|上次|之前说|文档|资料|请问|告诉我|想知道|介绍|解释",
)
"""Patterns of a user's message that asks for something: one found is enough."""
SIGNAL: Final = re.compile(
    r"\[NEED_INFO(?::\s*(?P<query>[^\]]+))?\]"
    r"|\bI (?:do not|don['’]t)(?: currently| yet| really)? (?:know|have (?:access to )?"
    r"(?:enough |sufficient |any |that |this |the |more )?(?:necessary |required |relevant |specific )?"
    r"(?:information|details|data|context))\b"
    r"|\bI(?:['’]m| am)? ?(?:lack|lacking|missing) (?:the |some |enough )?(?:information|knowledge|details|context)\b"
    r"|(?:\bnot enough|n['’]t enough|\binsufficient) (?:information|context|details)\b"
    r"|\bI(?:['’]m| am) not (?:sure|certain|aware)\b"
    r"|\binformation is (?:insufficient|missing)\b"
    r"|\bI have no (?:information|details|data|knowledge|idea)\b"
    r"|\bI (?:could not|couldn['’]t|cannot|can['’]t) find (?:any |enough )(?:information|details|data)\b"
    r"|\bI need (?:more|further|additional) (?:information|context)\b(?! from you)"
    r"|\bwithout (?:more|further|additional) (?:information|context)\b(?! from you)"
    r"|我不太?(?:知道|清楚|确定|了解)|(?:缺少|缺乏|没有|需要)(?:足够的?|相关的?|更多的?)?(?:信息|资料)|(?:信息|资料)不足|无法确定",
    re.IGNORECASE,
)
"""How a model says that it lacks information; `[NEED_INFO: what]` says also what."""
_FRAME: Final = re.compile(rf"<(?=\s*/?\s*{TAG})", re.IGNORECASE)
_LEAST_CHARS: Final = 100


class Item(TypedDict):
    """One piece of knowledge."""

    id: str
    source: str
    text: str


class Knowledge(TypedDict):
    """What the channel holds: what was found for the live question. Plain JSON."""

    version: int
    question: str
    trigger: str
    query: str
    items: list[Item]
    left_out: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgePolicy:
    """Where knowledge comes from and when it is looked up.

    Attributes:
        source: A LangChain retriever, a LangGraph store, or a runnable or function that takes a query and gives
            documents or texts, or one of them, or None.
        triggers: `explicit`: the user asks something. `self_assessed`: the model says that it lacks information.
            `every:N`: every N turns. `tool`: only the model's own call, of the tool that `ContextBuilder.tool()` gives.
        namespace: Where to search in a store.
        limit: Pieces at most.
        max_tokens: Tokens of the layer at most; what does not fit is left out, the lowest rank first.
        explicit: Patterns that make a user's message a question.
    """

    source: Any
    triggers: Sequence[str] = ("explicit", "self_assessed")
    namespace: tuple[str, ...] = ()
    limit: int = 4
    max_tokens: int = 1_000
    explicit: tuple[str, ...] = EXPLICIT

    def __post_init__(self) -> None:
        require_numbers(int, 1, limit=self.limit, max_tokens=self.max_tokens)
        if isinstance(self.triggers, str):
            raise Misuse(f"triggers is a list of {TRIGGERS}, not one string: pass [{self.triggers!r}]")
        for each in self.triggers:
            if each not in ("explicit", "self_assessed", "tool") and not _EVERY.fullmatch(each):
                raise Misuse(f"a trigger is one of {TRIGGERS}, not {each!r}")
        if not isinstance(self.source, BaseRetriever | BaseStore | Runnable) and not callable(self.source):
            raise Misuse(f"source is a retriever, a store or a function, not {type(self.source).__name__}")


def wanted(
    messages: Sequence[BaseMessage], turn: int, policy: KnowledgePolicy, held: Mapping[str, Any] | None
) -> tuple[str, str] | None:
    """Return the trigger and the query if knowledge is to be looked up now; None if not, or if it is at hand.

    Args:
        messages: The history.
        turn: The number of the live turn.
        policy: The triggers.
        held: What the channel holds.
    """
    live = live_question(messages)
    if not live:
        return None
    question = "\n".join(plain_text(messages[at]) for at in live)
    same = held is not None and held.get("question") == key_of(messages[live.start])
    if "self_assessed" in policy.triggers and not (same and held and held["trigger"] == "self_assessed"):
        said = [plain_text(message) for message in messages[live.stop :] if message.type in AI]
        before = next((m for m in reversed(messages[: live.start]) if m.type in (*AI, "human")), None)
        said += [plain_text(before)] if before is not None and before.type in AI else []
        if found := [match["query"] or "" for text in said for match in SIGNAL.finditer(text)]:
            return "self_assessed", (max(found, key=bool) or question).strip()
    if same:
        return None
    for trigger in policy.triggers:
        every = _EVERY.fullmatch(trigger)
        if every and turn % int(every[1]) == 0:
            return trigger, question
        if trigger == "explicit" and any(re.search(each, question, re.IGNORECASE) for each in policy.explicit):
            return trigger, question
    return None


def found_for(
    messages: Sequence[BaseMessage],
    trigger: str,
    query: str,
    found: Any,
    policy: KnowledgePolicy,
    counter: TokenCounter,
) -> Knowledge:
    """Return what the channel is to hold: the pieces that fit the budget, and why others do not."""
    items, left_out = fitting(found, policy, counter)
    live = live_question(messages)
    return {
        "version": 1,
        "question": key_of(messages[live.start]),
        "trigger": trigger,
        "query": query,
        "items": items,
        "left_out": left_out,
    }


def fitting(found: Any, policy: KnowledgePolicy, counter: TokenCounter) -> tuple[list[Item], list[str]]:
    """Return the pieces that fit the budget, the last clipped, and why others do not.

    Args:
        found: What the source gave: pieces, or one alone; None for nothing.
        policy: The budget.
        counter: Counts tokens.
    """
    if found is None or isinstance(found, (str, Document, Mapping)):
        found = [] if found is None else [found]
    items, left_out, left = list[Item](), list[str](), policy.max_tokens
    for number, each in enumerate(islice(found, policy.limit)):
        item = item_of(each, number)
        tokens = counter.text(item["text"]) + 8
        if tokens > left:
            room = int(len(item["text"]) * (left - 8) / tokens)
            if room < _LEAST_CHARS:
                left_out.append(f"{item['id']}: over the budget of {policy.max_tokens} tokens")
                continue
            left_out.append(f"{item['id']}: clipped to the budget of {policy.max_tokens} tokens")
            item = {**item, "text": f"{item['text'][: room - 4]} ..."}
            tokens = counter.text(item["text"]) + 8
        items.append(item)
        left -= tokens
    return items, left_out


def item_of(found: Any, number: int) -> Item:
    """Return a document, a store's item or a text as plain JSON."""
    if isinstance(found, Document):
        source = str(found.metadata.get("source", ""))
        return {"id": str(found.id or source or number + 1), "source": source, "text": found.page_content}
    if hasattr(found, "value") and hasattr(found, "key"):
        value = found.value
        text = next((value[name] for name in ("text", "content", "memory") if isinstance(value.get(name), str)), None)
        return {"id": str(found.key), "source": "/".join(found.namespace), "text": text or plain_json(value)}
    return {"id": str(number + 1), "source": "", "text": plain_json(found)}


def knowledge_text(items: Sequence[Item]) -> str:
    """Return pieces as text, each with its source."""
    lines = [" ".join(filter(None, [f"[{each['id']}]", each["source"], each["text"]])) for each in items]
    return _FRAME.sub("&lt;", "\n".join(lines))


def knowledge_message(messages: Sequence[BaseMessage], held: Mapping[str, Any] | None) -> HumanMessage | None:
    """Return the message that shows what was found for the live question; None if nothing was."""
    live = live_question(messages)
    if not held or not held["items"] or not live or key_of(messages[live.start]) != held["question"]:
        return None
    text = f"<{TAG}>\nLooked up for the question below. Reference only.\n{knowledge_text(held['items'])}\n</{TAG}>"
    note = {MARK: {"knowledge": [item["id"] for item in held["items"]]}}
    return HumanMessage(text, id=f"{held['question']}-knowledge", additional_kwargs=note)


def with_knowledge(prompt: Sequence[BaseMessage], message: HumanMessage | None) -> list[BaseMessage]:
    """Return the prompt with the knowledge right before the live question, behind what the provider has cached."""
    at = live_question(prompt).start
    return list(prompt) if message is None else [*prompt[:at], message, *prompt[at:]]


def look_up(policy: KnowledgePolicy) -> tuple[Callable[[str], Any], Callable[[str], Any]]:
    """Return what searches the source, and its async twin."""
    source, limit = policy.source, policy.limit
    if isinstance(source, BaseStore):

        def search(query: str) -> Any:
            return source.search(policy.namespace, query=query, limit=limit)

        async def asearch(query: str) -> Any:
            return await source.asearch(policy.namespace, query=query, limit=limit)

        return search, asearch
    runnable: Runnable[Any, Any] = source if isinstance(source, Runnable) else RunnableLambda(source)
    return runnable.invoke, runnable.ainvoke

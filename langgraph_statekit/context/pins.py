"""What a user said that must outlive every summary: rules, what to remember, who they are, what they prefer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from langchain_core.messages import BaseMessage

from langgraph_statekit.context.plain_text import plain_text, sentences
from langgraph_statekit.context.verbatim import without_blocks

PIN_CHARS: Final = 300
"""A longer sentence is no pin: it would crowd out the others."""
PINS_OF_ONE_MESSAGE: Final = 12
"""Of a long pasted text only the strongest are pinned."""


def _any(*patterns: str) -> re.Pattern[str]:
    assert not re.search(r"(?<!\\)[A-Z]", "".join(patterns)), "they are looked for in small letters"
    return re.compile("|".join(patterns))  # looking for letters of both sizes takes twice as long


_LABEL: Final = re.compile(
    r"^[\W_]*(?:[A-Z][A-Z_ -]{2,30}"
    r"|(?i:important|note|rules?|remember|constraints?|requirements?|preferences?|facts?|goals?|deadline|decision|todo"
    r"|reminder|policy|warning)"
    r"|注意|重要|记住|规则|要求|偏好|目标|事实|截止|决定|提醒|约束)(?:\s?\d+)?\s?[:：]\s*\S"
)
_REMEMBER: Final = _any(
    r"\b(?<!don't )(?<!can't )(?<!i )remember (?:that|this|to|my|our|the|for)\b",
    r"\b(?:please remember|don['’]t forget|do not forget|keep in mind|bear in mind|from now on|make a note)\b",
    r"\b(?:note that|for (?:future|later) reference)\b",
    r"记住|记得|别忘|不要忘|以后都|从现在起|请注意|牢记",
)
_RULE: Final = _any(
    r"^(?:please |and |but |so |also |you )*(?:never|always|do not|don['’]t|make sure|be sure|ensure|only|avoid)\b",
    r"\b(?:you|it|we|they|all|everything|this|that|which|replies|answers|messages) "
    r"(?:must|should never|should always|may not|may only|cannot be|can only be|(?:is|are) not allowed)\b",
    r"\b(?:must not|not allowed to|forbidden|prohibited|under no circumstances|by no means)\b",
    r"\bwithout (?:my|our|explicit|prior) (?:\w+ )?(?:approval|consent|permission|confirmation)\b",
    r"\b(?:no more than|at most|at least|up to|maximum (?:of|is)|limit (?:of|is)) [$€£¥]?\d",
    r"\bbudget (?:is|of|cap)\b|\b(?:must|shall) (?:not )?(?:be|stay|remain|have|include|contain)\b",
    r"^if .{5,}, (?:stop|ask|escalate|refuse|warn|tell|call|do not|don['’]t|always|never)\b",
    r"\b(?:deadline is|due (?:by|on)|no later than)\b",
    r"绝不|决不|切勿|不得|不要|请勿|不能|不许|禁止|必须|务必|一律|只能|不超过|至少|最多|预算|上限|截止|之前完成",
)
_SELF: Final = _any(
    r"\bmy (?:full |first |last |user |account |order |customer |member |email |phone |home |work |credit |loyalty )*"
    r"(?:name|id|number|email|address|phone|birthday|birth date|zip(?: code)?|age|account|reservation|confirmation"
    r"|booking)(?: (?:number|code|id|address))? (?:is|was|:)",
    r"\bi(?:['’]m| am) (?:\d+|allergic|vegan|vegetarian|diabetic|pregnant|called|based in|from)\b",
    r"\bi(?:['’]m| am) an? [\w-]+ (?:by|at|for|in)\b",
    r"\b(?:call me|i live in|i work (?:as|at|for)|i was (?:born|diagnosed)|diagnosed with|allerg(?:y|ies|ic) to)\b",
    r"我叫|我是\S|我住|我今年|过敏|我在\S{2,12}工作",
    r"我的(?:名字|姓名|邮箱|电话|手机|地址|生日|账号|会员号|订单号|身份证|护照|工号)",
)
_PREFERENCE: Final = _any(
    r"\b(?:i|we|users?|customer|client)(?:['’]d| would)? (?:\w+ly )?prefers?\b",
    r"\bi (?:really |absolutely )?(?:hate|dislike|can['’]t stand)\b",
    r"\bi (?:always|never|only|don['’]t) (?:eat|drink|fly|use|take|work|buy|pay|book|travel)\b",
    r"\b(?:user wants|my (?:favou?rite|preferred|preference)|i(?:['’]d| would) rather)\b",
    r"我(?:更|比较|最|很|特别)?(?:喜欢|偏好|讨厌|不喜欢|习惯|倾向)|我(?:从不|总是|一般都|只)",
)
_GOAL: Final = _any(
    r"\b(?:my|our|the) (?:\w+ )?(?:goal|aim|task|objective|plan) (?:is|was)\b",
    r"\b(?:(?:current|next) (?:task|step) is|i(?:['’]m| am) (?:trying|planning|aiming|hoping) to)\b|\bnext step:",
    r"\b(?:we need to|i need you to|i want you to)\b",
    r"我的目标|目标是|任务是|下一步|我打算|我计划",
)
_STRENGTHS: Final = (_REMEMBER, _RULE, _SELF, _PREFERENCE, _GOAL)
_HOLDS: Final = 1 + _STRENGTHS.index(_RULE)
"""Up to this strength pins say what must hold; with one more who the user is."""
_MOST_SHOWN: Final = 256
_MOST_RANKED: Final = 2_048
_ASKS: Final = re.compile(r"[?？]\s*$")


def find_pins(messages: Sequence[BaseMessage]) -> list[str]:
    """Return sentences of the user that should stay beside every summary, the strongest first, each once and verbatim.

    Strongest are labelled lines (`RULE: ...`), then what to remember, rules and limits, who the user is, preferences
    and goals; among equals the order of the conversation. Only what users wrote is looked at, and neither their
    questions nor code or quotations in their messages: a web page or a tool cannot pin anything.
    """
    found: dict[str, tuple[int, int, str]] = {}
    for message in messages:
        if message.type != "human":
            continue
        ranked = sorted((strength, text) for strength, text in _pins_in(plain_text(message)))
        for strength, text in ranked[:PINS_OF_ONE_MESSAGE]:
            key = " ".join(text.casefold().split())
            if key not in found or strength < found[key][0]:
                found[key] = (strength, len(found), text)
    return [text for _, _, text in sorted(found.values())]


def strongest(pins: Sequence[str]) -> list[int]:
    """Return the places of pins: what must hold before who the user is, that before all others; the newest first."""
    return sorted(range(len(pins)), key=lambda at: (_rank(pins[at]), -at))


@lru_cache(maxsize=_MOST_SHOWN)
def shown_pins(pins: tuple[str, ...], max_chars: int) -> tuple[str, ...]:
    """Return the strongest pins that fit, in their order."""
    left, chosen = max_chars, set[int]()
    for at in strongest(pins):
        if len(pins[at]) <= left:
            chosen.add(at)
            left -= len(pins[at])
    return tuple(pin for at, pin in enumerate(pins) if at in chosen)


@lru_cache(maxsize=_MOST_RANKED)
def _rank(pin: str) -> int:
    strength = min((strength for strength, _ in _pins_in(pin)), default=len(_STRENGTHS))
    return min(max(strength, _HOLDS), _HOLDS + 2)


def _pins_in(text: str) -> Iterator[tuple[int, str]]:
    for line in without_blocks(text).splitlines():
        whole = " ".join(line.split())
        if _LABEL.match(whole) and len(whole) <= PIN_CHARS:
            yield 0, whole
            continue
        for sentence in sentences(line):
            sentence = " ".join(sentence.split())
            if len(sentence) <= PIN_CHARS and not _ASKS.search(sentence):
                small = sentence.lower()
                strength = next((index for index, kind in enumerate(_STRENGTHS) if kind.search(small)), None)
                if strength is not None:
                    yield 1 + strength, sentence

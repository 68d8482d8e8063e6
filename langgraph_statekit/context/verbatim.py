"""What must be shown word for word or not at all: code, diffs, tracebacks, legal clauses, quotations, marks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

from langchain_core.messages import BaseMessage

from langgraph_statekit.context.plain_text import plain_text

MARKED: Final = "marked"
"""The kind of a message with `additional_kwargs["statekit"]["verbatim"]`; it is always kept."""
_FENCE: Final = re.compile(r"^[ \t]*(`{3,}+|~{3,}+)[^\n]*\n.*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_DIFF: Final = re.compile(
    r"^diff --git |^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@"
    r"|^--- \S[^\n]*\n\+\+\+ \S|^\*{3} (?:Begin|Update|Add) (?:Patch|File)",
    re.MULTILINE,
)
_STATEMENT: Final = re.compile(
    r"(?:async )?def \w+\(|class \w+\s*[({:]|@\w[\w.]*(?:\(.*\))?$"
    r"|from [\w.]+ import |import [\w{*.\"']+(?:;|$| as | from |, )"
    r"|(?:if|for|while|elif|else|try|except|with|finally)\b[^.!?]*:$|return\b(?:$|.*[;)\]}\d]$| \w+$| \w+ [-+*/<>=]+ )"
    r"|(?:export |default )*(?:const|let|var) \w+|(?:export |default |async )*function\b.*\("
    r"|(?:pub )?(?:fn|func) \w+\s*[(<]"
    r"|(?:public|private|protected|static|final) [\w<>\[\], ]+[({;=]|#include\s*[<\"]|package [\w.]+;?$|use [\w:]+;$"
    r"|(?:SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE TABLE|ALTER TABLE) .*[;)*,(\w]$"
    r"|[\w.\[\]\"']+ ?(?:[-+*/|]?=|:=) ?\S"
    r"|[\w.]+\(.*\);?$|[A-Za-z_$(}].*;$|.*\) ?\{$|[})\]]+[;,]?$"
)
_LEAST_STATEMENTS: Final = 3
_STATEMENT_CHARS: Final = 200
_TRACEBACK: Final = re.compile(
    r"^[ \t]*Traceback \(most recent call last\):|^[ \t]+at [\w$.<>]+\([\w.]*(?::\d+)?\)\s*$"
    r"|^panic: |^thread '.*' panicked at"
    r"|^Caused by: [\w.]+(?:Exception|Error)",
    re.MULTILINE,
)
_CLAUSE: Final = re.compile(
    r"^[ \t]*(?:§{1,4}[ \t]?\d|(?:section|article|clause|schedule|annex)\s+[\dIVX]+\b|\d+\.\d+(?:\.\d+)*\.?\s+[A-Z]"
    r"|第[一二三四五六七八九十百零\d]+[条款章])",
    re.IGNORECASE | re.MULTILINE,
)
_LEGAL: Final = re.compile(
    r"\b(?:shall(?: not)?|hereby|herein|hereunder|thereof|pursuant to|notwithstanding|indemnif\w+|liabilit(?:y|ies)"
    r"|warrant(?:y|ies)|governing law|jurisdiction|force majeure|breach|terminat(?:e|ion) of this|the parties)\b"
    r"|本(?:合同|协议|条款|公司)|甲方|乙方|违约|赔偿|责任|应当|不得|法律|管辖",
    re.IGNORECASE,
)
_LEGAL_WORDS: Final = 4
"""So many of them make a text legal without numbered clauses; with those two suffice."""
_QUOTED_LINES: Final = re.compile(r"(?:^[ \t]*>[^\n]*(?:\n|\Z))+", re.MULTILINE)
_QUOTED: Final = re.compile(r"“[^“”]{20,}”|「[^「」]{10,}」|『[^『』]{10,}』|«[^«»]{20,}»")


def verbatim_kinds(message: BaseMessage) -> frozenset[str]:
    """Return the kinds of verbatim text in a message: `code`, `diff`, `traceback`, `legal`, `quote` and `marked`."""
    found = set(_kinds_of(message))
    if is_marked(message):
        found.add(MARKED)
    return frozenset(found)


def is_verbatim(message: BaseMessage, kinds: Collection[str]) -> bool:
    """Tell whether a message has text of one of the kinds, or is marked by the user."""
    return is_marked(message) or any(kind in kinds for kind in _kinds_of(message))


def is_marked(message: BaseMessage) -> bool:
    """Tell whether the application marked a message as verbatim, in `additional_kwargs["statekit"]`."""
    marks: Any = message.additional_kwargs.get("statekit")
    return isinstance(marks, dict) and bool(marks.get("verbatim"))


def without_blocks(text: str) -> str:
    """Return a text without its fenced code and quotations: what its author says in their own words."""
    return _QUOTED.sub(" ", _QUOTED_LINES.sub("\n", _FENCE.sub("\n", text)))


def _kinds_of(message: BaseMessage) -> Iterator[str]:
    """Yield the kinds of a message; of code without a fence only where people and models show it.

    A tool's result is mostly files of code or what looks like it; its digest leads back to the whole.
    """
    text = plain_text(message)
    yield from _kinds(text)
    if message.type != "tool" and _is_source(text):
        yield "code"


def _is_source(text: str) -> bool:
    """Tell whether a text has several lines that are statements of a programming language, and these are most."""
    lines = list(filter(None, map(str.strip, text.splitlines())))
    if len(lines) < _LEAST_STATEMENTS:
        return False
    found = sum(len(line) <= _STATEMENT_CHARS and _STATEMENT.match(line) is not None for line in lines)
    return found >= _LEAST_STATEMENTS and 2 * found > len(lines)


def _kinds(text: str) -> Iterator[str]:
    if _FENCE.search(text):
        yield "code"
    if _DIFF.search(text):
        yield "diff"
    if _TRACEBACK.search(text):
        yield "traceback"
    if _QUOTED_LINES.search(text) or _QUOTED.search(text):
        yield "quote"
    words = len({match.group().lower() for match in _LEGAL.finditer(text)})
    if words >= _LEGAL_WORDS or (words >= 2 and _CLAUSE.search(text)):
        yield "legal"

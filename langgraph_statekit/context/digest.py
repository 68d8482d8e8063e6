"""Tool results as one line each: name, key arguments, key result."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import BaseMessage, ToolCall, ToolMessage

from langgraph_statekit.context.numbers import readable
from langgraph_statekit.context.plain_text import plain_text
from langgraph_statekit.context.tokens import plain_json

Call = ToolCall
DIGEST_CHARS: Final = 200
"""Characters of a digest's result at most."""
_ARGUMENT_CHARS: Final = 60
_ITEMS_LOOKED_AT: Final = 50
_ITEM_CHARS: Final = 60
_FIRST: Final = re.compile(
    r"(?:^|_)(?:id|ids|number|code|key|name|title|status|state|error|message|result|answer)$|编号|名"
)
_SECOND: Final = re.compile(
    r"total|price|amount|cost|balance|fee|date|time|email|count(?!ry)|due|temp|condition|cabin|class|from|origin|to|destination"
    r"|type|url|path|价|额|日期|时间|状态|温"
)
_ID: Final = re.compile(r"(?:^|_)(?:id|ids|number|code|key|phone|zip|account|iban|ref|sku|no)$|编号|号码")
_AMOUNT: Final = re.compile(
    r"(?:(?:^|_)(?:total|subtotal|count|amount|quantity|qty|size|volume|supply|capacity|distance|weight"
    r"|population|inhabitants|residents|people|members|employees|users|customers|visitors|visits|views|likes|followers"
    r"|subscribers|downloads|installs|plays|clicks|impressions|comments|shares|stars|rows|records|items|units|tokens"
    r"|characters|prices?|costs?|fees?|revenue|sales|turnover|income|profit|loss|budget|salary|wages?|balance|debt|assets"
    r"|liabilities|funding|investment|capital|valuation|worth|market_cap|gdp"
    r"|usd|eur|gbp|cny|rmb|jpy|bytes|kg|km|km2|m2)"
    r"|^(?:total|number_of)_\w+s|^amount_(?:due|paid|owed|raised)"
    r"|[额价量数费]|人口|总计|合计|价格|收入|支出|营收|利润|亏损|成本|预算|工资|存款|贷款|负债|资产|资金|投资|融资"
    r"|产值|市值|估值|净值|面积|距离|大小)(?:_?[(（][^()（）]*[)）])?$"
)
"""Names of how much or how many there is; a number of any other name may be an id or a moment, and none is rounded."""
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])(?![A-Z]s(?![a-z]))")
_UNITS: Final = {
    "celsius": " °C",
    "fahrenheit": " °F",
    "c": " °C",
    "f": " °F",
    "percent": " %",
    "pct": " %",
    "kmh": " km/h",
    "mph": " mph",
    "kg": " kg",
    "km": " km",
    "ms": " ms",
    "usd": " USD",
    "eur": " EUR",
    "cny": " CNY",
}
_TEMPERATURE: Final = re.compile(r"temp|^t_|feels")
_UNIT_KEYS: Final = ("unit", "units", "currency")
_ERROR: Final = re.compile(r"^(?:[\w.]*(?:Error|Exception)\b|error\b|fatal\b|failed\b|错误|失败)", re.IGNORECASE)
_RAISED: Final = re.compile(r"^(?!\s)[\w.]*(?:Error|Exception|Exit|Interrupt|Warning)\b.*", re.MULTILINE)
_TABLE_RULE: Final = re.compile(r"^(?:\s|\|)*+:?-{2,}[\s|:-]*$")


def calls_of(message: BaseMessage) -> dict[str, Call]:
    """Return the tool calls of a message by their ids."""
    calls: Sequence[Call] = getattr(message, "tool_calls", None) or ()
    return {call["id"]: call for call in calls if call["id"]}


def digest(
    message: ToolMessage, call: Call | None = None, *, max_chars: int = DIGEST_CHARS, numbers: bool = False
) -> str:
    """Return a tool result as one line, such as `weather: Beijing → 22 °C, sunny`.

    A result that fits is shown in full. Names, ids and arguments are shown exactly as they are or not at all.

    Args:
        message: The result.
        call: The call that it answers; None leaves out the arguments.
        max_chars: Characters of the result's part at most.
        numbers: Shows numbers of a million and more in readable form where the name of the field says that it is an
            amount, a count or a size; all others are exact.
    """
    name = (call["name"] if call else message.name) or "tool"
    arguments = _arguments(call["args"]) if call else ""
    head = f"{one_line(name)}: {arguments}" if arguments else one_line(name)
    return f"{head} → {digest_result(message, call, max_chars=max_chars, numbers=numbers)}"


def digest_result(
    message: ToolMessage, call: Call | None = None, *, max_chars: int = DIGEST_CHARS, numbers: bool = False
) -> str:
    """Return what a tool found as one line of at most `max_chars` characters; what the call says is not told again."""
    asked = call["args"] if call else {}
    return _result(message, plain_text(message).strip(), asked, max_chars, numbers=numbers) or "nothing"[:max_chars]


def _result(message: ToolMessage, text: str, asked: Mapping[str, Any], max_chars: int, *, numbers: bool) -> str:
    if message.status == "error" or _ERROR.match(text) or text.startswith("Traceback ("):
        return clipped(f"error: {_error(text)}", max_chars)
    if text[:1] in ("{", "["):
        try:
            found = json.loads(text)
            told = found
            if isinstance(found, dict):
                told = {key: value for key, value in found.items() if not _is_echo(key, value, asked)} or found
            return clipped(digest_json(told, max_chars, numbers=numbers, named=len(told) < len(found)), max_chars)
        except (ValueError, RecursionError):
            pass  # no JSON, or deeper than anybody reads: then it is text
    if len(text) <= max_chars:
        return one_line(text)
    return clipped(_table(text) or _prose(text, max_chars), max_chars)


def _is_echo(key: str, value: Any, asked: Mapping[str, Any]) -> bool:
    """Tell whether a field repeats an argument that a digest shows."""
    return isinstance(value, str) and len(value) <= _ARGUMENT_CHARS and asked.get(key) == value


def digest_json(value: Any, max_chars: int = DIGEST_CHARS, *, numbers: bool = False, named: bool = False) -> str:
    """Return the key fields of a JSON value as text: ids, names and states first, the rest while there is room.

    A few short fields go without their names, unless they are to be `named`.
    """
    chinese = numbers and re.search(r"[\u4e00-\u9fff]", plain_json(value)) is not None
    if isinstance(value, Mapping):
        found = [*_fields(value, numbers=numbers, chinese=chinese)]
        bare = not named and len(found) <= 3 and all(len(shown) < 40 and not _is_id(key) for key, shown in found)
        texts = [shown if bare else f"{key}={shown}" for key, shown in found]
        ranks = [min(_rank(key), 1 if isinstance(value.get(key), (Mapping, list)) else 2) for key, _ in found]
        return _fitting([*zip(ranks, texts, strict=True)], max_chars)
    if isinstance(value, list):
        return _items(value, max_chars)
    return _scalar("", value, numbers=numbers, chinese=chinese)


def one_line(text: str) -> str:
    """Return a text with each run of blanks and line ends as one blank."""
    return " ".join(text.split())


def clipped(text: str, max_chars: int) -> str:
    """Return a text in one line, with `…` where its end is missing."""
    text = one_line(text)
    return text if len(text) <= max_chars else text[: max(max_chars - 1, 0)].rstrip() + "…"[:max_chars]


def _arguments(args: Mapping[str, Any]) -> str:
    """Return arguments exactly, or only their size where they are long; a few short texts go without their names."""
    shown = []
    plain = len(args) <= 3 and all(isinstance(value, str) for value in args.values())
    for key, value in args.items():
        text = plain_json(value)
        if len(text) > _ARGUMENT_CHARS or one_line(text) != text:
            shown.append(f"{key}=({len(text)} characters)")
        else:
            shown.append(text if plain else f"{key}={text}")
    return ", ".join(shown)


def _fields(value: Mapping[str, Any], *, numbers: bool, chinese: bool) -> Iterator[tuple[str, str]]:
    """Yield the fields of an object with what is shown of each; small objects inside are opened."""
    unit_key = next((key for key in _UNIT_KEYS if isinstance(value.get(key), str)), None)
    number_key = next((key for key, item in value.items() if _is_number(item)), None) if unit_key else None
    for key, item in value.items():
        if item in (None, "", [], {}) or (number_key and key == unit_key):
            continue
        if isinstance(item, Mapping):
            if all(isinstance(inner, (Mapping, list)) for inner in item.values()):
                yield key, _items([*item], _ITEM_CHARS * 2)  # objects by name: the names tell most
            else:
                yield from _fields(item, numbers=numbers, chinese=chinese)
        elif isinstance(item, list):
            yield key, _items(item, _ITEM_CHARS * 2)
        else:
            shown = _scalar(key, item, numbers=numbers, chinese=chinese)
            yield key, f"{shown} {value[unit_key]}" if unit_key and key == number_key else shown


def _items(items: Sequence[Any], max_chars: int) -> str:
    """Return how many items there are and what the first ones are called."""
    if not items:
        return "none"
    texts = [clipped(_label(item), _ITEM_CHARS) for item in items[:_ITEMS_LOOKED_AT]]
    flat = not any(isinstance(item, (Mapping, list)) for item in items)
    if flat and len(texts) == len(items) and len(text := ", ".join(texts)) <= max_chars:
        return text
    shown, left = 1, max_chars - len(texts[0]) - len("1000: , and 1000 more")
    while shown < len(texts) and (left := left - len(texts[shown]) - 2) >= 0:
        shown += 1
    return _counted(len(items), texts[:shown])


def _counted(count: int, texts: Sequence[str]) -> str:
    rest = count - len(texts)
    return f"{count}: {', '.join(texts)}" + (f", and {rest} more" if rest else "")


def _label(item: Any) -> str:
    """Return what one item of a list is called, with a few of its fields."""
    if isinstance(item, list):
        return " + ".join(_label(inner) for inner in item[:3]) + (" + …" if len(item) > 3 else "")
    if not isinstance(item, Mapping):
        return plain_json(item)
    flat: dict[str, Any] = {}
    for key, value in item.items():
        flat.update(value if isinstance(value, Mapping) else {key: value})
    fields = [(_rank(key), plain_json(value)) for key, value in flat.items() if not isinstance(value, (Mapping, list))]
    fields = [(rank, one_line(text)) for rank, text in fields if text and len(text) <= _ITEM_CHARS]
    best = sorted(range(len(fields)), key=lambda index: (fields[index][0], index))[:3]
    return " ".join(fields[index][1] for index in sorted(best)) or "{…}"


def _fitting(ranked: Sequence[tuple[int, str]], max_chars: int) -> str:
    """Return the best-ranked texts that fit, in their own order, and how many are left out."""
    left, chosen = max_chars - len(", and 99 more"), []
    if sum(len(text) + 2 for _, text in ranked) - 2 <= max_chars:
        return ", ".join(text for _, text in ranked)
    for index in sorted(range(len(ranked)), key=lambda index: (ranked[index][0], index)):
        text = ranked[index][1]
        if len(text) + 2 <= left:
            left -= len(text) + 2
            chosen.append(index)
    rest = len(ranked) - len(chosen)
    return ", ".join(ranked[index][1] for index in sorted(chosen)) + (
        f", and {rest} more" if chosen else f"{rest} fields"
    )


def _rank(key: str) -> int:
    key = _words(key)
    return 0 if _FIRST.search(key) else 1 if _SECOND.search(key) else 2


def _is_id(key: str) -> bool:
    return _ID.search(_words(key)) is not None


def _is_amount(key: str) -> bool:
    return _AMOUNT.search(_words(key)) is not None


def _words(key: str) -> str:
    """Return a key in small letters with `_` between its words: `orderId`, `order-id` and `order_id` are one."""
    return (key if key.islower() else _HUMP.sub("_", key).lower()).replace("-", "_").replace(" ", "_")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _scalar(key: str, value: Any, *, numbers: bool, chinese: bool) -> str:
    if _is_number(value):
        lower = key.lower()
        unit = lower.rpartition("_")[2]
        temperature = _TEMPERATURE.search(lower) is not None
        mark = _UNITS.get(unit, "") if len(unit) > 1 or temperature else ""
        return (readable(value, chinese=chinese) if numbers and _is_amount(key) else plain_json(value)) + mark
    return one_line(plain_json(value))


def _error(text: str) -> str:
    """Return what an error says in the end: the last line of a traceback, else the first line."""
    raised = _RAISED.findall(text) if "Traceback (" in text else []
    line = raised[-1] if raised else next((line for line in text.splitlines() if line.strip()), "no message")
    return re.sub(r"^error:\s*", "", line.strip(), flags=re.IGNORECASE)


def _table(text: str) -> str:
    """Return size, columns and first row of a table in Markdown, tabs or commas; nothing for other text."""
    lines = [line for line in text.splitlines() if line.strip()]
    for mark in ("|", "\t", ","):
        rows = [[cell.strip() for cell in line.strip().strip("|").split(mark)] for line in lines]
        if len(rows) < 3 or len(rows[0]) < 2 or any(len(row) != len(rows[0]) for row in rows):
            continue
        rows = [row for row, line in zip(rows, lines, strict=True) if not _TABLE_RULE.match(line)]
        if len(rows) > 1 and not (mark == "," and any(len(cell) > _ITEM_CHARS for row in rows for cell in row)):
            return f"table of {len(rows) - 1} rows ({', '.join(rows[0])}): {', '.join(rows[1])}"
    return ""


def _prose(text: str, max_chars: int) -> str:
    """Return the first lines of a text and the size of the rest."""
    lines = [one_line(line) for line in text.splitlines() if line.strip()]
    rest = f" … ({len(text)} characters)"
    return clipped(" / ".join(lines), max_chars - len(rest)) + rest.removeprefix(" …")

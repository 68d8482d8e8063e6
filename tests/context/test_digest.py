"""What the one-line digests of tool results promise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, ToolMessage

from langgraph_statekit.context.digest import calls_of, digest, digest_result
from langgraph_statekit.context.numbers import readable
from langgraph_statekit.context.tokens import plain_json
from tests.context.histories import CALLS, FEW, JSON, KEYS, histories


def shown(content: str, *, name: str = "weather", status: Any = "success", numbers: bool = False, **args: Any) -> str:
    message = ToolMessage(content, tool_call_id="1", name=name, status=status)
    return digest(message, {"name": name, "args": args, "id": "1", "type": "tool_call"}, numbers=numbers)


LONG = {f"field_{n}": f"some value {n}" for n in range(40)}
FLIGHTS = [{"flight_number": f"HAT{n}", "status": "available", "note": "x" * 80} for n in range(9)]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('{"temp_c": 22, "condition": "sunny"}', "weather: Beijing → 22 °C, sunny"),
        ('{"temperature": 22, "unit": "°C", "sky": "sunny", "humidity": 4, "wind": {"speed": 3}}',
         "weather: Beijing → temperature=22 °C, sky=sunny, humidity=4, speed=3"),
        ("22 degrees,\n  sunny", "weather: Beijing → 22 degrees, sunny"),
        ("", "weather: Beijing → nothing"),
        ("[]", "weather: Beijing → none"),
        ("null", "weather: Beijing → null"),
        ("[1, 2.5, true]", "weather: Beijing → 1, 2.5, true"),
        ("Error: gift card balance is not enough", "weather: Beijing → error: gift card balance is not enough"),
        ("Traceback (most recent call last):\n  File 'x'\n    f()\nValueError: no such city\n",
         "weather: Beijing → error: ValueError: no such city"),
        ("| city | °C |\n|---|---|\n| Rome | 30 |\n| Oslo | 12 |" + "\n| Bern | 18 |" * 20,
         "weather: Beijing → table of 22 rows (city, °C): Rome, 30"),
    ],
)  # fmt: skip
def test_a_result_is_told_in_one_line(content: str, line: str) -> None:
    assert shown(content, city="Beijing") == line


def test_what_names_a_thing_is_told_before_the_rest() -> None:
    told = shown(json.dumps({**LONG, "reservation_id": "ZFA04Y", "status": "confirmed"}))
    assert "reservation_id=ZFA04Y, status=confirmed" in told
    assert told.endswith("more")
    assert "9: HAT0 available" in shown(json.dumps(FLIGHTS))
    cards = {"name": "Mia", "payment_methods": {"card_1": {"amount": 1}, "card_2": {"amount": 2}}, "address": LONG}
    assert "payment_methods=card_1, card_2" in shown(json.dumps(cards))


@pytest.mark.parametrize("depth", [300, 990, 100_000])
def test_json_of_any_depth_has_a_line(depth: int) -> None:
    for text in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        assert 0 < len(shown(text)) < 300


def test_a_failed_call_is_told_as_an_error() -> None:
    assert shown("no such seat", status="error", seat="4A") == "weather: 4A → error: no such seat"


def test_arguments_are_told_exactly_or_by_their_size() -> None:
    told = shown("ok", amount=1500000, account=12345678901234567890, note="x" * 500, numbers=True)
    assert told == "weather: amount=1500000, account=12345678901234567890, note=(500 characters) → ok"


@pytest.mark.parametrize(
    ("found", "line"),
    [
        ({"revenue": 123456789, "account_number": 123456789012}, "revenue=123 million, account_number=123456789012"),
        ({"公司": "北京", "收入": 123456789, "编号": 123456789012}, "公司=北京, 收入=1.23亿, 编号=123456789012"),
    ],
)
def test_large_numbers_are_readable_where_asked_but_never_ids(found: dict[str, Any], line: str) -> None:
    assert shown(json.dumps(found), numbers=True) == f"weather → {line}"
    assert "123456789," in shown(json.dumps(found))


@FEW
@given(histories(), st.booleans())
def test_any_result_has_a_short_line(history: list[BaseMessage], numbers: bool) -> None:
    calls: dict[str, Any] = {}
    for message in history:
        calls.update(calls_of(message))
        if isinstance(message, ToolMessage):
            result = digest_result(message, max_chars=100, numbers=numbers)
            assert 0 < len(result) <= 100
            line = digest(message, calls.get(message.tool_call_id), max_chars=100, numbers=numbers)
            assert len(line.splitlines()) == 1
            assert line.endswith(result)


@FEW
@given(CALLS)
def test_no_argument_is_altered(call: Any) -> None:
    line = digest(ToolMessage("ok", tool_call_id="1"), call, numbers=True)
    for value in call["args"].values():
        text = plain_json(value)
        assert text in line or f"({len(text)} characters)" in line


@given(st.dictionaries(KEYS, JSON, min_size=1, max_size=4), st.integers(10, 300))
@FEW
def test_json_of_any_shape_fits(found: dict[str, Any], max_chars: int) -> None:
    assert len(digest_result(ToolMessage(json.dumps(found), tool_call_id="1"), max_chars=max_chars)) <= max_chars


@pytest.mark.parametrize(
    ("number", "english", "chinese"),
    [
        (999_999, "999999", "999999"),
        (1_234_567, "1.23 million", "123万"),
        (999_999_999, "1 billion", "10亿"),
        (-5_000_000, "-5 million", "-500万"),
        (123_456_789_012, "123 billion", "1,230亿"),
        (1_500_000.5, "1.5 million", "150万"),
        (2 * 10**12, "2 trillion", "2万亿"),
        (10**30, str(10**30), str(10**30)),
        (float("inf"), "inf", "inf"),
    ],
)
def test_numbers_are_said_as_people_say_them(number: float, english: str, chinese: str) -> None:
    assert (readable(number), readable(number, chinese=True)) == (english, chinese)


@given(st.integers(-(10**17), 10**17), st.booleans())
def test_a_readable_number_is_right_to_three_digits(number: int, chinese: bool) -> None:
    words = {" trillion": 1e12, " billion": 1e9, " million": 1e6, "万亿": 1e12, "亿": 1e8, "万": 1e4}
    text = readable(number, chinese=chinese).replace(",", "")
    size = next((word for word in words if text.endswith(word)), "")
    assert float(text.removesuffix(size)) * words.get(size, 1) == pytest.approx(number, rel=5.1e-3)


def test_what_the_call_says_is_not_told_again_and_what_differs_is() -> None:
    call: Any = {"name": "cancel", "args": {"reservation_id": "VA5SGQ", "seats": "two"}, "id": "c", "type": "tool_call"}
    found = '{"reservation_id": "VA5SGQ", "seats": "one", "refund": 305}'
    result = ToolMessage(found, tool_call_id="c")
    assert digest(result, call) == "cancel: VA5SGQ, two → seats=one, refund=305"
    assert digest(result).startswith("tool → reservation_id=VA5SGQ")
    echo = ToolMessage('{"reservation_id": "VA5SGQ"}', tool_call_id="c")
    assert "VA5SGQ" in digest(echo, call).partition("→")[2], "a result that says nothing else is told"


@pytest.mark.parametrize("number", [13_812_345_678, 1_735_689_612, 1_735_689_612_345, 6_222_021_234_567_890])
@pytest.mark.parametrize(
    "key",
    [
        *("orderId", "orderIDs", "userID", "userid", "uid", "order-no", "accountNumber", "transactionId", "trackingNo"),
        *("uuid", "isbn", "invoice", "card", "phone", "phone2", "QQ", "account_balance_id", "costCenter", "checkSum"),
        *("created_at", "updatedAt", "created_utc", "timestamp", "timestamp_ms", "start_ms", "dt", "sunrise", "exp"),
        *("price_updated_at", "count_date", "订单编号", "手机号", "卡号", "身份证号", "账户", "时间", "value", "x", ""),
    ],
)
def test_a_number_that_may_name_something_or_a_moment_is_never_rounded(key: str, number: int) -> None:
    told = shown(json.dumps({key: number, "total": 12_345_678, "note": "x" * 300}), numbers=True)
    assert str(number) in told
    assert "12.3 million" in told or "1,230万" in told


@pytest.mark.parametrize("found", [13_812_345_678, [13_812_345_678], {"list": [13_812_345_678]}])
def test_a_number_without_a_name_is_never_rounded(found: Any) -> None:
    assert "13812345678" in shown(json.dumps(found), numbers=True)


AMOUNTS = "population viewCount view_count total-views totalRevenue GDP price_cny number_of_users amountDue sizeBytes"
CHINESE_AMOUNTS = "常住人口 数量 总额 交易金额 股价 销量 用户数 净利润 市值 销售额(元)"


@pytest.mark.parametrize(
    ("key", "line"),
    [
        *((key, "12.3 million") for key in (*AMOUNTS.split(), "Sales (USD)")),
        *((key, "1,230万") for key in CHINESE_AMOUNTS.split()),
    ],
)
def test_what_says_that_it_is_an_amount_a_count_or_a_size_is_readable(key: str, line: str) -> None:
    assert line in shown(json.dumps({key: 12_345_678}), numbers=True)

"""Live objects as plain, typed, size-capped data."""

from __future__ import annotations

import io
import json
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_statekit.checkpoint.results import SerializableResult
from langgraph_statekit.checkpoint.serde import StatekitSerializer
from langgraph_statekit.errors import Misuse

STRICT = StatekitSerializer(allowed_msgpack_modules=None)
ANSWERS = {
    "/json": ("application/json", '{"price": "1,10 €"}'.encode()),
    "/latin": ("text/plain; charset=iso-8859-1", "é".encode("latin-1")),
    "/image": ("image/png", b"\x89PNG\x00\xff"),
    "/broken": ("text/plain; charset=utf-8", b"\xff\xfe\x00"),
    "/odd": ("text/plain; charset=no-such", b"abc"),
    "/long": ("text/plain; charset=utf-8", "é".encode() * 5000),
    "/empty": ("text/plain", b""),
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        kind, body = ANSWERS[self.path.partition("?")[0]]
        self.send_response(404 if self.path == "/empty" else 200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "session=hush")
        self.send_header("X-Api-Key", "hush")
        self.send_header("X-Trace", "7")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.fixture(params=[requests, httpx], ids=["requests", "httpx"])
def client(request: pytest.FixtureRequest) -> Any:
    return request.param


def stored(obj: Any, **settings: Any) -> SerializableResult:
    """Return the result after a round trip that must not change it."""
    result = SerializableResult.of(obj, **settings)
    for serde in (STRICT, StatekitSerializer(), JsonPlusSerializer(allowed_msgpack_modules=[SerializableResult])):
        back = serde.loads_typed(StatekitSerializer().dumps_typed({"r": [result]}))["r"][0]
        assert type(back) is SerializableResult
        assert back == result
    return result


def test_a_response_keeps_what_is_needed_and_no_credentials(client: Any, server: str) -> None:
    response = client.get(f"http://ann:hush@{server}/json?a=1", headers={"Authorization": "Bearer hush"})
    result = stored(response)
    assert (result.kind, result.truncated, result.size_bytes) == ("response", False, len(response.content))
    assert result.type == f"{type(response).__module__}.Response"
    assert (result.data["status"], result.data["reason"]) == (200, "OK")
    assert result.data["url"] == f"http://{server}/json?a=1"
    assert json.loads(result.data["body"]) == {"price": "1,10 €"}
    assert 0 <= result.data["elapsed_s"] < 60
    assert {key.lower(): value for key, value in result.data["headers"].items()}["x-trace"] == "7"
    assert "hush" not in repr(result)


@pytest.mark.parametrize(
    ("path", "body"),
    [("/latin", "é"), ("/image", b"\x89PNG\x00\xff"), ("/broken", b"\xff\xfe\x00"), ("/empty", "")],
)
def test_a_body_is_text_where_it_is_text_and_bytes_otherwise(client: Any, server: str, path: str, body: Any) -> None:
    result = stored(client.get(f"http://{server}{path}"))
    assert result.data["body"] == body
    assert type(result.data["body"]) is type(body)


def test_an_unknown_charset_does_not_lose_the_body(client: Any, server: str) -> None:
    assert stored(client.get(f"http://{server}/odd")).data["body"] in (b"abc", "abc")


def test_a_long_body_is_cut_between_two_characters_and_says_so(client: Any, server: str) -> None:
    for max_bytes in (1000, 1001):
        result = stored(client.get(f"http://{server}/long"), max_bytes=max_bytes)
        assert set(result.data["body"]) == {"é"}
        assert len(result.data["body"].encode()) <= max_bytes
        assert (result.truncated, result.size_bytes) == (True, 10_000)


def test_a_streamed_body_is_not_read(server: str) -> None:
    with requests.get(f"http://{server}/json", stream=True) as response:
        assert stored(response).data["body"] is None
        assert response.json() == {"price": "1,10 €"}
    with httpx.stream("GET", f"http://{server}/json") as streamed:
        assert stored(streamed).data["body"] is None
        assert json.loads(streamed.read()) == {"price": "1,10 €"}


def raised() -> BaseException:
    try:
        try:
            {}["sku"]
        except KeyError as error:
            raise ValueError("no price", 3, object) from error
    except ValueError as error:
        error.add_note("row 7")
        return error


def test_an_exception_keeps_message_arguments_causes_and_place() -> None:
    result = stored(raised())
    assert (result.kind, result.type, result.truncated) == ("exception", "builtins.ValueError", False)
    assert result.data["message"] == "('no price', 3, <class 'object'>)"
    assert result.data["args"] == ["no price", 3, "<class 'object'>"]
    assert result.data["notes"] == ["row 7"]
    assert result.data["causes"] == [{"type": "builtins.KeyError", "message": "'sku'"}]
    assert "in raised" in result.data["traceback"][0]


def test_exception_chains_groups_and_odd_exceptions_end() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert [cause["message"] for cause in stored(first).data["causes"]] == ["b"]
    group = stored(ExceptionGroup("many", [ValueError(str(n)) for n in range(50)]))
    assert [inner["message"] for inner in group.data["exceptions"]] == [str(n) for n in range(10)]
    assert group.truncated

    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert "without text: RuntimeError" in stored(Odd()).data["message"]
    assert stored(ValueError("\ud800")).data["message"] == "\\ud800"


def test_a_deep_traceback_keeps_its_end() -> None:
    def fall(depth: int) -> None:
        if not depth:
            raise ValueError("x" * 10_000)
        fall(depth - 1)

    with pytest.raises(ValueError, match="x") as caught:
        fall(100)
    result = stored(caught.value, max_bytes=20_000)
    assert result.truncated
    assert len(result.data["traceback"]) <= 60
    assert "raise ValueError" in "".join(result.data["traceback"][-2:])
    assert len(stored(caught.value, max_bytes=500).data["message"]) == 500


def test_a_file_is_described_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("sku,price\n")
    with open(path) as file:
        file.read(3)
        result = stored(file)
        assert file.read() == ",price\n"
    assert result.kind == "file"
    assert result.data == {"name": str(path), "mode": "r", "position": 3, "closed": False}
    assert stored(file).data["closed"] is True
    with tempfile.NamedTemporaryFile() as temporary:
        assert stored(temporary).data["mode"] == "rb+"


def test_an_in_memory_file_is_its_content() -> None:
    assert stored(io.BytesIO(b"\x00abc")).data["content"] == b"\x00abc"
    result = stored(io.StringIO("é" * 10), max_bytes=5)
    assert (result.data["content"], result.truncated, result.size_bytes) == ("éé", True, 20)


def test_a_generator_is_consumed_up_to_the_cap() -> None:
    result = stored(n * 1.5 for n in range(3))
    assert (result.kind, result.data, result.truncated) == ("items", {"items": [0.0, 1.5, 3.0]}, False)
    endless = count()
    result = stored(endless, max_bytes=80)
    assert result.data["items"] == list(range(10))
    assert result.truncated
    assert next(endless) == 11
    assert stored(iter(["x" * 9, "y"]), max_bytes=5).data["items"] == []


def test_a_generators_own_failure_is_raised() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        SerializableResult.of(failing())


async def test_asynchronous_objects_must_be_awaited_first() -> None:
    async def items() -> AsyncIterator[int]:
        yield 1

    async def value() -> int:
        return 1

    coroutine = value()
    for obj in (items(), coroutine):
        with pytest.raises(Misuse, match="await it first"):
            SerializableResult.of(obj)
    assert SerializableResult.of(await coroutine).data == {"value": 1}
    with pytest.raises(Misuse, match="max_bytes"):
        SerializableResult.of(1, max_bytes=-1)


class Client:
    __slots__ = ("__dict__", "limit")

    def __init__(self) -> None:
        self.limit = 3
        self.base_url = "http://127.0.0.1"
        self.api_key = "hush"
        self.lock = threading.Lock()
        self._private = 1


def test_another_object_is_its_public_attributes_without_credentials() -> None:
    result = stored(Client())
    attributes = result.data["attributes"]
    assert (result.kind, attributes["limit"], attributes["base_url"]) == ("object", 3, "http://127.0.0.1")
    assert attributes["lock"].startswith("<unlocked _thread.lock")
    assert set(attributes) == {"limit", "base_url", "lock"}
    assert stored(object()).data["repr"].startswith("<object object at")
    assert stored(Client).data["repr"].endswith("Client'>")


def test_plain_values_are_kept_and_become_plain_all_the_way_down() -> None:
    result = stored({"a": (1, {2}), 3: [None, True, b"x", 2**70], "o": object, "token": "hush"})
    assert result.data == {"value": {"a": [1, [2]], "3": [None, True, b"x", str(2**70)], "o": "<class 'object'>"}}
    nested: Any = []
    for _ in range(100):
        nested = [nested]
    assert stored(nested).kind == "value"
    endless: list[Any] = []
    endless.append(endless)
    assert "[[...]]" in repr(stored(endless).data)


def test_every_kind_stays_below_the_cap() -> None:
    big, numbers = ["x" * 100] * 1000, {str(n): n for n in range(9999)}
    for obj in (big, numbers, iter(big), ValueError("y" * 9999), io.StringIO("z" * 9999), "t" * 9999):
        result = stored(obj, max_bytes=1000)
        assert result.truncated
        assert len(STRICT.dumps_typed(result)[1]) < 1000 + 400


def test_neither_http_client_is_imported() -> None:
    source = Path(sys.modules[SerializableResult.__module__].__file__ or "").read_text()
    assert "import requests" not in source
    assert "import httpx" not in source

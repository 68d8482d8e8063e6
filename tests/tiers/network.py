"""An HTTP server before another one, that is slow, loses and cuts answers, refuses, or says nothing."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

_REFUSALS = {"busy": (503, "SlowDown"), "denied": (403, "InvalidAccessKeyId")}
_SLOW_S = 0.03


class Network:
    """What lies between a client and a server of S3.

    Attributes:
        fault: Says what happens to the next request: "" nothing, `slow`, `lost` (it acts, and the answer is lost), `cut`
            (the answer ends too early), `busy`, `denied`, or `silent` (it does not act, and there is no answer).
        seen: How many requests there were with each fault.
    """

    def __init__(self, url: str) -> None:
        self.fault: Callable[[], str] = lambda: ""
        self.seen: Counter[str] = Counter()
        self._over = threading.Event()
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        endpoint = urlsplit(query["endpoint"])
        assert endpoint.port is not None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, endpoint.port))
        self._server.daemon_threads = True
        query["endpoint"] = f"http://127.0.0.1:{self._server.server_port}"
        self.url = urlunsplit(parts._replace(query=urlencode(query)))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        """Let go who waits, and end."""
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def network(url: str) -> Iterator[Network]:
    """Yield a network before the server of this URL; its own URL leads through it."""
    made = Network(url)
    try:
        yield made
    finally:
        made.close()


def _handler(net: Network, port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fault = net.fault()
            net.seen[fault] += 1
            with suppress(OSError):  # the client has given up
                if fault == "silent":
                    net._over.wait()
                    self.close_connection = True
                elif fault in _REFUSALS:
                    code, name = _REFUSALS[fault]
                    self._answer(code, {}, f"<Error><Code>{name}</Code><Message>{name}</Message></Error>".encode(), "")
                else:
                    if fault == "slow":
                        net._over.wait(_SLOW_S)
                    self._answer(*self._asked(body), fault)

        def _asked(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            try:
                link.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    link.putheader(name, value)
                link.endheaders(body)
                answer = link.getresponse()
                return answer.status, dict(answer.getheaders()), answer.read()
            finally:
                link.close()

        def _answer(self, code: int, headers: dict[str, str], data: bytes, fault: str) -> None:
            self.close_connection = fault in ("lost", "cut")
            if fault == "lost":
                return
            self.send_response_only(code)
            for name, value in headers.items():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            size = headers.get("Content-Length", f"{len(data)}") if self.command == "HEAD" else f"{len(data)}"
            self.send_header("Content-Length", size)
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if fault == "cut" else data)

        def log_message(self, *args: Any) -> None:
            pass

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass

    return Handler

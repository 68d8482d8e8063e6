"""Object stores other than S3: Azurite, if it is on PATH; Google Cloud Storage only by a URL in the environment."""

from __future__ import annotations

import base64
import hmac
import http.client
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from email.utils import formatdate
from urllib.parse import urlencode

from tests import servers
from tests.servers import Absent, Server, free_ports, on_path, private_directory

ACCOUNT, CONTAINER = "statekit", "statekit"
KEY = base64.b64encode(b"secret of the tests").decode()


@contextmanager
def azure_server() -> Iterator[Server]:
    """A private Azure Blob service with a container; its URL names that, and what opens it."""
    binary = on_path("azurite-blob")
    if binary is None:
        raise Absent("no azurite-blob on PATH: npm install -g azurite, or set STATEKIT_TEST_AZ_URL")
    with private_directory() as directory, ExitStack() as stack:
        (port,) = free_ports(1)
        options = {
            "endpoint": f"http://127.0.0.1:{port}/{ACCOUNT}",
            "account_name": ACCOUNT,
            "account_key": KEY,
        }
        server = Server(
            "az",
            [
                *(*binary, "--blobHost", "127.0.0.1", "--blobPort", f"{port}", "--location", f"{directory}"),
                *("--skipApiVersionCheck", "--disableTelemetry", "--silent"),
            ],
            f"az://{CONTAINER}?{urlencode(options)}",
            lambda: _has_container(port),
            directory,
            env={"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"},
        )
        stack.callback(server.kill)  # nothing of it is kept
        server.start()
        yield server


def _has_container(port: int) -> bool:
    """Create the container, as obstore cannot."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    signed = "\n".join(f"{name}:{value}" for name, value in headers.items())
    text = f"PUT{chr(10) * 12}{signed}\n/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        authorized = {**headers, "Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Length": "0"}
        link.request("PUT", f"/{ACCOUNT}/{CONTAINER}?restype=container", headers=authorized)
        return link.getresponse().status in (201, 409)
    except OSError:
        return False
    finally:
        link.close()


def gcs_server() -> AbstractContextManager[Server]:
    """Raise `Absent`: its emulators do not serve the XML API that obstore uses, or do not compare generations."""
    raise Absent("no emulator of Google Cloud Storage has conditional writes: set STATEKIT_TEST_GS_URL")


STARTERS: dict[str, Callable[[], AbstractContextManager[Server]]] = {
    **servers.STARTERS,
    "az": azure_server,
    "gs": gcs_server,
}

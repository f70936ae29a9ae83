"""A test's own servers in threads, and forwarding of their requests."""

import http.client
import socketserver
import threading
import urllib.parse
from collections.abc import Mapping
from typing import Self

from tests.tools.captures.captured_runs import TIMEOUT_SECS


class ServerThread:
    """Serves from a thread inside its `with` block."""

    def __init__(self, server: socketserver.TCPServer) -> None:
        self.server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self._thread.join(TIMEOUT_SECS)
        self.server.server_close()


def forwarded(
    target: urllib.parse.SplitResult,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes,
) -> tuple[int, str, bytes]:
    """Return a server's answer to a request: status, content type, body."""
    connection = http.client.HTTPConnection(
        target.hostname or "", target.port, timeout=TIMEOUT_SECS
    )
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Content-Type", ""), answer.read()
    finally:
        connection.close()

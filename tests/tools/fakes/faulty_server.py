"""An HTTP server with scripted answers that a healthy Loki or Prometheus never sends."""

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Said:
    """An answer.

    - body_bytes: value of Content-Length, None for the real size
    - pieces: number of writes of the body, with a pause after each
    - hang: send nothing until the server closes
    - drip: send the answer byte by byte, with a pause after each
    - hang_up: close the connection half-way through the request instead
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    body_bytes: int | None = None
    pieces: int = 1
    hang: bool = False
    drip: bool = False
    hang_up: bool = False


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


def say(request: BaseHTTPRequestHandler, reply: Said, closing: threading.Event) -> None:
    """Answer a request. closing: ends waits and pauses."""
    if reply.hang or reply.hang_up:
        request.close_connection = True
        if reply.hang:
            closing.wait()
        return
    headers = {"Date": request.date_time_string(), **reply.headers}
    if reply.status != 204:
        headers["Content-Length"] = str(
            len(reply.body) if reply.body_bytes is None else reply.body_bytes
        )
    head = [
        f"HTTP/1.1 {reply.status} Said",
        *(f"{name}: {value}" for name, value in headers.items() if value),
        "",
        "",
    ]
    text = "\r\n".join(head).encode()
    size = -(-len(reply.body) // reply.pieces) or 1
    pieces = [
        text,
        *(reply.body[begin : begin + size] for begin in range(0, len(reply.body), size)),
    ]
    if reply.drip:
        pieces = [bytes([byte]) for byte in text + reply.body]
    with contextlib.suppress(OSError):  # the client stopped reading
        for piece in pieces:
            request.wfile.write(piece)
            if (reply.drip or reply.pieces > 1) and closing.wait(0.05):
                request.close_connection = True
                return
    if reply.body_bytes is not None:
        request.close_connection = True


class FaultyServer:
    """A server on a free loopback port. answers: in turn; the last one repeats. requests: received
    so far."""

    def __init__(self, *answers: Said) -> None:
        self.requests: list[Asked] = []
        self._answers = list(answers)
        self._closing = threading.Event()
        self._lock = threading.Lock()
        outer = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer._answer(self, body)

            do_GET = do_POST  # noqa: N815  http.server's name

            def log_message(self, *_: Any) -> None:  # Any: as in the base
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, *answers: Said) -> None:
        """Replace the answers from now on."""
        with self._lock:
            self._answers = list(answers)

    def _answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        with self._lock:
            self.requests.append(Asked(request.command, request.path, dict(request.headers), body))
            reply = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        say(request, reply, self._closing)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def requests_of(server: FaultyServer) -> Sequence[str]:
    return [f"{request.method} {request.path.partition('?')[0]}" for request in server.requests]

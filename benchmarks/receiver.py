"""The receiver of `peers.py`: an HTTP server in a process of its own that counts lines.

It accepts Loki's push interface (JSON or snappy) and OTLP, and answers at once or forwards to a
Loki. Lines carry their number and the time of their write.
"""

import gzip
import http.client
import http.server
import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import zlib
from array import array
from typing import NamedTuple, Self

from tests.tools.fakes.push_decoder import decompress

LINE = "epoch 12 seq=%08d at=%019d: loss 0.123456 acc 0.98765 lr 1.0e-04 time 0.123 s/it ok"
_MARK = re.compile(rb"seq=(\d{8}) at=(\d{19})")


class Result(NamedTuple):
    """distinct, total: accepted lines; delays: seconds of each first arrival, in order of lines."""

    distinct: int
    total: int
    delays: list[float]


class Receiver:
    """A receiver's process; `with` ends it. loki_url: where it forwards, if anywhere."""

    def __init__(self, loki_url: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.receiver", loki_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = f"http://127.0.0.1:{self.order('')}"

    def order(self, command: str) -> str:
        """Send a command, and return its answer: pass, 503, refuse, or result."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if command:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def result(self, *, delays: bool = False) -> Result:
        return Result(*json.loads(self.order("delays" if delays else "result")))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


class _State:
    """What arrived so far."""

    def __init__(self, loki_url: str) -> None:
        self.loki = urllib.parse.urlsplit(loki_url)
        self.mode = "pass"
        self.lock = threading.Lock()
        self.total = 0
        self.delay_of = array("d")  # by line; -1: not there
        self.distinct = 0
        self.connections: set[socket.socket] = set()

    def take(self, body: bytes, arrived_ns: int) -> None:
        marks = _MARK.findall(body)
        with self.lock:
            self.total += len(marks)
            for number_text, at in marks:
                number = int(number_text)
                if number >= len(self.delay_of):
                    self.delay_of.extend([-1.0] * (number + 100_000 - len(self.delay_of)))
                if self.delay_of[number] == -1.0:
                    self.delay_of[number] = (arrived_ns - int(at)) / 1e9
                    self.distinct += 1


def plain(body: bytes, encoding: str, content_type: str) -> bytes:
    """Return a request's body without its compression."""
    if encoding == "gzip":
        return gzip.decompress(body)
    if encoding == "deflate":
        return zlib.decompress(body)
    if encoding == "snappy" or (not encoding and content_type == "application/x-protobuf"):
        return decompress(body)
    return body


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    state: _State

    def setup(self) -> None:
        super().setup()
        self.state.connections.add(self.connection)

    def finish(self) -> None:
        self.state.connections.discard(self.connection)
        super().finish()

    def do_POST(self) -> None:
        arrived_ns = time.time_ns()
        body = self._body()
        state, status, answer = self.state, 204, b""
        is_otlp = self.path.startswith("/otlp")
        if state.mode == "503":
            status = 503
        elif state.loki.hostname:
            status, answer = self._forward(body)
        elif is_otlp:
            status = 200
        if status < 300:
            encoding = self.headers.get("Content-Encoding", "")
            kind = "" if is_otlp else self.headers.get("Content-Type", "")
            state.take(plain(body, encoding, kind), arrived_ns)
        self.send_response(status)
        if is_otlp:
            self.send_header("Content-Type", "application/x-protobuf")
        if status != 204:
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_GET(self) -> None:
        self.send_response(503 if self.state.mode == "503" else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _forward(self, body: bytes) -> tuple[int, bytes]:
        loki = http.client.HTTPConnection(self.state.loki.hostname or "", self.state.loki.port)
        names = ("Content-Type", "Content-Encoding", "X-Scope-OrgID")
        headers = {name: self.headers[name] for name in names if name in self.headers}
        try:
            loki.request("POST", self.path, body, headers)
            answer = loki.getresponse()
            text = answer.read()
            if answer.status >= 300:
                print(answer.status, text[:300], file=sys.stderr, flush=True)
            return answer.status, text
        finally:
            loki.close()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 100

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore closed connections."""


def _serve(port: int) -> _Server:
    server = _Server(("127.0.0.1", port), _Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


def main() -> None:
    state = _Handler.state = _State(sys.argv[1])
    server: _Server | None = _serve(0)
    assert server is not None
    port = server.server_port
    print(port, flush=True)
    for line in sys.stdin:
        command, answer = line.strip(), ""
        if command == "refuse" and server is not None:
            server.shutdown()
            server.server_close()
            server = None
            for connection in list(state.connections):
                connection.shutdown(socket.SHUT_RDWR)
        elif command in ("result", "delays"):
            with state.lock:
                delays = [delay for delay in state.delay_of if delay != -1.0]
                result = state.distinct, state.total, delays if command == "delays" else []
            answer = json.dumps(result)
        else:
            state.mode = command
            server = server or _serve(port)
        print(answer, flush=True)


if __name__ == "__main__":
    main()

"""The page's server: HTTP on 127.0.0.1 for the holder of the link (access.py).

Other users reach the port, too, so everything has a limit: MAX_CONNECTIONS with a thread each,
HEAD_SECS for a request's head, WRITE_SECS for a browser that accepts no data, MAX_LINE bytes for a
line of a head. A new connection replaces the one that has waited longest for a request.
"""

import argparse
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from logshipper.errors import ConfigError, LogshipperError, QueryError, UnknownJob, os_words
from logshipper_observe.page import assets
from logshipper_observe.page.access import Access, foreign, forget_secrets, redirect_page
from logshipper_observe.page.api import routes
from logshipper_observe.page.api.request import (
    Caches,
    PageAnswer,
    Request,
    RequestRefusal,
    json_answer,
)
from logshipper_observe.page.data.thread_store import SharedIngest, ThreadStore
from logshipper_observe.query.asked import UnknownKey
from logshipper_observe.search.line_search import ExpressionRefusal

MAX_CONNECTIONS = 64
HEAD_SECS = 20.0  # from the connection or the last answer to the end of a request's head
WRITE_SECS = 30.0
MAX_LINE = 8192  # bytes of the request line
MAX_PARAMS = 32  # of a query
_POLL_SECS = 0.25
_PIECE_CHARS = 1 << 16  # of a download
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
POLICY = "; ".join(
    (
        "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' blob:", "connect-src 'self'",
        "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)  # fmt: skip
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_STATUSES = {  # of errors, the first that fits
    ExpressionRefusal: HTTPStatus.BAD_REQUEST,
    UnknownJob: HTTPStatus.NOT_FOUND,
    UnknownKey: HTTPStatus.NOT_FOUND,
    QueryError: HTTPStatus.BAD_GATEWAY,
    LogshipperError: HTTPStatus.INTERNAL_SERVER_ERROR,
}


class PageServer(ThreadingHTTPServer):
    """Serves the page of one store from its own threads, from `start` until `close`. Raises
    ConfigError for an unavailable port."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self,
        args: argparse.Namespace,  # options of a reading command (opening.py)
        port: int = 0,  # 0 for a free one; the link of a chosen port stays the same
        log: Callable[[str], None] = lambda message: None,  # for faults of the server
    ) -> None:
        self.access = Access(port)
        self.intake = SharedIngest(args)
        self.assets = assets.load()
        self.caches = Caches(self.intake)
        self.log = log
        self._lock = threading.Lock()
        # since when each connection waits for a request, None while the server answers one
        self._open: dict[socket.socket, float | None] = {}
        try:
            super().__init__(("127.0.0.1", port), _Request)
        except OSError as error:
            if port:
                forget_secrets(port)  # the program at the port may have received them
            raise ConfigError(
                "--port", [f"can't listen on 127.0.0.1:{port}: {os_words(error)}; try another"]
            ) from None
        self.port: int = self.server_address[1]
        self._thread = threading.Thread(
            target=self.serve_forever, args=(_POLL_SECS,), name="page", daemon=True
        )

    def link(self, view: str = "") -> str:
        """Return the address for a browser, perhaps of a view such as `job/k3f9x2`."""
        return self.access.link(self.port, view)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop listening and end all connections."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        with self._lock:
            for request in self._open:
                _end(request)
        self.caches.copies.close()
        self.server_close()

    def __enter__(self) -> "PageServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's method would look up the machine's name

    def process_request(self, request: Any, client_address: Any) -> None:  # Any: as in socketserver
        with self._lock:
            has_room = len(self._open) < MAX_CONNECTIONS or self._make_room()
            if has_room:
                self._open[request] = time.monotonic()
        if has_room:
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.setblocking(False)
            request.send(_BUSY)
        self.shutdown_request(request)

    def _make_room(self) -> bool:
        """End the connection that has waited longest. Its thread ends later, so count up to twice
        the limit."""
        waiting = {request: since for request, since in self._open.items() if since is not None}
        if len(self._open) >= 2 * MAX_CONNECTIONS or not waiting:
            return False
        oldest = min(waiting, key=waiting.__getitem__)
        self._open[oldest] = None
        _end(oldest)
        return True

    def note(self, request: socket.socket, *, waits: bool) -> None:
        """Note whether a connection waits for a request."""
        with self._lock:
            if request in self._open:
                self._open[request] = time.monotonic() if waits else None

    def shutdown_request(self, request: Any) -> None:  # Any: likewise
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        cutoff = time.monotonic() - HEAD_SECS
        with self._lock:
            for request, since in self._open.items():
                if since is not None and since < cutoff:
                    _end(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # Any: as in socketserver
        """Log faults, except connections that the browser ended."""
        error = sys.exception()
        if not isinstance(error, OSError):
            self.log(f"the page's server failed to answer: {error!r}")


def _end(connection: socket.socket) -> None:
    with suppress(OSError):  # the browser was first
        connection.shutdown(socket.SHUT_RDWR)


class _Request(BaseHTTPRequestHandler):
    server: PageServer
    raw_requestline: bytes
    protocol_version = "HTTP/1.1"
    timeout = WRITE_SECS
    # send head and body together and at once, without waiting for acknowledgements
    wbufsize = 1 << 16
    disable_nagle_algorithm = True
    server_version = "logshipper"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self._store = ThreadStore(self.server.intake)

    def finish(self) -> None:
        self._store.close()
        super().finish()

    def handle_one_request(self) -> None:
        self.server.note(self.connection, waits=True)
        super().handle_one_request()

    def parse_request(self) -> bool:
        if len(self.raw_requestline) > MAX_LINE:
            self.requestline, self.request_version, self.command = "", "HTTP/1.1", ""
            self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)
            return False
        is_valid = super().parse_request()
        self.server.note(self.connection, waits=False)
        return is_valid

    def do_GET(self) -> None:
        try:
            answer = self._answer()
        except RequestRefusal as refusal:
            answer = _failure(refusal.status, str(refusal))
        except LogshipperError as error:
            status = next(status for kind, status in _STATUSES.items() if isinstance(error, kind))
            answer = _failure(status, str(error))
        except Exception as error:
            self.server.log(f"the page's server failed to answer: {error!r}")
            answer = _failure(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "logshipper failed to answer: its terminal shows the error",
            )
        self._send(answer)

    do_HEAD = do_GET  # noqa: N815  http.server's name

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer an unknown method or a malformed head. End the connection, as a body may
        follow."""
        is_unknown_method = code == HTTPStatus.NOT_IMPLEMENTED
        status = HTTPStatus.METHOD_NOT_ALLOWED if is_unknown_method else HTTPStatus(code)
        self.close_connection = True
        # HTTP 0.9, the version of bare lines, has no status
        self.request_version = self.protocol_version
        allow = {"Allow": "GET, HEAD"} if status is HTTPStatus.METHOD_NOT_ALLOWED else {}
        self._send(_failure(status, status.phrase, {**allow, "Connection": "close"}))

    def _answer(self) -> PageAnswer:
        # without a cookie, existing and missing paths get the same refusal
        if self.headers.get("Content-Length", "0") != "0" or self.headers.get("Transfer-Encoding"):
            self.close_connection = True  # the body would count as the next request
        target = urlsplit(self.path)
        params = _params(target.query)
        root = self.server.access.root
        entering = target.path == root and "token" in params
        reason = foreign(self.headers, entering=entering)
        if reason:
            raise RequestRefusal(reason, HTTPStatus.FORBIDDEN)
        access = self.server.access
        if entering and access.has_token(params["token"]):
            url = "./" + (f"#/{quote(params['view'], safe='/')}" if params.get("view") else "")
            # a browser that follows a link of another site sends the cookie only from a page of ours
            page = redirect_page(url, '<link rel="icon" href="icon.svg">').encode()
            cookie = {"Set-Cookie": access.set_cookie()}
            return PageAnswer(page, "text/html; charset=utf-8", headers=cookie)
        if not target.path.startswith(root) or not access.has_cookie(
            self.headers.get("Cookie") or ""
        ):
            raise RequestRefusal(
                "open the page by the link that `logshipper` printed", HTTPStatus.FORBIDDEN
            )
        return self._inside(target.path.removeprefix(root), params)

    def _inside(self, path: str, params: dict[str, str]) -> PageAnswer:
        etag = self.headers.get("If-None-Match") or ""
        if path.startswith("api/"):
            answer, parts = routes.find(path.removeprefix("api/"))
            return answer(Request(parts, params, self._store, self.server.caches, etag))
        asset = self.server.assets.get(path)
        if asset is None:
            raise RequestRefusal("there is no such page", HTTPStatus.NOT_FOUND)
        return asset

    def _send(self, answer: PageAnswer) -> None:
        is_unchanged = bool(answer.etag) and answer.etag == self.headers.get("If-None-Match")
        self.send_response(HTTPStatus.NOT_MODIFIED if is_unchanged else answer.status)
        for name, value in {**_HEADERS, **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Cache-Control", "no-cache" if answer.etag else "no-store")
        if answer.etag:
            self.send_header("ETag", answer.etag)
        if answer.file_name:
            self.send_header("Content-Disposition", f'attachment; filename="{answer.file_name}"')
        if not is_unchanged:
            self.send_header("Content-Type", answer.content_type)
            if isinstance(answer.body, bytes):
                self.send_header("Content-Length", str(len(answer.body)))
            else:
                self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if is_unchanged or self.command == "HEAD":
            return
        if isinstance(answer.body, bytes):
            self.wfile.write(answer.body)
        else:
            self._send_pieces(answer.body)

    def _send_pieces(self, texts: Iterator[str]) -> None:
        """Send a body of unknown length in chunks (RFC 9112, 7.1). After an error, end the
        connection without the last chunk, so that the browser reports it."""
        try:
            for piece in filter(None, _pieces(texts)):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        except LogshipperError:
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Log no requests."""


def _pieces(texts: Iterator[str]) -> Iterator[bytes]:
    """Join texts to pieces in UTF-8. A `?` replaces each lone surrogate."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= _PIECE_CHARS:
            yield "".join(batch).encode("utf-8", "replace")
            batch, size = [], 0
    yield "".join(batch).encode("utf-8", "replace")


def _params(query: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_PARAMS))
    except ValueError:
        raise RequestRefusal(f"a query has at most {MAX_PARAMS} parameters") from None


def _failure(status: HTTPStatus, message: str, headers: dict[str, str] | None = None) -> PageAnswer:
    body = json_answer({"error": message}).body
    return PageAnswer(body, status=status, headers=headers or {})

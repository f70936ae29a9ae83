"""Receivers of messages: an HTTP server, a mail server and a script."""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.tools.waiting import wait_until


class HttpReceiver:
    """Collects posted JSON documents. answer: HTTP's code, or None to let clients wait."""

    def __init__(self, answer: int | None = 200) -> None:
        self.documents: list[dict[str, Any]] = []  # Any: JSON
        self.asked = threading.Event()
        self._over = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.asked.set()
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if answer is None:
                    receiver._over.wait()
                    return
                receiver.documents.append(json.loads(body))
                self.send_response(answer)
                self.end_headers()

            def log_message(self, *words: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port

    @contextmanager
    def serving(self) -> Iterator["HttpReceiver"]:
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def titles(self) -> list[str]:
        return [document["title"] for document in self.documents]

    def await_message(self) -> dict[str, Any]:
        wait_until(lambda: self.documents, "a message")
        return self.documents[-1]


class MailReceiver:
    """A mail server (SMTP, RFC 5321) that collects messages."""

    def __init__(self) -> None:
        self.mails: list[str] = []
        receiver = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(b"220 mail\r\n")
                while line := self.rfile.readline():
                    verb = line[:4].upper()
                    if verb == b"DATA":
                        self.wfile.write(b"354 go on\r\n")
                        mail = b""
                        while (part := self.rfile.readline()) not in (b".\r\n", b""):
                            mail += part
                        receiver.mails.append(mail.decode())
                    self.wfile.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 ok\r\n")

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    @contextmanager
    def serving(self) -> Iterator["MailReceiver"]:
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


class Script:
    """A program that appends each message to a file."""

    def __init__(self, folder: Path, name: str = "hook") -> None:
        self._received = folder / f"{name}.received"
        self.path = folder / name
        self.path.write_text(
            f'#!/bin/sh\n{{ printf "%s\\n" "$LOGSHIPPER_KIND|$LOGSHIPPER_JOB_ID|$*"; cat; echo; '
            f'echo "--"; }} >> {self._received}\n'
        )
        self.path.chmod(0o755)

    def messages(self) -> list[str]:
        if not self._received.exists():
            return []
        return self._received.read_text().split("\n--\n")[:-1]

    def await_messages(self, count: int = 1) -> list[str]:
        wait_until(lambda: len(self.messages()) >= count, f"{count} messages")
        return self.messages()

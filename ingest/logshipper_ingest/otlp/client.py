"""A client of OTLP by HTTP, for one signal's path of a server.

Use one object per thread. Raises PushError and QueryError, as the clients of Loki and InfluxDB do.
https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

import gzip
import json
from collections.abc import Callable

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceResponse,
)

from logshipper.errors import PushError, QueryError, RejectedPushError, RetryablePushError
from logshipper_ingest.config.otlp_section import OtlpSection
from logshipper_ingest.console.throttled_log import ThrottledLog
from logshipper_ingest.servers.server_access import TENANT_HEADER
from logshipper_ingest.servers.server_calls import ServerAnswer, ServerClient, is_page

_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "gzip",
    "Accept": "application/x-protobuf",
}
SUCCESS = (200, 204)  # OTLP's, and that of servers with empty answers
LATER = (429, 502, 503, 504)  # all statuses that allow a retry


class PartialSuccess(RejectedPushError):
    """The server dropped `count` entries, without naming them, and keeps the others.

    No entry may be sent again.
    """

    def __init__(self, server: str, status: int, words: str, count: int) -> None:
        self.count = count
        super().__init__(server, status, f"it drops {count} of what it was sent: {words}")


class OtlpClient(ServerClient):
    """section: of one signal. say: gets a server's warnings."""

    kind = "OTLP"

    def __init__(self, section: OtlpSection, say: Callable[[str], None] | None = None) -> None:
        super().__init__(section.access, max_answer_bytes=1 << 20)
        self._path = section.path
        self._warnings = ThrottledLog(say) if say is not None else None

    def push_body(self, body: bytes, tenant: str = "") -> None:
        """Send a request, compressed by `compress`.

        tenant: replaces that of the access. Raises PartialSuccess, and PushError by the protocol's
        rules: only LATER allows a retry.
        """
        headers = {**_HEADERS, TENANT_HEADER: tenant} if tenant else _HEADERS
        answer = self._push(self._path, body, headers, SUCCESS)
        if is_page(answer.body) or not answer.complete:
            what = "a page came" if answer.complete else "the answer was cut off"
            words = f"HTTP {answer.status}, but {what}: is url right?"
            raise RetryablePushError(self.name, 0, words)
        count, words = _partial_success(answer.body)
        if count or words:
            words = self.refusal(answer._replace(body=words.encode()))
        if count:
            raise PartialSuccess(self.name, answer.status, words, count)
        if words and self._warnings is not None:
            self._warnings.log(f"{self.name} took all, and warns: {words}")

    def ready(self) -> bool:
        """Return whether the server accepts a request without entries.

        Raises QueryError without an answer.
        """
        try:
            self.push_body(compress(b""))
        except PushError as error:
            if error.status == 0:
                raise QueryError(self.name, 0, error.excerpt) from None
            return error.status != 503
        return True

    def _is_later(self, status: int) -> bool:
        return status in LATER

    def _words(self, answer: ServerAnswer) -> str:
        return self.refusal(answer._replace(body=_status_message(answer.body)))


def compress(body: bytes) -> bytes:
    return gzip.compress(body, 1, mtime=0)


def _partial_success(body: bytes) -> tuple[int, str]:
    """Return the number of dropped entries, and the server's message.

    Answers of both signals have the same fields. Servers that answer with JSON or `ok` report
    nothing.
    """
    if body.lstrip()[:1] == b"{":
        return _partial_success_of_json(body)
    response = ExportLogsServiceResponse()
    try:
        response.ParseFromString(body)
    except DecodeError:
        return 0, ""
    partial = response.partial_success
    return max(partial.rejected_log_records, 0), partial.error_message


def _partial_success_of_json(body: bytes) -> tuple[int, str]:
    try:
        partial = json.loads(body).get("partialSuccess") or {}
        count = partial.get("rejectedLogRecords") or partial.get("rejectedDataPoints") or 0
        return max(int(count), 0), str(partial.get("errorMessage") or "")
    except (ValueError, TypeError, AttributeError, RecursionError):
        return 0, ""


def _status_message(body: bytes) -> bytes:
    """The message of a google.rpc.Status, which has its fields where a partial success has them;
    anything else as it is."""
    status = ExportLogsPartialSuccess()
    if body[:1] not in (b"\x08", b"\x12"):  # the tags of its code and message
        return body
    try:
        status.ParseFromString(body)
    except DecodeError:
        return body
    return status.error_message.encode() or body

"""Calls of a server's HTTP interface, for loki/client.py and metrics/prometheus.py.

Calls are bounded in size and time, follow no redirects, and report failures in plain words. Use one
object per thread. The first call imports requests.
"""

import email.utils
import json
import math
import re
import time
import urllib.parse
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import orjson

from logshipper.errors import ConfigError, QueryError, RejectedPushError, RetryablePushError
from logshipper_ingest.servers.call_failures import (
    MAX_EXCERPT_CHARS,
    clean,
    hidden,
    refusal_fix,
    words_of,
)
from logshipper_ingest.servers.server_access import Credentials, ServerAccess

if TYPE_CHECKING:
    import requests
    import urllib3

    from logshipper_ingest.servers.server_deadline import Deadline, RepeatedPush

MAX_ANSWER_BYTES = 64 << 20
MAX_RETRY_AFTER_SECS = 86_400.0
MAX_CONFIG_BYTES = 4 << 20
_MAX_ERROR_BYTES = 64 << 10  # of an unsuccessful answer
_SLOW_FACTOR = 6  # an answer may take so many time-outs in all
_PUSH_FACTOR = 2  # a push has a short answer, and the agent's end waits for it
_CHUNK_BYTES = 64 << 10
_TITLE = re.compile(r"<title>([^<]+)</title>", re.I)
_LONGEST_QUESTION = 4000  # characters in an address; gateways often end at 8 KiB

Params = Mapping[str, str | list[str]]
Headers = Mapping[str, str] | None


class ServerAnswer(NamedTuple):
    """A server's answer to one request."""

    status: int  # HTTP's
    body: bytes
    date_ns: int | None  # the server's clock, to a second; None without the header
    retry_after_secs: float | None  # the server's demand; None without the header
    location: str  # of a redirect
    complete: bool  # whether the whole body came
    request_id: str = ""  # identifies Loki's delete requests


class Sample(NamedTuple):
    time_ns: int
    value: float


class NoAnswer(Exception):
    """Nothing came back; the text says why."""


class AnswerTooLarge(QueryError):
    """The answer is over the client's cap: ask for less."""


class Server:
    """One server.

    name: for errors; answer_date_ns: the server's clock in its newest answer, None before;
    answer_bytes: decompressed size of that answer.
    """

    def __init__(self, kind: str, access: ServerAccess, max_answer_bytes: int) -> None:
        parts = urllib.parse.urlsplit(access.url)
        self.access = access
        address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        self.name = f"{kind} at {address}".rstrip("/")
        self.answer_date_ns: int | None = None
        self.answer_bytes = 0
        self._max_answer_bytes = max_answer_bytes
        self._session: requests.Session | None = None
        self._secrets: tuple[str, ...] = ()
        self._settings: Mapping[str, Any] = {}  # Any: types of requests' settings
        self._deadline: Deadline | None = None
        self._last_push: tuple[object, RepeatedPush] | None = None

    def close(self) -> None:
        """End its connections; it can be used again."""
        self._last_push = None
        if self._session is not None:
            self._session.close()
            self._session = None

    def get_json(self, path: str, params: Params | None = None, headers: Headers = None) -> Any:
        """Get the JSON of an answer (hence Any).

        Raises QueryError.
        """
        body = self.get(path, params, headers)
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError:  # half a surrogate pair, or a number beyond 64 bits
            try:
                return json.loads(body)
            except (ValueError, RecursionError):
                words = f"no JSON came, but: {excerpt(hidden(body, self._secrets))}"
                raise QueryError(self.name, 200, words) from None

    def get(self, path: str, params: Params | None = None, headers: Headers = None) -> bytes:
        """The body of a 200. Raises QueryError."""
        question = urllib.parse.urlencode(params or {}, doseq=True)
        if len(question) <= _LONGEST_QUESTION:
            path = f"{path}?{question}" if question else path
            return self.ask("GET", path, headers=headers).body
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.ask("POST", path, question.encode(), {**form, **(headers or {})}).body

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Headers = None,
        *,
        statuses: Collection[int] = (200,),
    ) -> ServerAnswer:
        """Send one request and return its whole answer of one of these statuses. Raises
        QueryError."""
        try:
            answer = self.call(method, path, body, headers)
        except NoAnswer as error:
            raise QueryError(self.name, 0, str(error)) from None
        if answer.status not in statuses:
            raise QueryError(self.name, answer.status, self.refusal(answer))
        if not answer.complete:
            raise QueryError(self.name, 0, "the answer was cut off")
        return answer

    def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Headers = None,
        *,
        timeouts: int = _SLOW_FACTOR,
    ) -> ServerAnswer:
        """Send one request and return its answer of any status.

        timeouts: the time limit of the whole call, in multiples of timeout_secs. Raises NoAnswer,
        AnswerTooLarge.
        """
        secs = self.access.timeout_secs * timeouts
        deadline = time.monotonic() + secs
        url = self.access.url.rstrip("/") + path
        try:
            response = self._send(method, url, body, headers, deadline)
        except ConfigError as error:
            raise NoAnswer(str(error)) from None
        # requests' own are OSErrors; ValueErrors are odd addresses
        except (OSError, ValueError) as error:
            words = words_of(error, self.access, self._settings.get("proxies") or {})
            if time.monotonic() >= deadline:
                words = f"no complete answer within {secs:g} s: the server answers too slowly"
            raise NoAnswer(words) from None
        try:
            return self._read(response, deadline)
        finally:
            response.close()
            response.release_conn()

    def _send(
        self, method: str, url: str, body: bytes | None, headers: Headers, deadline: float
    ) -> "urllib3.BaseHTTPResponse":
        import requests

        from logshipper_ingest.servers.server_deadline import Deadline, RepeatedPush, limited

        if self._session is None or self._deadline is None:
            self._deadline = Deadline()
            self._session = limited(self.access.session(), self._deadline)
            auth = self._session.auth
            self._secrets = auth.secrets if isinstance(auth, Credentials) else ()
            # once per session: finding the environment's proxies takes as long as the rest of a
            # call. An explicit verify keeps REQUESTS_CA_BUNDLE from replacing ca_file
            verify = self._session.verify
            self._settings = self._session.merge_environment_settings(
                self.access.url, {}, True, verify, None
            )
        session, what = self._session, (method, url, headers)
        self._deadline.at = deadline
        push = self._last_push
        if body and push is not None and push[0] == what and not session.cookies:
            return push[1].send(body)
        request = session.prepare_request(requests.Request(method, url, data=body, headers=headers))
        # no redirects: a redirected POST becomes a GET, and a tenant's name is for this server
        # alone
        response = session.send(
            request, timeout=self.access.timeout_secs, allow_redirects=False, **self._settings
        )
        self._last_push = None
        if body and not session.cookies:  # a cookie may differ each time
            timeout_secs = self.access.timeout_secs
            self._last_push = (what, RepeatedPush(session, request, self._settings, timeout_secs))
        answer: urllib3.BaseHTTPResponse = response.raw
        return answer

    def _read(self, response: "urllib3.BaseHTTPResponse", deadline: float) -> ServerAnswer:
        status = response.status
        date_ns = _http_date_ns(response.headers.get("Date", ""))
        if date_ns is not None:
            self.answer_date_ns = date_ns
        if status in (401, 403):
            self.close()  # the next call reads the credentials again: they may be new
        limit = self._max_answer_bytes if status == 200 else _MAX_ERROR_BYTES
        body, complete = _read_body(response, limit, deadline)
        self.answer_bytes = len(body)
        if len(body) > limit and status == 200:
            words = f"the answer is over {limit} bytes: ask for less at a time"
            raise AnswerTooLarge(self.name, 200, words)
        return ServerAnswer(
            status,
            body[:limit],
            date_ns,
            _retry_after_secs(response.headers.get("Retry-After", ""), date_ns),
            response.headers.get("Location", ""),
            complete,
            response.headers.get("X-Delete-Request-ID", ""),
        )

    def refusal(self, answer: ServerAnswer) -> str:
        """Explain an unsuccessful answer: the server's message, and the option to check.

        Hides our secrets, which a server may echo.
        """
        if 300 <= answer.status < 400:
            location = clean(hidden(answer.location.encode(), self._secrets).decode())
            return f"a redirect to {location or 'nowhere'}: url must be the address that answers itself"
        words = excerpt(hidden(answer.body, self._secrets)) or "(no words)"
        fix = refusal_fix(answer.status, words, self.access)
        return f"{words}; {fix}" if fix else words


class ServerClient(Server):
    """Base of the clients of a server's interface.

    access: address, credentials, tenant and TLS, or only an address; max_answer_bytes: larger
    answers are errors.
    """

    kind = ""  # the server's kind in errors
    _ready_path = "/ready"
    _ready_statuses: Collection[int] = (200,)
    _strange_words = ""  # about an answer that another program would give
    # a 400 about the connection, not the push: HTTP to a TLS port, or an impossible tenant
    _not_about_pushes = re.compile(
        rb"Client sent an HTTP request to an HTTPS|tenant ID |multiple org IDs|no org id", re.I
    )

    def __init__(
        self, access: ServerAccess | str, *, max_answer_bytes: int = MAX_ANSWER_BYTES
    ) -> None:
        access = ServerAccess(url=access) if isinstance(access, str) else access
        super().__init__(self.kind, access, max_answer_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _push(
        self, path: str, body: bytes, headers: Mapping[str, str], success_statuses: Collection[int]
    ) -> ServerAnswer:
        """Push a body.

        success_statuses: statuses of a full success. Raises RetryablePushError if the server may
        accept it later (no connection, time-outs, 429, 5xx, a gateway's 400: status 0),
        RejectedPushError otherwise.
        """
        try:
            answer = self.call("POST", path, body, headers, timeouts=_PUSH_FACTOR)
        except NoAnswer as error:
            raise RetryablePushError(self.name, 0, str(error)) from None
        except AnswerTooLarge as error:
            raise RejectedPushError(self.name, error.status, error.excerpt) from None
        if answer.status in success_statuses:
            return answer
        words = self._words(answer)
        if answer.status == 400 and (
            is_page(answer.body) or self._not_about_pushes.match(answer.body)
        ):
            words = f"HTTP 400, but not about the content: {words}"
            raise RetryablePushError(self.name, 0, words, answer.retry_after_secs)
        error_type = RetryablePushError if self._is_later(answer.status) else RejectedPushError
        raise error_type(self.name, answer.status, words, answer.retry_after_secs)

    def _is_later(self, status: int) -> bool:
        """Return whether the server may accept the same push later."""
        return status in (408, 429) or status >= 500

    def _words(self, answer: ServerAnswer) -> str:
        return self.refusal(answer)

    def _data(self, path: str, params: Params | None = None, headers: Headers = None) -> Any:
        """Return the data of an answer of Loki or Prometheus (Any: JSON). Raises QueryError."""
        answer = self.get_json(path, params, headers)
        if not isinstance(answer, dict) or answer.get("status") != "success":
            raise self._strange_answer()
        return answer.get("data")

    def _strange_answer(self) -> QueryError:
        return QueryError(self.name, 200, f"{self._strange_words}: check url")

    def ready(self) -> bool:
        """Return whether the server is ready.

        Raises QueryError without an answer, and for an unclear one.
        """
        try:
            self.ask("GET", self._ready_path, statuses=self._ready_statuses)
        except QueryError as error:
            if error.status == 503:
                return False
            raise
        return True


def _read_body(
    response: "urllib3.BaseHTTPResponse", limit: int, deadline: float
) -> tuple[bytes, bool]:
    """Read at most one chunk more than limit; return the body, and whether it is complete."""
    import http.client

    import urllib3

    parts = []
    size = 0
    try:
        # not iter_content: a chunk of that waits for as long as a slow server likes
        while size <= limit and (part := response.read1(_CHUNK_BYTES, decode_content=True)):
            parts.append(part)
            size += len(part)
            if time.monotonic() > deadline:
                return b"".join(parts), False
    except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError):
        return b"".join(parts), False
    length = response.headers.get("Content-Length", "")
    is_cut = length.isdecimal() and response.tell() < int(length) and size <= limit
    return b"".join(parts), not is_cut


def sample_of(pair: Any) -> Sample:
    """Convert a pair of an answer's JSON (hence Any): seconds with milliseconds, and a number as
    text.

    Raises TypeError, ValueError, IndexError for anything else.
    """
    return Sample(round(pair[0] * 1000) * 1_000_000, float(pair[1]))


def labels_of(labels: Any) -> dict[str, str]:  # Any: JSON
    items = labels.items() if isinstance(labels, dict) else ()
    return {str(name): str(value) for name, value in items}


def yaml_table(body: bytes, name: str) -> dict[str, Any]:  # Any: YAML
    """A server's configuration. name: of the server. Raises QueryError."""
    import yaml

    if len(body) > MAX_CONFIG_BYTES:
        raise QueryError(name, 200, f"the configuration is over {MAX_CONFIG_BYTES} bytes")
    try:
        # a few aliases can expand to gigabytes
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(body)):
            raise QueryError(name, 200, "the configuration has YAML aliases, which are not allowed")
        config = yaml.safe_load(body)
    except (yaml.YAMLError, ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise QueryError(name, 200, "the configuration is no YAML: check url")
    return config


def excerpt(body: bytes) -> str:
    """A body's words, the error's of JSON, fit for a line of a log: no control characters, at most
    a thousand."""
    text = body[: 8 * MAX_EXCERPT_CHARS].decode("utf-8", "replace")
    if text.startswith("{"):
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            document = {}
        if isinstance(document, dict):
            message = document.get("error") or document.get("message")
            text = message if isinstance(message, str) else text
    elif is_page(body):
        title = _TITLE.search(text)
        text = title[1] if title else text
    return clean(text)


def is_page(body: bytes) -> bool:
    """Return whether a body is HTML: only gateways answer with pages, never Loki or Prometheus."""
    return body.lstrip()[:1] == b"<"


def _http_date_ns(text: str) -> int | None:
    try:
        return int(email.utils.parsedate_to_datetime(text).timestamp()) * 1_000_000_000
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _retry_after_secs(text: str, date_ns: int | None) -> float | None:
    """RFC 9110 10.2.3: seconds or a date, which is by the server's own clock."""
    try:
        wait = float(text)
    except ValueError:
        until = _http_date_ns(text)
        if until is None:
            return None
        wait = (until - (time.time_ns() if date_ns is None else date_ns)) / 1e9
    return min(max(wait, 0.0), MAX_RETRY_AFTER_SECS) if math.isfinite(wait) else None

"""The Loki client against answers that a healthy Loki never gives: each becomes a typed error with
a plain message."""

import email.utils
import gzip
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logshipper.errors import PushError, QueryError, RejectedPushError, RetryablePushError
from logshipper_ingest.loki.client import Entry, LokiClient
from logshipper_ingest.servers.call_failures import MAX_EXCERPT_CHARS
from logshipper_ingest.servers.server_access import ServerAccess
from tests.tools.fakes.faulty_server import FaultyServer, Said, requests_of
from tests.tools.waiting import scaled

LABELS = {"cluster": "local"}
NO_STREAMS = json.dumps(
    {"status": "success", "data": {"resultType": "streams", "result": []}}
).encode()


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer(Said(204)) as server:
        yield server


@pytest.fixture
def client(server: FaultyServer) -> Iterator[LokiClient]:
    with LokiClient(ServerAccess(url=server.url, timeout_secs=5)) as client:
        yield client


def push_error(client: LokiClient) -> PushError:
    with pytest.raises(PushError) as caught:
        client.push(LABELS, [Entry(1, "x")])
    return caught.value


def not_answered(client: LokiClient) -> QueryError:
    with pytest.raises(QueryError) as caught:
        client.query("vector(1)")
    return caught.value


# ---- pushes


def test_only_204_counts(server: FaultyServer, client: LokiClient) -> None:
    assert client.push(LABELS, [Entry(1, "x")]).status == 204
    for status in (200, 202, 260):
        server.answer(Said(status, b"dropped on purpose"))
        error = push_error(client)
        assert (type(error), error.status, error.excerpt) == (
            RejectedPushError,
            status,
            "dropped on purpose",
        )


def test_each_push_goes_with_its_own_body_and_tenant(
    server: FaultyServer, client: LokiClient
) -> None:
    pushes = [(b"one", ""), (b"another", ""), (b"three", "ann"), (b"four", "ann"), (b"5", "")]
    for body, tenant in pushes:
        client.push_body(body, tenant)
    assert [
        (request.body, request.headers.get("X-Scope-OrgID", "")) for request in server.requests
    ] == pushes
    assert [int(request.headers["Content-Length"]) for request in server.requests] == [
        len(body) for body, _ in pushes
    ]


def test_a_gateways_cookie_goes_with_the_next_push_as_it_is_now(
    server: FaultyServer, client: LokiClient
) -> None:
    server.answer(
        Said(204),
        Said(204, headers={"Set-Cookie": "node=a"}),
        Said(204, headers={"Set-Cookie": "node=b"}),
        Said(204),
    )
    for _ in range(4):
        client.push_body(b"x")
    assert [request.headers.get("Cookie", "") for request in server.requests] == [
        "",
        "",
        "node=a",
        "node=b",
    ]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_what_may_be_taken_later(server: FaultyServer, client: LokiClient, status: int) -> None:
    server.answer(Said(status, b"too much"))
    error = push_error(client)
    assert (type(error), error.status, error.retry_after_secs) == (RetryablePushError, status, None)
    assert str(error) == f"Loki at {server.url}: HTTP {status}: too much"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_what_is_refused(server: FaultyServer, client: LokiClient, status: int) -> None:
    server.answer(Said(status, b"no"))
    error = push_error(client)
    assert (type(error), error.status) == (RejectedPushError, status)


@pytest.mark.parametrize(
    ("header", "secs"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("-3", 0.0),
        ("99999999999", 86_400.0),
        ("nan", None),
        ("soon", None),
    ],
)
def test_retry_after_in_seconds(
    server: FaultyServer, client: LokiClient, header: str, secs: float | None
) -> None:
    server.answer(Said(429, b"", {"Retry-After": header}))
    assert push_error(client).retry_after_secs == secs


def test_retry_after_as_a_date_is_by_the_servers_clock(
    server: FaultyServer, client: LokiClient
) -> None:
    hours_ahead = time.time() + 3 * 3600
    dates = [email.utils.formatdate(hours_ahead + secs, usegmt=True) for secs in (0, 90)]
    server.answer(Said(429, b"", {"Date": dates[0], "Retry-After": dates[1]}))
    assert push_error(client).retry_after_secs == 90


def test_no_connection() -> None:
    with socket.socket() as port_holder:
        port_holder.bind(("127.0.0.1", 0))  # without listening
        error = push_error(LokiClient(f"http://127.0.0.1:{port_holder.getsockname()[1]}"))
    assert (type(error), error.status, error.excerpt) == (
        RetryablePushError,
        0,
        "Connection refused",
    )


def test_no_tls_there(server: FaultyServer) -> None:
    error = push_error(LokiClient(server.url.replace("http:", "https:")))
    assert (type(error), error.status) == (RetryablePushError, 0)
    assert "SSL" in error.excerpt


def test_time_out(server: FaultyServer) -> None:
    server.answer(Said(hang=True))
    error = push_error(LokiClient(ServerAccess(url=server.url, timeout_secs=0.2)))
    assert (type(error), error.status) == (RetryablePushError, 0)
    # on a busy machine, the time for the whole answer may be over by then
    whole_time = "no complete answer within 0.4 s: the server answers too slowly"
    assert error.excerpt in ("no answer within 0.2 s", whole_time)


def test_answer_that_drips_ends(server: FaultyServer) -> None:
    """Each wait is short, but the whole answer would take an hour."""
    server.answer(Said(500, b"x" * 100_000, pieces=100_000))
    error = push_error(LokiClient(ServerAccess(url=server.url, timeout_secs=scaled(0.2))))
    assert error.status == 500


def test_redirects_are_not_followed(server: FaultyServer, client: LokiClient) -> None:
    for status in (301, 302, 307, 308):
        server.answer(Said(status, b"", {"Location": "http://elsewhere.example.org/"}))
        for error in (push_error(client), not_answered(client)):
            assert error.status == status
            assert "http://elsewhere.example.org/" in error.excerpt
    assert len(server.requests) == 8


def test_words_of_an_answer_are_fit_for_a_log(server: FaultyServer, client: LokiClient) -> None:
    server.answer(Said(400, b"\x1b[31mred\x1b[0m\r\nforged: line\0\xff" + b"y" * 100_000))
    excerpt = push_error(client).excerpt
    assert excerpt.isprintable()
    assert excerpt.startswith("[31mred [0m forged: line \ufffdyyy")
    assert len(excerpt) == MAX_EXCERPT_CHARS
    assert excerpt.endswith("...")


def test_words_in_json(server: FaultyServer, client: LokiClient) -> None:
    server.answer(Said(400, b'{"status":"error","error":"parse error"}'))
    assert push_error(client).excerpt == "parse error"
    server.answer(Said(400, b'{"status":"error","error":7}'))
    assert push_error(client).excerpt == '{"status":"error","error":7}'
    server.answer(Said(500))
    assert push_error(client).excerpt == "(no words)"


def test_refusal_whose_body_is_cut_off(server: FaultyServer, client: LokiClient) -> None:
    server.answer(Said(400, b"half of", body_bytes=100))
    error = push_error(client)
    assert (type(error), error.status, error.excerpt) == (RejectedPushError, 400, "half of")


def test_push_is_one_request_and_says_what_it_is(server: FaultyServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    token.chmod(0o600)
    with LokiClient(
        ServerAccess(url=server.url + "/prefix/", tenant="physics", token_file=str(token))
    ) as client:
        client.push_body(b"body")
    (request,) = server.requests
    assert (request.method, request.path, request.body) == (
        "POST",
        "/prefix/loki/api/v1/push",
        b"body",
    )
    assert request.headers["Content-Type"] == "application/x-protobuf"
    assert request.headers["X-Scope-OrgID"] == "physics"
    assert request.headers["Authorization"] == "Bearer secret"


def test_new_credentials_are_read_after_a_401(server: FaultyServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    server.answer(Said(401, b"expired"), Said(204))
    client = LokiClient(ServerAccess(url=server.url, token_file=str(token)))
    token.write_text("new")  # the client reads it at its first call
    assert push_error(client).status == 401
    token.write_text("newer")
    assert client.push_body(b"").status == 204
    assert [request.headers["Authorization"] for request in server.requests] == [
        "Bearer new",
        "Bearer newer",
    ]


def test_unreadable_credentials_are_worth_another_try(server: FaultyServer, tmp_path: Path) -> None:
    """A replacement of the file may be under way."""
    client = LokiClient(ServerAccess(url=server.url, token_file=str(tmp_path / "none")))
    error = push_error(client)
    assert (type(error), error.status) == (RetryablePushError, 0)
    assert "no such file" in error.excerpt
    assert not server.requests


def test_the_servers_clock(server: FaultyServer, client: LokiClient) -> None:
    before = client.answer_date_ns
    assert before is None
    server.answer(Said(204, headers={"Date": "Sun, 06 Nov 1994 08:49:37 GMT"}))
    assert client.push_body(b"").date_ns == client.answer_date_ns == 784_111_777 * 10**9
    server.answer(Said(400, headers={"Date": "Sun, 06 Nov 1994 08:49:38 GMT"}))
    push_error(client)
    assert client.answer_date_ns == 784_111_778 * 10**9
    server.answer(Said(204, headers={"Date": "yesterday"}))
    assert client.push_body(b"").date_ns is None


# ---- queries


def test_answer_over_the_cap(server: FaultyServer) -> None:
    client = LokiClient(server.url, max_answer_bytes=100_000)
    for reply in (
        Said(200, b"[" * 200_000),
        Said(200, gzip.compress(b"[" * 10_000_000), {"Content-Encoding": "gzip"}),
    ):
        server.answer(reply)
        error = not_answered(client)
        assert (error.status, error.excerpt) == (
            200,
            "the answer is over 100000 bytes: ask for less at a time",
        )


def test_a_cut_answer_tells_nothing_about_readiness(
    server: FaultyServer, client: LokiClient
) -> None:
    server.answer(Said(200, b"ready", body_bytes=6))
    with pytest.raises(QueryError, match="the answer was cut off"):
        client.ready()


def test_answer_is_cut_off(server: FaultyServer, client: LokiClient) -> None:
    server.answer(Said(200, NO_STREAMS, body_bytes=len(NO_STREAMS) + 1))
    assert (not_answered(client).status, not_answered(client).excerpt) == (
        0,
        "the answer was cut off",
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>log in</html>",
        b"[]",
        b"null",
        b"{}",
        b'{"status":"success"}',
        b'{"status":"success","data":{"resultType":"streams","result":[1]}}',
        b'{"status":"success","data":{"resultType":"streams","result":[{"stream":{},"values":[["x","y"]]}]}}',
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[]}]}}',
        b"[" * 100_000,
    ],
)
def test_answer_of_something_else(server: FaultyServer, client: LokiClient, body: bytes) -> None:
    server.answer(Said(200, body))
    assert not_answered(client).status == 200


def test_refused_questions(server: FaultyServer, client: LokiClient) -> None:
    server.answer(Said(403, b"forbidden"))
    for ask in (client.config, client.build_info, client.labels, client.series, client.ready):
        with pytest.raises(QueryError, match="HTTP 403: forbidden"):
            ask()
    server.answer(Said(503, b"Ingester not ready"))
    assert client.ready() is False


@pytest.mark.parametrize("body", [b"", b"- a", b"a: &x 1\nb: *x", b"a: [", b"x" * (5 << 20)])
def test_configuration_that_is_none(server: FaultyServer, client: LokiClient, body: bytes) -> None:
    server.answer(Said(200, body))
    with pytest.raises(QueryError):
        client.config()


def test_long_question_is_posted(server: FaultyServer, client: LokiClient) -> None:
    server.answer(Said(200, NO_STREAMS))
    client.query('{host=~"' + "|".join(f"node{at}" for at in range(2500)) + '"}')
    client.query('{host="n"}')
    assert requests_of(server) == ["POST /loki/api/v1/query", "GET /loki/api/v1/query"]
    assert b"node2499" in server.requests[0].body


def pages_asked(server: FaultyServer) -> list[int]:
    return [int(re.findall(r"limit=(\d+)", request.path)[0]) for request in server.requests]


def test_entries_ask_for_less_where_no_answer_comes(server: FaultyServer) -> None:
    """Loki also gives no answer if it exceeds its gRPC limit."""
    server.answer(Said(hang=True), Said(502, b"bad gateway"), Said(200, NO_STREAMS))
    client = LokiClient(ServerAccess(url=server.url, timeout_secs=0.2))
    assert list(client.entries("{}", 0, 100)) == []
    assert pages_asked(server) == [1000, 31, 2]


def test_entries_keep_to_a_lower_limit(server: FaultyServer, client: LokiClient) -> None:
    words = b"max entries limit per query exceeded, limit > max_entries_limit (1000 > 300)"
    server.answer(Said(400, words), Said(400, words), Said(200, NO_STREAMS))
    assert list(client.entries("{}", 0, 100)) == []
    assert pages_asked(server) == [1000, 500, 250]


def test_entries_give_up(server: FaultyServer, client: LokiClient) -> None:
    server.answer(Said(500, b"broken"))
    with pytest.raises(QueryError, match=r"broken \(3 tries\)$"):
        list(client.entries("{}", 0, 100))
    assert pages_asked(server) == [1000, 31, 2]
    server.requests.clear()
    server.answer(Said(400, b"parse error"))
    with pytest.raises(QueryError, match=r"parse error$"):
        list(client.entries("{}", 0, 100))
    assert pages_asked(server) == [1000]


def test_entries_of_a_metric_query(server: FaultyServer, client: LokiClient) -> None:
    matrix = {"resultType": "matrix", "result": [{"metric": {}, "values": [[1, "1"]]}]}
    server.answer(Said(200, json.dumps({"status": "success", "data": matrix}).encode()))
    with pytest.raises(ValueError, match="use query_range"):
        list(client.entries("count_over_time({}[1m])", 0, 100))

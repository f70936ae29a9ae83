"""Delivery by OTLP: a server's answers and their effect on the entries, with the tests' own
server."""

import gzip
import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from logshipper.errors import RejectedPushError, RetryablePushError
from logshipper_ingest.agent.sink_parts import make_delivery, push_client
from logshipper_ingest.checks.check_otlp import check_otlps
from logshipper_ingest.config.agent_config import AgentConfig, parse
from logshipper_ingest.config.sink_config import is_otlp
from logshipper_ingest.metrics.agent_metrics import SinkMetrics
from logshipper_ingest.otlp.client import OtlpClient, PartialSuccess, compress
from logshipper_ingest.otlp.otlp_sink import OtlpSink
from logshipper_ingest.servers.loki_push import encode_metadata
from logshipper_ingest.shipping.entries import Chunk, Metadata, StreamKey
from logshipper_ingest.shipping.quarantine import Refusal
from tests.tools.captures.captured_runs import wait_until
from tests.tools.fakes.faulty_server import Asked, FaultyServer, Said

PAIRS = {"job_id": "4711", "user": "ann", "task": "0", "attempt": "1"}
LOG = StreamKey("stdout", "log", host="n1", shard="1")
METADATA = StreamKey("stdout", "metadata", host="n1")
PROTOBUF = {"Content-Type": "application/x-protobuf"}


def status(message: str, code: int = 3) -> bytes:
    """Return a google.rpc.Status."""
    text = message.encode()
    assert len(text) < 128
    return bytes((0x08, code, 0x12, len(text))) + text


def partial(count: int, words: str = "") -> Said:
    success = ExportLogsPartialSuccess(rejected_log_records=count, error_message=words)
    body = ExportLogsServiceResponse(partial_success=success).SerializeToString()
    return Said(200, body, PROTOBUF)


def chunk(*lines: str, key: StreamKey = LOG) -> Chunk:
    now_ns = time.time_ns()
    times = range(now_ns, now_ns + len(lines))
    metadata = Metadata(PAIRS, encode_metadata(PAIRS), 1000)
    return Chunk("4711@1.aaaa", key, times, [line.encode() for line in lines], metadata)


def texts(request: Asked) -> list[str]:
    message = ExportLogsServiceRequest.FromString(gzip.decompress(request.body))
    return [
        record.body.string_value
        for resource in message.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]


class Sending:
    """A delivery to a server, and its messages. at: its sink, 0 for logs, 1 for metrics."""

    def __init__(self, server: FaultyServer, at: int = 0, **options: Any) -> None:
        table = {
            "url": f"{server.url}/otlp",
            "retry_min_secs": 0.001,
            "retry_max_secs": 0.002,
            **options,
        }
        self.config, problems = parse({"loki": {"url": "http://loki"}, "otlp": table})
        assert problems == []
        self.sink = self.config.sinks[1 + at]
        self.server = server
        self.stop = threading.Event()
        self.messages: list[str] = []
        self.metrics = SinkMetrics()
        self.delivery = make_delivery(
            self.sink,
            lambda: push_client(self.sink, self.messages.append),
            self.metrics,
            self.stop,
            self.messages.append,
        )

    def deliver(self, *chunks: Chunk) -> list[Refusal]:
        return self.delivery.deliver(chunks)

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"logshipper_agent_{name}", labels) or 0.0


def refused_lines(refusals: Sequence[Refusal]) -> list[bytes]:
    return [line for refusal in refusals for line in refusal.chunk.lines]


# ---- a request


def test_a_request_is_what_the_protocol_asks_for(tmp_path: Path) -> None:
    headers = tmp_path / "headers"
    headers.write_text("X-Dataset: training\nAuthorization: ApiKey s3cret==\n")
    headers.chmod(0o600)
    with FaultyServer(Said(200, b"", PROTOBUF)) as server:
        sending = Sending(server, headers_file=str(headers), tenant="team")
        assert sending.deliver(chunk("a", "b")) == []
        (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/otlp/v1/logs")
    sent = {name.lower(): value for name, value in request.headers.items()}
    assert sent["content-type"] == "application/x-protobuf"
    assert sent["content-encoding"] == "gzip"
    assert (sent["x-dataset"], sent["authorization"]) == ("training", "ApiKey s3cret==")
    assert sent["x-scope-orgid"] == "team"
    assert texts(request) == ["a", "b"]
    assert sending.metric("pushes_total", result="204") == 1


def test_headers_are_read_again_after_a_401(tmp_path: Path) -> None:
    headers = tmp_path / "headers"
    headers.write_text("Authorization: ApiKey wrong-word\n")
    headers.chmod(0o600)
    answers = [Said(401, b"who is wrong-word?"), Said(200)]
    with (
        FaultyServer(*answers) as server,
        OtlpClient(
            Sending(server, headers_file=str(headers)).config.otlps["otlp"].signals("otlp")["otlp"]
        ) as client,
    ):
        with pytest.raises(RejectedPushError) as caught:
            client.push_body(compress(b""))
        headers.write_text("Authorization: ApiKey right-word\n")
        client.push_body(compress(b""))
        sent = [request.headers["Authorization"] for request in server.requests]
    assert sent == ["ApiKey wrong-word", "ApiKey right-word"]
    assert "look at headers_file" in str(caught.value)


def test_a_header_that_an_answer_repeats_is_hidden(tmp_path: Path) -> None:
    headers = tmp_path / "headers"
    headers.write_text("api-key: s3cret-word\n")
    headers.chmod(0o600)
    with FaultyServer(Said(403, b"key s3cret-word is unknown")) as server:
        sending = Sending(server, headers_file=str(headers))
        with push_client(sending.sink) as client, pytest.raises(RejectedPushError) as caught:
            client.push_body(compress(b""))
    assert "key [hidden] is unknown" in str(caught.value)


# ---- answers


@pytest.mark.parametrize(
    "answer", [Said(200), Said(204), Said(200, b"{}"), Said(200, b"ok"), partial(0)]
)
def test_all_is_taken(answer: Said) -> None:
    with FaultyServer(answer) as server:
        sending = Sending(server)
        assert sending.deliver(chunk("a")) == []
        assert len(server.requests) == 1
        assert sending.messages == []


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_what_the_protocol_says_is_tried_again(code: int) -> None:
    with FaultyServer(Said(code, status("later")), Said(code), Said(200)) as server:
        sending = Sending(server)
        assert sending.deliver(chunk("a", "b")) == []
        assert [texts(request) for request in server.requests] == [["a", "b"]] * 3
        assert len({request.body for request in server.requests}) == 1, "byte for byte"
        assert sending.metric("retries_total", reason=str(code)) == 2
        assert sending.delivery.last_refusal.status == code


@pytest.mark.parametrize("code", [429, 503])
def test_retry_after_is_waited_for(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with FaultyServer(Said(code, headers={"Retry-After": "17"}), Said(200)) as server:
        sending = Sending(server)
        waits: list[float] = []
        monkeypatch.setattr(sending.stop, "wait", waits.append)
        sending.deliver(chunk("a"))
    assert 17 <= max(waits) <= 19


@pytest.mark.parametrize("code", [400, 413, 422, 500])
def test_a_refused_record_is_found_and_put_aside_with_the_servers_words(code: int) -> None:
    class Picky(FaultyServer):
        def _answer(self, request: Any, body: bytes) -> None:  # Any: as in the base
            bad = b"bad" in gzip.decompress(body)
            self.answer(Said(code, status("no bad ones")) if bad else Said(200))
            super()._answer(request, body)

    with Picky(Said(200)) as server:
        sending = Sending(server)
        refusals = sending.deliver(chunk(*"abcdefg"), chunk("h", "bad", "i"))
        assert refused_lines(refusals) == [b"bad"]
        assert [refusal.words for refusal in refusals] == ["no bad ones"]
        assert {refusal.status for refusal in refusals} == {code}
        taken = [
            text
            for request in server.requests
            for text in texts(request)
            if "bad" not in texts(request)
        ]
    assert sorted(text for text in taken if "checked" not in text) == sorted("abcdefghi")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (401, "credentials or headers are wrong: look at [otlp]"),
        (403, "credentials or headers are wrong"),
        (404, "nothing speaks OTLP there: look at url"),
        (405, "nothing speaks OTLP there"),
        (415, "it takes no protobuf, or no gzip"),
        (202, "everything waits"),
        (301, "everything waits"),
        (505, "everything waits"),
    ],
)  # fmt: skip
def test_what_somebody_must_fix_holds_everything(code: int, words: str) -> None:
    with FaultyServer(*[Said(code, b"dear me")] * 3, Said(200)) as server:
        sending = Sending(server)
        assert sending.deliver(chunk("a")) == []
        (told, back) = sending.messages
        assert words in told
        assert "takes everything again" in back


def test_a_server_that_refuses_whatever_it_is_sent_holds_everything() -> None:
    """It also refuses an entry of the agent's own, so the entries aren't the cause."""
    with FaultyServer(*[Said(500, status("disk full", 13))] * 6, Said(200)) as server:
        sending = Sending(server)
        assert sending.deliver(chunk("a", "b")) == []
        assert any("disk full; it refuses everything" in line for line in sending.messages)


@pytest.mark.parametrize(
    "answer",
    [
        Said(200, b"<html><title>Sign in</title></html>"),
        Said(200, b"abc", body_bytes=9),
        Said(400, b"<html>"),
    ],
)
def test_a_page_or_half_an_answer_is_no_acknowledgement(answer: Said) -> None:
    with FaultyServer(answer, answer, Said(200)) as server:
        sending = Sending(server)
        assert sending.deliver(chunk("a")) == []
        assert len(server.requests) == 3
        assert sending.metric("pushes_total", result="204") == 1


# ---- partial success


def test_a_partial_success_is_counted_said_and_never_sent_again() -> None:
    with FaultyServer(partial(2, "too many attributes"), Said(200)) as server:
        sending = Sending(server)
        assert sending.deliver(chunk("a", "b", "c")) == []
        assert len(server.requests) == 1
        assert sending.metric("left_out_total", reason="partial_success") == 2
        (line,) = sending.messages
        assert "it drops 2 of what it was sent: too many attributes; these are lost" in line
        assert sending.delivery.last_refusal.words.endswith("too many attributes")
        assert sending.delivery.state.since_ns == 0, "no trouble that waits for anybody"
        assert sending.deliver(chunk("d")) == []
        assert texts(server.requests[1]) == ["d"]


def test_where_all_were_dropped_they_are_in_the_quarantine() -> None:
    with FaultyServer(partial(3, "no such index")) as server:
        sending = Sending(server)
        refusals = sending.deliver(chunk("a", "b"), chunk("c"))
        assert len(server.requests) == 1
    assert refused_lines(refusals) == [b"a", b"b", b"c"]
    assert {(refusal.reason, refusal.status) for refusal in refusals} == {("partial_success", 200)}
    assert "no such index" in refusals[0].words
    assert sending.metric("left_out_total", reason="partial_success") == 0


def test_a_partial_success_ends_what_was_in_the_way() -> None:
    with FaultyServer(Said(503), partial(1), Said(200)) as server:
        sending = Sending(server)
        sending.deliver(chunk("a", "b"))
        assert sending.delivery.state.since_ns == 0
        assert "takes everything again" in sending.messages[-1]


def test_one_in_json_is_one(tmp_path: Path) -> None:
    for name in ("rejectedLogRecords", "rejectedDataPoints"):
        words = {"partialSuccess": {name: "1", "errorMessage": "why"}}
        with FaultyServer(Said(200, json.dumps(words).encode())) as server:
            with (
                push_client(Sending(server).sink) as client,
                pytest.raises(PartialSuccess) as caught,
            ):
                client.push_body(compress(b""))
            assert (caught.value.count, "why" in str(caught.value)) == (1, True)


def test_a_warning_is_said_once() -> None:
    with FaultyServer(partial(0, "deprecated")) as server:
        sending = Sending(server)
        for _ in range(3):
            assert sending.deliver(chunk("a")) == []
        (line,) = sending.messages
    assert "took all, and warns: deprecated" in line


def test_points_that_were_dropped_are_counted_as_points() -> None:
    def answer(count: int) -> Said:
        success = ExportMetricsPartialSuccess(rejected_data_points=count, error_message="odd")
        return Said(200, ExportMetricsServiceResponse(partial_success=success).SerializeToString())

    records = chunk('{"a": 1, "b": 2}', '{"a": 3, "x": NaN}', key=METADATA)
    with FaultyServer(answer(2), answer(3)) as server:
        sending = Sending(server, at=1)
        assert sending.deliver(records) == []
        assert sending.metric("left_out_total", reason="partial_success") == 2
        assert len(sending.deliver(records)) == 1, "three are all"
        assert {request.path for request in server.requests} == {"/otlp/v1/metrics"}
        message = ExportMetricsServiceRequest.FromString(gzip.decompress(server.requests[0].body))
        (metric,) = message.resource_metrics[0].scope_metrics[0].metrics
        assert len(metric.gauge.data_points) == 3


# ---- the rest


def test_which_entries_go_where() -> None:
    with FaultyServer(Said(200)) as server:
        config = Sending(server).config
    sinks = [OtlpSink(sink) for sink in config.sinks if is_otlp(sink)]
    kinds = ("log", "metadata", "command", "event", "heartbeat", "status", "value")
    taken = [[kind for kind in kinds if sink.takes(StreamKey("", kind))] for sink in sinks]
    assert taken == [list(kinds), ["metadata"]]


def test_values_that_are_no_points_are_counted() -> None:
    with FaultyServer(Said(200)) as server:
        sending = Sending(server, at=1)
        sending.deliver(chunk('{"a": NaN, "b": 1e999}', key=METADATA))
    assert sending.metric("influxdb_values_left_out_total") == 2


def findings(*answers: Said) -> list[tuple[str, str, str]]:
    with FaultyServer(*answers) as server:
        config: AgentConfig = Sending(server).config
        return [(finding.level, finding.about, finding.words) for finding in check_otlps(config)]


def test_check_asks_each_signal() -> None:
    logs, metrics = findings(Said(200), Said(404, b"no such page"))
    assert logs[:2] == ("ok", "otlp")
    assert logs[2].endswith("/otlp takes logs")
    assert metrics[:2] == ("wrong", "otlp-metrics")
    assert "HTTP 404: no such page" in metrics[2]


def test_whether_it_answers_is_asked_by_an_empty_request() -> None:
    with FaultyServer(Said(503), Said(422), Said(200)) as server:
        with push_client(Sending(server).sink) as client:
            assert [client.ready() for _ in range(3)] == [False, True, True]
        assert {gzip.decompress(request.body) for request in server.requests} == {b""}


def test_no_answer_is_tried_again() -> None:
    with FaultyServer(Said(hang_up=True), Said(hang_up=True), Said(200)) as server:
        sending = Sending(server)
        assert sending.deliver(chunk("a")) == []
    with push_client(sending.sink) as client, pytest.raises(RetryablePushError):
        client.push_body(compress(b""))


def test_a_delivery_ends_with_the_agent() -> None:
    with FaultyServer(Said(503)) as server:
        sending = Sending(server)
        errors: list[BaseException] = []

        def deliver() -> None:
            try:
                sending.deliver(chunk("a"))
            except BaseException as error:  # the test checks it
                errors.append(error)

        thread = threading.Thread(target=deliver)
        thread.start()
        wait_until(lambda: bool(server.requests), "it is under way")
        sending.stop.set()
        thread.join(30)
        assert [type(error).__name__ for error in errors] == ["Stopped"]

"""Entries as log records, and metadata records as points, in requests that the protocol's own
messages parse."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from logshipper_ingest.otlp.log_records import encode_logs, probe
from logshipper_ingest.otlp.points import MAX_POINTS, encode_points, numbers_of
from logshipper_ingest.shipping.entries import Chunk, Metadata, StreamKey

BEGIN_NS = 1_700_000_000_000_000_000
LOG = StreamKey("stdout", "log", host="n7", shard="1")
METADATA = StreamKey("stdout", "metadata", host="n7")
PAIRS = {"job_id": "4711", "user": "ann", "step": "0", "task": "3", "attempt": "2"}
RESOURCE = {
    "service.name": "logshipper",
    "service.namespace": "c1",
    "service.instance.id": "n7",
    "host.name": "n7",
    "logshipper.cluster": "c1",
    "logshipper.job.id": "4711",
    "process.owner": "ann",
    "logshipper.job.step": "0",
    "logshipper.job.task": 3,
    "logshipper.job.attempt": 2,
}


def chunk(
    *lines: bytes,
    key: StreamKey = LOG,
    pairs: Mapping[str, str] = PAIRS,
    extra: Sequence[Mapping[str, str]] = (),
    begin_ns: int = BEGIN_NS,
) -> Chunk:
    times = range(begin_ns, begin_ns + len(lines))
    return Chunk("folder", key, times, lines, Metadata(pairs, b""), extra)


def attributes(pairs: Sequence[KeyValue]) -> dict[str, Any]:
    values = {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in pairs}
    assert len(values) == len(pairs)
    return values


def logs(*chunks: Chunk, host: str = "agent") -> list[tuple[dict[str, Any], list[LogRecord]]]:
    """Return attributes and log records by resource."""
    request = ExportLogsServiceRequest.FromString(encode_logs(chunks, "c1", host))
    resources = []
    for resource in request.resource_logs:
        (scope,) = resource.scope_logs
        assert (scope.scope.name, scope.scope.version) == ("logshipper", "")
        resources.append((attributes(resource.resource.attributes), list(scope.log_records)))
    return resources


def records(*chunks: Chunk) -> list[LogRecord]:
    return [record for _, records in logs(*chunks) for record in records]


def uids(*chunks: Chunk) -> list[str]:
    return [attributes(record.attributes)["log.record.uid"] for record in records(*chunks)]


def test_a_line_is_a_record_with_its_time_stream_and_text() -> None:
    ((resource, (first, second)),) = logs(chunk(b"one", "zw\u00f6lf \U0001f600".encode()))
    assert resource == RESOURCE
    assert (first.time_unix_nano, first.observed_time_unix_nano) == (BEGIN_NS, BEGIN_NS)
    assert second.time_unix_nano == BEGIN_NS + 1
    assert (first.body.string_value, second.body.string_value) == ("one", "zw\u00f6lf \U0001f600")
    assert (first.severity_number, first.severity_text, first.event_name) == (0, "", "")
    values = attributes(first.attributes)
    assert (values.pop("logshipper.kind"), values.pop("log.iostream")) == ("log", "stdout")
    assert len(values.pop("log.record.uid")) == 40
    assert values == {}


def test_what_an_entry_has_of_its_own_are_attributes() -> None:
    extra = [{"n": "3", "origin": "json", "copy": "1"}, {"note": "1", "repeat": "19"}, {}]
    first, second, third = records(chunk(b"a", b"b", b"c", extra=extra))
    values = attributes(first.attributes)
    assert (values["logshipper.n"], values["logshipper.origin"]) == (3, "json")
    assert values["logshipper.copy"] == "1"
    assert attributes(second.attributes)["logshipper.repeat"] == 19
    assert (second.severity_text, third.severity_text) == ("INFO", "")
    assert attributes(third.attributes).keys() == {
        "logshipper.kind",
        "log.iostream",
        "log.record.uid",
    }


@pytest.mark.parametrize(
    ("line", "name", "severity"),
    [
        (b'{"event":"closed","state":"FAILED"}', "logshipper.closed", "INFO"),
        (b'{"event":"lines_lost","lines":3}', "logshipper.lines_lost", "WARN"),
        (b'{"event":"segment_damaged"}', "logshipper.segment_damaged", "WARN"),
        (b'{"event":"output_slowed"}', "logshipper.output_slowed", "WARN"),
        (b'{"event":"output_slowed_no_longer"}', "logshipper.output_slowed_no_longer", "INFO"),
        (b'{"event":"a b"}', "", "INFO"),
        (b'{"event":1}', "", "INFO"),
        (b'["event"]', "", "INFO"),
        (b'{"event":"clos', "", "INFO"),
    ],
)
def test_events_have_a_name_and_a_severity(line: bytes, name: str, severity: str) -> None:
    (record,) = records(chunk(line, key=StreamKey("", "event", host="n7")))
    assert (record.event_name, record.severity_text) == (name, severity)
    assert record.severity_number == {"INFO": 9, "WARN": 13}[severity]
    assert record.body.string_value == line.decode()
    assert "log.iostream" not in attributes(record.attributes)


def test_captures_are_resources_and_keep_the_order_of_time() -> None:
    other = {**PAIRS, "job_id": "4712"}
    resources = logs(
        chunk(b"a"),
        chunk(b"b", begin_ns=BEGIN_NS + 1),
        chunk(b"c", pairs=other, begin_ns=BEGIN_NS + 2),
        chunk(b"d", begin_ns=BEGIN_NS + 3),
    )
    texts = [
        (resource["logshipper.job.id"], [record.body.string_value for record in records])
        for resource, records in resources
    ]
    assert texts == [("4711", ["a", "b"]), ("4712", ["c"]), ("4711", ["d"])]


def test_a_capture_without_a_host_has_the_agents() -> None:
    ((resource, _),) = logs(chunk(b"a", key=LOG._replace(host="")), host="n1")
    assert (resource["host.name"], resource["service.instance.id"]) == ("n1", "n1")


def test_what_is_late_has_an_instance_of_its_own_and_the_same_uid() -> None:
    late = LOG._replace(replay="017", shard="")
    ((resource, _),) = logs(chunk(b"a", key=late))
    assert (resource["host.name"], resource["service.instance.id"]) == ("n7", "n7/017")
    assert uids(chunk(b"a", key=late)) == uids(chunk(b"a"))


def test_what_comes_from_the_quarantine_is_what_it_was() -> None:
    """Entries in the quarantine carry all metadata themselves, and the capture's folder is
    unknown."""
    extra = [{"n": "1"}, {"part": "1/2"}]
    before = logs(chunk(b"a", b"b", extra=extra))
    mixed = [{**PAIRS, **pairs} for pairs in extra]
    replayed = chunk(b"a", b"b", pairs={}, extra=mixed, key=LOG._replace(replay="q017", shard=""))
    ((resource, (first, second)),) = logs(replayed)
    assert {**resource, "service.instance.id": "n7"} == RESOURCE
    assert [first, second] == before[0][1]


def test_uids_tell_all_apart_that_differs() -> None:
    key = StreamKey("", "value", host="n7")
    at_once = Chunk(
        "f", key, (BEGIN_NS, BEGIN_NS), (b'{"key":"a"}', b'{"key":"b"}'), Metadata(PAIRS, b"")
    )
    parts = Chunk(
        "f", LOG, (BEGIN_NS, BEGIN_NS), (b"aaa", b"aaa"), Metadata(PAIRS, b""),
        [{"part": "1/2"}, {"part": "2/2"}],
    )  # fmt: skip
    others = [
        chunk(b"a", b"b"),
        chunk(b"a", key=LOG._replace(stream="stderr")),
        chunk(b"a", key=METADATA),
        chunk(b"a", key=LOG._replace(host="n8")),
        *(chunk(b"a", pairs={**PAIRS, name: "9"}) for name in PAIRS),
    ]
    seen = [uid for sent in (at_once, parts, *others) for uid in uids(sent)]
    assert len(set(seen)) == len(seen)
    assert uids(at_once) == uids(at_once)


@given(
    st.lists(st.tuples(st.binary(max_size=30), st.booleans()), min_size=1, max_size=20),
    st.text(max_size=10),
)
def test_any_line_and_name_can_be_sent(lines: list[tuple[bytes, bool]], job_id: str) -> None:
    """Sinks always get UTF-8, but a fault in one text must not stop all others."""
    extra = [{"n": "1"} if flag else {} for _, flag in lines]
    job_id = job_id.encode("utf-8", "replace").decode()
    sent = chunk(*(line for line, _ in lines), pairs={**PAIRS, "job_id": job_id}, extra=extra)
    assert [record.body.string_value for record in records(sent)] == [
        line.decode("utf-8", "replace") for line, _ in lines
    ]


def test_the_probe_is_a_record_of_ours() -> None:
    request = ExportLogsServiceRequest.FromString(probe(LOG, "c1", "n1", BEGIN_NS))
    (record,) = request.resource_logs[0].scope_logs[0].log_records
    assert record.body.string_value == '{"event":"checked"}'


# ---- points


def points(*chunks: Chunk) -> list[tuple[str, float, int]]:
    encoded = encode_points(chunks, "c1", "n1")
    request = ExportMetricsServiceRequest.FromString(encoded.body)
    shown = []
    for resource in request.resource_metrics:
        assert attributes(resource.resource.attributes) == RESOURCE
        (metric,) = resource.scope_metrics[0].metrics
        assert metric.name == "logshipper.job.value"
        for point in metric.gauge.data_points:
            values = attributes(point.attributes)
            assert values["log.iostream"] == "stdout"
            shown.append((values["logshipper.key"], point.as_double, point.time_unix_nano))
    assert len(shown) == encoded.point_count
    return shown


def test_numbers_are_points_by_their_keys() -> None:
    first = {"step": 1, "loss": 0.5, "opt": {"lr": 0.1}, "who": "ann", "good": True, "none": None}
    second = {"step": 2, "loss": 0}
    texts = [json.dumps(record).encode() for record in (first, second)]
    assert points(chunk(*texts, key=METADATA)) == [
        ("step", 1.0, BEGIN_NS),
        ("loss", 0.5, BEGIN_NS),
        ("opt.lr", 0.1, BEGIN_NS),
        ("step", 2.0, BEGIN_NS + 1),
        ("loss", 0.0, BEGIN_NS + 1),
    ]


def test_records_without_numbers_are_no_points() -> None:
    assert points(chunk(b'{"who": "ann"}', key=METADATA)) == []
    assert encode_points([chunk(b'{"who": "ann"}', key=METADATA)], "c1", "n1").body == b""


@pytest.mark.parametrize(
    ("line", "names", "left_out"),
    [
        (b'{"a": NaN, "b": 1}', ["b"], 1),
        (b'{"a": 1' + b"0" * 400 + b', "b": 1e999}', [], 2),
        (b'{"a": {"b": {"c": {"d": {"e": 1}}}}}', [], 1),
        (b'{"a.b": 1, "a": {"b": 2}}', ['"a.b"', "a.b"], 0),
        (b'{"\\ud800": 1}', ['"\\ud800"'], 0),
        (b'{"' + b"k" * 300 + b'": 1}', [], 1),
        (b"{" + b",".join(b'"k%d": 1' % n for n in range(300)) + b"}", [f"k{n}" for n in range(MAX_POINTS)], 44),
        (b"not JSON", [], 1),
    ],
)  # fmt: skip
def test_the_oddest_records(line: bytes, names: list[str], left_out: int) -> None:
    numbers, count = numbers_of(line)
    assert ([name for name, _ in numbers], count) == (names, left_out)
    assert encode_points([chunk(line, key=METADATA)], "c1", "n1").left_out == left_out

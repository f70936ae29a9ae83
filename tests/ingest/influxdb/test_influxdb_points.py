"""Records as points, and InfluxDB's treatment of the oddest ones. Also the interface of 2.x, with a
server that checks requests by the documentation of 2.x."""

import dataclasses
import gzip
import json
import re
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logshipper.errors import RejectedPushError
from logshipper_ingest.agent.sink_parts import make_delivery, push_client
from logshipper_ingest.config.agent_config import parse
from logshipper_ingest.influxdb.client import InfluxdbClient, compress
from logshipper_ingest.influxdb.influxdb_sink import InfluxdbSink, reason_of
from logshipper_ingest.influxdb.points import (
    MAX_FIELDS,
    MAX_STRING_BYTES,
    encode,
    encode_all,
    point_of,
)
from logshipper_ingest.influxdb.sent_points import MAX_SERIES, MAX_TAGS_BYTES, SentPoints
from logshipper_ingest.metrics.agent_metrics import SinkMetrics
from logshipper_ingest.servers.loki_push import encode_metadata
from logshipper_ingest.shipping.entries import Chunk, Metadata, StreamKey
from logshipper_ingest.shipping.quarantine import Refusal
from tests.servers.running import InfluxdbServer
from tests.tools.fakes.faulty_server import FaultyServer, Said

BEGIN_NS = 1_700_000_000_000_000_000
ODD = {
    "a b,c=d": 1, 'quote"d': 'say "hi"\\', "lines": "one\ntwo\r", "\u00e9\U0001f600": "\u00e9\U0001f600", "empty": "",
    "nested": {"x": {"y": {"z": 1, "w": {"deep": 1}}}}, "big": 10**300, "bigger": 10**400, "list": [1], "none": None,
    "yes": True, "time": 7, "job_id": "forged", "long": "\u00e9" * MAX_STRING_BYTES, "back\\slash": 1, "new\nline": 1,
    "": 1, "-1": -0.0, "e": 1e-300, "#": 1, "'": "'",
}  # fmt: skip


def chunk(*records: object, job_id: str = "4711") -> Chunk:
    pairs = {"job_id": job_id, "user": "ann", "task": "0", "attempt": "1"}
    lines = [json.dumps(record).encode() for record in records]
    times = range(BEGIN_NS, BEGIN_NS + len(lines))
    return Chunk(
        "folder",
        StreamKey("stdout", "metadata", host="n1"),
        times,
        lines,
        Metadata(pairs, encode_metadata(pairs)),
    )


def test_the_oddest_record_is_read_back_as_it_was(influxdb: InfluxdbServer) -> None:
    database = f"d{uuid.uuid4().hex[:8]}"
    influxdb.query(f"CREATE DATABASE {database}")
    config, problems = parse(
        {"loki": {"url": "http://x"}, "influxdb": {"url": influxdb.url, "database": database}}
    )
    assert problems == []
    body, left_out = encode_all([chunk(ODD)], "logshipper", "c1", "n1")
    with InfluxdbClient(config.influxdbs["influxdb"]) as client:
        client.push_body(compress(body))
        client.push_body(compress(body))  # a repeat
    (row,) = influxdb.query("SELECT * FROM logshipper", database)
    assert {name: value for name, value in row.items() if name not in ("long", "lines")} == {
        "time": BEGIN_NS, "cluster": "c1", "host": "n1", "user": "ann", "job_id": "4711", "attempt": "1", "task": "0",
        "a b,c=d": 1, 'quote"d': 'say "hi"\\', "\u00e9\U0001f600": "\u00e9\U0001f600", "empty": "", "nested.x.y.z": 1,
        "big": 1e300, "yes": True, "time_": 7, "job_id_": "forged", "-1": 0, "e": 1e-300, "#": 1, "'": "'",
    }  # fmt: skip
    assert row["lines"] == "one\ntwo\r"
    assert len(row["long"].encode()) == MAX_STRING_BYTES
    assert left_out == 7  # deep, bigger, list, none, and keys without a valid form


def sent_chunk(*records: object) -> Chunk:
    return dataclasses.replace(chunk(*records), extra=[{"n": "1", "sent": "1"}] * len(records))


def test_series_of_what_is_sent_have_a_cap() -> None:
    """Each capture has its own limit: its first series go on, and the sink counts points of
    others."""
    points = SentPoints()
    records = [{"loss": at, "tags": {"run": str(at)}} for at in range(MAX_SERIES + 5)]
    text, left_out = points.encode_all([sent_chunk(*records)], "c", "n1")
    assert (text.count(b"\n"), left_out) == (MAX_SERIES, 5)
    assert points.encode_all([sent_chunk(*records)], "c", "n1") == (text, 5), "sent again"
    other = dataclasses.replace(sent_chunk(records[-1]), capture="another")
    assert points.encode_all([other], "c", "n1")[1] == 0


def test_numbers_of_sent_points_keep_their_types() -> None:
    """Telegraf's own points in the same database have these types, too."""
    record = {"loss": {"steps": 5, "value": 5.0, "large": 1 << 63, "on": True, "text": "5"}}
    text, _ = SentPoints().encode_all([sent_chunk(record)], "c", "n1")
    assert b' steps=5i,value=5.0,large=9.223372036854776e+18,on=true,text="5" ' in text
    assert b" loss.steps=5.0," in encode_all([sent_chunk(record)], "m", "c", "n1")[0]


@pytest.mark.parametrize(
    "record",
    [
        {}, {"a": None}, {"": 1}, {"a": 1, "tags": 3}, {"a": 1, "tags": {"b": 3}}, {"a": 1, "tags": {"b\\": "c"}},
        {"a": {"": 1}}, {"a\n": 1}, {"a": [1]}, {"a": 1, "tags": {"b": "c" * (MAX_TAGS_BYTES + 1)}},
    ],
)  # fmt: skip
def test_what_cannot_be_a_sent_point_is_left_out_and_counted(record: object) -> None:
    assert SentPoints().encode_all([sent_chunk(record)], "c", "n1") == (b"", 1)


def test_a_conflict_of_a_sent_measurement_is_that_records() -> None:
    table = {"url": "http://influxdb.invalid", "database": "d", "measurements": True}
    config, problems = parse({"loki": {"url": "http://x"}, "influxdb": table})
    assert problems == []
    (_, sink_config) = config.sinks
    sink = InfluxdbSink(sink_config)  # type: ignore[arg-type]  # the second one is InfluxDB's
    words = (
        'partial write: field type conflict: input field "value" on measurement "loss" is type'
        " string, already exists as type float dropped=1"
    )
    chunks = [sent_chunk({"loss": 1}, {"loss": "x"}, {"other": "x"})]
    verdict = sink.judge(chunks, RejectedPushError("influxdb", 400, words))
    assert [list(refusal.chunk.lines) for refusal in verdict.refusals] == [[b'{"loss": "x"}']]


def test_hostile_records_never_raise_and_fields_have_a_cap() -> None:
    wide_point = point_of(
        json.dumps({f"k{number}": number for number in range(MAX_FIELDS + 5)}).encode()
    )
    assert (len(wide_point.fields), wide_point.left_out) == (MAX_FIELDS, 5)
    deep = b'{"a":' * 400 + b"1" + b"}" * 400
    for line in (
        b"",
        b"{",
        b"[1]",
        b'{"a": 1e999}',
        b'{"a": "\\ud800"}',
        b'{"\\ud800": 1}',
        b"\xff",
        deep,
    ):
        point = point_of(line)
        encode("m", {"user": "dom\\ann\\", "step": "a b,c=\n"}, point.fields or {"x": 1.0}, 1)
    encoding = encode("m", {"user": "dom\\ann\\", "step": "a b"}, {"x": 1.0}, 1)
    assert encoding == b"m,user=dom\\ann,step=a\\ b x=1.0 1\n"


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (
            'partial write: field type conflict: input field "x" on measurement "m" is type string',
            400,
            "type_conflict",
        ),
        ("partial write: points beyond retention policy dropped=5", 400, "too_old"),
        ("partial write: max-values-per-tag limit exceeded (100000/100000)", 400, "series_limit"),
        ("unable to parse 'm x=nan 1': invalid number", 400, "malformed"),
        ("Request Entity Too Large", 413, "too_large"),
        ("something else", 400, "other"),
    ],
)
def test_reasons_are_few_words(words: str, status: int, reason: str) -> None:
    assert reason_of(RejectedPushError("InfluxDB", status, words)) == reason


# ---- 2.x

_LINE = re.compile(
    rb"logshipper,cluster=c1,host=n1,user=ann,job_id=4711,attempt=1,task=0 (\S+) (\d{19})"
)


class Influxdb2:
    """A sink, and a server whose answers are those documented for /api/v2/write of InfluxDB 2.7."""

    def __init__(self, folder: Path, server: FaultyServer) -> None:
        token = folder / "token"
        token.write_text("s3cret-token\n")
        token.chmod(0o600)
        table = {"url": server.url, "org": "my org", "bucket": "b/1", "token_file": str(token), "retry_min_secs": 0.001,
                 "retry_max_secs": 0.002, "timeout_secs": 0.5}  # fmt: skip
        agent, problems = parse(
            {"agent": {"cluster": "c1"}, "loki": {"url": "http://x"}, "influxdb": table}
        )
        assert problems == []
        self.server = server
        self.messages: list[str] = []
        (_, config) = agent.sinks
        self.delivery = make_delivery(
            config,
            lambda: push_client(config),
            SinkMetrics(),
            threading.Event(),
            self.messages.append,
        )
        assert isinstance(self.delivery.sink, InfluxdbSink)

    def deliver(self, *records: Any) -> list[Refusal]:
        return self.delivery.deliver([chunk(*records)])

    def writes(self) -> list[list[tuple[bytes, bytes]]]:
        """Return fields and time of each line, request by request."""
        writes = []
        for request in self.server.requests:
            if (request.method, request.path) == ("GET", "/ping"):  # the server's presence
                continue
            assert (request.method, request.path) == (
                "POST",
                "/api/v2/write?org=my+org&bucket=b%2F1&precision=ns",
            )
            assert request.headers["Authorization"] == "Token s3cret-token"
            assert request.headers["Content-Type"] == "text/plain; charset=utf-8"
            assert request.headers["Content-Encoding"] == "gzip"
            lines = gzip.decompress(request.body).splitlines()
            matches = [_LINE.fullmatch(line) for line in lines]
            writes.append([(match[1], match[2]) for match in matches if match is not None])
            assert all(matches) or lines == [b"# logshipper"], lines
        return writes


@pytest.fixture
def two(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Influxdb2]:
    with FaultyServer(*request.param) as server:
        yield Influxdb2(tmp_path, server)


def error(status: int, code: str, message: str, **headers: str) -> Said:
    body = json.dumps({"code": code, "message": message}).encode()
    return Said(
        status, body, headers={"Content-Type": "application/json; charset=utf-8", **headers}
    )


LATER = (
    error(429, "too many requests", "rate limit", **{"Retry-After": "0"}),
    error(503, "unavailable", "busy"),
    error(401, "unauthorized", "unauthorized access"),
    error(404, "not found", 'bucket "b/1" not found'),
)
CONFLICT = error(
    422, "unprocessable entity", "failure writing points to database: partial write: field type conflict: input field "
    '"loss" on measurement "logshipper" is type string, already exists as type float dropped=1')  # fmt: skip


@pytest.mark.parametrize("two", [(*LATER, Said(204))], indirect=True)
def test_2x_gets_what_it_documents_until_it_takes_it(two: Influxdb2) -> None:
    assert two.deliver({"loss": 0.5}, {"loss": 1, "ok": True}) == []
    points = [(b"loss=0.5", b"%d" % BEGIN_NS), (b"loss=1.0,ok=true", b"%d" % (BEGIN_NS + 1))]
    assert two.writes() == [points] * 5
    assert not any("s3cret" in words for words in two.messages)


ODD_ANSWERS = (
    Said(200, b"{}"),  # not an answer of this interface
    Said(202),
    Said(307, headers={"Location": "http://127.0.0.1:9/api/v2/write"}),
    Said(400, b"<html><title>Bad gateway</title></html>"),
    Said(500, b"x" * 5_000_000),
    Said(204, hang_up=True),
    Said(500, b"slowly", drip=True),
    Said(503, b"half", body_bytes=100),
)


@pytest.mark.parametrize("two", [(*ODD_ANSWERS, Said(204))], indirect=True)
def test_an_answer_that_is_not_influxdbs_neither_takes_nor_refuses_anything(two: Influxdb2) -> None:
    assert two.deliver({"loss": 0.5}) == []
    assert len(two.server.requests) == len(ODD_ANSWERS) + 1
    assert {len(lines) for lines in two.writes()} == {1}
    assert max(map(len, two.messages)) < 2000


@pytest.mark.parametrize("two", [(CONFLICT, Said(204))], indirect=True)
def test_2x_names_a_conflict_and_that_point_alone_is_refused(two: Influxdb2) -> None:
    (refusal,) = two.deliver({"loss": 0.5}, {"loss": "none"}, {"loss": 1})
    assert (refusal.chunk.lines, refusal.reason, refusal.status) == (
        [b'{"loss": "none"}'],
        "type_conflict",
        422,
    )
    assert [len(lines) for lines in two.writes()] == [3, 2]


@pytest.mark.parametrize(
    "two", [(error(400, "invalid", "a gateway's"),) * 2 + (Said(204),)], indirect=True
)
def test_a_400_that_nobody_knows_puts_nothing_aside(two: Influxdb2) -> None:
    """The second 400 answers the probe whether the server accepts anything."""
    assert two.deliver({"loss": 0.5}) == []
    assert [len(lines) for lines in two.writes()] == [1, 0, 1]


@pytest.mark.parametrize("two", [(Said(413), Said(204))], indirect=True)
def test_a_413_halves(two: Influxdb2) -> None:
    assert two.deliver({"loss": 0.5}, {"loss": 1}) == []
    assert [len(lines) for lines in two.writes()] == [2, 1, 1]


def test_a_flood_of_conflicts_takes_few_requests(tmp_path: Path) -> None:
    """InfluxDB's message has the number of dropped points. If the sink can tell these, it needs no
    halving of a thousand points."""
    count = 500
    conflict = json.loads(CONFLICT.body)
    conflict["message"] = conflict["message"].replace("dropped=1", f"dropped={count}")
    with FaultyServer(error(422, **conflict), Said(204)) as server:
        two = Influxdb2(tmp_path, server)
        begin = time.monotonic()
        refusals = two.deliver(*[{"loss": "none"}] * count, *[{"loss": 1.0}] * count)
        assert sum(len(refusal.chunk.lines) for refusal in refusals) == count
        assert len(server.requests) == 2, time.monotonic() - begin

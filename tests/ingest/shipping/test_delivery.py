"""Delivery to Loki: only a 204 acknowledges entries, no entry is dropped, and the agent finds
refused entries one by one."""

import random
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from logshipper.errors import PushError, QueryError, RejectedPushError
from logshipper.spool.segment import Stream
from logshipper_ingest.config.loki_section import LokiSection
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.metrics.agent_metrics import AgentMetrics
from logshipper_ingest.model.capture_rows import BlockRow, Rows
from logshipper_ingest.servers.loki_push import Entry, compress, encode_push
from logshipper_ingest.shipping import delivery
from logshipper_ingest.shipping.delivery import Delivery, Stopped, TenantWaits
from logshipper_ingest.shipping.entries import Chunk, EntryBuilder, StreamKey
from logshipper_ingest.shipping.loki_sink import LokiSink
from logshipper_ingest.shipping.quarantine import Refusal
from logshipper_ingest.spool.capture_folder import Identity
from tests.servers.running import LokiServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.fakes.modelled_loki import HOUR_NS, ModelledLoki, rejection, throttled, unreachable
from tests.tools.waiting import scaled

SECOND_NS = 10**9
IDENTITY = Identity("job1", 1, "", 0, "train.py", "me", "n1", "testing")


class DeliveryToModel:
    """A delivery to a modelled Loki, and its messages."""

    def __init__(self, **options: Any) -> None:  # Any: of LokiSection
        self.loki = ModelledLoki()
        self.stop = threading.Event()
        self.messages: list[str] = []
        self.metrics = AgentMetrics("testing", "n1")
        section = LokiSection(**{"retry_min_secs": 0.001, "retry_max_secs": 0.002, "stream_max_bytes_per_sec": 0,
                                 "tenant_max_bytes_per_sec": 0, **options})  # fmt: skip
        self.delivery = Delivery(
            LokiSink("testing", "n1"),
            lambda: self.loki,
            section,
            self.metrics,
            self.stop,
            self.messages.append,
        )

    def deliver(self, chunks: Sequence[Chunk]) -> list[Refusal]:
        return self.delivery.deliver(chunks)

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"logshipper_agent_{name}", labels) or 0.0


def waits_of(sink: DeliveryToModel, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace waiting from now on, and return the list of its seconds."""
    waits: list[float] = []

    def wait(secs: float) -> bool:
        waits.append(secs)
        return False

    monkeypatch.setattr(sink.stop, "wait", wait)
    return waits


def chunk(lines: Sequence[bytes], time_ns: int) -> Chunk:
    """Return a chunk of lines, one nanosecond apart."""
    text = b"".join(line + b"\n" for line in lines)
    builder = EntryBuilder("job1@1.aaaa", IDENTITY, 4 << 20)
    (single_chunk,) = builder.chunks(
        Rows(blocks=[BlockRow(Stream.STDOUT, time_ns, len(lines), None, None, text)])
    )
    return single_chunk


def refused_lines(refusals: Sequence[Refusal]) -> list[bytes]:
    return sorted(line for refusal in refusals for line in refusal.chunk.lines)


# ---- the usual course


def test_all_of_a_batch_goes_in_one_push_and_is_counted() -> None:
    sink = DeliveryToModel()
    now_ns = time.time_ns()
    assert sink.deliver([chunk([b"a", b"b"], now_ns), chunk([b"c"], now_ns + 10)]) == []
    assert sink.loki.lines() == ["a", "b", "c"]
    assert len(sink.loki.requests) == 1
    assert sink.metric("pushes_total", result="204") == 1
    assert sink.metric("pushed_bytes_total") == len(sink.loki.bodies[0])
    assert abs(sink.metric("clock_skew_seconds")) < 60
    assert sink.delivery.state.since_ns == 0
    assert sink.messages == []


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (401, "credentials or tenant are wrong"),
        (403, "credentials or tenant are wrong"),
        (404, "there is no Loki at this address"),
        (260, "everything waits"),
        (301, "everything waits"),
        (409, "everything waits"),
        (500, "everything waits"),
    ],
)
def test_what_somebody_has_to_fix_holds_everything_and_is_said_once(status: int, hint: str) -> None:
    sink = DeliveryToModel()
    error = rejection(status, "dear me")
    sink.loki.script = [error, error, error]
    assert sink.deliver([chunk([b"a"], time.time_ns())]) == []
    assert sink.loki.lines() == ["a"]
    assert len(set(sink.loki.bodies)) == 1, "the same bytes each time"
    (line, recovery) = sink.messages
    assert f"HTTP {status}: dear me" in line
    assert hint in line
    assert "takes everything again" in recovery
    assert sink.metric("retries_total", reason=str(status)) == 3


def test_a_server_that_cannot_be_reached_is_tried_again() -> None:
    sink = DeliveryToModel()
    sink.loki.script = [unreachable(), rejection(502), unreachable()]
    assert sink.deliver([chunk([b"a"], time.time_ns())]) == []
    assert sink.loki.lines() == ["a"]
    assert sink.metric("retries_total", reason="no_connection") == 2
    assert sink.metric("pushes_total", result="no_connection") == 2


def test_other_words_are_said_again() -> None:
    sink = DeliveryToModel()
    sink.loki.script = [
        rejection(500, "one"),
        rejection(500, "one"),
        rejection(500, "two"),
        rejection(503, "two"),
    ]
    sink.deliver([chunk([b"a"], time.time_ns())])
    assert len(sink.messages) == 4  # one, two, two with another status, recovery


def test_a_trouble_that_comes_and_goes_is_said_ever_so_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink = DeliveryToModel()
    for _ in range(20):
        sink.loki.script = [rejection(503, "away")]
        sink.deliver([chunk([b"a"], time.time_ns())])
    assert len(sink.messages) == 2, "once, and that it was over"
    monkeypatch.setattr(delivery, "LOG_AGAIN_SECS", 0.0)
    sink.loki.script = [rejection(503, "away")]
    sink.deliver([chunk([b"a"], time.time_ns())])
    assert len(sink.messages) == 4


def test_state_tells_of_the_trouble_while_it_lasts_and_of_the_last_refusal_after() -> None:
    sink = DeliveryToModel()
    states = []

    def answer(labels: str) -> None:
        states.append(sink.delivery.state)
        raise rejection(401, "who are you")

    sink.loki.script = [answer, answer, lambda labels: states.append(sink.delivery.state)]
    begin_ns = time.time_ns()
    sink.deliver([chunk([b"a"], time.time_ns())])
    assert [state.status for state in states] == [0, 401, 401]
    assert begin_ns <= states[1].since_ns == states[2].since_ns <= time.time_ns(), (
        "since when, not when last"
    )
    assert sink.delivery.state.since_ns == 0
    assert sink.delivery.last_refusal.words == "who are you"


# ---- waiting


def test_what_retry_after_asks_for_is_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DeliveryToModel()
    waits = waits_of(sink, monkeypatch)
    sink.loki.script = [throttled(7.0), throttled(None), throttled(10**9)]
    sink.deliver([chunk([b"a"], time.time_ns())])
    pause, at_most = (secs for secs in waits if secs > 1)
    assert 7.0 <= pause <= 7.7
    assert 300.0 <= at_most <= 330.0, "no server stops an agent for good"
    assert all(secs < 0.1 for secs in waits if secs <= 1), "what nobody asked for is short"
    assert sink.metric("retries_total", reason="429") == 3


def test_stop_ends_a_wait_at_once() -> None:
    sink = DeliveryToModel(retry_min_secs=600.0, retry_max_secs=600.0)
    sink.loki.script = [unreachable()] * 100
    raised: list[BaseException] = []

    def deliver() -> None:
        try:
            sink.deliver([chunk([b"a"], time.time_ns())])
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=deliver)
    thread.start()
    wait_until(lambda: sink.loki.requests or not thread.is_alive(), "the first try")
    sink.stop.set()
    thread.join(scaled(10))
    assert not thread.is_alive()
    assert [type(error) for error in raised] == [Stopped]
    assert sink.loki.stored == []


def test_a_streams_rate_is_kept_to_and_another_streams_is_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink = DeliveryToModel(stream_max_bytes_per_sec=10_000)
    waits = waits_of(sink, monkeypatch)
    now_ns = time.time_ns()
    big = chunk([b"x" * 50_000], now_ns)
    sink.deliver([big])
    assert len(waits) == 1
    assert 4.5 < waits[0] < 5.0, "50 kB at 10 kB/s, a quarter of that at once"
    second_chunk = Chunk(
        big.capture, StreamKey("stderr", "log"), range(now_ns, now_ns + 1), [b"y"], big.common
    )
    sink.deliver([second_chunk])
    assert len(waits) == 1


def test_what_is_sent_again_counts_in_its_streams_rate_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loki also counts entries that it has already. Otherwise a push with lost answers would make
    it split the stream."""
    sink = DeliveryToModel(stream_max_bytes_per_sec=10_000, settle_secs=0)
    sink.loki.script = [rejection(500), unreachable()]
    waits = waits_of(sink, monkeypatch)
    sink.deliver([chunk([b"x" * 50_000], time.time_ns())])
    assert [round(secs) for secs in waits if secs > 1] == [5, 10, 15], (
        "of a clock that stands still"
    )


def test_loki_that_was_away_is_left_to_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logshipper_ingest.shipping.delivery.RESTART_SECS", 0.0)
    sink = DeliveryToModel(settle_secs=10.0)
    waits = waits_of(sink, monkeypatch)
    now_ns = time.time_ns()
    sink.loki.script = [unreachable(), unreachable()]
    away = [
        QueryError("Loki", 0, "connection refused"),
        QueryError("Loki", 503, "Ingester not ready"),
    ]
    monkeypatch.setattr(sink.loki, "ready", lambda: raising(away.pop(0)) if away else True)
    sink.deliver([chunk([b"a"], now_ns)])
    assert not away
    assert [round(secs) for secs in waits if secs > 1] == [10], "none before it answers"
    sink.deliver([chunk([b"b"], now_ns + 1)])
    assert [round(secs) for secs in waits if secs > 1] == [10, 10], (
        "the rest of the same 10 s, of which none has passed"
    )
    later = time.monotonic() + 20
    monkeypatch.setattr(time, "monotonic", lambda: later)
    sink.deliver([chunk([b"c"], now_ns + 2)])
    assert len([secs for secs in waits if secs > 1]) == 2
    assert len(sink.loki.find()) == 3


def raising(error: Exception) -> bool:
    raise error


def test_a_time_out_alone_lets_nobody_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DeliveryToModel(settle_secs=600.0)
    waits = waits_of(sink, monkeypatch)
    sink.loki.script = [unreachable(), rejection(503)]
    sink.deliver([chunk([b"a"], time.time_ns())])
    assert max(waits) < 1


# ---- tenants


def of_tenant(tenant: str, stream: str, time_ns: int) -> Chunk:
    template = chunk([b"a"], time_ns)
    return Chunk(
        template.capture,
        StreamKey(stream, "log", tenant=tenant),
        template.times_ns,
        template.lines,
        template.common,
    )


def failed(sink: DeliveryToModel, tenant: str, stream: str, error: PushError) -> None:
    sink.loki.script = [error]
    with pytest.raises(TenantWaits):
        sink.deliver([of_tenant(tenant, stream, time.time_ns())])


def test_what_a_tenant_takes_ends_the_trouble_of_all_its_streams() -> None:
    sink = DeliveryToModel(retry_min_secs=600.0, retry_max_secs=600.0)
    failed(sink, "ann", "stdout", throttled())
    failed(sink, "ann", "stderr", rejection(403))
    failed(sink, "ben", "stdout", throttled())
    sink.deliver([of_tenant("ann", "", time.time_ns())])
    assert sink.delivery.failing() == sink.delivery.waiting_tenants() == {"ben"}
    assert sink.delivery.state.status == 429
    sink.deliver([of_tenant("ben", "", time.time_ns())])
    assert sink.delivery.state.since_ns == 0
    assert "takes everything again" in sink.messages[-1]


def test_a_push_that_was_on_its_way_ends_no_later_trouble() -> None:
    sink = DeliveryToModel(retry_min_secs=600.0, retry_max_secs=600.0)
    earlier = of_tenant("ann", "stderr", time.time_ns())
    answer = sink.loki.push_body

    def fail_midway(body: bytes, tenant: str = "") -> None:
        sink.loki.push_body = answer  # type: ignore[method-assign]
        failed(sink, "ann", "stdout", throttled())
        answer(body, tenant)

    sink.loki.push_body = fail_midway  # type: ignore[method-assign]
    sink.deliver([earlier])
    assert sink.delivery.waiting_tenants() == {"ann"}
    assert sink.delivery.state.status == 429


def test_trouble_with_a_tenant_that_nobody_has_anything_for_is_over() -> None:
    sink = DeliveryToModel()
    sink.delivery.want("captures", {"ann"})
    sink.delivery.want("slurm", {"ben"})
    failed(sink, "ann", "stdout", throttled())
    failed(sink, "ben", "stdout", throttled())
    sink.delivery.want("captures", set())
    assert sink.delivery.failing() == {"ben"}
    assert sink.delivery.state.since_ns > 0
    sink.delivery.want("slurm", set())
    assert sink.delivery.failing() == set()
    assert sink.delivery.state.since_ns == 0


@pytest.mark.parametrize(
    "error", [rejection(401), rejection(403), rejection(400), throttled(), rejection(500)], ids=str
)
def test_who_waits_is_said_where_it_is_one_user(error: PushError) -> None:
    sink = DeliveryToModel()
    sink.loki.refusing = {"ann": error}
    with pytest.raises(TenantWaits):
        sink.deliver([of_tenant("ann", "stdout", time.time_ns())])
    (line,) = sink.messages
    assert "what is of the tenant ann waits" in line
    assert "everything waits" not in line


@pytest.mark.parametrize("error", [rejection(404), unreachable()], ids=str)
def test_what_is_no_tenant_s_trouble_is_said_once_for_all(error: PushError) -> None:
    sink = DeliveryToModel()
    failed(sink, "ann", "stdout", error)
    failed(sink, "ben", "stdout", error)
    (line,) = sink.messages
    assert "everything waits" in line


# ---- refusals


def test_one_bad_entry_is_found_among_many() -> None:
    sink = DeliveryToModel()
    now_ns = time.time_ns()
    lines = [b"%d" % number for number in range(1000)]
    lines[617] = b"x" * 300_000
    (refusal,) = sink.deliver([chunk(lines, now_ns)])
    assert refusal.chunk.times_ns[0] == now_ns + 617
    assert (refusal.reason, refusal.status) == ("line_too_long", 400)
    assert "max entry size" in refusal.words
    assert len(sink.loki.find()) == 999
    assert len(sink.loki.requests) < 30
    assert sink.delivery.state.since_ns == 0, "the entries' fault isn't the sink's trouble"


def test_bad_entries_anywhere_are_found_and_all_others_stored() -> None:
    rng = random.Random(4)
    for _ in range(30):
        sink = DeliveryToModel()
        now_ns = time.time_ns()
        chunks, bad, good = [], [], []
        for number in range(rng.randrange(1, 6)):
            lines = []
            for at in range(rng.randrange(1, 9)):
                line = b"%d.%d " % (number, at)
                if rng.random() < 0.3:
                    line += b"x" * 270_000
                    bad.append(line)
                else:
                    good.append(line)
                lines.append(line)
            chunks.append(chunk(lines, now_ns + number * 1000))
        refusals = sink.deliver(chunks)
        assert refused_lines(refusals) == sorted(bad)
        assert sorted(entry.line for entry in sink.loki.find()) == sorted(good)


def test_413_halves_a_batch_and_refuses_an_entry_that_is_alone() -> None:
    sink = DeliveryToModel()

    def limit(labels: str) -> None:
        _, entries = sink.loki.requests[-1]
        if sum(len(entry.line) for entry in entries) > 500:
            raise rejection(413, "request entity too large")

    sink.loki.script = [limit] * 1000
    (refusal,) = sink.deliver(
        [chunk([b"a" * 400, b"b" * 400, b"c" * 600, b"d" * 10], time.time_ns())]
    )
    assert refusal.reason == "too_large"
    assert refused_lines([refusal]) == [b"c" * 600]
    assert sorted(entry.line[:1] for entry in sink.loki.find()) == [b"a", b"b", b"d"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            "entry for stream '{}' has timestamp too old: 2026-01-01T00:00:00Z, oldest acceptable",
            "too_old",
        ),
        ("entry for stream '{}' has timestamp too new: 2199-11-06T00:00:00Z", "too_new"),
        (
            "max entry size '262144' bytes exceeded for stream '{}' while adding an entry",
            "line_too_long",
        ),
        (
            "stream '{}' has structured metadata too large: '70001' bytes, limit",
            "metadata_too_large",
        ),
        (
            "stream '{}' has too many structured metadata labels: '200', limit: '128'",
            "metadata_too_large",
        ),
        ("entry for stream '{}' has 32 label names; limit 15", "labels"),
        (
            "entry with timestamp 2026-01-01 ignored, reason: 'entry too far behind, entry",
            "too_far_behind",
        ),
        ("the moon is full", "other"),
    ],
)
def test_reasons_are_few_words(words: str, reason: str) -> None:
    sink = DeliveryToModel()
    sink.loki.script = [rejection(400, words)]
    (refusal,) = sink.deliver([chunk([b"a"], time.time_ns())])
    assert (refusal.reason, refusal.words) == (reason, words)


# ---- too far behind


def test_late_entries_are_told_apart_at_once() -> None:
    sink = DeliveryToModel()
    now_ns = time.time_ns()
    sink.deliver([chunk([b"newest"], now_ns)])
    late = chunk([b"late %d" % number for number in range(5000)], now_ns - 2 * HOUR_NS)
    fine = chunk([b"fine 1", b"fine 2"], now_ns - HOUR_NS // 2)
    pushes = len(sink.loki.requests)
    refusals = sink.deliver([late, fine])
    assert {refusal.reason for refusal in refusals} == {"too_far_behind"}
    assert refused_lines(refusals) == sorted(late.lines)
    assert sink.loki.lines() == ["fine 1", "fine 2", "newest"]
    assert len(sink.loki.requests) - pushes < 10, "Loki says from when on it takes entries"


def test_the_only_good_entry_among_late_ones_is_not_refused() -> None:
    sink = DeliveryToModel()
    now_ns = time.time_ns()
    sink.deliver([chunk([b"newest"], now_ns)])
    late = chunk([b"late 1", b"late 2"], now_ns - 2 * HOUR_NS)
    refusals = sink.deliver([late, chunk([b"fine"], now_ns - SECOND_NS)])
    assert refused_lines(refusals) == [b"late 1", b"late 2"], "Loki took the third one"
    assert sink.loki.lines() == ["fine", "newest"]


def test_entries_in_the_second_of_the_floor_are_decided_one_by_one() -> None:
    """Loki's message has its floor without fractions of a second."""
    sink = DeliveryToModel()
    newest_ns = time.time_ns() // SECOND_NS * SECOND_NS + SECOND_NS // 2
    sink.deliver([chunk([b"newest"], newest_ns)])
    floor_ns = newest_ns - HOUR_NS
    refusals = sink.deliver([chunk([b"before", b"at", b"after", b"later"], floor_ns - 1)])
    assert refused_lines(refusals) == [b"before"]
    assert sink.loki.lines() == ["at", "after", "later", "newest"]


def test_words_with_an_impossible_time_are_only_words() -> None:
    sink = DeliveryToModel()
    words = "entry too far behind, oldest acceptable timestamp is: 2026-13-45T99:99:99Z"
    sink.loki.script = [rejection(400, words)]
    (refusal,) = sink.deliver([chunk([b"a"], time.time_ns())])
    assert refusal.reason == "too_far_behind"


# ---- the model against the real one


def test_the_model_has_the_words_of_a_real_loki(loki: LokiServer) -> None:
    labels = {"cluster": "words", "service_name": "test", "run": str(time.time_ns())}
    now_ns = time.time_ns()
    model = ModelledLoki()
    tries: dict[str, list[Entry]] = {
        "first": [Entry(now_ns, "x")],
        "late": [
            Entry(now_ns - 2 * HOUR_NS, "a"),
            Entry(now_ns - 2 * HOUR_NS + SECOND_NS, "b"),
            Entry(now_ns, "c"),
        ],
        "at the floor": [Entry(now_ns - HOUR_NS, "d")],
        "before the floor": [Entry(now_ns - HOUR_NS - 1, "e")],
        "old": [Entry(now_ns - 200 * HOUR_NS, "f")],
        "new": [Entry(now_ns + HOUR_NS, "g")],
        "long": [Entry(now_ns, "h" * 300_000)],
    }
    with LokiClient(loki.url) as real:
        for case, entries in tries.items():
            assert _answer(model, labels, entries) == _answer(real, labels, entries), case
        query = f'{{run="{labels["run"]}"}}'
        lines = sorted(
            entry.line for entry in real.entries(query, now_ns - 2 * HOUR_NS, now_ns + SECOND_NS)
        )
    assert lines == sorted(model.lines()) == ["c", "d", "x"]


def test_a_mixed_batch_at_a_real_loki_is_stored_but_for_what_is_returned(loki: LokiServer) -> None:
    cluster = f"mixed{time.time_ns()}"
    now_ns = time.time_ns()
    section = LokiSection(retry_min_secs=0.05, retry_max_secs=0.1)
    with LokiClient(loki.url) as client:
        to_loki = Delivery(
            LokiSink(cluster, "n1"),
            lambda: client,
            section,
            AgentMetrics(cluster, "n1"),
            threading.Event(),
            lambda words: None,
        )
        assert to_loki.deliver([chunk([b"newest"], now_ns)]) == []
        late = chunk([b"late %d" % number for number in range(100)], now_ns - 2 * HOUR_NS)
        fine = chunk([b"fine", b"x" * 300_000], now_ns - SECOND_NS)
        refusals = to_loki.deliver([late, fine])
        query = f'{{cluster="{cluster}"}}'
        lines = [
            entry.line for entry in client.entries(query, now_ns - 3 * HOUR_NS, now_ns + SECOND_NS)
        ]
    assert lines == ["fine", "newest"]
    assert refused_lines(refusals) == sorted([*late.lines, b"x" * 300_000])


def _answer(client: LokiClient | ModelledLoki, labels: dict[str, str], entries: list[Entry]) -> str:
    try:
        client.push_body(compress(encode_push(labels, entries)))
    except RejectedPushError as error:
        words = f"{error.status} {error.excerpt}"
        # the rest depends on the server's clock, which moves on
        return (
            words.partition("oldest acceptable timestamp is: ")[0] if "too old" in words else words
        )
    return "204"


@pytest.mark.parametrize(("status", "result"), [(401, "401"), (503, "503"), (0, "no_connection")])
def test_streams_that_wait_are_counted_by_what_they_wait_for(status: int, result: str) -> None:
    sink = DeliveryToModel()
    waits: list[dict[str, int]] = []
    sink.loki.script = [rejection(status, "dear me") if status else unreachable()] * 2
    push = sink.loki.push_body

    def look(body: bytes, tenant: str = "") -> None:
        waits.append(dict(sink.delivery.waiting_by_result()))
        push(body, tenant)

    sink.loki.push_body = look  # type: ignore[method-assign]  # the test's own
    sink.deliver([chunk([b"a"], time.time_ns())])
    assert waits == [{}, {result: 1}, {result: 1}]
    assert sink.delivery.waiting_by_result() == {}
    for streams, count in ((waits[1], 1), ({}, 0)):
        sink.metrics.set_waiting(streams)
        assert sink.metric("waiting_streams", result=result) == count


def test_a_clock_that_is_off_is_told_by_a_refusal_too() -> None:
    sink = DeliveryToModel()
    skews: list[float] = []
    push = sink.loki.push_body

    def answer_three_hours_behind(body: bytes, tenant: str = "") -> None:
        skews.append(sink.metric("clock_skew_seconds"))
        try:
            push(body, tenant)
        finally:
            sink.loki.answer_date_ns = time.time_ns() - 3 * HOUR_NS

    sink.loki.push_body = answer_three_hours_behind  # type: ignore[method-assign]  # the test's own
    sink.loki.script = [rejection(401, "dear me")]
    sink.deliver([chunk([b"a"], time.time_ns())])
    assert skews == [0.0, pytest.approx(3 * 3600, abs=5)]

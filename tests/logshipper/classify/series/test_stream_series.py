"""Series in the log: origins, modes, budget, privacy."""

import json
from typing import Any

import pytest

from logshipper.classify import stream_series
from logshipper.classify.capture_log import CaptureLog
from logshipper.classify.classifier import Classifier
from logshipper.classify.logged import LoggedEvent, LoggedLines
from logshipper.classify.series.key_rules import KeyRules
from logshipper.classify.series.recogniser import Recogniser
from logshipper.classify.stream_output import StreamOutput
from logshipper.classify.stream_series import BURST_SECS, CPU_SHARE, FLOOD_BYTES, StreamSeries
from logshipper.render.renderer import Renderer
from logshipper.spool.segment import Kind, Stream

LINES = b"".join(b"step %d loss=0.%d\n" % (number, number) for number in range(1, 9))
SERIES = [{"step": number, "loss": number / 10} for number in range(1, 9)]


def records(classifier: Classifier) -> list[tuple[str, Any]]:  # Any: JSON
    """Origin and record of each metadata line."""
    return [
        ((item.attrs or {}).get("origin", "json"), json.loads(item.text))
        for item in classifier.take()
        if isinstance(item, LoggedLines) and item.kind is Kind.METADATA
    ]


def finished(
    data: bytes, stream: Stream = Stream.STDOUT, mode: str = "enabled", **options: Any
) -> list[tuple[str, Any]]:
    classifier = Classifier(mode, **options)
    classifier.feed(stream, data, 1.0)
    classifier.tick(60.0)
    return records(classifier)


@pytest.mark.parametrize("stream", [Stream.STDOUT, Stream.STDERR])
@pytest.mark.parametrize("options", [{"metadata": ("json", "auto")}, {"finds_series": True}])
def test_both_streams_have_series(stream: Stream, options: dict[str, Any]) -> None:
    assert finished(LINES, stream, **options) == [("auto", record) for record in SERIES]


def test_there_are_none_by_default() -> None:
    assert finished(LINES) == []


def test_in_mode_metadata_only_if_named() -> None:
    named = finished(LINES, mode="metadata", metadata=("json", "auto"))
    assert named == [("auto", record) for record in SERIES]
    assert finished(LINES, mode="metadata", finds_series=True) == []
    assert finished(LINES, mode="disabled", metadata=("json", "auto")) == []


def test_other_kinds_come_first() -> None:
    data = b"".join(
        b'{"loss": 0.%d}\nloss: 0.%d\nINFO train loss=0.%d acc=0.%d\n' % ((number,) * 4)
        for number in range(1, 6)
    )
    origins = [origin for origin, _ in finished(data, metadata=("json", "pairs", "auto"))]
    assert {origin: origins.count(origin) for origin in origins} == {
        "json": 5,
        "pairs": 5,
        "auto": 5,
    }


def test_a_change_of_mode_forgets_all_shapes() -> None:
    change = b'/LOGCOMMAND {"mode":"disabled"}\nstep 9 loss=0.9\n/LOGCOMMAND {"mode":"enabled"}\n'
    lines = LINES.splitlines(keepends=True)
    found = finished(b"".join([*lines[:2], change, *lines[2:4]]), metadata=("json", "auto"))
    assert found == []
    found = finished(LINES + change + LINES, metadata=("json", "auto"))
    assert found == [("auto", record) for record in [*SERIES, *SERIES]]


def test_mode_metadata_stores_numbers_and_keys_only() -> None:
    classifier = Classifier("metadata", metadata=("json", "auto"))
    for number in range(1, 9):
        text = b"user alice: step %d loss=0.%d\nHello %d bob\nalone %d: carol\n/tmp/dave 0.%d\n"
        lines = text % ((number,) * 5) + b"unique%c eve=0.5 = 1.5\n" % (96 + number)
        for stream in (Stream.STDOUT, Stream.STDERR):
            classifier.feed(stream, lines, 1.0)
    classifier.feed(Stream.STDOUT, b"  5%|#  | 1/20 [00:01<00:03, loss=0.5, frank]", 2.0)
    classifier.tick(60.0)
    classifier.end(Stream.STDOUT, 61.0)
    classifier.end(Stream.STDERR, 61.0)
    stored = [item for item in classifier.take() if isinstance(item, LoggedLines)]
    assert {item.kind for item in stored} == {Kind.METADATA}
    assert {key for item in stored for key in json.loads(item.text)} == {"step", "loss", "count"}
    assert all(
        isinstance(value, float | int)
        for item in stored
        for value in json.loads(item.text).values()
    )


@pytest.mark.parametrize("mode", ["enabled", "metadata", "disabled"])
def test_every_change_of_mode_starts_afresh(mode: str) -> None:
    """Neither a line, nor a header, nor a counter or bar from before affects later records."""
    classifier = Classifier(
        "enabled" if mode != "enabled" else "metadata", metadata=("json", "auto")
    )
    before = b"Time = 1\nstep 1 loss=0.1\nstep 2 loss=0.2\nx energy\n1 0.5\n2 0.6\n"
    classifier.feed(Stream.STDOUT, before, 1.0)
    classifier.feed(Stream.STDERR, b'/LOGCOMMAND {"mode":"%s"}\n' % mode.encode(), 1.0)
    classifier.seen_empty(Stream.STDOUT, 1.0)
    classifier.take()
    classifier.feed(Stream.STDOUT, b"step 3 loss=0.3\nstep 4 loss=0.4\n3 0.7\n4 0.8\n", 1.0)
    classifier.tick(60.0)
    assert records(classifier) == []


def test_corrections() -> None:
    data = b"".join(
        b"step %d lm loss: 0.%d time: %d.5 tokens/s: 5.%d\n" % ((n,) * 4) for n in range(1, 6)
    )
    data += b"".join(b'{"time": %d}\n' % n for n in range(2))
    found = finished(
        data, metadata=("json", "auto"), ignore=("tokens/s", "time*"), rename=(("lm loss", "loss"),)
    )
    expected: list[tuple[str, Any]] = [("json", {"time": 0}), ("json", {"time": 1})]
    expected += [("auto", {"step": n, "loss": n / 10}) for n in range(1, 6)]
    assert sorted(found, key=str) == sorted(expected, key=str)


def events(classifier: Classifier) -> list[Any]:
    classifier.end(Stream.STDOUT, 99.0)
    return [item.record for item in classifier.take() if isinstance(item, LoggedEvent)]


def test_a_rename_that_meets_a_key_is_reported_once() -> None:
    data = b"".join(b"loss: 0.%d lm loss: 1.%d\n" % (n, n) for n in range(1, 9))
    classifier = Classifier("enabled", metadata=("json", "auto"), rename=(("lm*", "loss"),))
    classifier.feed(Stream.STDOUT, data, 1.0)
    (event,) = events(classifier)
    assert (event["event"], event["key"], event["new_name"]) == (
        "series_rename_conflict",
        "lm*",
        "loss",
    )


def test_limits_are_reported() -> None:
    words = [f"x{a}{b}" for a in "bcdefghijklmnopqrstu" for b in "bcdefghijklmnop"]
    data = "".join(f"{word}: 0.{n}\n" for word in words for n in range(1, 4))
    classifier = Classifier("enabled", metadata=("json", "auto"))
    classifier.feed(Stream.STDOUT, data.encode(), 1.0)
    (event,) = events(classifier)
    assert (event["event"], event["reason"], event["count"]) == (
        "series_left_out",
        "shapes",
        300 - 256,
    )


def test_masked_text_is_in_no_key() -> None:
    token = b"ghp_" + b"A1b2" * 9
    data = b"".join(
        b"token %s loss=0.%d acc=0.%d\n" % (token, number, number) for number in range(1, 6)
    )
    found = finished(data, metadata=("json", "auto"))
    assert found
    assert b"A1b2" not in json.dumps(found).encode()


def test_a_bar_is_sampled_and_has_its_end() -> None:
    classifier = Classifier("enabled", metadata=("json", "auto"))
    now = 0.0
    for number in range(1, 21):
        bar = "\rEpoch 1: {:3d}%|{:<10}| {}/20 [00:01<00:03, 9.1it/s, loss=0.{:02d}]"
        classifier.feed(
            Stream.STDERR, bar.format(number * 5, "█" * (number // 2), number, number).encode(), now
        )
        now += 0.25
        classifier.tick(now)
    classifier.feed(Stream.STDERR, b"\n", now)
    classifier.tick(now + 60)
    found = [record for _, record in records(classifier)]
    assert found[-1] == {"epoch": 1, "count": 20, "loss": 0.2}
    assert 4 <= len(found) <= 7, "once a second, and at its end"


class Job:
    """One stream's series, with a clock of CPU time."""

    def __init__(self) -> None:
        self.log = CaptureLog()
        self.cpu = 0.0
        self.series = StreamSeries(
            StreamOutput(Stream.STDOUT, Renderer(80, 24), self.log),
            self.log,
            KeyRules(),
            lambda: self.cpu,
        )

    def events(self) -> list[Any]:
        return [item.record for item in self.log.out if isinstance(item, LoggedEvent)]


def test_a_costly_job_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job()
    taken: list[float] = []

    def costly(self: Recogniser, lines: object, time: float) -> list[Any]:
        job.cpu += BURST_SECS * 0.6
        taken.append(time)
        return []

    monkeypatch.setattr(Recogniser, "feed", costly)
    wait = BURST_SECS / CPU_SHARE
    for time in (0.0, 0.1, 0.2, 0.3, wait, 3 * wait):
        if job.series.is_open(10, 60, time):
            job.series.take([b"a = 1"] * 10, time)
    assert taken == [0.0, 0.1, wait, 3 * wait]
    job.series.tick(3 * wait)
    (event,) = job.events()
    assert (event["event"], event["reason"], event["lines"]) == ("series_left_out", "too_fast", 20)
    assert job.series.is_open(1, 6, 3 * wait)
    job.series.take([b"a = 1"], 3 * wait)
    assert not job.series.is_open(1, 6, 3 * wait)
    job.series.reset()
    assert [event["lines"] for event in job.events()] == [20, 1]


def test_a_flood_gains_no_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job()

    def costly(self: Recogniser, lines: object, time: float) -> list[Any]:
        job.cpu += BURST_SECS * 1.1
        return []

    monkeypatch.setattr(Recogniser, "feed", costly)
    assert job.series.is_open(1, FLOOD_BYTES, 0.0)
    job.series.take([b"a = 1"], 0.0)
    # a busy machine takes long for each block
    assert not any(job.series.is_open(1, FLOOD_BYTES, at * 0.09) for at in range(100))
    assert job.series.is_open(1, FLOOD_BYTES, 40.0 + BURST_SECS / CPU_SHARE), "after silence"
    job.series.take([b"a = 1"], 50.0)
    assert any(job.series.is_open(1, 100, 50.0 + at * 0.09) for at in range(100)), "of small blocks"


@pytest.mark.parametrize("mode", ["enabled", "metadata"])
def test_lines_without_a_search_are_counted(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_series, "BURST_SECS", -1.0)
    monkeypatch.setattr(StreamSeries, "_refill", lambda self, now, size: None)
    classifier = Classifier(mode, metadata=("json", "auto"))
    classifier.feed(Stream.STDOUT, b"step 0\n", 1.0)
    classifier.feed(Stream.STDOUT, LINES + b"\n\nthe same 1\nthe same 1\n", 1.0)
    (event,) = events(classifier)
    # mode `enabled` collapses a repeat and a blank line
    assert event["lines"] == (11 if mode == "enabled" else 13)


def test_an_error_costs_the_series_only(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job()

    def broken(self: Recogniser, lines: object, time: float) -> list[Any]:
        raise ZeroDivisionError

    monkeypatch.setattr(Recogniser, "feed", broken)
    job.series.take([b"a = 1"], 0.0)
    (event,) = job.events()
    assert "ZeroDivisionError" in event["message"]


def test_a_header_may_come_long_before_its_rows() -> None:
    classifier = Classifier("enabled", metadata=("json", "auto"))
    classifier.feed(Stream.STDOUT, b"   step      energy   temperature\n", 0.0)
    classifier.tick(5.0)
    for number in range(1, 5):
        classifier.feed(
            Stream.STDOUT, b"%7d   -0.%d   30%d.5\n" % (number, number, number), 5.0 + number
        )
    assert [list(record) for _, record in records(classifier)] == [
        ["step", "energy", "temperature"]
    ] * 4

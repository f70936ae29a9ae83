"""The watch of a job, with a clock of the test's."""

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from logshipper.classify.logged import LoggedLines
from logshipper.config import Notify
from logshipper.notify import orders, watch
from logshipper.notify.watch import HOUR_SECS, Watch, WatchedJob
from logshipper.spool.segment import Json, Kind, Stream
from tests.tools.waiting import wait_until


class Senders:
    """Replaces the start of senders; each has ended at once."""

    def __init__(self) -> None:
        self.orders: list[Json] = []

    def start(self, order: Json) -> Any:  # Any: stands for a process
        self.orders.append(order)
        command = ["echo", '{"target": "cmd"}']
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        process.wait()
        return process

    def news(self) -> list[str]:
        return [f"{order['kind']}: {order['title'].partition(': ')[2]}" for order in self.orders]


@pytest.fixture
def senders(monkeypatch: pytest.MonkeyPatch) -> Senders:
    senders = Senders()
    monkeypatch.setattr(orders, "start", senders.start)
    return senders


def a_watch(**facts: Any) -> Watch:  # Any: fields of WatchedJob
    job = WatchedJob("k3f9x2", "train", "node7", time.time(), is_checked=True, **facts)
    return Watch(Notify(("desktop",)), job, 0.0)


def records(*texts: str) -> list[LoggedLines]:
    text = "".join(f"{text}\n" for text in texts).encode()
    return [LoggedLines(Stream.STDOUT, Kind.METADATA, text, len(texts))]


def test_silence_is_reported_once_until_the_next_output(senders: Senders) -> None:
    job = a_watch()
    for now, received in ((0.0, 0), (1000.0, 5), (2790.0, 5)):
        job.tick(now, received, "enabled")
    assert senders.news() == []
    for now in (2801.0, 3000.0, 9000.0):
        job.tick(now, 5, "enabled")
    assert senders.news() == ["silence: no output for 30 minutes"]
    job.tick(9001.0, 6, "enabled")
    job.tick(20000.0, 6, "enabled")
    assert len(senders.news()) == 2


def test_each_kind_comes_once_an_hour_and_the_rest_is_counted(senders: Senders) -> None:
    job = a_watch()
    events: list[Json] = []
    for now in range(0, int(HOUR_SECS) + 60, 60):
        job.take(records('{"loss": 1.0}', '{"loss": NaN, "acc": 0.5}'))
        events += job.tick(float(now), now, "enabled")
    assert senders.news() == ["nan: NaN or an infinity in loss"] * 2
    (event,) = events
    assert (event["event"], event["kind"], event["count"]) == ("notifications_held_back", "nan", 59)


@pytest.mark.parametrize(
    ("record", "is_gap"),
    [
        ('{"loss": NaN}', True),
        ('{"loss": -Infinity}', True),
        ('{"note": "NaN", "loss": Infinity}', True),
        ('{"note": "NaN"}', False),
        ('{"NaN": 1}', False),
        ('{"loss": 1' + "0" * 500 + "}", False),
        ("[NaN]", False),
    ],
)
def test_gaps(senders: Senders, record: str, is_gap: bool) -> None:
    job = a_watch()
    job.take(records('{"first": 1}', record))
    job.tick(1.0, 1, "enabled")
    assert bool(senders.orders) == is_gap


def test_the_time_limit_is_reported_a_tenth_of_it_before(senders: Senders) -> None:
    job = a_watch(ends_at=time.time() + 6000.0)
    job.tick(5300.0, 1, "enabled")
    assert senders.news() == []
    job.tick(5410.0, 2, "enabled")
    job.tick(5500.0, 3, "enabled")
    (news,) = senders.news()
    assert news.startswith("limit: ")
    assert news.endswith(" left until the time limit")


def test_slurm_is_asked_for_an_unknown_limit(
    senders: Senders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    squeue = tmp_path / "squeue"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    job = a_watch(slurm_id="4711")

    def tick(now: float, left_secs: int | None) -> None:
        """Let `squeue` answer, and the watch read it."""
        end = "NONE"
        if left_secs is not None:
            end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + left_secs))
        squeue.write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/asked\necho "{end}"\n')
        squeue.chmod(0o755)
        job.tick(now, int(now), "enabled")
        ask = job._limit._ask
        if ask is not None:
            ask.wait()
            job.tick(now, int(now), "enabled")

    tick(29.0, None)
    assert not (tmp_path / "asked").exists()
    tick(31.0, 86_400)
    assert "--jobs=4711" in (tmp_path / "asked").read_text()
    tick(82_000.0, None)
    assert senders.news() == [], "an hour before the end is later"
    tick(84_000.0, 36_000)
    assert senders.news() == [], "the limit was extended"
    tick(84_000.0 + 36_000.0, 300)
    (news,) = senders.news()
    assert news.startswith("limit: 5 minutes left")


def test_a_job_without_a_limit_has_no_message_about_it(
    senders: Senders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither has a job on a host without `squeue`."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert watch._unix_time(b"N/A\n") == watch._unix_time(b"") == 0.0
    job = a_watch(slurm_id="4711")
    for now in (31.0, 32.0, 1e6):
        job.tick(now, int(now), "enabled")
    assert senders.news() == []


def test_without_an_answer_of_slurm_the_given_limit_counts(
    senders: Senders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    job = a_watch(slurm_id="4711", ends_at=time.time() + 1000.0)
    for now in (31.0, 890.0):
        job.tick(now, int(now), "enabled")
    assert senders.news() == []
    for now in (910.0, 911.0, 912.0):
        job.tick(now, int(now), "enabled")
    assert len(senders.news()) == 1


def test_content_has_limits(senders: Senders) -> None:
    job = a_watch()
    job.take(records(*("{%s}" % f'"{"k" * 99}{n}": {n}' for n in range(50))))  # noqa: UP031
    job.take(records('{"big": "%s"}' % ("x" * 100_000)))
    text = b"".join(b"%d %s\n" % (n, b"y" * 1000) for n in range(100))
    job.take([LoggedLines(Stream.STDERR, Kind.LOG, text, 100)])
    job.end("FAILED", 1, "", 1.0, "enabled")
    (order,) = senders.orders
    assert len(order["body"]) < 6000
    assert "99 yyy" in order["body"]
    assert not job.finish()


def test_a_dead_sender_is_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(order: Json) -> Any:  # Any: a process
        return subprocess.Popen(["false"], stdout=subprocess.PIPE)

    monkeypatch.setattr(orders, "start", start)
    job = a_watch()
    events = job.end("COMPLETED", 0, "", 1.0, "enabled")

    def tick() -> bool:
        events.extend(job.tick(2.0, 1, "enabled"))
        return bool(events)

    wait_until(tick, "an event")
    assert "ended with exit code 1" in events[0]["message"]


def test_an_error_of_the_watch_ends_it_and_is_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(order: Json) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(orders, "start", start)
    job = a_watch()
    (event,) = job.end("COMPLETED", 0, "", 1.0, "enabled")
    assert "because of an error: ValueError: broken" in event["message"]
    assert not job.tick(2.0, 1, "enabled")


def test_texts_of_the_job_are_safe(senders: Senders) -> None:
    job = a_watch()
    job.take(records('{"a\\nb\\u0000\\ud800": NaN}'))
    job.tick(1.0, 1, "enabled")
    (order,) = senders.orders
    assert order["title"].isprintable()
    order["body"].encode()

"""Following a job in a Loki in memory: late lines appear, none appears twice, and following ends
with the job."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.errors import QueryError
from logshipper.spool.segment import Stream
from logshipper_ingest.loki.seen import ReadHistory
from logshipper_ingest.model.capture_id import CaptureId
from logshipper_ingest.model.job import Position
from logshipper_ingest.servers.loki_push import Entry
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.captures.segment_factory import make_ledger
from tests.tools.fakes.loki_fake import FakeLoki
from tests.tools.stores.loki_pushing import BOTH, JOB, Ask, Pushing, asking, open_store, texts
from tests.tools.stress.model_settings import examples


@pytest.fixture
def fake() -> FakeLoki:
    return FakeLoki()


@pytest.fixture
def ask(fake: FakeLoki, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    return asking(fake, monkeypatch, capsys)


# ---- following


class Follower:
    """Reads new lines like `logs --follow`, with a new reader each time."""

    def __init__(self, fake: FakeLoki, now_ns: int) -> None:
        self.now_ns = now_ns
        self.store = open_store(fake, now=lambda: self.now_ns)
        self.position: Position | None = None
        self.is_over = False
        self.store.resolve(JOB)

    def look(self, secs: float = 1.0, **options: Any) -> list[str]:  # Any: options of lines
        self.now_ns += int(secs * NS)
        texts = []
        with self.store.open(JOB) as reader:
            for line in reader.lines(**{"streams": BOTH, "after": self.position, **options}):
                self.position = line.position
                texts.append(line.text)
            self.is_over = reader.is_over
        return texts


def test_late_lines_are_found_and_none_comes_twice(fake: FakeLoki) -> None:
    began_ns = time.time_ns() - 100 * NS
    job = Pushing(fake, began_ns=began_ns)
    follower = Follower(fake, began_ns + 10 * NS)
    job.line(9 * NS, "one")
    job.line(10 * NS, "three")
    assert follower.look() == ["one", "three"]
    job.line(9 * NS + 5, "two")
    job.line(11 * NS, "four")
    assert follower.look() == ["two", "four"]
    assert follower.look() == []
    job.line(3 * NS, "a little late")
    texts = [text for _ in range(20) for text in follower.look()]
    assert texts == ["a little late"]
    job.line(1 * NS, "at the end")
    job.close(30 * NS)
    texts = [text for _ in range(10) for text in follower.look()]
    assert texts == ["at the end"]
    assert follower.is_over


def test_following_a_tail_leaves_out_what_is_older(fake: FakeLoki) -> None:
    began_ns = time.time_ns() - 100 * NS
    job = Pushing(fake, began_ns=began_ns)
    for at_ns in range(10):
        job.line(5 * NS + at_ns, f"old {at_ns}")
    follower = Follower(fake, began_ns + 6 * NS)
    assert follower.look(tail=2) == ["old 8", "old 9"]
    job.line(5 * NS - 1, "late")
    job.line(6 * NS, "new")
    assert follower.look() == ["late", "new"]


def test_reading_goes_on_in_the_midst(fake: FakeLoki) -> None:
    job = Pushing(fake)
    for at_ns in range(10):
        job.line(10 + at_ns, str(at_ns))
    store = open_store(fake)
    with store.open(JOB) as reader:
        lines = reader.lines(streams=BOTH)
        first = [next(lines) for _ in range(4)]
        rest = list(reader.lines(streams=BOTH, after=first[-1].position))
        assert texts(first + rest) == [str(at_ns) for at_ns in range(10)]
        with pytest.raises(ValueError, match="read last"):
            list(reader.lines(streams=BOTH, after=first[-1].position))


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 2), st.integers(0, 25)),
        max_size=40,
        unique_by=lambda x: x[:2],
    )
)
def test_whatever_comes_when_all_is_read_once(lines: list[tuple[int, int, int]]) -> None:
    """lines: (second in the job, task, number of the look before which Loki gets it)."""
    fake = FakeLoki()
    began_ns = time.time_ns() - 3600 * NS
    ranks = [
        Pushing(fake, began_ns=began_ns, host=f"node{task}", task=str(task)) for task in range(3)
    ]
    follower = Follower(fake, began_ns + 45 * NS)
    texts = []
    for look in range(27):
        for second, task, comes in lines:
            if comes == look:
                ranks[task].line(second * NS + 10, f"{second} of {task}")
        texts += follower.look()
    for rank in ranks:
        rank.close(60 * NS)
    for _ in range(5):
        texts += follower.look()
    assert follower.is_over
    assert sorted(texts) == sorted(f"{second} of {task}" for second, task, _ in lines)


def test_a_job_is_over_only_when_its_account_is_closed(fake: FakeLoki) -> None:
    began_ns = time.time_ns() - 100 * NS
    job = Pushing(fake, began_ns=began_ns)
    follower = Follower(fake, began_ns + 10 * NS)
    follower.look()
    ended = {
        "event": "ended",
        "state": "FAILED",
        "exit_code": 3,
        "signal": 0,
        "ended_ns": began_ns + 11 * NS,
    }
    job.event(ended, 11 * NS)
    follower.look()
    over = [follower.is_over]  # lines may still follow
    job.close(12 * NS, state="FAILED", exit_code=3)
    for _ in range(6):
        assert follower.look() == []
        over.append(follower.is_over)
    assert (over[0], over[-1]) == (False, True)
    with open_store(fake).open(JOB) as reader:
        assert (reader.summary.state, reader.summary.exit_code, reader.is_over) == (
            "FAILED",
            3,
            True,
        )


def test_an_end_that_is_told_late_is_noticed(fake: FakeLoki) -> None:
    """The node agent was away for an hour, so its late lines have times of an hour ago."""
    began_ns = time.time_ns() - 7200 * NS
    job = Pushing(fake, began_ns=began_ns)
    job.event({"event": "heartbeat", "mode": "enabled", "ledger": {}, "lines": 0}, 10 * NS)
    follower = Follower(fake, began_ns + 11 * NS)
    follower.look()
    follower.look(secs=3600)
    assert not follower.is_over
    job.line(12 * NS, "the last words")
    job.close(13 * NS)
    texts = [text for _ in range(5) for text in follower.look()]
    assert (texts, follower.is_over) == (["the last words"], True)


def test_follow_prints_late_lines_and_ends_with_the_job(
    fake: FakeLoki, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run the whole command; the job continues at each of its pauses."""
    job = Pushing(fake, began_ns=time.time_ns() - 10 * NS)
    job.event({"event": "heartbeat", "mode": "enabled", "ledger": {}, "lines": 1}, 9 * NS)
    job.line(5 * NS, "first")

    def fail(error: QueryError | None) -> None:
        fake.broken = error

    def go_on() -> None:
        fail(None)
        job.line(7 * NS, "third")

    steps: Iterator[Callable[[], None]] = iter(
        [
            lambda: job.line(6 * NS, "second"),
            lambda: job.line(5 * NS + 1, "late"),
            lambda: fail(QueryError("Loki in memory", 503, "it starts")),
            go_on,
            lambda: job.close(7 * NS),
        ]
    )

    def pause(poll: object, secs: float) -> None:
        step = next(steps, None)
        if step is not None:
            step()
        else:
            time.sleep(0.05)

    monkeypatch.setattr("logshipper_observe.commands.reading.log_reading._pause", pause)
    code, out, err = ask("logs", JOB, "--follow")
    assert (code, out.split()) == (0, ["first", "second", "late", "third"])
    assert err.splitlines() == [
        "logshipper: Loki in memory: HTTP 503: it starts; trying again for 10 minutes",
        "logshipper: it answers again",
    ]


@pytest.mark.parametrize("tail", [(), ("--tail", "3"), ("--grep", ".", "--tail", "3")])
@pytest.mark.parametrize("entry_count", range(9))
def test_an_outage_in_the_opening_is_waited_out(
    entry_count: int,
    tail: tuple[str, ...],
    fake: FakeLoki,
    ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loki fails after so many entries: between queries or within an answer."""
    job = Pushing(fake, began_ns=time.time_ns() - 100 * NS)
    for at_ns in range(4):
        job.line(10 + at_ns, str(at_ns))
    job.close()
    outage = QueryError("Loki in memory", 0, "connection refused")
    real_entries = fake.entries
    paused: list[float] = []

    def entries(*words: Any, **options: Any) -> Iterator[Entry]:
        for entry in real_entries(*words, **options):
            if fake.handed > entry_count and not paused:
                raise outage
            yield entry

    monkeypatch.setattr(fake, "entries", entries)
    monkeypatch.setattr(
        "logshipper_observe.commands.reading.log_reading._pause",
        lambda poll, secs: paused.append(secs),
    )
    code, out, err = ask("logs", JOB, "--follow", *tail)
    assert (code, out.split()) == (0, ["1", "2", "3"] if tail else ["0", "1", "2", "3"])
    assert ("trying again for 10 minutes" in err) == bool(paused)
    assert paused or entry_count > 5


def test_without_follow_nothing_is_waited_for(fake: FakeLoki, ask: Ask) -> None:
    fake.broken = QueryError("Loki in memory", 503, "it starts")
    assert ask("logs", JOB) == (1, "", "logshipper: Loki in memory: HTTP 503: it starts\n")


def test_what_no_waiting_fixes_ends_following(fake: FakeLoki, ask: Ask) -> None:
    fake.broken = QueryError("Loki in memory", 401, "who are you?")
    assert ask("logs", JOB, "--follow")[0] == 1


# ---- live status, states


def test_status_is_what_running_bars_show_now(fake: FakeLoki) -> None:
    began_ns = time.time_ns() - 30 * NS
    job = Pushing(fake, began_ns=began_ns)
    second_task = Pushing(fake, began_ns=began_ns, host="node2", task="1")
    job.event({"event": "heartbeat", "mode": "enabled", "ledger": {}, "lines": 1}, 29 * NS)
    for at_ns, bar in ((10, "10%"), (20, "20%")):
        job.push("status", at_ns, bar, stream="stderr")
    job.push("status", 15, "loading")
    job.push("status", 25, " ")
    second_task.push("status", 40, "99%", stream="stderr")
    second_task.close(50)
    with open_store(fake).open(JOB) as reader:
        assert reader.status() == {Stream.STDERR: (began_ns + 20, "20%")}
        assert reader.summary.state == "RUNNING"
        assert not reader.is_over


@pytest.mark.parametrize(
    ("bar", "line", "ended"),
    [
        (
            "ep0:  99%|█▉| 99/100 [00:01<00:00, 90.1it/s]",
            "ep0: 100%|██| 100/100 [00:01<00:00, 1.2s/it]",
            True,
        ),
        ("Downloading 1.2/34.5 MB eta 0:00:01", "Downloading 34.5/34.5 MB 9 MB/s", True),
        ("loading", "loading", True),
        ("ep0:  99%|█▉| 99/100", "saved after 99 steps", False),
        ("ep0:  99%|█▉| 99/100", "ep0 is slow: 99%", False),
        ("9" * 5000, " " * 200_000, False),
    ],
)
def test_a_bar_that_is_in_the_log_by_now_is_not_shown(
    bar: str, line: str, ended: bool, fake: FakeLoki
) -> None:
    job = Pushing(fake, began_ns=time.time_ns() - 30 * NS)
    job.event({"event": "heartbeat", "mode": "enabled", "ledger": {}, "lines": 1}, 29 * NS)
    job.line(5, line, stream="stderr")
    job.push("status", 10, bar, stream="stderr")
    job.line(15, line, stream="stdout")
    with open_store(fake).open(JOB) as reader:
        assert reader.status()[Stream.STDERR][1] == bar, (
            "older lines and other streams' say nothing"
        )
    job.line(20, line, stream="stderr")
    with open_store(fake).open(JOB) as reader:
        assert (reader.status() == {}) == ended


def test_of_several_bars_those_that_are_in_the_log_by_now_are_not_shown(fake: FakeLoki) -> None:
    job = Pushing(fake, began_ns=time.time_ns() - 30 * NS)
    job.event({"event": "heartbeat", "mode": "enabled", "ledger": {}, "lines": 1}, 29 * NS)
    job.push("status", 10, "epoch:  10%|# |\nbatch:\x07  90%|##|", stream="stderr")
    for at_ns, line, shown in (
        (11, "batch 7", "epoch:  10%|# |\nbatch:\ufffd  90%|##|"),
        (12, "batch:\ufffd 100%|##|", "epoch:  10%|# |"),
        (13, "epoch: 100%|##|", ""),
    ):
        job.line(at_ns, line, stream="stderr")
        with open_store(fake).open(JOB) as reader:
            assert reader.status().get(Stream.STDERR, (0, ""))[1] == shown


@pytest.mark.parametrize("spacing_secs", [10, 600, 3600])
def test_a_job_with_sparse_heartbeats_is_not_unresponsive(
    spacing_secs: int, fake: FakeLoki
) -> None:
    """A node agent sends a heartbeat each [loki] heartbeat_secs. Heartbeats of earlier agents, of
    kind `event`, also count."""
    now_ns = time.time_ns()
    began_ns = now_ns - 12 * 3600 * NS
    job = Pushing(fake, began_ns=began_ns)
    for beat in range(5):
        event = {"event": "heartbeat", "mode": "enabled", "lines": beat}
        job.event(event, beat * spacing_secs * NS, kind="event" if beat % 2 else "heartbeat")
    newest_ns = began_ns + 4 * spacing_secs * NS
    patience_ns = max(3 * spacing_secs, 60) * NS
    for silent_ns, state in ((patience_ns - NS, "RUNNING"), (patience_ns + NS, "UNRESPONSIVE")):
        store = open_store(fake, now=lambda silent_ns=silent_ns: newest_ns + silent_ns)
        assert [(job.state, job.lines) for job in store.jobs()] == [(state, 4)]
        with store.open(JOB) as reader:
            assert (reader.summary.state, reader.captures[0].state) == (state, state)


def test_sparse_heartbeats_of_many_jobs_are_known_too(fake: FakeLoki) -> None:
    now_ns = time.time_ns()
    for number in range(30):
        job = Pushing(fake, job_id=f"job{number}", began_ns=now_ns - 3600 * NS)
        for beat in range(6):
            job.event(
                {"event": "heartbeat", "mode": "enabled", "lines": beat}, (beat * 600 + 100) * NS
            )
    store = open_store(fake, now=lambda: now_ns)
    assert {(job.state, job.lines) for job in store.jobs()} == {("RUNNING", 5)}


def test_a_pause_between_heartbeats_is_no_reason_to_wait_for_ever(fake: FakeLoki) -> None:
    now_ns = time.time_ns()
    job = Pushing(fake, began_ns=now_ns - 100 * 3600 * NS)
    for hours in (1, 50):
        job.event({"event": "heartbeat", "mode": "enabled", "lines": 1}, hours * 3600 * NS)
    assert [job.state for job in open_store(fake, now=lambda: now_ns).jobs()] == ["UNRESPONSIVE"]


def test_a_silent_job_is_unresponsive(fake: FakeLoki) -> None:
    job = Pushing(fake, began_ns=time.time_ns() - 600 * NS)
    heartbeat = {
        "event": "heartbeat",
        "mode": "metadata",
        "ledger": make_ledger({"stored": 4, "lost": 1}),
        "lines": 4,
    }
    job.event(heartbeat, 100 * NS)
    job.event({**heartbeat, "lines": 3}, 90 * NS)
    [summary] = open_store(fake).jobs()
    assert (summary.state, summary.lines, summary.lost, summary.mode) == (
        "UNRESPONSIVE",
        4,
        1,
        "metadata",
    )
    with open_store(fake).open(JOB) as reader:
        assert reader.summary == summary
        assert reader.captures[0].ledger["stdout"]["stored"] == 4


# ---- progress of reading


def test_what_was_read_takes_a_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logshipper_ingest.loki.seen.MAX_SPANS", 100)
    history, key = ReadHistory(), CaptureId("local", "job1", 1, "", 0, "node1")
    for time_ns in range(1000, 3000, 2):
        history.add(key, time_ns)
        assert history.has(key, time_ns)
    assert sum(map(len, history._spans.values())) <= 100
    assert not history.has(key, 2997)
    assert history.has(key, 1001), "what is far older counts as read"
    assert 1000 < history.read_from_ns(10 * NS, last=True) < 3000


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60)), max_size=80))
def test_what_was_read_is_known(read_ones: list[tuple[int, int]]) -> None:
    history = ReadHistory()
    keys = [CaptureId("local", "job1", 1, "", task, "node1") for task in range(3)]
    for task, time_ns in read_ones:
        history.add(keys[task], time_ns)
    assert {
        (task, at) for task in range(3) for at in range(62) if history.has(keys[task], at)
    } == set(read_ones)


def test_longer_spans_are_read_again_more_seldom() -> None:
    history = ReadHistory()
    history.add(CaptureId("local", "job1", 1, "", 0, "node1"), 10_000 * NS)
    backs = [
        10_000 - history.read_from_ns((10_000 + second) * NS, last=False) // NS
        for second in range(200)
    ]
    assert backs[0] == 3
    assert sorted(set(backs)) == [3, 30, 300]
    assert (backs.count(30), backs.count(300)) == (12, 1)

"""The copy of a log from a store that returns lines only in order: no line twice, no line lost,
despite any error."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from logshipper.errors import QueryError, StoreError, UnknownJob
from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.model.job import Capture, LogLine, Position
from logshipper_observe.page.log import log_copy
from logshipper_observe.page.log.log_copy import Copies, Copy
from logshipper_observe.page.log.logs import Log, View
from logshipper_observe.page.log.search import SearchQuery
from tests.tools.waiting import wait_until

DEADLINE_SECS = 20.0


def captures_of(*attempts: int) -> list[Capture]:
    """Return one capture of each attempt, numbered in this order."""
    return [
        Capture(number, attempt, "", 0, "gpu1", "RUNNING", None, 0, 1, None, "enabled", "", {}, 160, 50, True)
        for number, attempt in enumerate(attempts, 1)
    ]  # fmt: skip


class FakeLoki:
    """One job's lines. As with Loki, reading continues only behind the last read line.

    fail_at: numbers of lines read before a server's error, once each.
    """

    def __init__(self, texts: Sequence[str], fail_at: Sequence[int] = ()) -> None:
        self.texts = list(texts)
        self.is_over = False
        self.captures = captures_of(1, 2)
        self.open_count = 0
        self._fail_at = list(fail_at)
        self._read = 0

    def poll_secs(self) -> float:
        return 0.01

    @contextmanager
    def job(self, job_id: str) -> Iterator["FakeLoki"]:
        self.open_count += 1
        if job_id != "4711":
            raise UnknownJob(job_id, f"no job has the id {job_id!r}")
        yield self

    def lines(self, *, after: Position | None, **_: Any) -> Iterator[LogLine]:  # Any: which ones
        assert (after.block if after else 0) == self._read, "not behind the line that was read last"
        for at in range(self._read, len(self.texts)):
            if self._fail_at and at == self._fail_at[0]:
                del self._fail_at[0]
                raise QueryError("Loki", 500, "a hiccup")
            self._read += 1
            stream = Stream.STDERR if at % 5 == 4 else Stream.STDOUT
            attempt = 1 if at < len(self.texts) // 2 else 2
            (capture,) = (one.capture for one in self.captures if one.attempt == attempt)
            position = Position(1, 0, at, self._read)
            yield LogLine(
                position,
                1000 * at,
                stream,
                Kind.LOG,
                self.texts[at],
                {"part": "1"},
                attempt,
                capture,
            )

    def close(self) -> None: ...


@pytest.fixture
def copy_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[FakeLoki], Copy]]:
    copies: list[Copy] = []
    monkeypatch.setattr(log_copy, "RETRY_SECS", 0.01)

    def begin(loki: FakeLoki, job_id: str = "4711") -> Copy:
        monkeypatch.setattr(log_copy, "ThreadStore", lambda intake: loki)
        copies.append(Copy(job_id, None))  # type: ignore[arg-type]  # this test ingests nothing
        return copies[-1]

    yield begin
    for copy in copies:
        copy.close()


def until(holds: Callable[[], object]) -> None:
    wait_until(holds, "the copy gets there", DEADLINE_SECS)


def texts_of(copy: Copy) -> list[str]:
    log = Log(View("4711"))
    log.bring_up(copy)
    return [line.text for line in log.lines(copy, 0, log.index.total)]


@pytest.mark.parametrize("fail_at", [(), (0,), (1, 1, 2), (3, 50, 99, 100), (199,)])
def test_every_line_once(copy_of: Callable[[FakeLoki], Copy], fail_at: Sequence[int]) -> None:
    loki = FakeLoki([f"line {number}" for number in range(200)], fail_at)
    copy = copy_of(loki)
    until(lambda: copy.complete)
    assert texts_of(copy) == loki.texts
    loki.texts += ["late", "with\na line feed", "lone \ud800 surrogate"[:4]]
    until(lambda: len(texts_of(copy)) == 203)
    assert texts_of(copy)[200:] == ["late", "with\u240aa line feed", "lone"]
    assert copy.problem == ""


def test_one_stream_one_attempt(copy_of: Callable[[FakeLoki], Copy]) -> None:
    copy = copy_of(FakeLoki([f"line {number}" for number in range(40)]))
    until(lambda: copy.complete)
    log = Log(View("4711", "stderr", 2))
    log.bring_up(copy)
    lines = log.lines(copy, 0, log.index.total)
    assert [line.text for line in lines] == ["line 24", "line 29", "line 34", "line 39"]
    assert {(line.stream, line.attempt, line.capture) for line in lines} == {(Stream.STDERR, 2, 2)}
    search, through = log.search(copy, SearchQuery("LINE 3", exact=False))
    assert (list(search.hits), through) == ([2, 3], True)


def test_a_capture_that_comes_late_gives_the_others_new_numbers(
    copy_of: Callable[[FakeLoki], Copy],
) -> None:
    loki = FakeLoki(["one", "two"])
    copy = copy_of(loki)
    until(lambda: copy.complete)
    view = Log(View("4711", "both", 2))
    view.bring_up(copy)
    loki.captures = captures_of(3, 1, 2)
    loki.texts += ["three"]
    until(lambda: len(texts_of(copy)) == 3)
    log = Log(View("4711"))
    for each, lines in (
        (log, [("one", 1, 2), ("two", 2, 3), ("three", 2, 3)]),
        (view, [("two", 2, 3), ("three", 2, 3)]),
    ):
        each.bring_up(copy)
        assert [(line.text, line.attempt, line.capture) for line in each.lines(copy, 0, 9)] == lines


def test_a_log_that_is_too_long(
    copy_of: Callable[[FakeLoki], Copy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_copy, "MAX_BYTES", 2_000)
    monkeypatch.setattr(log_copy, "BLOCK_LINES", 10)
    copy = copy_of(FakeLoki([f"line {number}" for number in range(10_000)]))
    until(lambda: "too long" in copy.problem)
    texts = texts_of(copy)
    assert 0 < len(texts) < 10_000
    assert texts == [f"line {number}" for number in range(len(texts))]
    assert f"{len(texts):,} lines" in copy.problem


def test_a_job_that_is_not_there(copy_of: Callable[..., Copy]) -> None:
    copy = copy_of(FakeLoki([]), "nobody")
    until(lambda: copy.is_over)
    assert "nobody" in copy.problem


def test_nobody_looks_any_more(
    copy_of: Callable[[FakeLoki], Copy], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copy_of(FakeLoki(["one"]))
    until(lambda: copy.complete)
    (head,) = copy.blocks()
    monkeypatch.setattr(log_copy, "IDLE_SECS", 0.0)
    until(lambda: copy.is_over)
    until(lambda: not copy._thread.is_alive())
    with pytest.raises(StoreError, match="reload the page"):
        copy.block_lines(head)


def test_no_room_for_it(
    copy_of: Callable[[FakeLoki], Copy], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/full", "w+b", buffering=0) as full:
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda prefix: full)
        copy = copy_of(FakeLoki(["one"]))
        until(lambda: "the page shows only the first 0 lines" in copy.problem)
        assert "can't write the copy" in copy.problem
        copy.close()
        until(lambda: not copy._thread.is_alive())


def test_the_one_that_was_looked_at_longest_ago_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_copy, "ThreadStore", lambda intake: FakeLoki([]))
    copies = Copies(None)  # type: ignore[arg-type]  # likewise
    job_copies = [copies.of("4711" if number == 0 else f"other{number}") for number in range(9)]
    assert job_copies[0].is_over
    assert copies.of("4711") is not job_copies[0]
    copies.close()

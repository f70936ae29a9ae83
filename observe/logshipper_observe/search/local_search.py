"""Searches jobs of the local store, several at a time, by whole blocks of lines.

The database, zstd and RE2 let other threads go on. The searched text of a repeat note is the line that
it quotes.
"""

import json
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from operator import attrgetter
from queue import Full, Queue
from typing import TYPE_CHECKING

from logshipper.classify.repeat_note import printed_line
from logshipper.errors import LogshipperError
from logshipper.spool.segment import Stream
from logshipper_ingest.store.line_reader import TextBlock, text_blocks
from logshipper_observe.search.line_search import COLOURS, JobMatches, LineMatch, LineSearch

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary
    from logshipper_ingest.store.local_store import LocalStore

_MAX_THREADS = 8
_TASK_LINES = 20_000  # of the jobs of one task
_TASK_JOBS = 32
_MAX_WAITING = 16  # lists of matches of a task
_LOOK_SECS = 0.1  # a waiting thread looks whether it is to stop
_NUMBER = attrgetter("number")


class _Group:
    """Blocks that overlap in time, mostly a single one. first: the number of their first line."""

    def __init__(self, job: "JobSummary", first: int, blocks: list[TextBlock]) -> None:
        self.first = first
        self.end = first + sum(block.lines for block in blocks)
        self._job = job
        self._blocks = blocks

    def matches(self, search: LineSearch) -> list[LineMatch]:
        found = []
        for block in self._blocks:
            if block.stream not in search.streams:
                continue
            shown = block.text if b"\x1b" not in block.text else COLOURS.sub(b"", block.text)
            if block.attrs is None or '"repeat"' not in block.attrs:
                for at, begin, end in search.lines_in(shown):
                    found.append(self._line(block, at, shown[begin:end]))
                continue
            lines, repeats = _unquoted(block, shown)
            texts = shown.split(b"\n")
            for at, _, _ in search.lines_in(b"\n".join(lines)):
                found.append(self._line(block, at, texts[at], repeats.get(at, 1)))
        if len(self._blocks) > 1:
            found.sort(key=_NUMBER)
        return found

    def _line(
        self, block: TextBlock, at: int, text: bytes, printed: int = 1, *, is_match: bool = True
    ) -> LineMatch:
        time_ns = block.time_ns + at
        number = self.first + at
        if len(self._blocks) > 1:
            number = self.first + sum(
                max(0, min(time_ns - other.time_ns + (other.id < block.id), other.lines))
                for other in self._blocks
            )
        stream = Stream(block.stream)
        return LineMatch(
            self._job, number, time_ns, stream, text.decode("utf-8", "replace"), printed, is_match
        )

    @cached_property
    def lines(self) -> list[LineMatch]:
        """All lines, as surroundings of others."""
        lines = [
            self._line(block, at, text, is_match=False)
            for block in self._blocks
            for at, text in enumerate(COLOURS.sub(b"", block.text).split(b"\n"))
        ]
        return sorted(lines, key=_NUMBER)


def _unquoted(block: TextBlock, text: bytes) -> tuple[list[bytes], dict[int, int]]:
    """Return a block's lines with quoted ones in the place of notes, and the notes' repeats by line."""
    lines, repeats = text.split(b"\n"), {}
    for line, attrs in json.loads(block.attrs or "{}").items():
        at = int(line)
        times = attrs.get("repeat")
        if isinstance(times, int) and times > 0:
            quoted = printed_line(lines[at].decode("utf-8", "replace"), attrs)
            lines[at], repeats[at] = quoted.encode("utf-8", "replace"), times
    return lines, repeats


def _groups(job: "JobSummary", path: str) -> Iterator[_Group]:
    first, until_ns = 1, 0
    blocks: list[TextBlock] = []
    for block in text_blocks(path):
        if blocks and block.time_ns >= until_ns:
            group = _Group(job, first, blocks)
            yield group
            first, blocks = group.end, []
        blocks.append(block)
        until_ns = max(until_ns, block.time_ns + block.lines)
    if blocks:
        yield _Group(job, first, blocks)


def _search_job(groups: Iterable[_Group], search: LineSearch) -> Iterator[list[LineMatch]]:
    """Yield the matches in order, with the lines around them, those of a group at a time."""
    recent: deque[_Group] = deque()  # the current group, and those before it that may be needed
    last = until = 0  # the last line that was yielded, and the last one behind a match
    remaining = -1 if search.limit is None else search.limit
    for group in groups:
        recent.append(group)
        while group.first - recent[0].end >= search.before:
            recent.popleft()
        lines = []
        for match in group.matches(search)[: remaining if remaining >= 0 else None]:
            behind = range(last + 1, min(until + 1, match.number))
            last = max(last, min(until, match.number - 1))
            ahead = range(
                max(last + 1, match.number - search.before, recent[0].first), match.number
            )
            lines += [_line_of(recent, number) for number in (*behind, *ahead)]
            lines.append(match)
            last, until = match.number, match.number + search.after
            remaining -= 1
        lines += [_line_of(recent, number) for number in range(last + 1, min(until + 1, group.end))]
        last = max(last, min(until, group.end - 1))
        if lines:
            yield lines
        if not remaining and until < group.end:
            return


def _line_of(groups: Iterable[_Group], number: int) -> LineMatch:
    group = next(group for group in groups if number < group.end)
    return group.lines[number - group.first]


class _Task:
    """Searches some jobs in a thread. Their matches wait in a queue of limited size."""

    def __init__(self, store: "LocalStore", jobs: list["JobSummary"], search: LineSearch) -> None:
        self._store = store
        self._jobs = jobs
        self._search = search
        # lists of matches; None or an error behind those of a job
        self._results: Queue[list[LineMatch] | Exception | None] = Queue(_MAX_WAITING)
        self.stopped = False

    def run(self) -> None:
        for job in self._jobs:
            fault = None
            try:
                for matches in _search_job(self._groups(job), self._search):
                    self._put(matches)
            except Exception as error:  # for the reader, who would wait for ever without it
                fault = error
            self._put(fault)

    def _groups(self, job: "JobSummary") -> Iterator[_Group]:
        for group in _groups(job, self._store.path_of(job.job_id)):
            if self.stopped:
                return
            yield group

    def _put(self, result: list[LineMatch] | Exception | None) -> None:
        while not self.stopped:
            with suppress(Full):
                self._results.put(result, timeout=_LOOK_SECS)
                return

    def answers(self, report: Callable[[str], None]) -> Iterator[JobMatches]:
        for job in self._jobs:
            matches = self._matches(report)
            yield JobMatches(job, matches)
            for _ in matches:  # unread
                pass

    def _matches(self, report: Callable[[str], None]) -> Iterator[LineMatch]:
        while isinstance(result := self._results.get(), list):
            yield from result
        if isinstance(result, LogshipperError):
            report(str(result))
        elif result is not None:
            raise result


def search_local(
    store: "LocalStore",
    jobs: Iterable["JobSummary"],
    search: LineSearch,
    report: Callable[[str], None],
) -> Generator[JobMatches]:
    """Yield each job with its matches, in this order. report: gets faults that hid matches."""
    threads = min(os.cpu_count() or 1, _MAX_THREADS)
    tasks: deque[_Task] = deque()
    pool = ThreadPoolExecutor(threads, "search")
    try:
        for some_jobs in _portions(jobs):
            tasks.append(_Task(store, some_jobs, search))
            pool.submit(tasks[-1].run)
            if len(tasks) > 2 * threads:
                yield from tasks[0].answers(report)
                tasks.popleft()
        while tasks:
            yield from tasks[0].answers(report)
            tasks.popleft()
    finally:
        for task in tasks:
            task.stopped = True
        pool.shutdown(cancel_futures=True)


def _portions(jobs: Iterable["JobSummary"]) -> Iterator[list["JobSummary"]]:
    """Yield the jobs of each task."""
    portion: list[JobSummary] = []
    lines = 0
    for job in jobs:
        portion.append(job)
        lines += job.lines
        if lines >= _TASK_LINES or len(portion) == _TASK_JOBS:
            yield portion
            portion, lines = [], 0
    if portion:
        yield portion

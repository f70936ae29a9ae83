"""A job's log for the page's console: lines by their numbers, searches, times, and its text to be
saved."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from logshipper.spool.segment import Kind
from logshipper_ingest.store.job_reader import JobReader
from logshipper_observe.base.words import is_further_part, uncoloured, utc
from logshipper_observe.model.documents import STREAM_NAMES
from logshipper_observe.page.answers import Ask, PageAnswer, RequestRefusal, json_answer
from logshipper_observe.page.downloads import pieces
from logshipper_observe.page.logs import STREAMS, Blocks, Log, View
from logshipper_observe.page.search import MAX_TEXT

if TYPE_CHECKING:
    from logshipper_ingest.model.job import LogLine

MAX_LINES = 1_000  # of an answer
MAX_CHARS = 4_096  # of a line, unless it is asked for alone
MAX_COPIED = 100_000  # lines that are copied at once
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


@contextmanager
def _open_log(ask: Ask) -> "Iterator[tuple[Log, Blocks, str]]":
    """The view that is asked for, brought up to date and locked, what it is read from, and what is
    wrong with that."""
    view = View(
        ask.parts[0], ask.choice("streams", "both", "stdout", "stderr"), ask.number("attempt", 0)
    )
    with ask.store.job(view.job_id) as reader:
        source = reader if isinstance(reader, JobReader) else ask.shelf.copies.of(view.job_id)
        log = ask.shelf.logs.of(view)
        with log.lock:
            log.bring_up(source)
            yield log, source, getattr(source, "problem", "")


def _state(log: Log, source: Blocks, problem: str) -> dict[str, object]:
    """total: lines there are; generation: rises when lines get other numbers; complete: all that
    there is, is known."""
    return {
        "total": log.index.total,
        "generation": log.index.generation,
        "complete": getattr(source, "complete", True),
        "problem": problem,
    }


def lines(ask: Ask) -> PageAnswer:
    """`from`, `count`: of lines by their numbers; `from=-N`: the last N. A line is a list: time (ms
    since 1970), stream, kind, text, attempt, capture, characters left out, whether it goes on with
    the line before."""
    count = ask.number("count", 200, maximum=MAX_LINES)
    begin = ask.number("from", 0, minimum=-MAX_LINES)
    with _open_log(ask) as (log, source, problem):
        state = _state(log, source, problem)
        etag = (
            f'"{log.index.newest}-{log.index.generation}-{log.index.total}-{state["complete"]}"'
            if begin < 0
            else ""
        )
        if etag and etag == ask.client_etag and not problem:
            return PageAnswer(b"", etag=etag)
        first = max(log.index.total + begin, 0) if begin < 0 else begin
        log_lines = log.lines(source, first, first + count)
    return json_answer(
        {**state, "from": first, "lines": [_row(line) for line in log_lines]},
        "" if problem else etag,
    )


def _row(line: "LogLine") -> list[object]:
    text = line.text
    return [
        line.time_ns / 1e6,
        STREAM_NAMES[line.stream],
        line.kind.name.lower() if isinstance(line.kind, Kind) else "log",
        text if len(text) <= MAX_CHARS else text[:MAX_CHARS],
        line.attempt,
        line.capture,
        max(len(text) - MAX_CHARS, 0),
        is_further_part(str(line.attrs.get("part", ""))),
    ]


def search(ask: Ask) -> PageAnswer:
    """`q`: the text; `exact=1`: upper and lower case differ; `near`, `back`: the first hit from a
    line's number on, or the last up to it. hits: lines that have it; printed: as many as were printed, repeats
    included; at: which hit, from 0, is
    near; line: its number; complete: all lines were looked at, else ask again: it goes on."""
    text = ask.words.get("q", "")
    if not text or len(text) > MAX_TEXT or "\n" in text:
        raise RequestRefusal(
            HTTPStatus.BAD_REQUEST,
            f"q: 1 to {MAX_TEXT} characters, without a line feed, can be looked for",
        )
    near = ask.number("near", 0)
    with _open_log(ask) as (log, source, problem):
        text_search, through = log.search(source, text, exact=ask.choice("exact", "0", "1") == "1")
        at = text_search.near(near, back=ask.choice("back", "0", "1") == "1")
        document = {
            **_state(log, source, problem),
            "hits": len(text_search.hits),
            "printed": text_search.printed,
            "at": at,
            "line": None if at is None else text_search.hits[at],
            "complete": through,
            "scanned": text_search.scanned(log.index),
        }
    return json_answer(document)


def at(ask: Ask) -> PageAnswer:
    """`time`: ms since 1970. line: the number of the first line that isn't older."""
    time_ms = ask.number("time", 0, maximum=1 << 52)
    with _open_log(ask) as (log, source, problem):
        return json_answer(
            {**_state(log, source, problem), "line": log.index.number_at(time_ms * 1_000_000)}
        )


def text(ask: Ask) -> PageAnswer:
    """Lines as text, without colours: `from` and `count`, to be copied; or all of them, to be
    saved, with `times=1` each behind its time in UTC."""
    if ask.words.get("count"):
        count, begin = ask.number("count", 1, maximum=MAX_COPIED), ask.number("from", 0)
        with _open_log(ask) as (log, source, _):
            log_lines = log.lines(source, begin, begin + count)
        return PageAnswer(
            "".join(_texts(iter(log_lines), times=False)).encode("utf-8", "replace"),
            "text/plain; charset=utf-8",
        )
    times = ask.choice("times", "0", "1") == "1"
    streams = STREAMS[ask.choice("streams", "both", "stdout", "stderr")]
    attempt = ask.number("attempt", 0) or None
    with ask.store.job(ask.parts[0]) as reader:
        name = (
            _NOT_IN_NAMES.sub("-", f"{reader.summary.name[:80]}-{ask.parts[0]}").strip("-.")
            or "job"
        )

    def body() -> Iterator[bytes]:
        with ask.store.job(ask.parts[0]) as reader:
            yield from pieces(_texts(reader.lines(streams=streams, attempt=attempt), times=times))

    return PageAnswer(body(), "text/plain; charset=utf-8", file_name=f"{name}.log")


def _texts(lines: "Iterator[LogLine]", *, times: bool) -> Iterator[str]:
    """Each line with its LF; one that was cut into parts is one again where these follow each
    other."""
    open_source: tuple[int, int] | None = None
    for line in lines:
        source = (line.stream, line.capture)
        if open_source is not None and not (
            open_source == source and is_further_part(str(line.attrs.get("part", "")))
        ):
            yield "\n"
            open_source = None
        if open_source is None and times:
            yield f"{utc(line.time_ns)} "
        open_source = source
        yield uncoloured(line.text)
    if open_source is not None:
        yield "\n"

"""A job's log for the page's console: lines by their numbers, searches, times, and its text to be
saved."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from logshipper.spool.segment import Kind
from logshipper_ingest.store.job_reader import JobReader
from logshipper_observe.base.words import is_further_part, uncoloured, utc
from logshipper_observe.model.documents import STREAM_NAMES
from logshipper_observe.model.line_levels import MAX_HEAD, level_of
from logshipper_observe.page.answers import Ask, PageAnswer, RequestRefusal, json_answer
from logshipper_observe.page.downloads import pieces
from logshipper_observe.page.line_expression import MAX_MATCHED, ExpressionRefusal
from logshipper_observe.page.logs import STREAMS, Blocks, Log, View
from logshipper_observe.page.search import MAX_TEXT, Search, SearchQuery

if TYPE_CHECKING:
    from logshipper_ingest.model.job import LogLine

MAX_LINES = 1_000  # of an answer
MAX_CHARS = MAX_MATCHED  # of a line, unless it is asked for alone
_LEVEL_CHARS = 4 * MAX_HEAD  # colours included
MARKS_SECS = 0.2  # for the places of an expression in an answer's lines
MAX_COPIED = 100_000  # lines that are copied at once
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


@contextmanager
def open_log(ask: Ask) -> "Iterator[tuple[Log, Blocks, str]]":
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


class _Selection(NamedTuple):
    """Some lines of a view: all of it, or those that a search has found."""

    first: int  # the place of the first of them: its number, or which hit it is
    numbers: "Sequence[int]"
    lines: "list[LogLine]"


def _selection(
    log: Log, source: Blocks, hits: "Sequence[int] | None", ask: Ask, most: int, default: int
) -> _Selection:
    """`from`, `count`; `from=-N`: the last N. hits: None for all lines."""
    count = ask.number("count", default, maximum=most)
    begin = ask.number("from", 0, minimum=-most)
    first = max((log.index.total if hits is None else len(hits)) + begin, 0) if begin < 0 else begin
    if hits is None:
        log_lines = log.lines(source, first, first + count)
        return _Selection(first, range(first, first + len(log_lines)), log_lines)
    numbers = hits[first : first + count]
    return _Selection(first, numbers, log.numbered_lines(source, numbers))


def _hits(log: Log, source: Blocks, ask: Ask) -> "Sequence[int] | None":
    """The numbers of the lines that `only` leaves; None where it isn't asked for."""
    return _search(log, source, ask)[0].hits if _is_only(ask) else None


def _is_only(ask: Ask) -> bool:
    return ask.choice("only", "0", "1") == "1"


def _query(ask: Ask) -> SearchQuery:
    """`q`: the text, or with `regex=1` the expression; `exact=1`: upper and lower case differ.
    Raises RequestRefusal."""
    text = ask.words.get("q", "")
    if not text or len(text) > MAX_TEXT or "\n" in text:
        raise RequestRefusal(
            HTTPStatus.BAD_REQUEST,
            f"q: 1 to {MAX_TEXT} characters, without a line feed, can be looked for",
        )
    is_expression = ask.choice("regex", "0", "1") == "1"
    return SearchQuery(text, ask.choice("exact", "0", "1") == "1", is_expression)


def _search(log: Log, source: Blocks, ask: Ask) -> tuple[Search, bool]:
    """A search, gone on with for a while, and whether it is through. Raises RequestRefusal."""
    with _refused():
        return log.search(source, _query(ask))


@contextmanager
def _refused() -> "Iterator[None]":
    try:
        yield
    except ExpressionRefusal as refusal:
        raise RequestRefusal(HTTPStatus.BAD_REQUEST, str(refusal)) from None


def lines(ask: Ask) -> PageAnswer:
    """`from`, `count`: of lines by their numbers; `from=-N`: the last N. `only=1`: of those lines
    alone that a search (`q`, `exact`, `regex`) has found so far; total is how many these are, lines
    how many there are, and limited whether more than they aren't looked for. A line is a list: time
    (ms since 1970), stream, kind, text, attempt, capture, characters left out, whether it goes on
    with the line before, number, the level that it says."""
    with open_log(ask) as (log, source, problem):
        state = _state(log, source, problem)
        hits = None
        if _is_only(ask):
            search, through = _search(log, source, ask)
            hits = search.hits
            state |= {
                "total": len(hits),
                "lines_total": log.index.total,
                "limited": search.is_full,
                "complete": state["complete"] and through,
            }
        etag = (
            f'"{log.index.newest}-{log.index.generation}-{state["total"]}-{state["complete"]}"'
            if ask.words.get("from", "").startswith("-")
            else ""
        )
        if etag and etag == ask.client_etag and not problem:
            return PageAnswer(b"", etag=etag)
        selection = _selection(log, source, hits, ask, MAX_LINES, 200)
    rows = [
        [*_row(line), number, level_of(uncoloured(line.text[:_LEVEL_CHARS]))]
        for line, number in zip(selection.lines, selection.numbers, strict=True)
    ]
    return json_answer({**state, "from": selection.first, "lines": rows}, "" if problem else etag)


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
    """`q`, `exact`, `regex`: what is looked for; `near`, `back`: the first hit from a
    line's number on, or the last up to it. hits: lines that have it; printed: as many as were
    printed, repeats included; at: which hit, from 0, is near; line: its number; complete: all lines
    were looked at, else ask again: it goes on; limited: more hits aren't looked for."""
    near = ask.number("near", 0)
    with open_log(ask) as (log, source, problem):
        line_search, through = _search(log, source, ask)
        at = line_search.near(near, back=ask.choice("back", "0", "1") == "1")
        document = {
            **_state(log, source, problem),
            "hits": len(line_search.hits),
            "printed": line_search.printed,
            "at": at,
            "line": None if at is None else line_search.hits[at],
            "complete": through,
            "scanned": line_search.scanned(log.index),
            "limited": line_search.is_full,
        }
    return json_answer(document)


def marks(ask: Ask) -> PageAnswer:
    """Where an expression is in lines (`q`, `exact`, `from`, `count`, `only` as for lines): for
    each line a list of begins and ends, in UTF-16 units of its text without colours, as browsers
    count. A line is left out, empty, where the time is up."""
    with open_log(ask) as (log, source, _):
        with _refused():
            line_search = log.search_of(_query(ask))
        hits = line_search.hits if _is_only(ask) else None
        selection = _selection(log, source, hits, ask, MAX_LINES, 200)
        expression = line_search.expression
        until = time.monotonic() + MARKS_SECS
        spans = [
            _utf16_spans(text, list(expression.spans(text, until))) if expression else []
            for text in (uncoloured(line.text) for line in selection.lines)
        ]
    return json_answer({"from": selection.first, "marks": spans})


def _utf16_spans(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    if not spans or text.isascii():
        return spans

    def units(at: int) -> int:
        return len(text[:at].encode("utf-16-le", "replace")) // 2

    return [(units(begin), units(end)) for begin, end in spans]


def at(ask: Ask) -> PageAnswer:
    """`time`: ms since 1970. line: the number of the first line that isn't older."""
    time_ms = ask.number("time", 0, maximum=1 << 52)
    with open_log(ask) as (log, source, problem):
        return json_answer(
            {**_state(log, source, problem), "line": log.index.number_at(time_ms * 1_000_000)}
        )


def text(ask: Ask) -> PageAnswer:
    """Lines as text, without colours: `from`, `count` and `only` as for lines, to be copied; or all of them, to be
    saved, with `times=1` each behind its time in UTC."""
    if ask.words.get("count"):
        with open_log(ask) as (log, source, _):
            log_lines = _selection(log, source, _hits(log, source, ask), ask, MAX_COPIED, 1).lines
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

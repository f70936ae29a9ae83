"""A job's log for the console: lines by number, searches, times, downloads."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from logshipper_ingest.store.job_reader import JobReader
from logshipper_observe.base.words import is_further_part, uncoloured, utc
from logshipper_observe.model.documents import STREAM_NAMES
from logshipper_observe.model.line_levels import MAX_HEAD, level_of
from logshipper_observe.page.api.request import PageAnswer, Request, RequestRefusal, json_answer
from logshipper_observe.page.log.logs import STREAMS, Blocks, Log, View
from logshipper_observe.page.log.search import MAX_TEXT, SearchQuery

if TYPE_CHECKING:
    from logshipper_ingest.model.job import LogLine

MAX_LINES = 1_000  # of an answer
MAX_CHARS = 4_096  # of a line; the page requests the rest separately
_LEVEL_CHARS = 4 * MAX_HEAD  # includes colours
MARKS_SECS = 0.2  # limits the search for matches of an expression in the lines of an answer
MAX_COPIED = 100_000  # lines of one copy
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


@contextmanager
def open_log(request: Request) -> "Iterator[tuple[Log, Blocks]]":
    """Lock and update the requested view of a log. Yields the view and its source."""
    view = View(
        request.parts[0],
        request.choice("streams", "both", "stdout", "stderr"),
        request.number("attempt", 0),
    )
    with request.store.job(view.job_id) as reader:
        source = reader if isinstance(reader, JobReader) else request.caches.copies.of(view.job_id)
        log = request.caches.logs.get(view)
        with log.lock:
            log.bring_up(source)
            yield log, source


def _state(log: Log, source: Blocks) -> dict[str, object]:
    return {
        "total": log.index.total,  # lines
        "generation": log.index.generation,  # rises whenever lines get other numbers
        "complete": getattr(source, "complete", True),  # false while a copy is being read
        "problem": getattr(source, "problem", ""),
    }


class _Selection(NamedTuple):
    """Some lines of a view, or of the hits of a search."""

    first: int  # index of the first one in the view or among the hits
    numbers: Sequence[int]
    lines: "list[LogLine]"


def _selection(
    log: Log,
    source: Blocks,
    hits: "Sequence[int] | None",  # None selects from all lines
    request: Request,
    limit: int = MAX_LINES,
) -> _Selection:
    """Read the lines that `from` and `count` select; `from=-N` selects the last N."""
    count = request.number("count", 200, maximum=limit)
    begin = request.number("from", 0, minimum=-limit)
    if begin < 0:
        begin = max((log.index.total if hits is None else len(hits)) + begin, 0)
    if hits is None:
        log_lines = log.lines(source, begin, begin + count)
        return _Selection(begin, range(begin, begin + len(log_lines)), log_lines)
    numbers = hits[begin : begin + count]
    return _Selection(begin, numbers, log.numbered_lines(source, numbers))


def _query(request: Request) -> SearchQuery:
    """Return the search of `q`: an expression with `regex=1`; case matters with `exact=1`."""
    text = request.params.get("q", "")
    if not text or len(text) > MAX_TEXT or "\n" in text:
        raise RequestRefusal(f"q: must have 1 to {MAX_TEXT} characters and no line feed")
    return SearchQuery(text, request.flag("exact"), request.flag("regex"))


def lines(request: Request) -> PageAnswer:
    """Return lines by number.

    Parameters: `from` and `count`; `from=-N` for the last N. With `only=1`, only lines that a
    search (`q`, `exact`, `regex`) has hit so far: then `total` counts hits, `lines_total` counts
    lines, and `limited` is true if the search has stopped at its limit of hits.

    A line is a list: time (ms since 1970), stream, kind, text, attempt, capture, number of omitted
    characters, whether it continues the line before, number, level.
    """
    with open_log(request) as (log, source):
        state = _state(log, source)
        hits = None
        if request.flag("only"):
            search, is_complete = log.search(source, _query(request))
            hits = search.hits
            state |= {
                "total": len(hits),
                "lines_total": log.index.total,
                "limited": search.is_full,
                "complete": state["complete"] and is_complete,
            }
        etag = ""
        if request.params.get("from", "").startswith("-") and not state["problem"]:
            place = f"{log.index.newest}-{log.index.generation}"
            etag = f'"{place}-{state["total"]}-{state["complete"]}"'
            if etag == request.client_etag:
                return PageAnswer(b"", etag=etag)
        selection = _selection(log, source, hits, request)
    rows = [
        [*_row(line), number, level_of(uncoloured(line.text[:_LEVEL_CHARS]))]
        for line, number in zip(selection.lines, selection.numbers, strict=True)
    ]
    return json_answer({**state, "from": selection.first, "lines": rows}, etag)


def _row(line: "LogLine") -> list[object]:
    return [
        line.time_ns / 1e6,
        STREAM_NAMES[line.stream],
        line.kind.name.lower(),
        line.text[:MAX_CHARS],
        line.attempt,
        line.capture,
        max(len(line.text) - MAX_CHARS, 0),
        is_further_part(str(line.attrs.get("part", ""))),
    ]


def search(request: Request) -> PageAnswer:
    """Search a log.

    Parameters: `q`, `exact`, `regex` as for lines. `near` is a line's number: the answer names the
    first hit from there, or with `back=1` the last hit up to there.

    Answer: `hits` counts lines; `printed` counts each repeat, too. `at` is the index of the named
    hit, `line` its line's number. While `complete` is false, the page repeats the request to
    continue the search. `limited` is true if the search has stopped at its limit of hits.
    """
    near = request.number("near", 0)
    with open_log(request) as (log, source):
        line_search, is_complete = log.search(source, _query(request))
        at = line_search.near(near, back=request.flag("back"))
        document = {
            **_state(log, source),
            "hits": len(line_search.hits),
            "printed": line_search.printed,
            "at": at,
            "line": None if at is None else line_search.hits[at],
            "complete": is_complete,
            "scanned": line_search.scanned(log.index),
            "limited": line_search.is_full,
        }
    return json_answer(document)


def marks(request: Request) -> PageAnswer:
    """Return the matches of an expression in lines.

    Parameters: as for lines. Answer: for each line a list of begins and ends. They count UTF-16
    units of the uncoloured text, as browsers do. Lines after MARKS_SECS have empty lists, and the
    matches lie in the first MAX_CHARS characters.
    """
    with open_log(request) as (log, source):
        line_search = log.searches.get(_query(request))
        hits = line_search.hits if request.flag("only") else None
        selection = _selection(log, source, hits, request)
        deadline = time.monotonic() + MARKS_SECS
        texts = (uncoloured(line.text)[:MAX_CHARS] for line in selection.lines)
        spans = [
            _utf16_spans(text, line_search.expression.spans(text))
            if time.monotonic() < deadline
            else []
            for text in texts
        ]
    return json_answer({"from": selection.first, "marks": spans})


def _utf16_spans(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    if not spans or text.isascii():
        return spans

    def units(at: int) -> int:
        return len(text[:at].encode("utf-16-le", "replace")) // 2

    return [(units(begin), units(end)) for begin, end in spans]


def at(request: Request) -> PageAnswer:
    """Return the number of the first line at `time` (ms since 1970) or later."""
    time_ns = request.number("time", 0, maximum=1 << 52) * 1_000_000
    with open_log(request) as (log, source):
        return json_answer({**_state(log, source), "line": log.index.number_at(time_ns)})


def text(request: Request) -> PageAnswer:
    """Return lines as uncoloured text.

    With `count`, the parameters are those of lines, and the answer is for the clipboard. Without
    it, the answer is a download of all lines; `times=1` puts the time in UTC before each.
    """
    if request.params.get("count"):
        with open_log(request) as (log, source):
            hits = log.search(source, _query(request))[0].hits if request.flag("only") else None
            log_lines = _selection(log, source, hits, request, MAX_COPIED).lines
        copied_text = "".join(_texts(iter(log_lines), times=False))
        return PageAnswer(copied_text.encode("utf-8", "replace"), "text/plain; charset=utf-8")
    times = request.flag("times")
    streams = STREAMS[request.choice("streams", "both", "stdout", "stderr")]
    attempt = request.number("attempt", 0) or None
    job_id = request.parts[0]
    with request.store.job(job_id) as reader:
        name = _NOT_IN_NAMES.sub("-", f"{reader.summary.name[:80]}-{job_id}").strip("-.") or "job"

    def body() -> Iterator[str]:
        with request.store.job(job_id) as reader:
            yield from _texts(reader.lines(streams=streams, attempt=attempt), times=times)

    return PageAnswer(body(), "text/plain; charset=utf-8", file_name=f"{name}.log")


def _texts(lines: "Iterator[LogLine]", *, times: bool) -> Iterator[str]:
    """Join the consecutive parts of a long line; end each line with LF."""
    open_source: tuple[int, int] | None = None
    for line in lines:
        source = (line.stream, line.capture)
        is_continued = open_source == source and is_further_part(str(line.attrs.get("part", "")))
        if not is_continued:
            if open_source is not None:
                yield "\n"
            if times:
                yield f"{utc(line.time_ns)} "
        open_source = source
        yield uncoloured(line.text)
    if open_source is not None:
        yield "\n"

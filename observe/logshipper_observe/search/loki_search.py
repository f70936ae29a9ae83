"""Searches jobs in Loki, which filters the lines. This side checks them again, because notes quote
their line and lines have colours."""

import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from logshipper.classify.repeat_note import printed_line
from logshipper_ingest.servers.logql import quoted
from logshipper_observe.base.words import uncoloured
from logshipper_observe.search.line_search import JobMatches, LineMatch, LineSearch

if TYPE_CHECKING:
    from logshipper_ingest.loki.lines import LokiLine
    from logshipper_ingest.loki.store import LokiStore
    from logshipper_ingest.model.job import JobSummary

_ANCHORS = re.compile(r"[\^$]|\\B")  # which match elsewhere in a note than in its quoted line


def search_loki(
    store: "LokiStore", jobs: "Sequence[JobSummary]", search: LineSearch
) -> Generator[JobMatches]:
    """Yield each job with its matches, in this order. Raises QueryError."""
    for job, lines in store.lines_of_jobs(jobs, line_filter(search), search.streams):
        matches: Iterator[LineMatch] = islice(_matches(job, lines, search), search.limit)
        if search.before or search.after:
            matches = iter(_with_surroundings(store, job, [*matches], search))
        yield JobMatches(job, matches)


def line_filter(search: LineSearch) -> str:
    """Return the filter in LogQL, which lets pass all lines that may match."""
    if search.invert:
        return ""
    expression = f"(?i:{search.expression})" if search.ignore_case else search.expression
    expression += r"|\x1b\["
    if _ANCHORS.search(search.expression):
        expression += r"|^\[repeated "
    return f" |~ {quoted(expression)}"


def _matches(
    job: "JobSummary", lines: "Iterable[LokiLine]", search: LineSearch
) -> Iterator[LineMatch]:
    for line in lines:
        text = uncoloured(line.text)
        if search.has(printed_line(text, line.attrs)):
            printed = line.attrs.get("repeat", 1)
            yield LineMatch(job, 0, line.time_ns, line.stream, text, printed)


def _with_surroundings(
    store: "LokiStore", job: "JobSummary", matches: list[LineMatch], search: LineSearch
) -> list[LineMatch]:
    by_place: dict[tuple[int, str], LineMatch] = {}
    if matches:
        with store.reader_of(job) as reader:
            for match in matches:
                for line in reader.lines_near(match.time_ns, search.before, search.after):
                    text = uncoloured(line.text)
                    near = LineMatch(job, 0, line.time_ns, line.stream, text, is_match=False)
                    by_place[near.time_ns, near.text] = near
    by_place |= {(match.time_ns, match.text): match for match in matches}
    return [by_place[place] for place in sorted(by_place)]

"""Prints the matches of `grep`: lines under headings on a terminal, `NAME ID:NUMBER:LINE` in a pipe,
JSON for programs."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import orjson

from logshipper.safe_text import safe, safe_json
from logshipper_observe.base.output import Output
from logshipper_observe.base.words import local, utc
from logshipper_observe.model.documents import STREAM_NAMES, Document, moment
from logshipper_observe.search.line_search import JobMatches, LineMatch, LineSearch

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary

GREP_SCHEMA = "logshipper.grep/1"
_FLUSH_SECS = 0.1
_RESET = "\x1b[0m"
_BOLD, _CYAN, _GREEN, _DIM, _MATCH = "1", "1;36", "32", "2", "1;31"  # SGR parameters


class MatchPrinter:
    """Prints jobs' matches. is_found: whether it printed any; clear: removes a progress bar."""

    def __init__(
        self, args: argparse.Namespace, search: LineSearch, clear: Callable[[], None]
    ) -> None:
        self.is_found = False
        self._clear = clear
        self._search = search
        self._out = Output(args.color)
        self._json = args.json
        self._counts = args.count
        self._names = args.files_with_matches
        self._others = args.files_without_match
        self._parts = args.only_matching
        self._flushed = 0.0

    def print(self, found: JobMatches) -> None:
        """Print one job's answer."""
        if self._others:
            if next(found.matches, None) is None:
                self._job(found.job)
        elif self._names:
            if next(found.matches, None) is not None:
                self._job(found.job)
        elif self._counts:
            printed = sum(match.printed for match in found.matches)
            if printed:
                self._job(found.job, printed)
        else:
            self._matches(found)

    def _job(self, job: "JobSummary", printed: int | None = None) -> None:
        if self._json:
            self._write_json(_job_fields(job) | ({} if printed is None else {"count": printed}))
            return
        number = "" if printed is None else f":{self._styled(str(printed), _GREEN)}"
        self._write(f"{self._heading(job)}{number}\n")

    def _matches(self, found: JobMatches) -> None:
        last: LineMatch | None = None
        for match in found.matches:
            if self._json:
                self._write_json(_match_document(match))
                continue
            is_apart = last is not None and match.number > last.number + 1
            if self._out.terminal and last is None:
                blank = "\n" if self.is_found else ""
                self._write(f"{blank}{self._heading(found.job)}\n")
            elif is_apart and (self._search.before or self._search.after):
                self._write(f"{self._styled('--', _DIM)}\n")
            last = match
            for text in self._texts(match):
                self._write(f"{self._place(match)}{text}\n")

    def _texts(self, match: LineMatch) -> Iterator[str]:
        """Yield the match as it is printed: as a whole, or its parts."""
        spans = self._search.spans(match.text) if match.is_match else []
        if self._parts:
            for begin, end in spans:
                yield self._styled(match.text[begin:end], _MATCH)
            return
        if not self._out.colour:
            yield self._styled(match.text, "")
            return
        pieces, at = [], 0
        for begin, end in spans:
            pieces += [safe(match.text[at:begin]), self._styled(match.text[begin:end], _MATCH)]
            at = end
        yield "".join([*pieces, safe(match.text[at:])])

    def _place(self, match: LineMatch) -> str:
        sign = ":" if match.is_match else "-"
        if self._out.terminal:
            number = str(match.number) if match.number else local(match.time_ns, millis=True)
            return f"{self._styled(number, _GREEN if match.is_match else _DIM)}{sign}"
        # ISO 8601 without colons
        number = str(match.number or utc(match.time_ns).replace("-", "").replace(":", ""))
        return f"{safe(match.job.name)} {match.job.job_id}{sign}{number}{sign}"

    def _heading(self, job: "JobSummary") -> str:
        return f"{self._styled(safe(job.name), _BOLD)} {self._styled(job.job_id, _CYAN)}"

    def _styled(self, text: str, code: str) -> str:
        if not self._out.colour:
            return safe(text) if self._out.terminal else text
        return f"\x1b[{code}m{safe(text)}{_RESET}"

    def _write_json(self, document: Document) -> None:
        text = orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE).decode()
        self._write(safe_json(text) if self._out.terminal else text)

    def _write(self, text: str) -> None:
        self.is_found = True
        self._clear()
        sys.stdout.write(text)
        if time.monotonic() - self._flushed > _FLUSH_SECS:
            sys.stdout.flush()
            self._flushed = time.monotonic()


def _job_fields(job: "JobSummary") -> Document:
    cluster = {"cluster": job.cluster} if job.cluster else {}
    return {"schema": GREP_SCHEMA, "job_id": job.job_id, "name": job.name, **cluster}


def _match_document(match: LineMatch) -> Document:
    return {
        **_job_fields(match.job),
        "number": match.number or None,
        **moment("time", match.time_ns),
        "stream": STREAM_NAMES[match.stream],
        "text": match.text,
        "printed": match.printed,
        "match": match.is_match,
    }

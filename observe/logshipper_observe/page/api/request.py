"""Requests to the page's server and its answers, as plain values."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import orjson

from logshipper.errors import LogshipperError
from logshipper_observe.base.output import to_json
from logshipper_observe.model.reread import SeriesSearch
from logshipper_observe.page.data.cache import Cache
from logshipper_observe.page.data.graph_feeds import Feed
from logshipper_observe.page.data.job_list import JobListing
from logshipper_observe.page.data.point_search import PointSearch
from logshipper_observe.page.data.thread_store import SharedIngest, ThreadStore
from logshipper_observe.page.log.log_copy import Copies
from logshipper_observe.page.log.logs import Log

MOST_FEEDS = 24
MOST_SEARCHES = 16
MOST_REREADS = 2
REREAD_RECORDS = 100_000  # of each: their graphs are part of one answer
MAX_LOGS = 16  # views
JSON = "application/json"


class RequestRefusal(LogshipperError):
    """A request without an answer. The message is for the reader of the page."""

    def __init__(self, message: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        self.status = status
        super().__init__(message)


class Caches:
    """State that the server keeps between requests, for all threads: the most recently used."""

    def __init__(self, intake: SharedIngest) -> None:
        self.listing = JobListing()
        self.feeds = Cache(Feed, MOST_FEEDS)  # graphs
        self.searches = Cache(PointSearch, MOST_SEARCHES)  # for the records of points in graphs
        # of series in stored lines, by id and begin of the job
        self.rereads: Cache[tuple[str, int], SeriesSearch] = Cache(
            lambda _: SeriesSearch(REREAD_RECORDS), MOST_REREADS
        )
        self.logs = Cache(Log, MAX_LOGS)
        self.copies = Copies(intake)  # of logs in Loki


@dataclass(frozen=True)
class Request:
    """One request. Its methods raise RequestRefusal for malformed parameters."""

    parts: tuple[str, ...]  # the pieces of the path that match a `*` of the route
    params: Mapping[str, str]  # of the query; the last one of each name
    store: ThreadStore
    caches: Caches
    client_etag: str = ""  # of the browser's copy, "" for none

    def number(
        self, name: str, default: int, minimum: int = 0, maximum: int = (1 << 63) - 1
    ) -> int:
        """Return a whole number."""
        text = self.params.get(name, "")
        if not text:
            return default
        digits = text.removeprefix("-")
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= 19
        if not is_number or not minimum <= int(text) <= maximum:
            raise RequestRefusal(
                f"{name}: {text[:40]!r} isn't a whole number from {minimum} to {maximum}"
            )
        return int(text)

    def real(self, name: str, default: float) -> float:
        """Return a number, possibly infinite."""
        text = self.params.get(name, "")
        try:
            number = float(text) if text else default
        except ValueError:
            number = math.nan
        if math.isnan(number):
            raise RequestRefusal(f"{name}: {text[:40]!r} isn't a number")
        return number

    def choice(self, name: str, *choices: str) -> str:
        """Return one of several words, by default the first."""
        word = self.params.get(name) or choices[0]
        if word not in choices:
            raise RequestRefusal(f"{name}: {word[:40]!r} isn't one of {', '.join(choices)}")
        return word

    def flag(self, name: str) -> bool:
        """Return whether a switch is 1."""
        return self.choice(name, "0", "1") == "1"

    def texts(self, name: str, example: str, least: int = 1, most: int = 1 << 16) -> list[str]:
        """Return a JSON list of texts."""
        texts = self.json(name)
        is_list = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        if not is_list or len(texts) < least:
            raise RequestRefusal(f"{name}: must be a JSON list of texts, such as {example}")
        if len(texts) > most:
            raise RequestRefusal(f"{name}: {len(texts)} entries, but at most {most} are possible")
        return list(texts)

    def json(self, name: str) -> Any:  # Any: JSON
        """Return a JSON value, None for malformed JSON."""
        try:
            return orjson.loads(self.params.get(name, ""))
        except orjson.JSONDecodeError:
            return None


@dataclass(frozen=True)
class PageAnswer:
    """An answer of the server."""

    body: bytes | Iterator[str]  # whole, or texts of a download of unknown length
    content_type: str = JSON
    status: HTTPStatus = HTTPStatus.OK
    etag: str = ""  # "" for none
    file_name: str = ""  # of a download, "" for no download
    headers: Mapping[str, str] = field(default_factory=dict)


def json_answer(document: Mapping[str, Any], etag: str = "") -> PageAnswer:  # Any: JSON
    """Encode a document. Numbers that a job printed (base.output.Raw) keep every digit."""
    try:
        body = orjson.dumps(document, option=orjson.OPT_PASSTHROUGH_SUBCLASS)
    except TypeError:  # Raw, lone surrogates, integers of more than 64 bits
        body = to_json(document).encode("utf-8", "replace")
    return PageAnswer(body, etag=etag)


def etag_of(facts: object) -> str:
    return f'"{hashlib.sha256(orjson.dumps(facts, default=str)).hexdigest()[:20]}"'


def tagged_answer(
    request: Request,
    document: Mapping[str, Any],  # Any: JSON
    facts: object,  # change whenever the page must redraw
) -> PageAnswer:
    """Send the document, unless the browser has it already."""
    etag = etag_of(facts)
    return (
        PageAnswer(b"", etag=etag) if etag == request.client_etag else json_answer(document, etag)
    )

"""What the page's server is asked and what it answers: plain values between the server and the
functions that know."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson

from logshipper.errors import LogshipperError
from logshipper_observe.base.output import to_json

if TYPE_CHECKING:
    from logshipper_observe.page.copied import Copies
    from logshipper_observe.page.graph_feeds import Feeds
    from logshipper_observe.page.jobs_api import JobsPage
    from logshipper_observe.page.logs import Logs
    from logshipper_observe.page.opened import OpenedStore
    from logshipper_observe.page.point_search import PointSearches

JSON = "application/json"


class RequestRefusal(LogshipperError):
    """A request that can't be answered. status: of HTTP; words: the reason, for a person."""

    def __init__(self, status: HTTPStatus, words: str) -> None:
        self.status = status
        super().__init__(words)


@dataclass(frozen=True)
class Shelf:
    """What the server keeps between requests, for all threads."""

    listing: "JobsPage"  # the list of jobs
    feeds: "Feeds"  # graphs
    searches: "PointSearches"  # for the records of graphs' points
    logs: "Logs"  # where each line is
    copies: "Copies"  # of what Loki has


@dataclass(frozen=True)
class Ask:
    """One request."""

    parts: tuple[str, ...]  # the pieces of the path that a route leaves open
    words: Mapping[str, str]  # of the query, the last of each
    store: "OpenedStore"  # the jobs
    shelf: "Shelf"  # what the server keeps of them between requests
    client_etag: str = ""  # of what the browser has, "" for none

    def number(
        self, name: str, default: int, minimum: int = 0, maximum: int = (1 << 63) - 1
    ) -> int:
        """A whole number of the query. Raises RequestRefusal."""
        text = self.words.get(name, "")
        if not text:
            return default
        digits = text[1:] if text.startswith("-") else text
        if (
            not digits.isascii()
            or not digits.isdigit()
            or len(digits) > 19
            or not minimum <= int(text) <= maximum
        ):
            raise RequestRefusal(
                HTTPStatus.BAD_REQUEST,
                f"{name}: {text[:40]!r} isn't a whole number from {minimum} to {maximum}",
            )
        return int(text)

    def choice(self, name: str, *choices: str) -> str:
        """One of several words, by default the first. Raises RequestRefusal."""
        word = self.words.get(name) or choices[0]
        if word not in choices:
            raise RequestRefusal(
                HTTPStatus.BAD_REQUEST, f"{name}: {word[:40]!r} isn't one of {', '.join(choices)}"
            )
        return word


@dataclass(frozen=True)
class PageAnswer:
    """What the server sends back for a request."""

    body: bytes | Iterator[bytes]  # all of it, or pieces of unknown length
    content_type: str = JSON
    status: HTTPStatus = HTTPStatus.OK
    etag: str = ""  # of what is shown, "" for none
    file_name: str = ""  # to be saved as, "" for what is shown
    headers: Mapping[str, str] = field(default_factory=dict)


def json_answer(document: Mapping[str, Any], etag: str = "") -> PageAnswer:  # Any: JSON
    """Numbers that a job printed (logshipper_observe.base.output.Raw) keep every digit."""
    try:
        body = orjson.dumps(document, option=orjson.OPT_PASSTHROUGH_SUBCLASS)
    except TypeError:  # Raw, lone surrogates, integers of more than 64 bits
        body = to_json(document).encode("utf-8", "replace")
    return PageAnswer(body, etag=etag)


def etag_of(facts: object) -> str:
    return f'"{hashlib.sha256(orjson.dumps(facts, default=str)).hexdigest()[:20]}"'


def tagged_answer(ask: Ask, document: Mapping[str, Any], facts: object) -> PageAnswer:  # Any: JSON
    """The document, unless the browser has just these facts already."""
    etag = etag_of(facts)
    return PageAnswer(b"", etag=etag) if etag == ask.client_etag else json_answer(document, etag)

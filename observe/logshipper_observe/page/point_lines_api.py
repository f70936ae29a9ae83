"""`api/jobs/ID/point`: the line that a point of a graph was printed on."""

import math
from http import HTTPStatus
from typing import TYPE_CHECKING

import orjson

from logshipper.config import JSON
from logshipper_observe.page.answers import Ask, PageAnswer, RequestRefusal, json_answer
from logshipper_observe.page.console_api import open_log
from logshipper_observe.page.graphs_api import READ_SECS, keys_of, number_of
from logshipper_observe.page.point_search import PointQuery
from logshipper_observe.page.record_lines import line_number
from logshipper_observe.query.asked import UnknownKey

if TYPE_CHECKING:
    from logshipper_ingest.model.job import MetadataRecord

CHANGED = "No record has this point any more: the graph has changed since."


def point(ask: Ask) -> PageAnswer:
    """The point at `at_x`, `at_y` of the graph of the key in `y`, a JSON list of one, over `x`, as the graph
    was asked for, with own_x=1 over an X of its own; `origin`, `tags`, `curve`: its series', as the graph has
    them. line: the number of its record's line in the log of both streams and all attempts, the
    first such record's where several have the point; null: words say why there is none. complete:
    all was read that could tell, else ask again: it goes on. records, total: how many were read, of
    how many."""
    query = _query(ask)
    with ask.store.job(query.job_id) as reader:
        search = ask.shelf.searches.get(query)
        with search.lock:
            try:
                record = search.read_on(reader, READ_SECS)
            except UnknownKey as error:
                raise RequestRefusal(HTTPStatus.NOT_FOUND, str(error)) from None
            document = {
                "line": None,
                "complete": search.complete,
                "records": search.records,
                "total": reader.summary.records,
                "words": CHANGED if search.complete else "",
            }
        if record is None:
            return json_answer(document)
        with open_log(ask) as (log, source, problem):
            # a copy of what Loki has may lack the newest lines: asked before it is looked through
            is_read = getattr(source, "read_until", math.inf) > search.found_at
            log.bring_up(source)
            # never kept: while a job runs, lines that come late give those behind them new numbers
            line = line_number(log, source, reader, record)
    complete = line is not None or is_read or bool(problem)
    words = problem or _missing(record) if line is None and complete else ""
    return json_answer({**document, "line": line, "complete": complete, "words": words})


def _missing(record: "MetadataRecord") -> str:
    if record.origin == JSON:
        return "The record has no line in the log."
    return (
        f"The record was made of a line that isn't JSON ({record.origin}), "
        "and which line of the log that was isn't certain."
    )


def _query(ask: Ask) -> PointQuery:
    """Raises RequestRefusal."""
    (key,) = keys_of(ask, 1)
    curve = ask.number("curve", -1, minimum=-1)
    for name in ("at_x", "at_y"):
        if name not in ask.words:
            raise RequestRefusal(HTTPStatus.BAD_REQUEST, f"{name}: a point's is wanted")
    return PointQuery(
        ask.store.intake.place,
        ask.parts[0],
        key,
        ask.words.get("x") or None,
        ask.choice("own_x", "0", "1") == "1",
        ask.words.get("origin", ""),
        _tags(ask),
        None if curve < 0 else curve,
        (number_of(ask, "at_x", 0.0), number_of(ask, "at_y", 0.0)),
    )


def _tags(ask: Ask) -> tuple[tuple[str, str], ...]:
    """Raises RequestRefusal."""
    try:
        tags = orjson.loads(ask.words.get("tags") or "{}")
    except orjson.JSONDecodeError:
        tags = None
    if not isinstance(tags, dict) or not all(isinstance(tag, str) for tag in tags.values()):
        raise RequestRefusal(
            HTTPStatus.BAD_REQUEST, 'tags: a JSON object of texts is wanted, such as {"host": "n1"}'
        )
    return tuple(sorted(tags.items()))

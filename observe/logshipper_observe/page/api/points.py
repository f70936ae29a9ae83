"""`api/jobs/ID/point`: the line behind a point of a graph."""

import math
from typing import TYPE_CHECKING

from logshipper.config import JSON
from logshipper_observe.page.api.console import open_log
from logshipper_observe.page.api.graphs import READ_SECS, keys_of
from logshipper_observe.page.api.request import PageAnswer, Request, RequestRefusal, json_answer
from logshipper_observe.page.data.point_search import PointQuery
from logshipper_observe.page.log.record_lines import line_number

if TYPE_CHECKING:
    from logshipper_ingest.model.job import MetadataRecord

CHANGED = "No record has this point any more: the graph has changed since."


def point(request: Request) -> PageAnswer:
    """Find the line of a point.

    Parameters: `at_x`, `at_y` are the point's place. `y`, a JSON list of one key, and `x` are those
    of the graph's request; `own_x=1` if the key has an X of its own. `origin`, `tags` and `curve`
    identify the series, as the graph's answer does.

    Answer: `line` is the number of the record's line in the log of both streams and all attempts,
    the first one if several records have this point. If it is null, `words` has the reason.
    `complete` is false while the search continues: the page repeats the request. `records` of
    `total` were read.
    """
    query = _query(request)
    with request.store.job(query.job_id) as reader:
        search = request.caches.searches.get(query)
        with search.lock:
            record = search.read_on(reader, READ_SECS)
            document = {
                "line": None,
                "complete": search.complete,
                "records": search.reading.records,
                "total": reader.summary.records,
                "words": CHANGED if search.complete else "",
            }
        if record is None:
            return json_answer(document)
        with open_log(request) as (log, source):
            # read before the lookup: a copy of Loki's log may lack the newest lines
            has_line = getattr(source, "read_until", math.inf) > search.end_time
            log.bring_up(source)
            # not cached: late lines of a running job renumber the lines behind them
            line = line_number(log, source, reader, record)
            problem = getattr(source, "problem", "")
    complete = line is not None or has_line or bool(problem)
    words = problem or _missing(record) if line is None and complete else ""
    return json_answer({**document, "line": line, "complete": complete, "words": words})


def _missing(record: "MetadataRecord") -> str:
    if record.origin == JSON:
        return "The record has no line in the log."
    return (
        f"The record comes from a line that isn't JSON ({record.origin}), "
        "and logshipper can't tell which line of the log that is."
    )


def _query(request: Request) -> PointQuery:
    (key,) = keys_of(request, 1)
    curve = request.number("curve", -1, minimum=-1)
    for name in ("at_x", "at_y"):
        if name not in request.params:
            raise RequestRefusal(f"{name}: is missing, the point's place")
    return PointQuery(
        request.parts[0],
        key,
        request.params.get("x") or None,
        request.flag("own_x"),
        request.params.get("origin", ""),
        _tags(request),
        None if curve < 0 else curve,
        (request.real("at_x", 0.0), request.real("at_y", 0.0)),
    )


def _tags(request: Request) -> tuple[tuple[str, str], ...]:
    tags = request.json("tags") if request.params.get("tags") else {}
    if not isinstance(tags, dict) or not all(isinstance(tag, str) for tag in tags.values()):
        raise RequestRefusal('tags: must be a JSON object of texts, such as {"host": "n1"}')
    return tuple(sorted(tags.items()))

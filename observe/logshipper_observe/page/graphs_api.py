"""`api/jobs/ID/axes`, which graphs a job has; `.../graphs`, their points; `.../graph.csv`, the
exact numbers."""

import math
import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson

from logshipper_ingest.console.text_table import plural
from logshipper_observe.base.words import utc
from logshipper_observe.formats.csv_rows import CsvRows, own_titles
from logshipper_observe.graphs.graph_notes import left_out_of, rule_words
from logshipper_observe.graphs.series import Graph, GraphRequest, numeric_keys, planned
from logshipper_observe.model.records import at_path, is_number
from logshipper_observe.page.answers import Ask, PageAnswer, RequestRefused, tagged_answer
from logshipper_observe.page.downloads import pieces
from logshipper_observe.page.graph_feeds import KEPT_POINTS, Feed, FeedQuery
from logshipper_observe.query.asked import UnknownKey

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import Reader

MOST_GRAPHS = 32  # of one answer: a screen shows fewer, and the page asks again as one scrolls
DEFAULT_POINTS = 2000  # of a series
READ_SECS = 0.6  # that an answer reads; of a longer job it has what was read so far, and the page asks again


def axes(ask: Ask) -> PageAnswer:
    """The X that is chosen (or asked for by `x`), the rule in words, and the keys that have graphs,
    in their order."""
    with ask.store.job(ask.parts[0]) as reader:
        keys = numeric_keys(reader)
        try:
            found, _ = planned(reader, GraphRequest(ask.words.get("x") or None), len(keys))
            chosen = (
                planned(reader, GraphRequest(ask.words.get("x") or None, tuple(keys)[:1]), 1)[0]
                if keys
                else []
            )
        except UnknownKey as error:
            raise RequestRefused(HTTPStatus.NOT_FOUND, str(error)) from None
        document = {
            "x": _axis(chosen[0]) if chosen else None,
            "y": [graph.key for graph in found],
            "keys": sorted(keys),
            "records": reader.summary.records,
            "notes": reader.notes(),
        }
        return tagged_answer(ask, document, document)


def graphs(ask: Ask) -> PageAnswer:
    """The graphs of the keys in `y`, a JSON list. x: a key, or `time`; smooth: 0 to below 1, the
    smoothed numbers instead; points: that each series is thinned to; low, high: only what lies
    between these X."""
    points = ask.number("points", DEFAULT_POINTS, 4, KEPT_POINTS)
    wanted = FeedQuery(ask.store.intake.place, ask.parts[0], ask.words.get("x") or None, _keys(ask), _weight(ask),
                    (_number(ask, "low", -math.inf), _number(ask, "high", math.inf)))  # fmt: skip
    began = time.perf_counter()
    with ask.store.job(ask.parts[0]) as reader:
        feed = ask.shelf.feeds.get(wanted)
        with feed.lock:
            found = _read(feed, reader, READ_SECS)
            facts = [
                wanted,
                points,
                feed.records,
                feed.complete,
                reader.is_over,
                [(graph.x.words, graph.total) for graph in found],
            ]
            document = {
                "records": feed.records,
                "total": reader.summary.records,
                "complete": feed.complete,
                "is_over": reader.is_over,
                "graphs": [_graph(graph, points) for graph in found],
                "secs": round(time.perf_counter() - began, 4),
            }
        return tagged_answer(ask, document, facts)


def graph_csv(ask: Ask) -> PageAnswer:
    """Every record that has one of the keys in `y` and its X as numbers: the exact ones, as they
    were printed."""
    wanted = FeedQuery(ask.store.intake.place, ask.parts[0], ask.words.get("x") or None, _keys(ask))
    with ask.store.job(ask.parts[0]) as reader:
        feed = ask.shelf.feeds.get(wanted)
        with feed.lock:
            found = _read(feed, reader)
        job_id = reader.summary.job_id
    return PageAnswer(
        pieces(_csv(ask, found)), "text/csv; charset=utf-8", file_name=f"{job_id}-graph.csv"
    )


def _csv(ask: Ask, found: list[Graph]) -> Iterator[str]:
    with ask.store.job(ask.parts[0]) as reader:
        keys = numeric_keys(reader)
        axes = dict.fromkeys(graph.x.key for graph in found if graph.x.key is not None)
        names = list(dict.fromkeys([*axes, *(graph.key for graph in found)]))
        several = len(reader.captures) > 1
        own = ["_time", "_attempt", *(["_capture"] if several else [])]
        rows = CsvRows()
        yield rows.row([*own_titles(names, own), *names]) + "\n"
        for record in reader.records():
            texts = {name: at_path(record.line, keys[name].path) for name in names}
            numbers = {
                name: text for name, text in texts.items() if text is not None and is_number(text)
            }
            if any(
                graph.key in numbers and (graph.x.key is None or graph.x.key in numbers)
                for graph in found
            ):
                capture = [str(record.capture)] if several else []
                cells = [numbers.get(name, "") for name in names]
                yield rows.row([utc(record.time_ns), str(record.attempt), *capture, *cells]) + "\n"


def _read(feed: Feed, reader: "Reader", secs: float = math.inf) -> list[Graph]:
    """Raises Refused."""
    try:
        return feed.read_on(reader, secs)
    except UnknownKey as error:
        raise RequestRefused(HTTPStatus.NOT_FOUND, str(error)) from None


def _keys(ask: Ask) -> tuple[str, ...]:
    """Raises Refused."""
    try:
        keys = orjson.loads(ask.words.get("y", "[]"))
    except orjson.JSONDecodeError:
        keys = None
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        raise RequestRefused(
            HTTPStatus.BAD_REQUEST, 'y: a JSON list of keys is wanted, such as ["loss"]'
        )
    if len(keys) > MOST_GRAPHS:
        raise RequestRefused(
            HTTPStatus.BAD_REQUEST,
            f"y: {len(keys)} keys; at most {MOST_GRAPHS} are answered at once",
        )
    return tuple(keys)


def _weight(ask: Ask) -> float:
    """Raises Refused."""
    weight = _number(ask, "smooth", 0.0)
    if not 0 <= weight < 1:
        raise RequestRefused(
            HTTPStatus.BAD_REQUEST, f"smooth: {weight} isn't a number from 0 to below 1"
        )
    return weight


def _number(ask: Ask, name: str, default: float) -> float:
    """Raises Refused."""
    text = ask.words.get(name)
    try:
        number = float(text) if text else default
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise RequestRefused(
            HTTPStatus.BAD_REQUEST, f"{name}: {(text or '')[:40]!r} isn't a number"
        )
    return number


def _axis(graph: Graph) -> dict[str, object]:
    return {
        "key": graph.x.key,
        "rule": graph.x.rule,
        "words": rule_words(graph),
        "integer": graph.x_integer,
    }


def _graph(graph: Graph, points: int) -> dict[str, Any]:  # Any: JSON
    notes = list(left_out_of(graph))
    if graph.own_x:
        notes.insert(
            0, f"In no record with {graph.instead_of}, so over another X. {rule_words(graph)}"
        )
    series = []
    for one in graph.series:
        thin = one.thinned(points)
        series.append(
            {"label": one.label, "seen": one.total, "x": thin.xs.tolist(), "y": thin.ys.tolist()}
        )
        if len(thin.xs) < one.total:
            of = f" of {one.label}" if one.label else ""
            notes.append(
                f"{plural(len(thin.xs), 'point')}{of} shown of {one.total:,}: thinned evenly, each peak kept"
            )
    return {
        "key": graph.key,
        "integer": graph.integer,
        "x": _axis(graph),
        "own_x": graph.own_x,
        "scattered": graph.x.rule == 7,
        "series": series,
        "notes": notes,
    }

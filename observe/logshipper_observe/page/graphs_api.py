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
from logshipper_observe.graphs.graph_notes import gap_document, key_notes, left_out_of, rule_words
from logshipper_observe.graphs.series import Graph, GraphRequest, is_constant, numeric_keys, planned
from logshipper_observe.model.record_hints import record_hints
from logshipper_observe.model.records import at_path, is_number
from logshipper_observe.page.answers import Ask, PageAnswer, RequestRefusal, tagged_answer
from logshipper_observe.page.downloads import pieces
from logshipper_observe.page.graph_feeds import KEPT_POINTS, Feed, FeedQuery
from logshipper_observe.query.asked import UnknownKey

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import Reader

MOST_GRAPHS = 32  # of one answer: a screen shows fewer, and the page asks again as one scrolls
DEFAULT_POINTS = 2000  # of a series
READ_SECS = 0.6  # that an answer reads; of a longer job it has what was read so far, and the page asks again


def axes(ask: Ask) -> PageAnswer:
    """The X that is chosen (or asked for by `x`), the rule in words, the keys that have graphs, in
    their order, and those that have one value each."""
    with ask.store.job(ask.parts[0]) as reader:
        keys = numeric_keys(reader)
        try:
            plan, _ = planned(reader, GraphRequest(ask.words.get("x") or None), len(keys))
        except UnknownKey as error:
            raise RequestRefusal(HTTPStatus.NOT_FOUND, str(error)) from None
        document = {
            "x": axis_document(plan[0]) if plan else None,
            "y": [graph.key for graph in plan],
            "keys": sorted(keys),
            "options": [
                {"key": name, "value": keys[name].last}
                for name in sorted(keys)
                if is_constant(keys[name])
            ],
            "records": reader.summary.records,
            "notes": [
                *record_hints(reader),
                *reader.notes(),
                *key_notes([key for key in reader.keys() if not key.numbers]),  # noqa: SIM118  not a dict's
            ],
        }
        return tagged_answer(ask, document, document)


def graphs(ask: Ask) -> PageAnswer:
    """The graphs of the keys in `y`, a JSON list. x: a key, or `time`; smooth: 0 to below 1, the
    smoothed numbers instead, with debias=1 debiased; points: that each series is thinned to; low, high: only what lies
    between these X."""
    points = ask.number("points", DEFAULT_POINTS, 4, KEPT_POINTS)
    query = FeedQuery(ask.store.intake.place, ask.parts[0], ask.words.get("x") or None, keys_of(ask), weight_of(ask),
                    (number_of(ask, "low", -math.inf), number_of(ask, "high", math.inf)), is_debiased(ask))  # fmt: skip
    began = time.perf_counter()
    with ask.store.job(ask.parts[0]) as reader:
        feed = ask.shelf.feeds.get(query)
        with feed.lock:
            feed_graphs = _read(feed, reader, READ_SECS)
            facts = [
                query,
                points,
                feed.records,
                feed.complete,
                reader.is_over,
                [(graph.x.words, graph.total, graph.gaps) for graph in feed_graphs],
            ]
            document = {
                "records": feed.records,
                "total": reader.summary.records,
                "complete": feed.complete,
                "is_over": reader.is_over,
                "graphs": [_graph(graph, points) for graph in feed_graphs],
                "secs": round(time.perf_counter() - began, 4),
            }
        return tagged_answer(ask, document, facts)


def graph_csv(ask: Ask) -> PageAnswer:
    """Every record that has one of the keys in `y` and its X as numbers: the exact ones, as they
    were printed."""
    query = FeedQuery(
        ask.store.intake.place, ask.parts[0], ask.words.get("x") or None, keys_of(ask)
    )
    with ask.store.job(ask.parts[0]) as reader:
        feed = ask.shelf.feeds.get(query)
        with feed.lock:
            feed_graphs = _read(feed, reader)
        job_id = reader.summary.job_id
    return PageAnswer(
        pieces(_csv(ask, feed_graphs)), "text/csv; charset=utf-8", file_name=f"{job_id}-graph.csv"
    )


def _csv(ask: Ask, graphs: list[Graph]) -> Iterator[str]:
    with ask.store.job(ask.parts[0]) as reader:
        keys = numeric_keys(reader)
        axes = dict.fromkeys(graph.x.key for graph in graphs if graph.x.key is not None)
        names = list(dict.fromkeys([*axes, *(graph.key for graph in graphs)]))
        has_several_captures = len(reader.captures) > 1
        fixed_columns = ["_time", "_attempt", *(["_capture"] if has_several_captures else [])]
        rows = CsvRows()
        yield rows.row([*own_titles(names, fixed_columns), *names]) + "\n"
        for record in reader.records():
            texts = {name: at_path(record.line, keys[name].path) for name in names}
            numbers = {
                name: text for name, text in texts.items() if text is not None and is_number(text)
            }
            if any(
                graph.key in numbers and (graph.x.key is None or graph.x.key in numbers)
                for graph in graphs
            ):
                capture = [str(record.capture)] if has_several_captures else []
                cells = [numbers.get(name, "") for name in names]
                yield rows.row([utc(record.time_ns), str(record.attempt), *capture, *cells]) + "\n"


def _read(feed: Feed, reader: "Reader", secs: float = math.inf) -> list[Graph]:
    """Raises RequestRefusal."""
    try:
        return feed.read_on(reader, secs)
    except UnknownKey as error:
        raise RequestRefusal(HTTPStatus.NOT_FOUND, str(error)) from None


def keys_of(ask: Ask, most: int = MOST_GRAPHS) -> tuple[str, ...]:
    """Raises RequestRefusal."""
    try:
        keys = orjson.loads(ask.words.get("y", "[]"))
    except orjson.JSONDecodeError:
        keys = None
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        raise RequestRefusal(
            HTTPStatus.BAD_REQUEST, 'y: a JSON list of keys is wanted, such as ["loss"]'
        )
    if len(keys) > most:
        raise RequestRefusal(
            HTTPStatus.BAD_REQUEST,
            f"y: {len(keys)} keys; at most {most} are answered at once",
        )
    return tuple(keys)


def weight_of(ask: Ask) -> float:
    """Raises RequestRefusal."""
    weight = number_of(ask, "smooth", 0.0)
    if not 0 <= weight < 1:
        raise RequestRefusal(
            HTTPStatus.BAD_REQUEST, f"smooth: {weight} isn't a number from 0 to below 1"
        )
    return weight


def is_debiased(ask: Ask) -> bool:
    """Raises RequestRefusal."""
    return ask.choice("debias", "0", "1") == "1"


def number_of(ask: Ask, name: str, default: float) -> float:
    """Raises RequestRefusal."""
    text = ask.words.get(name)
    try:
        number = float(text) if text else default
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise RequestRefusal(
            HTTPStatus.BAD_REQUEST, f"{name}: {(text or '')[:40]!r} isn't a number"
        )
    return number


def axis_document(graph: Graph) -> dict[str, object]:
    return {
        "key": graph.x.key,
        "rule": graph.x.rule,
        "words": rule_words(graph),
        "integer": graph.x_integer,
        "by_number": graph.x.by_number,
    }


def _graph(graph: Graph, points: int) -> dict[str, Any]:  # Any: JSON
    notes = list(left_out_of(graph))
    if graph.own_x:
        notes.insert(
            0, f"In no record with {graph.instead_of}, so over another X. {rule_words(graph)}"
        )
    series = []
    for curve in graph.series:
        thin = curve.thinned(points)
        xs = thin.xs.tolist()
        series.append(
            {
                "label": curve.label,
                # whose records they are: point_lines_api.py
                "origin": curve.origin,
                "tags": curve.tags,
                "curve": curve.curve_number,
                "seen": curve.total,
                "x": xs,
                "y": thin.ys.tolist(),
                "breaks": thin.breaks,
                "gaps": [gap_document(gap) for _, gap in curve.gaps],
            }
        )
        if len(xs) < curve.total:
            of = f" of {curve.label}" if curve.label else ""
            notes.append(
                f"{plural(len(xs), 'point')}{of} shown of {curve.total:,}: thinned evenly, each peak kept"
            )
    return {
        "key": graph.key,
        "integer": graph.integer,
        "x": axis_document(graph),
        "own_x": graph.own_x,
        "scattered": graph.x.rule == 7,
        "series": series,
        "notes": notes,
    }

"""`api/jobs/ID/axes`: a job's graphs; `.../graphs`: their points; `.../graph.csv`: exact numbers."""

import math
import time
from collections.abc import Iterator
from typing import Any

from logshipper_ingest.console.text_table import plural
from logshipper_ingest.model.stores import Reader
from logshipper_observe.base.words import utc
from logshipper_observe.formats.csv_rows import CsvRows, own_titles
from logshipper_observe.graphs.families import families, goal_of, rank_of, sections
from logshipper_observe.graphs.graph_notes import gap_document, key_notes, left_out_of, rule_words
from logshipper_observe.graphs.points import Points
from logshipper_observe.graphs.series import (
    Graph,
    GraphRequest,
    is_constant,
    numeric_keys,
    planned,
    tags_of,
)
from logshipper_observe.model.job_facts import record_hints
from logshipper_observe.model.records import at_path, is_number
from logshipper_observe.page.api.request import PageAnswer, Request, RequestRefusal, tagged_answer
from logshipper_observe.page.data.graph_feeds import KEPT_POINTS, FeedQuery

MOST_GRAPHS = 32  # of one answer: the page requests more while the reader scrolls
DEFAULT_POINTS = 2000  # of a series
READ_SECS = 0.6  # reading time of one answer: the page repeats the request for a longer job


def axes(request: Request) -> PageAnswer:
    """Return the X axis (chosen, or requested by `x`) with its rule in words, the keys that have
    graphs, in their order, those of series among them (`found`), their families with the best
    number's direction (`goal`), and the keys with one value."""
    with request.store.job(request.parts[0]) as reader:
        keys = numeric_keys(reader)
        plan, _ = planned(reader, GraphRequest(request.params.get("x") or None), len(keys))
        document = {
            "x": axis_document(plan[0]) if plan else None,
            "y": [graph.key for graph in plan],
            "found": [graph.key for graph in plan if graph.is_auto],
            "families": _family_documents(reader, plan),
            "keys": sorted(keys),
            "options": [
                {"key": name, "value": keys[name].last}
                for name in sorted(keys)
                if is_constant(keys[name]) and not keys[name].repeats
            ],
            "records": reader.summary.records,
            "notes": [
                *record_hints(reader),
                *reader.notes(),
                *key_notes([key for key in reader.keys() if not key.numbers or key.repeats]),  # noqa: SIM118  not a dict's
            ],
        }
        return tagged_answer(request, document, document)


def _family_documents(reader: Reader, plan: list[Graph]) -> list[dict[str, object]]:
    own_x = {graph.key: reader.x_for(graph.key).key for graph in plan if graph.x.key is not None}
    found = families([graph.key for graph in plan], own_x)
    return [
        {
            "title": family.title,
            "section": section,
            "goal": goal_of(family.title),
            "rank": rank_of(family.title),
            "members": [member._asdict() for member in family.members],
        }
        for family, section in zip(found, sections(found), strict=True)
    ]


def graphs(request: Request) -> PageAnswer:
    """Return the graphs of the keys in `y`, a JSON list.

    Parameters: `x` is a key or `time`; `smooth` is the weight of smoothing, from 0 to below 1, and
    `debias=1` removes its bias; `points` is the number of points per series; `low` and `high` limit
    X.
    """
    points = request.number("points", DEFAULT_POINTS, 4, KEPT_POINTS)
    query = FeedQuery(
        request.parts[0],
        request.params.get("x") or None,
        keys_of(request),
        weight_of(request),
        (request.real("low", -math.inf), request.real("high", math.inf)),
        request.flag("debias"),
    )
    began = time.perf_counter()
    with request.store.job(request.parts[0]) as reader:
        feed = request.caches.feeds.get(query)
        with feed.lock:
            feed_graphs = feed.read_on(reader, READ_SECS)
            drawn = [(graph.x.words, graph.total, graph.gaps) for graph in feed_graphs]
            facts = [query, points, feed.reading.records, feed.complete, reader.is_over, drawn]
            document = {
                "records": feed.reading.records,
                "total": reader.summary.records,
                "complete": feed.complete,
                "is_over": reader.is_over,
                "graphs": [graph_document(graph, points) for graph in feed_graphs],
                "secs": round(time.perf_counter() - began, 4),
            }
        return tagged_answer(request, document, facts)


def graph_csv(request: Request) -> PageAnswer:
    """Return the exact numbers of each record that has a key in `y` and its X."""
    query = FeedQuery(request.parts[0], request.params.get("x") or None, keys_of(request))
    with request.store.job(request.parts[0]) as reader:
        feed = request.caches.feeds.get(query)
        with feed.lock:
            feed_graphs = feed.read_on(reader)
        job_id = reader.summary.job_id
    return PageAnswer(
        _csv(request, feed_graphs), "text/csv; charset=utf-8", file_name=f"{job_id}-graph.csv"
    )


def _csv(request: Request, graphs: list[Graph]) -> Iterator[str]:
    with request.store.job(request.parts[0]) as reader:
        keys = numeric_keys(reader)
        axes = dict.fromkeys(graph.x.key for graph in graphs if graph.x.key is not None)
        names = list(dict.fromkeys([*axes, *(graph.key for graph in graphs)]))
        has_several_captures = len(reader.captures) > 1
        has_tags = any(curve.tags for graph in graphs for curve in graph.series)
        fixed_columns = ["_time", "_attempt", *(["_capture"] if has_several_captures else [])]
        fixed_columns += ["_tags"] if has_tags else []
        rows = CsvRows()
        yield rows.row([*own_titles(names, fixed_columns), *names]) + "\n"
        for record in reader.records():
            texts = {name: at_path(record.keyed_line, keys[name].path) for name in names}
            numbers = {
                name: text for name, text in texts.items() if text is not None and is_number(text)
            }
            if any({graph.key, graph.x.key} - {None} <= numbers.keys() for graph in graphs):
                capture = [str(record.capture)] if has_several_captures else []
                tags = " ".join(f"{name}={value}" for name, value in tags_of(record))
                cells = [*([tags] if has_tags else []), *(numbers.get(name, "") for name in names)]
                yield rows.row([utc(record.time_ns), str(record.attempt), *capture, *cells]) + "\n"


def keys_of(request: Request, most: int = MOST_GRAPHS) -> tuple[str, ...]:
    return tuple(request.texts("y", '["loss"]', most=most))


def weight_of(request: Request) -> float:
    weight = request.real("smooth", 0.0)
    if not 0 <= weight < 1:
        raise RequestRefusal(f"smooth: {weight} isn't a number from 0 to below 1")
    return weight


def axis_document(graph: Graph) -> dict[str, object]:
    return {
        "key": graph.x.key,
        "rule": graph.x.rule,
        "words": rule_words(graph),
        "integer": graph.x_integer,
        "by_number": graph.x.by_number,
    }


def points_document(curve: Points, points: int) -> dict[str, list[Any]]:  # Any: JSON
    """Return at most so many points of a curve, the places before which the pen lifts, and gaps."""
    thin = curve.thinned(points)
    return {
        "x": thin.xs.tolist(),
        "y": thin.ys.tolist(),
        "breaks": thin.breaks,
        "gaps": [gap_document(gap) for _, gap in curve.gaps],
    }


def graph_document(graph: Graph, points: int) -> dict[str, Any]:  # Any: JSON
    notes = list(left_out_of(graph))
    if graph.own_x:
        why = "" if graph.is_auto else f"In no record with {graph.instead_of}, so over another X. "
        notes.insert(0, f"{why}{rule_words(graph)}")
    series = []
    for curve in graph.series:
        document = points_document(curve, points)
        # origin, tags and curve identify the series' records: points.py
        identity = {"origin": curve.origin, "tags": curve.tags, "curve": curve.curve_number}
        series.append({"label": curve.label, **identity, "seen": curve.total, **document})
        shown = len(document["x"])
        if shown < curve.total:
            of = f" of {curve.label}" if curve.label else ""
            notes.append(
                f"{plural(shown, 'point')}{of} shown of {curve.total:,}: thinned evenly, each peak kept"
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

"""Sentences beside a graph: its X, the rule, and omissions. Pure."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from logshipper.classify.metadata import GAPS
from logshipper_ingest.console.text_table import plural
from logshipper_observe.base.words import number
from logshipper_observe.graphs.points import Gap, Points
from logshipper_observe.graphs.series import CLOCK_WORDS, Graph, is_clock, is_constant
from logshipper_observe.graphs.ticks import time_unit

if TYPE_CHECKING:
    from logshipper_ingest.model.x_axis import KeyStats

_NAMED = 12  # keys of a sentence


def rule_words(graph: Graph) -> str:
    """X and the rule that chose it."""
    rule = f" (rule {graph.x.rule} of 7)" if graph.x.rule else ""
    return f"X axis: {graph.x.words}{rule}"


def x_unit(graph: Graph, span_secs: float) -> tuple[float, str]:
    """Return the unit of a graph's X axis, and its label. span_secs: of X over time."""
    if graph.x.key is not None:
        return 1.0, graph.x.key
    if graph.x.words != CLOCK_WORDS:
        return 1.0, graph.x.words.partition(":")[0]
    secs, name = time_unit(span_secs)
    return secs, f"time since the start ({name})"


def left_out_of(graph: Graph) -> Iterator[str]:
    """Yield the omissions of a graph, a sentence each."""
    yield from gap_notes(graph)
    if graph.without_x:
        yield f"{graph.key}: {plural(graph.without_x, 'number')} left out, without {graph.x.key} in its record"
    if graph.beyond:
        yield f"{graph.key}: {plural(graph.beyond, 'number')} left out, beyond the range of a graph"
    if graph.more_series:
        yield f"{graph.key}: {plural(graph.more_series, 'earlier series')} left out"


def key_notes(keys: "Iterable[KeyStats]") -> Iterator[str]:
    """Keys that have no graph though there are numbers, or might have been, a sentence each."""
    keys = list(keys)
    constants = [
        key
        for key in keys
        if key.numbers and is_constant(key) and not (is_clock(key) or key.repeats)
    ]
    if constants:
        values = ", ".join(f"{key.key} {key.last}" for key in constants[:_NAMED])
        more = f" and {len(constants) - _NAMED} more" if len(constants) > _NAMED else ""
        yield f"One value each, so no graph: {values}{more}"
    repeats = [f"{key.key} has the numbers of {key.repeats}" for key in keys if key.repeats]
    if repeats:
        yield f"Drawn once: {', '.join(repeats[:_NAMED])}"
    for key in keys:
        if not key.numbers and key.last in GAPS:
            yield f"{key.key} has no graph: it never was a number, and is {key.last}"


def gap_notes(graph: Graph) -> Iterator[str]:
    """Yield the places where a series is NaN or infinite: `loss is NaN from step 812 on`."""
    for points in graph.series:
        if points.gaps:
            of = f" of {points.label}" if points.label else ""
            yield f"{graph.key}{of} is {_gap_words(graph, points)}"


def gap_document(gap: Gap) -> dict[str, object]:
    """A gap as JSON; its X as floats."""
    return {
        "value": number(gap.value),
        "from": gap.first_x,
        "to": gap.last_x,
        "count": gap.count,
        "is_last": gap.is_last,
    }


def _gap_words(graph: Graph, points: Points) -> str:
    gaps = [gap for _, gap in points.gaps]
    first, last = gaps[0], gaps[-1]
    words = " or ".join(dict.fromkeys(number(gap.value) for gap in gaps))
    count = sum(gap.count for gap in gaps) + points.more_gaps
    if count == 1:
        return f"{words} at {_place(graph, first.first_x)}"
    if len(gaps) > 1:
        end = f", and from {_place(graph, last.first_x)} on" if last.is_last else ""
        return f"{words} in {plural(count, 'record')}, first at {_place(graph, first.first_x)}{end}"
    end = " on" if first.is_last else f" to {number(first.last_x, integer=graph.x_integer)}"
    return f"{words} from {_place(graph, first.first_x)}{end} ({plural(count, 'record')})"


def _place(graph: Graph, x: float) -> str:
    value = number(x, integer=graph.x_integer)
    if graph.x.by_number:
        return f"record {value}"
    return f"{value} s after the start" if graph.x.key is None else f"{graph.x.key} {value}"

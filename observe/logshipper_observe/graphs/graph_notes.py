"""Sentences next to a graph: which X, by which rule, and what it doesn't show.
Pure."""

from collections.abc import Iterator

from logshipper_ingest.console.text_table import plural
from logshipper_observe.graphs.series import Graph


def rule_words(graph: Graph) -> str:
    """X and the rule that chose it."""
    rule = f" (rule {graph.x.rule} of 7)" if graph.x.rule else ""
    return f"X axis: {graph.x.words}{rule}"


def left_out_of(graph: Graph) -> Iterator[str]:
    """What of its key the graph can't show, a sentence each."""
    if graph.without_x:
        yield f"{graph.key}: {plural(graph.without_x, 'number')} left out, without {graph.x.key} in its record"
    if graph.beyond:
        yield f"{graph.key}: {plural(graph.beyond, 'number')} left out, beyond what a graph can show"
    if graph.more_series:
        yield f"{graph.key}: {plural(graph.more_series, 'earlier series')} left out"

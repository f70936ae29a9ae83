"""The X of graphs: the variables that choose it, and the queries that draw over it."""

from logshipper_grafana.parts import queries, records
from logshipper_grafana.parts.loki_metrics import SOURCE
from logshipper_grafana.parts.panels import Json, loki
from logshipper_grafana.parts.queries import MAX_ENTRIES
from logshipper_grafana.parts.variables import (
    ALPHABETICAL,
    HIDDEN,
    ON_LOAD,
    label_pattern,
    query_variable,
)

X = "${x:raw}"
CHOICE = "${xsel:raw}"


def x_choice(
    description: str, choices: str, key: str, *, no_key: str = queries.NO_RULE
) -> list[Json]:
    """Return the choice of X, and its result: the key, and the rule in words.

    choices: series with `choice`; key: one with `key`, whose value is as in queries.x_key; no_key:
    the words without one. All from `source`.
    """
    return [
        query_variable(
            "xsel",
            "X axis",
            description,
            choices,
            label_pattern("choice"),
            sort=ALPHABETICAL,
            first="auto",
            source=SOURCE,
        ),
        query_variable(
            "x",
            "x",
            "The key that is X; as text, by which rule.",
            key,
            '/[{,]key="(?<value>[^"]*)"\\} (?<text>-?[0-9])/',
            hide=HIDDEN,
            source=SOURCE,
        ),
        query_variable(
            "rule",
            "rule",
            "The rule that chose it, in words.",
            queries.rule_words(otherwise=no_key),
            label_pattern("words"),
            hide=HIDDEN,
            refresh=ON_LOAD,
        ),
    ]


def over_x_or_number(
    selected: str, *, only: str = "", suffix: str = "", series: str = "", nodes: str = "host"
) -> list[Json]:
    """Queries for the records over X, and for those without X over their number. selected: the
    records; nodes: the variable that has theirs; otherwise as records.over_x."""
    return [
        loki(
            selected + records.over_x(X, only=only, suffix=suffix, series=series), lines=MAX_ENTRIES
        ),
        loki(
            selected + records.without_x(X, only=only, suffix=suffix, series=series),
            lines=MAX_ENTRIES,
            ref="B",
        ),
        nothing_to_draw(nodes),
    ]


def over_x_or_own(selected: str, *, only: str, suffix: str = "") -> list[Json]:
    """Return the queries of one key; records without X go over the key's own X, if any. selected: a
    result of queries.keys_to_draw."""
    suffix += queries.DENSE_SERIES
    return [
        loki(selected + records.over_x(X, only=only, suffix=suffix), lines=MAX_ENTRIES),
        loki(
            selected + records.over_own_x(X, queries.OWN_X, only=only, suffix=suffix),
            lines=MAX_ENTRIES,
            ref="B",
        ),
        nothing_to_draw(),
    ]


def nothing_to_draw(nodes: str = "host") -> Json:
    """Return the last query of a graph, which counts if no other has an answer: without any, the
    graph would say "Missing data" below a title with the reason."""
    return loki(f"{queries.any_event(nodes)}{records.nothing()}", lines=1, ref="C")

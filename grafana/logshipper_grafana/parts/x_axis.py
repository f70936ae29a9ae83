"""The X of graphs: the variables that choose it, and the queries that draw over it."""

from logshipper_grafana.parts import Json, key_queries, queries, records, variables
from logshipper_grafana.parts.panels import loki
from logshipper_grafana.parts.queries import MAX_ENTRIES

X = "${x:raw}"
CHOICE = "${xsel:raw}"


def x_choice(
    description: str,
    choices: tuple[str, str],
    key: tuple[str, str],
    *,
    no_key: str = key_queries.NO_RULE,
) -> list[Json]:
    """Return the choice of X, and its result: the key, and the rule in words.

    choices: PromQL and LogQL for series with `choice`; key: for one with `key`, whose value is as
    in key_queries.x_key; no_key: the words without one.
    """
    return [
        variables.query(
            "xsel",
            "X axis",
            description,
            choices[0],
            variables.label_pattern("choice"),
            logql=choices[1],
            sort=variables.ALPHABETICAL,
            first="auto",
        ),
        variables.hidden(
            "x",
            "The key that is X; as text, by which rule.",
            key[0],
            '/[{,]key="(?<value>[^"]*)"\\} (?<text>-?[0-9]+)/',
            logql=key[1],
        ),
        variables.hidden(
            "rule",
            "The rule that chose it, in words.",
            key_queries.rule_words(otherwise=no_key),
            variables.label_pattern("words"),
            refresh=variables.ON_LOAD,
        ),
    ]


def over_x_or_number(
    selected: str, *, only: str = "", suffix: str = "", series: str = ""
) -> list[Json]:
    """Queries for the records over X, and for those without X over their number. selected: the
    records; otherwise as records.over_x."""
    return [
        loki(
            selected + records.over_x(X, only=only, suffix=suffix, series=series), lines=MAX_ENTRIES
        ),
        loki(
            selected + records.without_x(X, only=only, suffix=suffix, series=series),
            lines=MAX_ENTRIES,
            ref="B",
        ),
    ]


def over_x_or_own(selected: str, *, only: str, suffix: str = "") -> list[Json]:
    """Return the queries of one key; records without X go over the key's own X, if any. selected: a
    result of key_queries.keys_to_draw."""
    suffix += key_queries.DENSE_SERIES
    return [
        loki(
            selected + records.over_x(X, only=only, suffix=suffix, own_x=key_queries.OWN_X),
            lines=MAX_ENTRIES,
        ),
        loki(
            selected + records.over_own_x(X, key_queries.OWN_X, only=only, suffix=suffix),
            lines=MAX_ENTRIES,
            ref="B",
        ),
        nothing_to_draw(only),
    ]


def nothing_to_draw(family: str = "") -> Json:
    """Return the last query of a graph, which counts if no other has an answer: without any, the
    graph would say "Missing data" below a title with the reason. family: the variable of a graph
    that also stands for a job without keys."""
    name = records.NOTHING
    if family:
        name = f'{{{{if eq "{family}" "{key_queries.NO_GRAPH}"}}}}{records.NO_KEY}{{{{else}}}}{name}{{{{end}}}}'
    return loki(f"{queries.any_event()}{records.nothing(name)}", lines=1, ref="C")

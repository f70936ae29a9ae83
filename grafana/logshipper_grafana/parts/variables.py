"""Variables of dashboards. Regular expressions read Prometheus' answers: Grafana prints a series as
`{key="loss",path="loss"} 12 1690000000000`, with sorted and unescaped labels."""

from typing import Any

Json = dict[str, Any]  # Any: JSON

LOKI = {"type": "loki", "uid": "${loki}"}
PROMETHEUS = {"type": "prometheus", "uid": "${prometheus}"}
VALUES_NAME = ".*loki"  # in the name of a data source of the type Prometheus for Loki
MIXED = {"type": "datasource", "uid": "-- Mixed --"}  # of a panel with queries to both
SHOWN, WITHOUT_LABEL, HIDDEN = 0, 1, 2
# Times of queries for a variable, besides those of variables in its query: Grafana up to 10 repeats
# them with each refresh of such a one, newer ones only after changes.
ON_LOAD, ON_TIME_RANGE = 1, 2
AS_IT_COMES, ALPHABETICAL, NUMERICAL = 0, 1, 3  # numerical: values without a number come first
ALL: Json = {"text": ["All"], "value": ["$__all"]}


def label_pattern(value: str, text: str = "") -> str:
    """Return a pattern for labels of a printed series: value, without quotes, and text before it,
    if different.

    The last match of the value counts, for any text.
    """
    if not text:
        return f'/[{{,]{value}="(?<value>[^"]*)"/'
    return f'/[{{,]{text}="(?<text>.*)",{value}="(?<value>[^"]*)"\\}} /'


def _variable(kind: str, name: str, label: str, description: str, **more: object) -> Json:
    return {
        "type": kind,
        "name": name,
        "label": label,
        "description": description,
        "hide": SHOWN,
        **more,
    }


def places() -> list[Json]:
    """Cluster and data sources, which are seldom changed and stand last. The order is that of the
    page only: Grafana asks for each variable after those that it names."""
    return [
        _cluster(),
        _data_source("loki", "loki", "Where the logs are."),
        _data_source(
            "prometheus",
            "prometheus",
            "Where the agents' metrics are.",
            regex=f"/^(?!{VALUES_NAME})/i",
        ),
    ]


def values() -> Json:
    """The data source by which variables ask Loki (loki_metrics). Hidden: most have one at most."""
    variable = _data_source(
        "values", "prometheus", "Loki, as variables ask it.", regex=f"/{VALUES_NAME}/i"
    )
    return {**variable, "hide": HIDDEN}


def _data_source(name: str, kind: str, description: str, *, regex: str = "") -> Json:
    """Return a variable without a label: the choice speaks for itself. regex: of its name."""
    variable = _variable(
        "datasource",
        name,
        kind.capitalize(),
        description,
        query=kind,
        refresh=ON_LOAD,
        regex=regex,
        current={},
    )
    return {**variable, "hide": WITHOUT_LABEL}


def _cluster() -> Json:
    """The clusters that Loki has anything of."""
    query = 'label_values({service_name="logshipper"}, cluster)'
    return _variable(
        "query",
        "cluster",
        "Cluster",
        "One of the clusters whose captured jobs are in Loki.",
        datasource=LOKI,
        query=query,
        definition=query,
        refresh=ON_LOAD,
        sort=ALPHABETICAL,
        regex="",
    )


def query_variable(
    name: str,
    label: str,
    description: str,
    promql: str,
    regex: str,
    *,
    sort: int = AS_IT_COMES,
    hide: int = SHOWN,
    first: str = "",
    multi: bool = False,
    includes_all: bool = True,
    all_value: str = "",
    refresh: int = ON_TIME_RANGE,
    source: str = "",
) -> Json:
    """Return a variable with the answers of a PromQL query.

    source: the data source of that type, "" for Prometheus itself; first: the initial choice;
    multi: several choices, initially all if includes_all; all_value: replaces all of them. Hidden
    ones stay out of addresses.
    """
    variable = _of_prometheus(
        name, label, description, f"query_result({promql})", sort=sort, regex=regex
    )
    variable |= {"hide": hide, "skipUrlSync": hide == HIDDEN, "refresh": refresh}
    if source:
        variable["datasource"] = {"type": "prometheus", "uid": source}
    if first:
        variable["current"] = {"text": first, "value": first}
    if multi:
        variable |= {"multi": True, "includeAll": includes_all}
        if includes_all:
            variable["current"] = ALL
        if all_value:
            variable["allValue"] = all_value
    return variable


def labels_of(name: str, label: str, description: str, metric: str, values_of: str) -> Json:
    """Return the values of a metric's label; `All` includes series without the label."""
    return _of_prometheus(
        name,
        label,
        description,
        f"label_values({metric}, {values_of})",
        sort=ALPHABETICAL,
        regex="",
        multi=True,
        includeAll=True,
        allValue=".*",
        current=ALL,
    )


def _of_prometheus(name: str, label: str, description: str, query: str, **more: object) -> Json:
    return _variable(
        "query",
        name,
        label,
        description,
        datasource=PROMETHEUS,
        query={"query": query, "refId": name},
        definition=query,
        refresh=ON_TIME_RANGE,
        **more,
    )


def text_variable(name: str, label: str, description: str) -> Json:
    """Return a variable for typed text."""
    current = {"text": "", "value": ""}
    return _variable(
        "textbox", name, label, description, query="", current=current, options=[current]
    )


def choice_variable(
    name: str, label: str, description: str, choices: dict[str, str], *, multi: bool = False
) -> Json:
    """Fixed choices, text by value: the first one at first; multi: all of them."""
    pairs = [{"text": text, "value": value, "selected": False} for value, text in choices.items()]
    query = ", ".join(f"{text} : {value}" for value, text in choices.items())
    variable = _variable("custom", name, label, description, query=query)
    if multi:
        all_option = {"text": "All", "value": "$__all", "selected": True}
        options = [all_option, *pairs]
        return variable | {
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": ALL,
            "options": options,
        }
    pairs[0]["selected"] = True
    return variable | {
        "current": {name: pairs[0][name] for name in ("text", "value")},
        "options": pairs,
    }

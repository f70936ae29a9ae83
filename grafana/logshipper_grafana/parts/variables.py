"""Variables of dashboards. Regular expressions read Prometheus' answers: Grafana prints a series as
`{key="loss",path="loss"} 12 1690000000000`, with sorted and unescaped labels."""

from typing import Any

from logshipper_grafana.parts import Json

SOURCE = "${source}"  # the data source that `either` is for (loki_metrics.source)
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


def either(promql: str, logql: str, *, by: str = "source") -> str:
    """Return a query that Prometheus and Loki read differently.

    The text of the variable `by` turns LogQL into a string for Prometheus. It is blank for Loki, to
    which PromQL is a comment.
    """
    if "'" in logql or "\\" in logql:
        raise ValueError(f"it can't be a text of PromQL's: {logql}")
    return f"${{{by}:text}}{logql} #', '', '') or {promql}"


def query(
    name: str,
    label: str,
    description: str,
    promql: str,
    regex: str,
    *,
    logql: str = "",
    by: str = "source",
    first: str = "",
    multi: bool = False,
    includes_all: bool = True,
    all_value: str = "",
    refresh: int = ON_TIME_RANGE,
    **more: object,
) -> Json:
    """Return a variable with the answers of a PromQL query.

    logql: replaces it where the variable `by` chooses Loki; first: the initial choice; multi:
    several choices, initially all if includes_all; all_value: replaces all of them; more: further
    settings.
    """
    asked = f"query_result({either(promql, logql, by=by) if logql else promql})"
    settings: Json = {"sort": AS_IT_COMES, "hide": SHOWN, "skipUrlSync": False, "refresh": refresh}
    if logql:
        settings["datasource"] = {"type": "prometheus", "uid": f"${{{by}}}"}
    if first:
        settings["current"] = {"text": first, "value": first}
    if multi:
        settings |= {"multi": True, "includeAll": includes_all}
        settings |= {"current": ALL} if includes_all else {}
    if all_value:
        settings["allValue"] = all_value
    variable = _of_prometheus(name, label, description, asked, regex=regex)
    return {**variable, **settings, **more}


def hidden(name: str, description: str, promql: str, regex: str, **more: Any) -> Json:
    """Return a variable that stays out of the page and of addresses. more: as for
    `query`. Any: those differ in type."""
    variable = query(name, name, description, promql, regex, **more)
    return variable | {"hide": HIDDEN, "skipUrlSync": True}


def labels_of(name: str, label: str, description: str, metric: str, values_of: str) -> Json:
    """Return the values of a metric's label; `All` includes series without the label."""
    query = f"label_values({metric}, {values_of})"
    variable = _of_prometheus(name, label, description, query, sort=ALPHABETICAL, regex="")
    return variable | {
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": ALL,
        "refresh": ON_TIME_RANGE,
    }


def _of_prometheus(name: str, label: str, description: str, query: str, **more: object) -> Json:
    return _variable(
        "query",
        name,
        label,
        description,
        datasource=PROMETHEUS,
        query={"query": query, "refId": name},
        definition=query,
        **more,
    )


def text(name: str, label: str, description: str) -> Json:
    """Return a variable for typed text."""
    current = {"text": "", "value": ""}
    return _variable(
        "textbox", name, label, description, query="", current=current, options=[current]
    )


def choice(
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

"""Panels, and how they lie on a page. A panel is a dict as Grafana reads it, but for its size:
`place` gives all of a page ids and places."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from logshipper_grafana.parts import Json, colors
from logshipper_grafana.parts.key_names import VALIDATION
from logshipper_grafana.parts.records import DENSE, NO_KEY, NOTHING
from logshipper_grafana.parts.variables import LOKI, MIXED, PROMETHEUS

PAGE_WIDTH = 24
BARS = 48  # of a graph: thinner ones show only their border
STACKED_BARS: Json = {
    "drawStyle": "bars",
    "fillOpacity": 80,
    "lineWidth": 0,
    "stacking": {"mode": "normal", "group": "A"},
}
# a bar stands from its point to the next one
BARS_FROM_POINTS: Json = {**STACKED_BARS, "barAlignment": 1, "barWidthFactor": 0.9}


def loki(
    expr: str, *, instant: bool = False, legend: str = "", lines: int = 0, ref: str = "A"
) -> Json:
    """A query of Loki. instant: one value at the end of the range; lines: how many entries at
    most."""
    target: Json = {
        "datasource": LOKI,
        "expr": expr,
        "queryType": "instant" if instant else "range",
        "refId": ref,
    }
    if lines:
        target["maxLines"] = lines
    if legend:
        target["legendFormat"] = legend
    return target


def prometheus(
    expr: str,
    *,
    instant: bool = False,
    table: bool = False,
    legend: str = "",
    ref: str = "A",
    source: str = "",
) -> Json:
    """Return a query of Prometheus.

    instant: at the end of the range; table: this, and labels become columns; source: the data
    source of that type, "" for Prometheus itself.
    """
    target: Json = {
        "datasource": {"type": "prometheus", "uid": source} if source else PROMETHEUS,
        "expr": expr,
        "refId": ref,
        "instant": instant or table,
        "range": not (instant or table),
    }
    if table:
        target["format"] = "table"
    if legend:
        target["legendFormat"] = legend
    return target


def panel(
    kind: str,
    title: str,
    description: str,
    targets: Sequence[Json],
    *,
    width: int,
    height: int,
    unit: str = "none",
    options: Json | None = None,
    custom: Json | None = None,
    defaults: Json | None = None,
    overrides: Sequence[Json] = (),
    transformations: Sequence[Json] = (),
    no_value: str = "",
    repeat: str = "",
    per_row: int = 0,
    interval: str = "",
    points: int = 0,
    links: Sequence[Json] = (),
) -> Json:
    """Return a panel.

    defaults: further settings of all fields; custom: settings of the panel's kind; repeat: a
    variable, for a panel per value; interval: the shortest; points: the most, 0 for one per pixel;
    links: at the corner of its title.
    """
    first, *others = (target["datasource"] for target in targets)
    fields: Json = {"unit": unit, "custom": custom or {}, **(defaults or {})}
    if no_value:
        fields["noValue"] = no_value
    model: Json = {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": first if all(other == first for other in others) else MIXED,
        "targets": list(targets),
        "fieldConfig": {"defaults": fields, "overrides": list(overrides)},
        "options": options or {},
        "transformations": list(transformations),
        "gridPos": {"w": width, "h": height},
    }
    if interval:
        model["interval"] = interval
    if points:
        model["maxDataPoints"] = points
    if links:
        model["links"] = list(links)
    if repeat:
        model |= {"repeat": repeat, "repeatDirection": "h", "maxPerRow": per_row or 3}
    return model


def stat(
    title: str,
    description: str,
    *targets: Json,
    height: int = 4,
    steps: Json | None = None,
    defaults: Json | None = None,
    options: Json | None = None,
    **more: Any,
) -> Json:
    """One value, large. steps: thresholds (`colors.thresholds`); more: as for `panel`. Any: those
    differ in type."""
    color: Json = {"color": {"mode": "thresholds"}, "thresholds": steps}
    if steps is None:
        color = {"color": colors.fixed("text")}
    reduced = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    all_options = {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": reduced,
        "textMode": "auto",
        **(options or {}),
    }
    more |= {"height": height, "options": all_options, "defaults": {**color, **(defaults or {})}}
    return panel("stat", title, description, targets, **more)


def label_only(label: str) -> Json:
    """The options of a `stat` that shows a label of each series."""
    return {"reduceOptions": {"calcs": [], "fields": f"/^{label}$/", "values": True}}


def lost_lines(description: str, target: Json, **more: Any) -> Json:
    """Return the number of lines that could not be logged. target: their query; more: as for
    `panel`. Any: those differ in type."""
    options: dict[str, Any] = {"no_value": "0", "width": 4} | more
    return stat(
        "Lines lost",
        description,
        target,
        unit="suffix: lines lost",
        steps=colors.limit(1),
        **options,
    )


def table(
    title: str,
    description: str,
    targets: Sequence[Json],
    *,
    width: int = PAGE_WIDTH,
    unit: str = "string",
    options: Json | None = None,
    **more: Any,
) -> Json:
    """Return a table of unchanged values: without the unit `string`, Grafana shows texts such as
    007 or 1e5 as numbers.

    more: as for `panel`. Any: of different types.
    """
    footer = {"show": False, "fields": "", "reducer": []}
    more["custom"] = {"align": "left", "displayMode": "auto", "inspect": True}
    more["options"] = {"showHeader": True, "footer": footer, **(options or {})}
    return panel("table", title, description, targets, width=width, unit=unit, **more)


def time_graph(
    title: str,
    description: str,
    targets: Sequence[Json],
    *,
    height: int = 8,
    by_node: bool = False,
    custom: Json | None = None,
    **more: Any,
) -> Json:
    """Series over time. by_node: of so many that their names are a table, and all stand where the
    mouse is. more: as for `panel`. Any: those differ in type."""
    lines = {"drawStyle": "line", "lineWidth": 1, "showPoints": "auto", "spanNulls": True}
    more["custom"] = lines | (custom or {})
    more["options"] = _NAMES_ASIDE if by_node else _LEGEND
    return panel("timeseries", title, description, targets, height=height, **more)


def xy_graph(
    title: str,
    description: str,
    targets: Sequence[Json],
    *,
    legend: bool = True,
    by_job: bool = False,
    **more: Any,
) -> Json:
    """Return a graph whose first field with numbers is X.

    It has the form of Grafana before 11.1, without a `pluginVersion`: newer versions convert it
    then. legend: whether to show one; by_job: colours by jobs' numbers, not by keys; more: as for
    `panel`. Any: of different types.
    """
    custom = {"show": "points+lines", "pointSize": {"fixed": 3}, "lineWidth": 1, "axisLabel": " "}
    options = {"seriesMapping": "auto", "dims": {"frame": 0}, "series": [], **_LEGEND}
    options["legend"] = {
        **options["legend"],
        "showLegend": legend,
        "placement": "right" if by_job else "bottom",
    }
    # X's axis has its key's name, the first field's; Y's would have the first series' name
    more["overrides"] = [
        {"matcher": {"id": "first"}, "properties": [{"id": "custom.axisLabel", "value": ""}]},
        *(colors.of_jobs() if by_job else [*colors.of_keys(), _VALIDATION]),
        override("byRegexp", f"/{DENSE}$/", custom__show="lines"),
        field(NOTHING, custom__hideFrom={"legend": True, "tooltip": True, "viz": True}),
        field(
            NO_KEY,
            color=colors.fixed("transparent"),
            custom__hideFrom={"legend": True, "tooltip": True, "viz": False},
        ),
    ]
    return panel("xychart", title, description, targets, custom=custom, options=options, **more)


_LEGEND: Json = {
    "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
    "tooltip": {"mode": "single", "sort": "none"},
}
_NAMES_ASIDE: Json = {
    "legend": {
        "showLegend": True,
        "displayMode": "table",
        "placement": "right",
        "calcs": ["lastNotNull", "max"],
        "sortBy": "Max",
        "sortDesc": True,
    },
    "tooltip": {"mode": "multi", "sort": "desc"},
}


def row(title: str, *, collapsed: Sequence[Json] = ()) -> Json:
    """A heading; collapsed: panels that are shown when it is opened."""
    return {
        "type": "row",
        "title": title,
        "collapsed": bool(collapsed),
        "panels": list(collapsed),
        "gridPos": {"w": PAGE_WIDTH, "h": 1},
    }


def place(
    panels: Iterable[Json | list[Json]], ids: Iterator[int] | None = None, top: int = 0
) -> list[Json]:
    """Lays panels from left to right, line by line, and numbers them; those of a list one below the
    other, as wide as the first."""
    ids = ids or count(1)
    models: list[Json] = []
    left = height = 0
    for block in panels:
        column = block if isinstance(block, list) else [block]
        width = column[0]["gridPos"]["w"]
        if left + width > PAGE_WIDTH:
            top, left, height = top + height, 0, 0
        below = top
        for part in column:
            cell = {"x": left, "y": below, "w": width, "h": part["gridPos"]["h"]}
            model = {**part, "id": next(ids), "gridPos": cell}
            if part.get("collapsed"):
                model["panels"] = place(part["panels"], ids, top + 1)
            models.append(model)
            below += cell["h"]
        left, height = left + width, max(height, below - top)
    return models


# ---- details of fields


def override(matcher: str, options: str, **properties: object) -> Json:
    """Settings of some fields. properties: by id, with `__` for a dot; custom ones as
    `custom__width`."""
    values = [{"id": key.replace("__", "."), "value": value} for key, value in properties.items()]
    return {"matcher": {"id": matcher, "options": options}, "properties": values}


def field(name: str, **properties: object) -> Json:
    """An override for one field. properties: as for `override`."""
    return override("byName", name, **properties)


def colored(name: str, color: str) -> Json:
    return field(name, color=colors.fixed(color))


def colored_text(name: str, mappings: list[Json], width: int) -> Json:
    """A column of words with colours."""
    return field(name, mappings=mappings, custom__displayMode="color-text", custom__width=width)


def time_column(name: str, width: int = 160) -> Json:
    return field(name, unit="dateTimeAsIso", custom__width=width)


# their lines differ from those of the training data in the same graph
_VALIDATION = override("byRegexp", VALIDATION, color=colors.fixed("text"), custom__lineWidth=3)

"""Panels, and how they lie on a page. A panel is a dict as Grafana reads it, but for its size:
`place` gives all of a page ids and places."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from logshipper_grafana.parts.records import DENSE, NOTHING
from logshipper_grafana.parts.variables import LOKI, MIXED, PROMETHEUS

Json = dict[str, Any]  # Any: JSON

# Okabe and Ito's palette: eight colours for any colour vision.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#F0E442",
    "#999999",
)
# By words: Grafana's own colours with a contrast of 4.5 on panels of light and dark pages, which no
# single colour has.
_AS_WORDS = {
    BLUE: "blue",
    SKY: "blue",
    GREEN: "semi-dark-green",
    RED: "red",
    ORANGE: "red",
    PURPLE: "purple",
    GREY: "text",
}
PALETTE = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, GREY)
# visible as thin lines on white and on black
_KEY_PALETTE = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY)
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

    instant: at the end of the range; table: labels become columns; source: the data source of that
    type, "" for Prometheus itself.
    """
    target: Json = {
        "datasource": {"type": "prometheus", "uid": source} if source else PROMETHEUS,
        "expr": expr,
        "refId": ref,
        "instant": instant,
        "range": not instant,
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
    target: Json,
    *,
    width: int,
    height: int = 4,
    unit: str = "none",
    **more: Any,
) -> Json:
    """One value, large. more: as for `panel`, and `steps`, of thresholds (`thresholds`). Any: those
    differ in type."""
    steps = more.pop("steps", None)
    defaults = more.pop("defaults", {})
    if steps is None:
        defaults = {"color": {"mode": "fixed", "fixedColor": "text"}, **defaults}
    else:
        defaults = {"color": {"mode": "thresholds"}, "thresholds": steps, **defaults}
    options = {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "auto",
        **more.pop("options", {}),
    }
    return panel(
        "stat",
        title,
        description,
        [target],
        width=width,
        height=height,
        unit=unit,
        options=options,
        defaults=defaults,
        **more,
    )


def lost_lines(
    description: str, target: Json, *, width: int = 4, height: int = 4, no_value: str = "0"
) -> Json:
    """Return the number of lines that could not be logged. target: their query."""
    return stat(
        "Lines lost",
        description,
        target,
        width=width,
        height=height,
        unit="suffix: lines lost",
        steps=thresholds((None, GREEN), (1, RED)),
        no_value=no_value,
    )


def table(
    title: str,
    description: str,
    targets: Sequence[Json],
    *,
    height: int,
    width: int = PAGE_WIDTH,
    **more: Any,
) -> Json:
    """Return a table of unchanged values: without the unit `string`, Grafana shows texts such as
    007 or 1e5 as numbers.

    more: as for `panel`. Any: of different types.
    """
    more.setdefault("unit", "string")
    custom = {"align": "left", "displayMode": "auto", "inspect": True}
    options = {
        "showHeader": True,
        "footer": {"show": False, "fields": "", "reducer": []},
        **more.pop("options", {}),
    }
    return panel(
        "table",
        title,
        description,
        targets,
        width=width,
        height=height,
        custom=custom,
        options=options,
        **more,
    )


def time_graph(
    title: str,
    description: str,
    targets: Sequence[Json],
    *,
    width: int,
    height: int = 8,
    by_node: bool = False,
    **more: Any,
) -> Json:
    """Series over time. by_node: of so many that their names are a table, and all stand where the
    mouse is. more: as for `panel`. Any: those differ in type."""
    custom = {
        "drawStyle": "line",
        "lineWidth": 1,
        "showPoints": "auto",
        "spanNulls": True,
        **more.pop("custom", {}),
    }
    return panel(
        "timeseries",
        title,
        description,
        targets,
        width=width,
        height=height,
        custom=custom,
        options=_NAMES_ASIDE if by_node else _LEGEND,
        **more,
    )


def _key_colors() -> list[Json]:
    """A colour for each key by its name, the same in all graphs: 9.4 has no palette by name. The
    name's length and its first character decide: a regular expression counts no better. Several
    series of a key (attempts, tasks, tags) have Grafana's own palette."""
    overrides: list[Json] = []
    count = len(_KEY_PALETTE)
    letters = [chr(code) for code in range(ord("0"), ord("z") + 1) if chr(code).isalnum()]
    for place, color in enumerate(_KEY_PALETTE):
        names = []
        for residue in range(count):
            first = "".join(
                letter for letter in letters if (ord(letter) + residue) % count == place
            )
            names.append(f"[{first}](?=[^·]{{{residue}}}(?:[^·]{{{count}}})*$)")
        overrides.append(
            {
                "matcher": {"id": "byRegexp", "options": f"/^(?:{'|'.join(names)})/"},
                "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}],
            }
        )
    return overrides


def xy_graph(
    title: str,
    description: str,
    targets: Sequence[Json],
    *,
    width: int,
    height: int,
    legend: bool = True,
    colors: Sequence[Json] | None = None,
    **more: Any,
) -> Json:
    """Return a graph whose first field with numbers is X.

    It has the form of Grafana before 11.1, without a `pluginVersion`: newer versions convert it
    then. legend: whether to show one; colors: overrides, by default those of keys; more: as for
    `panel`. Any: of different types.
    """
    custom = {"show": "points+lines", "pointSize": {"fixed": 3}, "lineWidth": 1, "axisLabel": " "}
    options = {"seriesMapping": "auto", "dims": {"frame": 0}, "series": [], **_LEGEND}
    options["legend"] = {**options["legend"], "showLegend": legend}
    # X's axis has its key's name, the first field's; Y's would have the first series' name
    more["overrides"] = [
        {"matcher": {"id": "first"}, "properties": [{"id": "custom.axisLabel", "value": ""}]},
        *(KEY_COLORS if colors is None else colors),
        {
            "matcher": {"id": "byRegexp", "options": f"/{DENSE}$/"},
            "properties": [{"id": "custom.show", "value": "lines"}],
        },
        field(NOTHING, custom__hideFrom={"legend": True, "tooltip": True, "viz": True}),
        *more.get("overrides", ()),
    ]
    return panel(
        "xychart",
        title,
        description,
        targets,
        width=width,
        height=height,
        custom=custom,
        options=options,
        **more,
    )


def _job_colors() -> list[Json]:
    """A colour for each job by its number, which its series' names begin with."""
    return [
        {
            "matcher": {"id": "byRegexp", "options": f"/^(?:{'|'.join(numbers)})·/"},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}],
        }
        for color, numbers in _numbers_by_color().items()
    ]


def _numbers_by_color() -> dict[str, list[str]]:
    count = len(_KEY_PALETTE)
    return {
        color: [str(number) for number in range(place + 1, MAX_COLORED + 1, count)]
        for place, color in enumerate(_KEY_PALETTE)
    }


MAX_COLORED = 48  # jobs
KEY_COLORS = _key_colors()
JOB_COLORS = _job_colors()
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


def place(panels: Iterable[Json | list[Json]]) -> list[Json]:
    """Lays panels from left to right, line by line, and numbers them; those of a list one below the
    other, as wide as the first."""
    models: list[Json] = []
    _place(panels, models, first_id=1, top=0)
    return models


def _place(
    panels: Iterable[Json | list[Json]], models: list[Json], *, first_id: int, top: int
) -> tuple[int, int]:
    """Returns the next free id, and the line below all panels."""
    left, height, number = 0, 0, first_id
    for block in panels:
        column = block if isinstance(block, list) else [block]
        width = column[0]["gridPos"]["w"]
        if left + width > PAGE_WIDTH:
            top, left, height = top + height, 0, 0
        below = 0
        for part in column:
            part_height = part["gridPos"]["h"]
            model = {
                **part,
                "id": number,
                "gridPos": {"x": left, "y": top + below, "w": width, "h": part_height},
            }
            models.append(model)
            number, below = number + 1, below + part_height
            if part["type"] == "row" and part["collapsed"]:
                model["panels"] = []
                number, _ = _place(part["panels"], model["panels"], first_id=number, top=top + 1)
        left, height = left + width, max(height, below)
    return number, top + height


# ---- details of fields


def thresholds(*steps: tuple[float | None, str]) -> Json:
    """Return colours by words, each from its value on (None: the lowest)."""
    return {
        "mode": "absolute",
        "steps": [{"value": value, "color": of_word(color)} for value, color in steps],
    }


def of_word(color: str) -> str:
    return _AS_WORDS.get(color, color)


def mapped(texts: Mapping[str, tuple[str, str]]) -> list[Json]:
    """Map values to text and colour."""
    options = {
        value: {"text": text, "color": of_word(color), "index": index}
        for index, (value, (text, color)) in enumerate(texts.items())
    }
    return [{"type": "value", "options": options}]


def swatches() -> list[Json]:
    """Return the colours of jobs' numbers as cells; numbers would be unreadable on some of them."""
    colors = {number: color for color, numbers in _numbers_by_color().items() for number in numbers}
    colors["#"] = "transparent"  # the heading
    options = {
        number: {"text": " ", "color": color, "index": index}
        for index, (number, color) in enumerate(colors.items())
    }
    return [{"type": "value", "options": options}]


def texts(by_value: Mapping[int, str]) -> list[Json]:
    """Map values to texts."""
    options = {
        str(value): {"text": text, "index": index}
        for index, (value, text) in enumerate(by_value.items())
    }
    return [{"type": "value", "options": options}]


def null_as(text: str) -> list[Json]:
    return [{"type": "special", "options": {"match": "null", "result": {"text": text, "index": 0}}}]


def field(name: str, **properties: object) -> Json:
    """An override for one field. properties: by id, with `__` for a dot; custom ones as
    `custom__width`."""
    values = [{"id": key.replace("__", "."), "value": value} for key, value in properties.items()]
    return {"matcher": {"id": "byName", "options": name}, "properties": values}


def colored(name: str, color: str) -> Json:
    return field(name, color={"mode": "fixed", "fixedColor": color})


def link(title: str, url: str, *, new_tab: bool = False) -> Json:
    return {"title": title, "url": url, "targetBlank": new_tab}

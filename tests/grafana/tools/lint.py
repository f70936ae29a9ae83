"""Rules for every dashboard. Each rule gets all dashboards, by file name, and yields a sentence for
each fault."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from logshipper_grafana.parts.loki_metrics import SOURCE_PATTERN

Json = dict[str, Any]  # Any: JSON
Dashboards = Mapping[str, Json]

PALETTE = {
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#E0263D",  # with the last and the next one: failures, which may look alike
    "#F2495C",
    "#CC79A7",
    "#56B4E9",
    "#F0E442",
    "#999999",
}  # Okabe and Ito
WORD_COLORS = {"blue", "purple", "red", "semi-dark-green", "text", "transparent"}  # Grafana's own
PANELS = {
    "stat",
    "table",
    "timeseries",
    "logs",
    "xychart",
}  # bundled with Grafana 9.4 and newer, none of them alpha
# Keys of panels in 9.4 that the pages use; newer versions read or convert them. Grafana ignores
# other keys, or loses them in a conversion.
_ROW_KEYS = {"collapsed", "gridPos", "id", "panels", "repeat", "title", "type"}
_PANEL_KEYS = {
    *("datasource", "description", "fieldConfig", "gridPos", "id", "interval", "links", "maxDataPoints"),
    *("maxPerRow", "transparent", "options", "pluginVersion", "repeat", "repeatDirection", "targets", "title"),
    *("transformations", "type"),
}  # fmt: skip
_OPTIONS = {
    "stat": {
        *("colorMode", "graphMode", "justifyMode", "orientation", "reduceOptions", "textMode")
    },
    "table": {"footer", "showHeader"},
    "timeseries": {"legend", "tooltip"},
    "logs": {
        *("dedupStrategy", "enableLogDetails", "prettifyLogMessage", "showCommonLabels"),
        *("showLabels", "showTime", "sortOrder", "wrapLogMessage"),
    },
    "xychart": {"dims", "legend", "series", "seriesMapping", "tooltip"},
}
_FIELD_KEYS = {
    *("color", "custom", "decimals", "displayName", "links", "mappings", "max", "min", "noValue"),
    *("thresholds", "unit"),
}
_CUSTOM_KEYS: Mapping[str, set[str]] = {
    "stat": set(),
    "table": {"align", "displayMode", "hidden", "inspect", "minWidth", "width"},
    "timeseries": {
        *(
            "axisLabel",
            "axisPlacement",
            "barAlignment",
            "barWidthFactor",
            "drawStyle",
            "fillOpacity",
        ),
        *("lineInterpolation", "lineWidth", "pointSize", "showPoints", "spanNulls", "stacking"),
    },
    "logs": set(),
    "xychart": {"axisLabel", "hideFrom", "lineStyle", "lineWidth", "pointSize", "show"},
}
_QUERY_KEYS = {
    "loki": {"datasource", "expr", "legendFormat", "maxLines", "queryType", "refId"},
    "prometheus": {*("datasource", "expr", "format", "instant", "legendFormat", "range", "refId")},
}
TRANSFORMATIONS = {
    "convertFieldType",
    "extractFields",
    "filterByValue",
    "filterFieldsByName",
    "groupBy",
    "limit",
    "merge",
    "organize",
    "partitionByValues",
    "reduce",
    "sortBy",
}
_BUILT_IN = re.compile(r"__\w+")
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)(?:[.:\[][^}]*)?\}|\[\[(\w+)")
_OF_TEMPLATES = re.compile(r"l[a-z]\d?|\d+")  # $lx, $ln1 of line formats, $1 of replacements
_URL_VARIABLE = re.compile(r"[?&]var-(\w+)=")
_MATCHER = re.compile(
    r"\b(cluster|host|instance|Hostname)\s*(?:=~|=|!=|!~)\s*(?:\"([^\"]*)\"|`([^`]*)`)"
)
_SELECTOR = re.compile(
    r"(?<!__name__=\")\b(logshipper_(?!agent_)\w+)(\{[^{}]*(?:\$\{[^{}]*\}[^{}]*)*\})?"
)
_MAX_ENTRIES = 5000
_MIXED = {"type": "datasource", "uid": "-- Mixed --"}


def problems(dashboards: Dashboards) -> list[str]:
    """Return all faults."""
    return [f"{name}: {fault}" for rule in RULES for name, fault in rule(dashboards)]


Faults = Iterator[tuple[str, str]]


def panels_of(dashboard: Json) -> Iterator[Json]:
    """Yield all panels, with those in collapsed rows."""
    for panel in dashboard.get("panels", []):
        yield panel
        yield from panel.get("panels", [])


def _content_panels(dashboards: Dashboards) -> Iterator[tuple[str, str, Json]]:
    """Yield file, name for messages, and panel, for all panels but rows."""
    for name, dashboard in dashboards.items():
        for panel in panels_of(dashboard):
            if panel.get("type") != "row":
                yield name, f"panel {panel.get('title')!r}", panel


def texts_of(value: object, *, besides: str = "") -> Iterator[str]:
    """Yield all strings in a JSON value; besides: a key to skip."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inside in value.items():
            yield key
            if key != besides:
                yield from texts_of(inside, besides=besides)
    elif isinstance(value, list):
        for inside in value:
            yield from texts_of(inside, besides=besides)


def _texts_under(value: object, *keys: str) -> Iterator[str]:
    """Yield the strings with one of these keys, anywhere in a JSON value."""
    if isinstance(value, dict):
        for key, inside in value.items():
            if key in keys and isinstance(inside, str):
                yield inside
            yield from _texts_under(inside, *keys)
    elif isinstance(value, list):
        for inside in value:
            yield from _texts_under(inside, *keys)


def _dashboards_are_named(dashboards: Dashboards) -> Faults:
    name_by_uid: dict[str, str] = {}
    for name, dashboard in dashboards.items():
        uid = dashboard.get("uid", "")
        if f"{uid}.json" != name:
            yield name, f"its uid is {uid!r}, which isn't the file's name"
        if uid in name_by_uid:
            yield name, f"{name_by_uid[uid]} has the same uid"
        name_by_uid[uid] = name
        for key in ("title", "description"):
            if not dashboard.get(key):
                yield name, f"has no {key}"
        if dashboard.get("id") is not None:
            yield name, "has an id: it is Grafana's to give"
        if not isinstance(dashboard.get("schemaVersion"), int) or dashboard["schemaVersion"] != 37:
            yield (
                name,
                "its schemaVersion isn't 37: Grafana 9.4 is the oldest that reads it, newer ones migrate",
            )


def _ids_are_unique(dashboards: Dashboards) -> Faults:
    for name, dashboard in dashboards.items():
        ids: set[object] = set()
        for panel in panels_of(dashboard):
            number = panel.get("id")
            if type(number) is not int or number <= 0:
                yield name, f"panel {panel.get('title')!r} has no id"
            elif number in ids:
                yield name, f"two panels have the id {number}"
            ids.add(number)


def _panels_do_not_overlap(dashboards: Dashboards) -> Faults:
    for name, dashboard in dashboards.items():
        layers = [
            dashboard.get("panels", []),
            *(panel.get("panels", []) for panel in dashboard.get("panels", [])),
        ]
        for layer in layers:
            title_by_cell: dict[tuple[int, int], str] = {}
            for panel in layer:
                title = panel.get("title", "")
                place = panel.get("gridPos", {})
                left, top, width, height = (place.get(side, -1) for side in "xywh")
                if left < 0 or top < 0 or width < 1 or height < 1 or left + width > 24:
                    yield name, f"panel {title!r} doesn't lie on the page: {place}"
                    continue
                cells = [
                    (x, y) for x in range(left, left + width) for y in range(top, top + height)
                ]
                under = {title_by_cell[cell] for cell in cells if cell in title_by_cell}
                for neighbour in sorted(under):
                    yield name, f"panels {title!r} and {neighbour!r} overlap"
                title_by_cell.update(dict.fromkeys(cells, title))


def _panels_are_explained(dashboards: Dashboards) -> Faults:
    for name, label, panel in _content_panels(dashboards):
        for key in ("title", "description"):
            if not str(panel.get(key, "")).strip():
                yield name, f"{label} has no {key}"
        if not panel.get("fieldConfig", {}).get("defaults", {}).get("unit"):
            yield name, f"{label} has no unit"
        if not panel.get("targets"):
            yield name, f"{label} has no query"


def _panels_are_bundled(dashboards: Dashboards) -> Faults:
    for name, label, panel in _content_panels(dashboards):
        if panel.get("type") not in PANELS:
            yield (
                name,
                f"{label} is a {panel.get('type')!r}, which isn't one of {', '.join(sorted(PANELS))}",
            )
        if "pluginVersion" in panel:
            yield (
                name,
                f"{label} has a pluginVersion: Grafana 11 would take its options for the new form",
            )
        defaults = panel.get("fieldConfig", {}).get("defaults", {})
        if panel.get("type") == "timeseries" and {"noValue", "decimals"} <= defaults.keys():
            yield (
                name,
                f"{label} has noValue and decimals: its axis has noValue besides what lies between",
            )
        for step in panel.get("transformations", []):
            if step.get("id") not in TRANSFORMATIONS:
                yield (
                    name,
                    f"{label} has the transformation {step.get('id')!r}, which wasn't tried",
                )


def _keys_are_known(dashboards: Dashboards) -> Faults:
    for name, dashboard in dashboards.items():
        for panel in panels_of(dashboard):
            for part, keys, known in _keys_of(panel):
                for key in sorted(keys - known):
                    yield name, f"panel {panel.get('title')!r}: Grafana knows no {key!r} in {part}"


def _keys_of(panel: Json) -> Iterator[tuple[str, set[str], set[str]]]:
    """Yield parts of a panel: name, keys, and allowed keys."""
    kind = panel.get("type", "")
    if kind == "row":
        yield "rows", {*panel}, _ROW_KEYS
    if kind not in PANELS:
        return
    yield "panels", {*panel}, _PANEL_KEYS
    yield f"options of {kind}", {*panel.get("options", {})}, _OPTIONS[kind]
    config = panel.get("fieldConfig", {})
    yield "fieldConfig", {*config}, {"defaults", "overrides"}
    defaults = config.get("defaults", {})
    yield "fields", {*defaults}, _FIELD_KEYS
    yield f"fields of {kind}", {*defaults.get("custom", {})}, _CUSTOM_KEYS[kind]
    properties = {
        setting["id"]
        for override in config.get("overrides", ())
        for setting in override["properties"]
    }
    custom = {f"custom.{key}" for key in _CUSTOM_KEYS[kind]}
    yield f"overrides of {kind}", properties, (_FIELD_KEYS - {"custom"}) | custom
    for target in panel.get("targets", ()):
        source = (target.get("datasource") or {}).get("type", "")
        yield f"queries of {source}", {*target}, _QUERY_KEYS.get(source, {*target})


def _data_sources_are_variables(dashboards: Dashboards) -> Faults:
    for name, dashboard in dashboards.items():
        sources = {
            variable["name"]: variable.get("query")
            for variable in dashboard.get("templating", {}).get("list", [])
            if variable.get("type") == "datasource"
        }
        sources |= {
            variable["name"]: variable["datasource"]["type"]
            for variable in dashboard.get("templating", {}).get("list", [])
            if variable.get("regex") == SOURCE_PATTERN
        }
        queries: list[tuple[str, Json]] = []
        for panel in panels_of(dashboard):
            if panel.get("type") != "row":
                title = f"panel {panel.get('title')!r}"
                queries += [
                    (title, panel),
                    *((title, target) for target in panel.get("targets", [])),
                ]
        queries += [
            (f"variable {variable['name']}", variable)
            for variable in dashboard.get("templating", {}).get("list", [])
            if variable.get("type") == "query"
        ]
        queries += [
            (f"annotation {annotation.get('name')!r}", annotation)
            for annotation in dashboard.get("annotations", {}).get("list", [])
        ]
        for label, query in queries:
            reference = query.get("datasource")
            if reference == _MIXED and len(_sources_of(query)) > 1:
                continue
            source: Json = reference if isinstance(reference, dict) else {}
            kind = source.get("type")
            match = re.fullmatch(r"\$\{(\w+)\}", str(source.get("uid")))
            if match is None:
                yield name, f"{label} has the data source {reference!r}, which is no variable"
            elif sources.get(match[1]) != kind:
                yield (
                    name,
                    f"{label} has the data source {match[0]}, which is no variable of type {kind}",
                )


def _sources_of(panel: Json) -> set[str]:
    return {str((target.get("datasource") or {}).get("uid")) for target in panel.get("targets", ())}


def _variables_are_used_and_defined(dashboards: Dashboards) -> Faults:
    for name, dashboard in dashboards.items():
        variables = dashboard.get("templating", {}).get("list", [])
        defined = [variable["name"] for variable in variables]
        for variable in defined:
            if defined.count(variable) > 1:
                yield name, f"variable {variable} is defined twice"
            if _OF_TEMPLATES.fullmatch(variable):
                yield name, f"variable {variable} is called as one of a line format's template"
        references = used_variables({**dashboard, "templating": {}})
        for variable in variables:
            references |= used_variables(variable) - {variable["name"]}
        for panel in panels_of(dashboard):
            references |= {panel["repeat"]} if panel.get("repeat") else set()
        for variable in sorted(references - {*defined}):
            yield name, f"variable {variable} is used and isn't defined"
        for variable in defined:
            if variable not in references:
                yield name, f"variable {variable} is defined and isn't used"


def used_variables(value: object) -> set[str]:
    """Return the variables in texts, without Grafana's own and those of templates."""
    names = {
        next(filter(None, match.groups()))
        for text in texts_of(value)
        for match in _VARIABLE.finditer(text)
    }
    return {
        name
        for name in names
        if not _BUILT_IN.fullmatch(name) and not _OF_TEMPLATES.fullmatch(name)
    }


def _variables_do_not_wait_for_each_other(dashboards: Dashboards) -> Faults:
    """Find cycles, because Grafana resolves each variable after its references."""
    for name, dashboard in dashboards.items():
        variables = dashboard.get("templating", {}).get("list", [])
        dependencies = {
            variable["name"]: used_variables(variable) - {variable["name"]}
            for variable in variables
        }
        pending = dict(dependencies)
        while ready := [
            variable for variable, needs in pending.items() if not needs & pending.keys()
        ]:
            for variable in ready:
                del pending[variable]
        if pending:
            yield name, f"variables wait for each other: {', '.join(pending)}"


def _colors_are_told_apart(dashboards: Dashboards) -> Faults:
    for name, dashboard in dashboards.items():
        for color in sorted(
            {*_texts_under(dashboard, "color", "fixedColor", "iconColor")} - PALETTE - WORD_COLORS
        ):
            yield name, f"the colour {color} isn't one that everybody tells from the others"


def _nothing_is_hard_wired(dashboards: Dashboards) -> Faults:
    for name, dashboard in dashboards.items():
        for text in sorted({*texts_of(dashboard, besides="regex")}):
            for match in _MATCHER.finditer(text):
                value = match[2] if match[2] is not None else match[3]
                if value and "${" not in value:
                    yield name, f"{match[0]} is hard-wired"
            for match in _SELECTOR.finditer(text):
                if "cluster" not in (match[2] or ""):
                    yield name, f"{match[1]} is asked for without a cluster"
            if re.search(r"https?://", text):
                yield name, f"an address of somebody's: {text[:80]!r}"


def _answers_are_bounded(dashboards: Dashboards) -> Faults:
    """Find log queries without their own number of entries. Grafana's default is 1,000, and Loki
    refuses more than its limit."""
    for name, label, panel in _content_panels(dashboards):
        refs = [target.get("refId") for target in panel.get("targets", [])]
        if len({*refs}) < len(refs) or None in refs:
            yield name, f"{label}: queries without a refId of their own"
        for target in panel.get("targets", []):
            if (target.get("datasource") or {}).get("type") != "loki":
                continue
            is_log = str(target.get("expr", "")).lstrip().startswith("{")
            if is_log and not 0 < target.get("maxLines", 0) <= _MAX_ENTRIES:
                yield name, f"{label}: a log query without maxLines up to {_MAX_ENTRIES}"


def _only_captured_jobs_are_known(dashboards: Dashboards) -> Faults:
    for name, dashboard in dashboards.items():
        for panel in panels_of(dashboard):
            title = str(panel.get("title", ""))
            of_slurm = "all jobs that Slurm ended" in title[:1].lower() + title[1:]
            of_slurm = of_slurm and "logshipper_agent_slurm_" in str(panel.get("targets", panel))
            of_jobs = (
                re.search(r"\bjobs\b", title, re.IGNORECASE)
                and "captured jobs" not in title.lower()
            )
            if of_jobs and not of_slurm:
                yield name, f"panel {title!r}: only captured jobs are known"


def _links_lead_somewhere(dashboards: Dashboards) -> Faults:
    variables = {
        dashboard.get("uid"): {
            variable["name"] for variable in dashboard.get("templating", {}).get("list", [])
        }
        for dashboard in dashboards.values()
    }
    for name, dashboard in dashboards.items():
        for url in sorted({*_texts_under(dashboard, "url")}):
            page = re.match(r"/d/([\w-]+)\?", url)
            if page is None and not url.startswith("/explore?"):
                yield name, f"a link to {url[:60]!r}, which is no page of ours"
            elif page is not None and page[1] not in variables:
                yield name, f"a link to {page[1]}, which isn't there"
            elif page is not None:
                for unknown in sorted({*_URL_VARIABLE.findall(url)} - variables[page[1]]):
                    yield name, f"a link gives {page[1]} the variable {unknown}, which it hasn't"


def _links_keep_the_time(dashboards: Dashboards) -> Faults:
    """Find links that lose the chosen time, so that pages following the time continue."""
    for name, dashboard in dashboards.items():
        above = dashboard.get("links", [])
        urls = [(str(link.get("url", "")), link.get("keepTime") is True) for link in above]
        urls += [(url, False) for url in _texts_under({**dashboard, "links": []}, "url")]
        for url, is_kept in urls:
            if not url.startswith("/d/"):
                continue
            if "${__from}" in url or "${__to}" in url:
                yield name, f"a link to {url[:60]!r} stops the time that the page follows"
            elif is_kept == ("from=" in url or "${__url_time_range}" in url):
                yield name, f"a link to {url[:60]!r} has no time, or two"


RULES: tuple[Callable[[Dashboards], Faults], ...] = (
    _dashboards_are_named,
    _ids_are_unique,
    _panels_do_not_overlap,
    _panels_are_explained,
    _panels_are_bundled,
    _keys_are_known,
    _data_sources_are_variables,
    _variables_are_used_and_defined,
    _variables_do_not_wait_for_each_other,
    _colors_are_told_apart,
    _nothing_is_hard_wired,
    _answers_are_bounded,
    _only_captured_jobs_are_known,
    _links_lead_somewhere,
    _links_keep_the_time,
)

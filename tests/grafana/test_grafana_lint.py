"""The dashboards follow the rules, and each rule reports its violations."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from logshipper_grafana.parts import links
from logshipper_grafana.tool.render import FOLDER
from tests.grafana.tools.lint import panels_of, problems

Json = dict[str, Any]  # Any: JSON
NAME = f"{links.JOB}.json"


@pytest.fixture(scope="module")
def committed() -> dict[str, Json]:
    return {path.name: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}


def test_the_dashboards_keep_the_rules(committed: dict[str, Json]) -> None:
    assert len(committed) == 4
    assert problems(committed) == []


def _first(dashboard: Json, kind: str) -> Json:
    return next(panel for panel in panels_of(dashboard) if panel["type"] == kind)


def _variable(dashboard: Json, name: str) -> Json:
    variable: Json = next(
        model for model in dashboard["templating"]["list"] if model["name"] == name
    )
    return variable


def _overlap(dashboard: Json) -> None:
    dashboard["panels"][2]["gridPos"]["x"] = 0


def _off_the_page(dashboard: Json) -> None:
    dashboard["panels"][0]["gridPos"]["x"] = 23


def _overlap_in_a_row(dashboard: Json) -> None:
    inside = next(panel for panel in dashboard["panels"] if len(panel.get("panels", [])) > 1)[
        "panels"
    ]
    inside[1]["gridPos"] = dict(inside[0]["gridPos"])


def _same_id(dashboard: Json) -> None:
    nested = next(panel for panel in dashboard["panels"] if panel.get("panels"))["panels"][0]
    nested["id"] = dashboard["panels"][0]["id"]


def _circle_of_variables(dashboard: Json) -> None:
    _variable(dashboard, "cluster")["regex"] = "${attempt:raw}"


def _unused_variable(dashboard: Json) -> None:
    dashboard["templating"]["list"].append({"name": "spare", "type": "textbox", "query": ""})


def _template_variable(dashboard: Json) -> None:
    dashboard["templating"]["list"].append({"name": "lx", "type": "textbox", "query": ""})


Breaking = Callable[[Json], object]
BREAKINGS: list[tuple[str, Breaking]] = [
    ("isn't the file's name", lambda page: page.update(uid="other")),
    ("has no description", lambda page: page.update(description="")),
    ("has an id", lambda page: page.update(id=7)),
    ("schemaVersion isn't 37", lambda page: page.update(schemaVersion=42)),
    ("two panels have the id", _same_id),
    ("has no id", lambda page: _first(page, "stat").pop("id")),
    ("overlap", _overlap),
    ("overlap", _overlap_in_a_row),
    ("doesn't lie on the page", _off_the_page),
    ("panel ' ' has no title", lambda page: _first(page, "stat").update(title=" ")),
    ("panel 'Job' has no description", lambda page: _first(page, "stat").pop("description")),
    (
        "panel 'Job' has no unit",
        lambda page: _first(page, "stat")["fieldConfig"]["defaults"].pop("unit"),
    ),
    ("panel 'Job' has no query", lambda page: _first(page, "stat").update(targets=[])),
    ("isn't one of", lambda page: _first(page, "stat").update(type="trend")),
    ("pluginVersion", lambda page: _first(page, "xychart").update(pluginVersion="11.1.0")),
    (
        "knows no 'repeatdirection' in panels",
        lambda page: _first(page, "stat").update(repeatdirection=1),
    ),
    (
        "knows no 'collapse' in rows",
        lambda page: next(panel for panel in page["panels"] if panel["type"] == "row").update(
            collapse=True
        ),
    ),
    (
        "knows no 'wrap' in options of logs",
        lambda page: _first(page, "logs")["options"].update(wrap=True),
    ),
    (
        "knows no 'nodata' in fields",
        lambda page: _first(page, "stat")["fieldConfig"]["defaults"].update(nodata="x"),
    ),
    (
        "knows no 'lineStroke' in fields of timeseries",
        lambda page: _first(page, "timeseries")["fieldConfig"]["defaults"]["custom"].update(
            lineStroke=1
        ),
    ),
    (
        "knows no 'custom.size' in overrides of table",
        lambda page: _first(page, "table")["fieldConfig"]["overrides"].append(
            {
                "matcher": {"id": "byName", "options": "name"},
                "properties": [{"id": "custom.size", "value": 1}],
            }
        ),
    ),
    (
        "knows no 'limit' in queries of loki",
        lambda page: _first(page, "logs")["targets"][0].update(limit=10),
    ),
    (
        "has noValue and decimals",
        lambda page: _first(page, "timeseries")["fieldConfig"]["defaults"].update(
            noValue="none", decimals=0
        ),
    ),
    (
        "which wasn't tried",
        lambda page: _first(page, "stat").update(transformations=[{"id": "regression"}]),
    ),
    (
        "which is no variable",
        lambda page: _first(page, "stat").update(datasource={"type": "loki", "uid": "abc"}),
    ),
    ("which is no variable", lambda page: _first(page, "stat").update(datasource="Loki")),
    ("which is no variable", lambda page: _first(page, "stat")["targets"][0].pop("datasource")),
    (
        "no variable of type prometheus",
        lambda page: _first(page, "stat").update(
            datasource={"type": "prometheus", "uid": "${loki}"}
        ),
    ),
    (
        "annotation 'Lines lost' has the data source",
        lambda page: page["annotations"]["list"][0].update(datasource=None),
    ),
    (
        "variable xsel has the data source",
        lambda page: _variable(page, "xsel").update(datasource={"uid": "x"}),
    ),
    ("used and isn't defined", lambda page: _first(page, "stat").update(title="State of $nobody")),
    (
        "used and isn't defined",
        lambda page: _first(page, "stat").update(title="State of ${nobody:raw}"),
    ),
    (
        "used and isn't defined",
        lambda page: _first(page, "stat").update(title="State of [[nobody]]"),
    ),
    ("used and isn't defined", lambda page: _first(page, "stat").update(repeat="nobody")),
    ("variable spare is defined and isn't used", _unused_variable),
    ("variable lx is called as one of a line format's template", _template_variable),
    (
        "defined twice",
        lambda page: page["templating"]["list"].append(copy.deepcopy(_variable(page, "search"))),
    ),
    ("variables wait for each other: ", _circle_of_variables),
    ("the colour #FF0000", lambda page: page["annotations"]["list"][0].update(iconColor="#FF0000")),
    (
        "the colour green",
        lambda page: _first(page, "stat")["fieldConfig"]["defaults"].update(
            color={"mode": "fixed", "fixedColor": "green"}
        ),
    ),
    (
        "is hard-wired",
        lambda page: _first(page, "stat")["targets"][0].update(expr='{cluster="c1"}'),
    ),
    (
        "is hard-wired",
        lambda page: _first(page, "stat")["targets"][0].update(
            expr='{cluster="${cluster}", host=~`n1|n2`}'
        ),
    ),
    (
        "asked for without a cluster",
        lambda page: _first(page, "stat")["targets"][0].update(
            expr='logshipper_job_state{job_id="${job}"}'
        ),
    ),
    (
        "asked for without a cluster",
        lambda page: _first(page, "stat")["targets"][0].update(expr="sum(logshipper_key)"),
    ),
    (
        "an address of somebody's",
        lambda page: _first(page, "stat").update(description="see https://example.org"),
    ),
    ("without maxLines", lambda page: _first(page, "logs")["targets"][0].pop("maxLines")),
    ("without maxLines", lambda page: _first(page, "logs")["targets"][0].update(maxLines=50000)),
    (
        "without a refId of their own",
        lambda page: _first(page, "xychart")["targets"][1].update(refId="A"),
    ),
    (
        "only captured jobs are known",
        lambda page: _first(page, "stat").update(title="Jobs running"),
    ),
    ("which is no page of ours", lambda page: page["links"][0].update(url="/dashboards")),
    (
        "a link to logshipper-gone",
        lambda page: page["links"][0].update(url="/d/logshipper-gone?from=1"),
    ),
    (
        "the variable nobody",
        lambda page: page["links"][0].update(url=f"/d/{links.JOBS}?var-nobody=1"),
    ),
    (
        "stops the time that the page follows",
        lambda page: page["links"][0].update(url=f"/d/{links.JOBS}?from=${{__from}}&to=${{__to}}"),
    ),
    ("has no time, or two", lambda page: page["links"][0].update(keepTime=False)),
    (
        "has no time, or two",
        lambda page: page["links"][0].update(url=f"/d/{links.JOBS}?${{__url_time_range}}"),
    ),
    (
        "has no time, or two",
        lambda page: _first(page, "stat").update(links=[{"url": f"/d/{links.JOBS}?a=1"}]),
    ),
]


@pytest.mark.parametrize(
    ("fault", "breaking"), BREAKINGS, ids=[str(number) for number in range(len(BREAKINGS))]
)
def test_what_breaks_a_rule_is_found(
    fault: str, breaking: Breaking, committed: dict[str, Json]
) -> None:
    broken = copy.deepcopy(committed)
    breaking(broken[NAME])
    lines = problems(broken)
    assert any(fault in line and line.startswith(NAME) for line in lines), lines


def test_two_dashboards_with_one_uid_are_found(committed: dict[str, Json]) -> None:
    broken = {**committed, "another.json": copy.deepcopy(committed[NAME])}
    assert any("has the same uid" in line for line in problems(broken))

"""`logshipper-grafana check` resolves variables like the tests' own model of Grafana, on real
servers."""

import time

import pytest

from logshipper_grafana.parts import links
from logshipper_grafana.tool.check_queries import QueryContext, _Page
from logshipper_grafana.tool.content import wanted_dashboards
from logshipper_grafana.tool.resolve import (
    ALL,
    Option,
    Selection,
    fill_in,
    in_order,
    initial_selection,
    series_text,
)
from logshipper_ingest.servers.server_access import ServerAccess
from tests.grafana.conftest import Pages
from tests.grafana.tools import printed as jobs_printed
from tests.grafana.tools.captured import CLUSTER, Fixture
from tests.grafana.tools.frames import Json
from tests.grafana.tools.interpolation import replaced
from tests.grafana.tools.lint import panels_of
from tests.grafana.tools.sources import Range

NAMES = ["ended", "three-nodes", "odd-keys", "no-metadata"]


@pytest.mark.parametrize("name", NAMES)
def test_a_jobs_page_as_grafana_has_it(name: str, pages: Pages, jobs: Fixture) -> None:
    job = jobs.jobs[name].job_id
    context = QueryContext(
        ServerAccess(url=jobs.loki.url), ServerAccess(url=jobs.prometheus.url), job, CLUSTER
    )
    ours = _Page(wanted_dashboards()[links.JOB], context)
    assert [finding.level for finding in ours.check()] == ["ok"]
    now_ms = time.time_ns() // 10**6
    page = pages.page(links.JOB, {"job": job}, Range(now_ms - 3_600_000, now_ms))
    for variable in page.model["templating"]["list"]:
        if variable["type"] == "datasource" or variable["name"] == "source":
            continue
        template = f"${{{variable['name']}:raw}} ${{{variable['name']}:pipe}}"
        assert fill_in(template, ours._selections) == replaced(template, page.variables), variable[
            "name"
        ]
    repeated = [panel for panel in panels_of(page.model) if panel.get("repeat")]
    assert repeated
    for panel in repeated:
        scopes = [scope for model, scope in page.panels() if model["id"] == panel["id"]]
        selections = {**ours._selections, **ours._first_of(panel["repeat"])}
        for target in panel["targets"]:
            assert fill_in(target["expr"], selections) == replaced(
                target["expr"], page.variables, scopes[0]
            )


def test_jobs_are_known() -> None:
    assert {*NAMES} <= {job.name for job in jobs_printed.EVERY}


def test_formats() -> None:
    selections = {
        "a": Selection([Option("x", "1.5"), Option("y", "2")]),
        "b": Selection([Option("z", "b|c")]),
        "c": Selection([], ".*"),
    }
    assert (
        fill_in("${a:raw} ${a:pipe} ${a:regex} ${a:text} $a", selections)
        == r"1.5,2 1.5|2 (1\.5|2) x + y 1.5,2"
    )
    assert fill_in("${a:text}", {"a": selections["a"]._replace(every=True)}) == "All"
    assert fill_in("${b:queryparam} ${a:queryparam}", selections) == "var-b=b%7Cc var-a=1.5&var-a=2"
    every = {"a": selections["a"]._replace(every=True)}
    assert fill_in("${a:queryparam}", every) == "var-a=%24__all"
    assert fill_in("${a:percentencode} ${b:percentencode}", selections) == "%7B1.5%2C2%7D b%7Cc"
    assert (
        fill_in("${b:regex} ${c:pipe} ${c:raw} $lx ${d} {{$ln}}", selections)
        == r"b\|c .* .* $lx ${d} {{$ln}}"
    )
    with pytest.raises(KeyError):
        fill_in("${a:json}", selections)


def test_what_is_chosen_at_first() -> None:
    custom = {"type": "custom", "query": "a, both : a|b", "current": {"value": "a"}}
    assert initial_selection(custom, []).options == [Option("a", "a")]
    several = {**custom, "current": {"value": [ALL]}, "allValue": ".*"}
    assert initial_selection(several, []) == Selection(
        [Option("a", "a"), Option("both", "a|b")], ".*", every=True
    )
    model = {"type": "query", "query": "q", "regex": '/[{,]key="(?<value>[^"]*)"/'}
    answers = [
        series_text({"key": "b"}, 1.0),
        series_text({"key": "a"}, 2.0),
        series_text({"key": "b"}, 3.0),
        "{} 1 0",
    ]
    assert initial_selection(model, answers).options == [Option("b", "b")]
    assert initial_selection(model, answers, "a").options == [Option("a", "a")]
    assert initial_selection(model, answers, "gone").options == [Option("b", "b")]
    assert initial_selection(model, []).options == [Option("", "")]
    assert initial_selection({"type": "textbox", "query": ""}, [], "4711").options == [
        Option("4711", "4711")
    ]


def test_order() -> None:
    models: list[Json] = [
        {"name": "b", "query": {"query": "f(${a:raw})"}},
        {"name": "a", "query": "x"},
    ]
    assert [model["name"] for model in in_order(models)] == ["a", "b"]
    with pytest.raises(ValueError, match="wait for each other: a, b"):
        list(in_order([{"name": "a", "query": "$b"}, {"name": "b", "query": "$a"}]))


def test_series_are_printed_as_grafana_does() -> None:
    labels = {"__name__": "m", "path": 'a"]["b', "key": "a.b"}
    assert series_text(labels, 1.0).startswith('m{key="a.b",path="a"]["b"} 1 ')

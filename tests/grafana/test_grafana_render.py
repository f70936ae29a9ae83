"""Dashboards as code: the committed files match the code's output, and the command reports
differences."""

import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from logshipper_grafana.pages import job_console
from logshipper_grafana.parts import Json, key_queries, links, queries, records
from logshipper_grafana.parts.panels import PAGE_WIDTH, loki, panel, place, row
from logshipper_grafana.parts.variables import label_pattern
from logshipper_grafana.tool.render import FOLDER, dashboards, differences, text_of, write
from logshipper_ingest.model.job import SLURM_STATES, worst_state
from logshipper_ingest.model.metadata_keys import MAX_DEPTH
from logshipper_ingest.model.x_axis import _WORDS
from tests.tools.sources import ROOT
from tests.tools.waiting import scaled

PROVISIONING = ROOT / "grafana" / "provisioning"
COMPOSE = ROOT / "deploy" / "compose" / "grafana"


def render(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "logshipper_grafana.tool.render", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=scaled(60))


def test_the_files_are_what_the_code_makes() -> None:
    assert differences(FOLDER) == ""
    names = {f"{uid}.json" for uid in (links.JOBS, links.JOB, links.COMPARE, links.CLUSTER)}
    assert {path.name for path in FOLDER.iterdir()} == names


def test_rendering_is_deterministic() -> None:
    texts = {name: text_of(dashboard) for name, dashboard in dashboards().items()}
    again = {name: text_of(dashboard) for name, dashboard in dashboards().items()}
    assert texts == again
    assert all(json.loads(text) == dashboards()[name] for name, text in texts.items())


def test_check_shows_what_differs(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "there")
    changed = tmp_path / "there" / f"{links.JOB}.json"
    changed.write_text(
        changed.read_text().replace('"title": "Lines and records"', '"title": "Lines"')
    )
    done = render("--check", "--folder", str(tmp_path / "there"))
    assert done.returncode == 1
    assert '-   "title": "Lines",\n' in done.stdout
    assert '+   "title": "Lines and records",\n' in done.stdout
    assert "python -m logshipper_grafana.tool.render" in done.stderr
    assert '"title": "Lines"' in changed.read_text()  # the check writes no files


def test_check_finds_missing_files_and_those_of_nobody(tmp_path: Path) -> None:
    write(tmp_path)
    assert differences(tmp_path) == ""
    (tmp_path / f"{links.JOB}.json").unlink()
    assert f"{links.JOB}.json (file)" in differences(tmp_path)
    (tmp_path / "old.json").write_text("{}\n")
    assert "old.json" in differences(tmp_path)
    assert sorted(path.name for path in write(tmp_path)) == [f"{links.JOB}.json", "old.json"]
    assert differences(tmp_path) == ""


def test_the_command_writes_what_is_missing_and_then_nothing(tmp_path: Path) -> None:
    first = render("--folder", str(tmp_path))
    assert first.returncode == 0
    assert len(first.stdout.splitlines()) == 4
    assert render("--folder", str(tmp_path)).stdout == ""
    assert render("--check", "--folder", str(tmp_path)).returncode == 0


def test_panels_are_laid_from_left_to_right_and_numbered() -> None:
    def box(width: int, height: int) -> dict[str, object]:
        return panel("stat", "t", "d", [loki("{}")], width=width, height=height)

    placed = place(
        [box(16, 4), box(8, 6), row("r"), box(12, 5), row("c", collapsed=[box(24, 3)]), box(24, 2)]
    )
    places = [(*(model["gridPos"][side] for side in "xywh"),) for model in placed]
    assert places == [
        (0, 0, 16, 4),
        (16, 0, 8, 6),
        (0, 6, PAGE_WIDTH, 1),
        (0, 7, 12, 5),
        (0, 12, PAGE_WIDTH, 1),
        (0, 13, PAGE_WIDTH, 2),
    ]
    assert placed[4]["panels"][0]["gridPos"] == {"x": 0, "y": 13, "w": 24, "h": 3}
    assert [model["id"] for model in placed] == [1, 2, 3, 4, 5, 7]
    assert placed[4]["panels"][0]["id"] == 6


def test_panels_of_a_list_lie_one_below_the_other() -> None:
    def box(width: int, height: int) -> dict[str, object]:
        return panel("stat", "t", "d", [loki("{}")], width=width, height=height)

    placed = place([box(14, 5), [box(10, 3), box(10, 4)], box(24, 2)])
    places = [(*(model["gridPos"][side] for side in "xywh"),) for model in placed]
    assert places == [(0, 0, 14, 5), (14, 0, 10, 3), (14, 3, 10, 4), (0, 7, PAGE_WIDTH, 2)]
    assert [model["id"] for model in placed] == [1, 2, 3, 4]


def test_a_line_s_link_keeps_what_is_chosen() -> None:
    """With another selection the page might not show the line."""
    (time, *_) = job_console.line_table()["fieldConfig"]["overrides"]
    (link,) = next(setting["value"] for setting in time["properties"] if setting["id"] == "links")
    for name in ("host", "attempt", "task", "stream"):
        assert f"&${{{name}:queryparam}}" in link["url"]


def test_rules_and_states_are_those_of_the_stores() -> None:
    """The package does not import the stores at run time, so its copies must stay equal."""
    assert {rule: words for rule, words in key_queries.RULES.items() if rule > 2} == _WORDS
    assert records.MAX_DEPTH == MAX_DEPTH
    for better, worse in itertools.pairwise(sorted(SLURM_STATES, key=queries.STATES.__getitem__)):
        assert worst_state([worse, better]) == worst_state([better, worse]) == worse
    assert worst_state(["COMPLETED", "TIMEOUT"]) == "TIMEOUT"
    assert max(queries.STATES, key=queries.STATES.__getitem__) == worst_state(
        [*SLURM_STATES, "RUNNING"]
    )
    assert {*queries.STATES} == {*SLURM_STATES, "RUNNING", "UNRESPONSIVE"}


def test_printed_series_are_read() -> None:
    printed = '{key="val/acc",picked="0`, lskey!=`val/acc"} 12 1690000000000'
    pattern = label_pattern("picked", "key")[1:-1].replace("(?<", "(?P<")
    match = re.search(pattern, printed)
    assert match is not None
    assert match.groupdict() == {"text": "val/acc", "value": "0`, lskey!=`val/acc"}
    forged = '{title="a",value="4712"} 1 · 4711",value="4711"} 1 1690000000000'
    match = re.search(label_pattern("value", "title")[1:-1].replace("(?<", "(?P<"), forged)
    assert match is not None
    assert match["value"] == "4711"
    match = re.search(label_pattern("key")[1:-1].replace("(?<", "(?P<"), '{key="präzision"} 2.79 1')
    assert match is not None
    assert match["value"] == "präzision"


@pytest.mark.parametrize("folder", [PROVISIONING, COMPOSE])
def test_provisioning_files_fit_the_dashboards(folder: Path) -> None:
    (provider,) = yaml.safe_load((folder / "dashboards" / "logshipper.yaml").read_text())[
        "providers"
    ]
    assert provider["type"] == "file"
    assert provider["allowUiUpdates"] is False
    sources = yaml.safe_load((folder / "datasources" / "logshipper.yaml").read_text())[
        "datasources"
    ]
    kinds = {source["type"] for source in sources}
    source_types = {
        variable["query"]
        for dashboard in dashboards().values()
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "datasource"
    }
    assert kinds == source_types
    (loki_source,) = (source for source in sources if source["type"] == "loki")
    assert loki_source["jsonData"]["maxLines"] == queries.MAX_ENTRIES


def _asked_again(model: Json) -> int:
    """Return the number of variable queries when Grafana 9.4 refreshes a page.

    Variables that follow the page's time come first, then those that refer to them, and so on. A
    variable that refers to two of them, one of which follows the other, is queried only after the
    later one.
    """
    variables = {variable["name"]: variable for variable in model["templating"]["list"]}
    after = {
        name: {
            other
            for other, variable in variables.items()
            if re.search(
                rf"\$\{{{name}[:}}]", str([variable.get("query"), variable.get("datasource")])
            )
        }
        for name in variables
    }

    def all_after(name: str) -> set[str]:
        return after[name].union(*map(all_after, after[name]))

    def questions(name: str) -> int:
        direct = [
            one
            for one in after[name]
            if not any(one in all_after(by) for by in after[name] - {one})
        ]
        return int(variables[name]["type"] == "query") + sum(map(questions, direct))

    return sum(
        questions(name) for name, variable in variables.items() if variable.get("refresh") == 2
    )


@pytest.mark.parametrize(("page", "most"), [(links.JOB, 46), (links.COMPARE, 34), (links.JOBS, 21)])
def test_a_refresh_asks_for_little(page: str, most: int) -> None:
    """Closed rows stay closed. The sum has a request for each panel and data source of it, for each
    mark, and for each query of a variable. A graph that repeats for each key counts once."""
    model = dashboards()[f"{page}.json"]
    panels = sum(
        len({str(target["datasource"]) for target in panel["targets"]})
        for panel in model["panels"]
        if panel["type"] != "row"
    )
    marks = len(model.get("annotations", {}).get("list", ()))
    assert panels + marks + _asked_again(model) <= most


def test_a_refresh_of_the_clusters_page_asks_for_little() -> None:
    """Closed rows stay closed, and every query of a variable counts."""
    model = dashboards()[f"{links.CLUSTER}.json"]
    queries_open = sum(len(panel.get("targets", ())) for panel in model["panels"])
    variables = sum(variable["type"] == "query" for variable in model["templating"]["list"])
    assert queries_open + variables <= 30
    closed = [panel for panel in model["panels"] if panel["type"] == "row" and panel["collapsed"]]
    of_slurm = [
        "logshipper_agent_slurm_" in str(panel["targets"]) for panel in closed[-1]["panels"]
    ]
    assert all(of_slurm), "what needs the controller is in a row of its own, whose title says so"
    assert "controller" in closed[-1]["title"]
    above = [panel for panel in model["panels"] if panel not in closed]
    assert "logshipper_agent_slurm_" not in str(above)

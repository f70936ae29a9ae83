"""Groups of several jobs' runs on the page: mean and deviation equal those of `plot`."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from logshipper.start.cli import main
from logshipper_observe.page.api import groups as groups_api
from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import Browsing, each_look
from tests.observe.page.graphs.graphing import model, open_graphs, panel, wait_for_model
from tests.observe.page.graphs.test_numbers_api import ask_api
from tests.observe.page.test_access import Client
from tests.observe.page.test_settings import query
from tests.tools.stores.reading_store import SpooledCapture

JOBS = {"g1": (0.1, [4.0, 2.0, 1.0]), "g2": (0.1, [8.0, 6.0]), "g3": (0.2, [3.0, 5.0, 3.0])}
IDS = json.dumps([*JOBS])
VIEW = f"compare/{','.join(JOBS)}"


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Make two runs of one learning rate, one of them shorter, and one run of another rate."""
    root = tmp_path / "store"
    for number, (job_id, (lr, losses)) in enumerate(JOBS.items()):
        with SpooledCapture(root, job_id, name=job_id) as job:
            job.metadata({"lr": lr})
            job.metadata(*({"epoch": at, "step": at + 10 * number, "loss": loss}
                           for at, loss in enumerate(losses, 1)))  # fmt: skip
            job.end()
    return root


@pytest.fixture
def server(serve: Callable[[Path], PageServer], sweep: Path) -> PageServer:
    return serve(sweep)


def grouped(server: PageServer, **words: str) -> dict[str, Any]:
    words = {"jobs": IDS, "y": '["loss"]', "by": "lr", "mean": "1", **words}
    status, document = ask_api(Client(server), "groups", **words)
    assert status == 200, document
    return dict(document)


@pytest.mark.parametrize("smooth", [(), ("--smooth", "0.5"), ("--smooth", "0.5", "--debias")])
@pytest.mark.parametrize("by", ["lr", "node", "experiment", "run"])
def test_figures_are_those_of_plot(
    smooth: tuple[str, ...], by: str, server: PageServer, sweep: Path, capsys: Any
) -> None:
    capsys.readouterr()
    options = [
        "--y",
        "loss",
        "--group-by",
        by,
        "--aggregate",
        "mean",
        "--error-bars",
        "std",
        *smooth,
    ]
    assert main(["plot", *JOBS, *options, "--json", "--store", str(sweep)]) == 0
    (expected,) = json.loads(capsys.readouterr().out)["graphs"]
    debias = str(int("--debias" in smooth))
    (graph,) = grouped(server, by=by, smooth="0.5" if smooth else "0", debias=debias)["graphs"]
    assert graph["x"]["key"] == expected["x_axis"]["key"] == "epoch"
    for one, other in zip(graph["series"], expected["series"], strict=True):
        assert (one["group"], one["runs"]) == (other["group"], other["runs"])
        assert (one["x"], one["y"]) == (other["x"], other["y"])
        errors = [math.nan if value is None else value for value in one["deviations"]]
        assert errors == pytest.approx(
            [math.nan if value is None else value for value in other["errors"]], nan_ok=True
        )


def test_different_x(server: PageServer) -> None:
    """Each mean covers the runs that have exactly this X; notes below state the count."""
    (graph,) = grouped(server)["graphs"]
    first, second = graph["series"]
    assert (first["label"], second["label"]) == ("lr=0.1, 2 runs", "lr=0.2, 1 run")
    assert (first["x"], first["y"], first["counts"]) == ([1, 2, 3], [6, 4, 1], [2, 2, 1])
    assert first["deviations"] == [pytest.approx(math.sqrt(8)), pytest.approx(math.sqrt(8)), None]
    assert graph["notes"] == ["lr=0.1: some of its 2 runs lack an X: means are over 1 to 2 runs."]
    (graph,) = grouped(server, x="step")["graphs"]
    assert max(graph["series"][0]["counts"]) == 1
    assert "lr=0.1: no two of its 2 runs share an X, so there is no deviation." in graph["notes"]


def test_what_is_not_there_is_said(server: PageServer) -> None:
    (graph,) = grouped(server, by="nothing")["graphs"]
    assert graph["notes"] == ["No run of these has the tag or option nothing."]
    answer = grouped(server, jobs='["g1", "none"]', y='["loss", "lost"]')
    assert [len(graph["series"]) for graph in answer["graphs"]] == [1, 0]
    client = Client(server)
    for words, message in (
        ({"jobs": IDS, "y": '["loss"]', "mean": "2"}, "mean"),
        ({"jobs": IDS, "y": json.dumps([*"abcde"])}, "at most 4"),
        ({"jobs": IDS, "y": '["loss"]', "labels": '["a"]'}, "labels"),
    ):
        status, document = ask_api(client, "groups", **words)
        assert (status, message in str(document["error"])) == (400, True), document


def test_a_run_without_any_of_the_keys_has_a_note(
    serve: Callable[[Path], PageServer], sweep: Path
) -> None:
    with SpooledCapture(sweep, "g4", name="g4") as job:
        job.metadata(*({"epoch": at, "acc": at / 4} for at in range(1, 4)))
        job.end()
    answer = grouped(serve(sweep), jobs='["g1", "g4"]', y='["acc"]', by="run", mean="0")
    (graph,) = answer["graphs"]
    assert [series["y"] for series in graph["series"]] == [[0.25, 0.5, 0.75]]
    assert "g1 has no key acc" in graph["notes"]


def test_long_jobs_are_read_by_and_by(
    serve: Callable[[Path], PageServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job_id in JOBS:
        with SpooledCapture(tmp_path / "store", job_id, name=job_id) as job:
            job.metadata(*(json.dumps({"epoch": at, "loss": at % 7}) for at in range(700)))
            job.end()
    server = serve(tmp_path / "store")
    monkeypatch.setattr(groups_api, "READ_SECS", 0.0)
    records = []
    for _ in range(20):
        answer = grouped(server, by="experiment")
        records.append(answer["records"])
        if answer["complete"]:
            break
        assert answer["graphs"] == []
    assert records == sorted(records)
    assert (records[-1], len(records) > 1) == (3 * 700, True)
    assert answer["graphs"][0]["series"][0]["seen"] == 700


def test_groups_on_the_page(browse: Browsing, server: PageServer) -> None:
    page = open_graphs(browse, server, VIEW)
    wait_for_model(page, "loss", "model.curves.length === 3")
    choice = page.get_by_label("Group by")
    assert choice.locator("option").all_inner_texts()[1:] == [
        "run", "node", "job", "experiment", "lr",
    ]  # fmt: skip
    choice.select_option("lr")
    shown = wait_for_model(page, "loss", "model.curves.length === 2")
    assert shown["labels"] == ["lr=0.1, 2 runs", "lr=0.2, 1 run"]
    assert shown["curves"][0]["ys"] == [6, 4, 1]
    assert shown["y"]["high"] > 6 + math.sqrt(8), "the band is in view"
    graph = panel(page, "loss")
    expect(graph).to_contain_text("some of its 2 runs lack an X")
    graph.locator("canvas").press("Home")
    expect(graph.locator(".chart-tip b")).to_have_text(
        ["6, deviation 2.82843, n 2", "3, deviation none, n 1"]
    )
    expect(graph.locator(".chart-spoken")).to_contain_text(
        "lr=0.1, 2 runs 6, deviation 2.82843, n 2"
    )
    page.get_by_role("slider").fill("0.5")
    page.get_by_role("checkbox", name="Debiased").check()
    shown = wait_for_model(
        page, "loss", "Math.abs(model.curves[0].ys[1] - (8 / 3 + 20 / 3) / 2) < 1e-9"
    )
    assert len(shown["curves"]) == 2, "nothing is smoothed twice"
    page.get_by_role("checkbox", name="Mean and deviation").uncheck()
    shown = wait_for_model(page, "loss", "model.curves.length === 3")
    assert [curve["number"] for curve in shown["curves"]] == [0, 0, 1], "a colour for each group"
    assert query(page) == {"smooth=0.5", "debias=1", "by=lr", "mean=0"}
    page.reload()
    wait_for_model(page, "loss", "model.curves.length === 3 && model.curves[1].number === 0")
    page.get_by_label("One graph per value of").select_option(label="lr")
    page.get_by_role("checkbox", name="Mean and deviation").check()
    shown = wait_for_model(page, "loss, lr=0.2", "model.labels.length === 1")
    assert shown["labels"] == ["lr=0.2, 1 run"]
    page.get_by_label("Group by").select_option("")
    wait_for_model(page, "loss, lr=0.1", "model.curves.length === 4")


def test_groups_by_a_tag_while_a_job_runs(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    def measurements(rank: int) -> list[dict[str, object]]:
        tags = {"host": f"n{rank % 2}", "rank": str(rank)}
        return [{"step": at, "loss": at + rank, "tags": tags} for at in (1, 2)]

    with SpooledCapture(tmp_path / "store", "m1", name="m1") as job:
        for rank in (0, 1, 2):
            job.metadata(*measurements(rank))
        page = open_graphs(browse, serve(tmp_path / "store"), "compare/m1")
        page.get_by_label("X axis").select_option("step")
        expect(page.get_by_role("figure", name="step")).to_have_count(0)
        page.get_by_label("Group by").select_option("tags.host")
        shown = wait_for_model(page, "loss", "model.labels.length === 2")
        assert shown["labels"] == ["host=n0, 2 runs", "host=n1, 1 run"]
        job.metadata(*measurements(3))
        wait_for_model(page, "loss", "model.labels[1] === 'host=n1, 2 runs'")
        assert model(page, "loss")["curves"][1]["ys"] == [3, 4]
        job.end()


@each_look
def test_groups_fit(browse: Browsing, server: PageServer, width: int, dark: bool) -> None:
    page = open_graphs(browse, server, VIEW, width=width, dark=dark)
    page.get_by_label("Group by").select_option("lr")
    wait_for_model(page, "loss", "model.curves.length === 2")
    assert page.evaluate("document.querySelector('main').scrollWidth") <= width
    panel(page, "loss").scroll_into_view_if_needed()
    browse.picture(page)

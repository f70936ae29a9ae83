"""Comparison of jobs side by side, in a real browser."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import Browsing, each_look
from tests.observe.page.graphs.graph_jobs import (
    AGAIN,
    CURVES,
    HOSTILE,
    LONG,
    OTHER,
    PLAIN,
    XSS,
    curves_of,
)
from tests.observe.page.graphs.graphing import (
    line_colour_at,
    model,
    open_graphs,
    panel,
    theme_colour,
    wait_for_model,
)
from tests.tools.stores.reading_store import SpooledCapture


@pytest.fixture
def comparison(browse: Browsing, graph_server: PageServer) -> Page:
    return open_graphs(browse, graph_server, f"compare/{CURVES},{OTHER}")


def test_curves_over_a_shared_key(comparison: Page) -> None:
    expect(
        comparison.get_by_text("X axis: epoch: the key epoch (rule 2 of 7), in every job")
    ).to_be_visible()
    graph = wait_for_model(comparison, "loss", "model.curves.length === 2")
    assert graph["labels"] == ["lr=0.1", "lr=0.2"]
    for curve, lr in zip(graph["curves"], (0.1, 0.2), strict=True):
        assert curve["ys"] == [record["loss"] for record in curves_of(lr)]
    second = curves_of(0.2)[4]["loss"]
    assert line_colour_at(comparison, "loss", 5, second) == pytest.approx(  # type: ignore[arg-type]
        theme_colour(comparison, "--chart-2"), abs=2
    )
    titles = comparison.locator(".graph-panel h3").all_inner_texts()
    assert titles == ["loss", "val.loss", "acc"], "what never changes is configuration"


def configuration(page: Page) -> dict[str, list[str]]:
    rows: list[list[str]] = page.locator(".differences").evaluate(
        "(table) => [...table.querySelectorAll('tr.same, tr.differs')]"
        ".map((row) => [...row.cells].map((cell) => cell.innerText))"
    )
    return {row[0]: row[1:] for row in rows}


def test_differences_of_configuration(comparison: Page) -> None:
    options = configuration(comparison)
    assert (options["lr"], options["batch"], options["seed"]) == (
        ["0.1", "0.2"],
        ["32", "64"],
        ["7", "7"],
    )
    assert options["name"] == ["train.py", "train.py"]
    assert "epoch" not in options
    losses = [curves_of(lr)[0]["loss"] for lr in (0.1, 0.2)]
    assert options["loss"] == [f"{loss:.6g}" for loss in losses], "first values"
    assert comparison.get_by_title(str(losses[0]), exact=True).count() == 1, "all digits"
    expect(comparison.get_by_text("First values of keys that change")).to_be_visible()
    differences = comparison.locator(".differences tr.differs th").all_inner_texts()
    assert differences[:2] == ["lr", "batch"]
    assert "loss" in differences[2:]
    dim = "(row) => getComputedStyle(row.cells[1]).color"
    colour = comparison.locator(".differences tr", has_text="seed").evaluate(dim)
    assert colour != comparison.locator(".differences tr", has_text="batch").evaluate(dim), (
        "what is equal is dimmed"
    )
    comparison.get_by_role("checkbox", name="Only what differs").check()
    assert list(configuration(comparison)) == differences


def test_how_jobs_were_started(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    """The page marks differences in the recorded start context, and shows a diff by its length and
    hash."""
    for job_id, lr in (("b1", 0.1), ("b2", 0.2)):
        with SpooledCapture(tmp_path / "store", job_id) as job:
            git = {"commit": "0a1b2c", "diff": f"-lr = 0\n+lr = {lr}\n"}
            job.event(
                "context",
                "",
                command=["train", f"--lr={lr}"],
                cwd="/data",
                environment={"TZ": "UTC"},
                git=git,
            )
            job.metadata({"epoch": 1, "loss": lr}, {"epoch": 2, "loss": 0})
            job.end()
    page = browse.open("compare/b1,b2", server=serve(tmp_path / "store"))
    expect(page.get_by_text("How it was started")).to_be_visible()
    options = configuration(page)
    assert (options["command"], options["cwd"]) == (
        ["train --lr=0.1", "train --lr=0.2"],
        ["/data", "/data"],
    )
    assert options["env.TZ"] == ["UTC", "UTC"]
    assert all(text.startswith("2 lines, sha256 ") for text in options["git.diff"])
    differences = page.locator(".differences tr.differs th").all_inner_texts()
    assert {"command", "git.diff"} <= set(differences)
    assert not {"cwd", "git.commit", "env.TZ"} & set(differences)


def test_jobs_that_lack_a_key_are_named(browse: Browsing, graph_server: PageServer) -> None:
    page = open_graphs(browse, graph_server, f"compare/{CURVES},{LONG},{AGAIN}")
    expect(page.get_by_text("X axis: time: no job's X is a key that all have")).to_be_visible()
    wait_for_model(page, "loss", "model.labels.length === 4")  # one job was restarted
    page.get_by_label("X axis").select_option("epoch")
    graph = wait_for_model(page, "loss", "model.labels.length === 3")
    assert [curve["xs"][0] for curve in graph["curves"]] == [1, 1, 1]
    expect(panel(page, "loss").get_by_text("long: not in this graph")).to_be_visible()
    assert graph["labels"][1:] == ["again.py, attempt 1", "again.py, attempt 2"]


def test_a_job_is_left_out_and_unknown_ones_are_named(
    browse: Browsing, graph_server: PageServer
) -> None:
    page = open_graphs(browse, graph_server, f"compare/{CURVES},{OTHER},nosuchjob")
    expect(page.get_by_text("no job has the id 'nosuchjob'")).to_be_visible()
    page.get_by_role("link", name="Leave out lr=0.2").click()
    expect(page.locator(".compare-jobs li")).to_have_count(2)
    wait_for_model(page, "loss", "model.curves.length === 1")


def test_smoothing_and_zoom_here_too(comparison: Page) -> None:
    comparison.get_by_role("slider").fill("0.5")
    wait_for_model(comparison, "loss", "model.curves.length === 4")
    panel(comparison, "loss").get_by_role("button", name="lr=0.2").click()
    assert model(comparison, "loss")["shown"] == [False, True]


def test_one_graph_per_value(comparison: Page) -> None:
    """One graph per value of a differing option; each job keeps its colour."""
    choice = comparison.get_by_label("One graph per value of")
    assert choice.locator("option").all_inner_texts() == ["nothing: all jobs in one", "lr", "batch"]
    choice.select_option(label="lr")
    titles = [f"{key}, lr={lr}" for key in ("loss", "val.loss", "acc") for lr in ("0.1", "0.2")]
    expect(comparison.locator(".graph-panel h3")).to_have_text(titles)
    for lr in (0.1, 0.2):
        graph = wait_for_model(comparison, f"loss, lr={lr}", "model.curves.length === 1")
        assert graph["labels"] == [f"lr={lr}"]
        assert graph["curves"][0]["ys"] == [record["loss"] for record in curves_of(lr)]
    assert panel(comparison, "loss, lr=0.2").get_by_text("not in this graph").count() == 0
    second = curves_of(0.2)[4]["loss"]
    colour = line_colour_at(comparison, "loss, lr=0.2", 5, second)  # type: ignore[arg-type]  # a number
    assert colour == pytest.approx(theme_colour(comparison, "--chart-2"), abs=2)
    comparison.get_by_role("slider").fill("0.5")
    wait_for_model(comparison, "loss, lr=0.2", "model.curves.length === 2")
    choice.select_option("")
    wait_for_model(comparison, "loss", "model.curves.length === 4")


def test_values_of_hostile_jobs_and_none(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    """Three jobs, one without the option; the page shows any value as text."""
    for job_id, record in (("v1", {"set": XSS}), ("v2", {"set": XSS}), ("v3", {"other": 1})):
        with SpooledCapture(tmp_path / "store", job_id, name=job_id) as job:
            job.metadata(record, *({"epoch": at, "loss": 1 / at} for at in (1, 2, 3)))
            job.end()
    page = open_graphs(browse, serve(tmp_path / "store"), "compare/v1,v2,v3")
    page.get_by_label("One graph per value of").select_option(label="set")
    first, second = (page.locator(".graph-panel").nth(at) for at in (0, 1))
    expect(first.locator("h3")).to_have_text(f"loss, set={XSS}")
    expect(second.locator("h3")).to_have_text("loss, set=none")
    assert wait_for_model(page, "loss, set=none", "model.curves.length === 1")["labels"] == ["v3"]
    assert page.evaluate("window.attacked") is None


def test_jobs_without_anything_in_common(browse: Browsing, graph_server: PageServer) -> None:
    page = browse.open(f"compare/{PLAIN},{HOSTILE}", server=graph_server)
    expect(page.get_by_text("0 keys")).to_be_visible()
    assert configuration(page)["words"] == ["only", "none"]
    assert page.evaluate("window.attacked") is None


@each_look
def test_comparing_fits(browse: Browsing, graph_server: PageServer, width: int, dark: bool) -> None:
    page = open_graphs(browse, graph_server, f"compare/{CURVES},{OTHER}", width=width, dark=dark)
    wait_for_model(page, "loss", "model.curves.length === 2")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.querySelector('main').scrollWidth") <= width
    page.locator("main").evaluate("(main) => main.scrollTo(0, 0)")
    browse.picture(page)

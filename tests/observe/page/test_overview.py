"""A job's overview: the page's first look at it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import Browsing, each_look
from tests.observe.page.graphs.graphing import model, open_graphs, panel
from tests.tools.stores.reading_store import SpooledCapture

EPOCHS = 30
BEST = 27


def _record(epoch: int) -> dict[str, object]:
    val = 0.262 + abs(epoch - BEST) / 100
    return {
        "train/loss": 1 / epoch,
        "val/loss": round(val, 4),
        "accuracy": 1 - 1 / epoch,
        "lr": 0.1 / epoch,
        "epoch": epoch,
        "step": 100 * epoch,
        "seconds": 3 * epoch,
        "zeta": epoch % 5,
    }


@pytest.fixture
def finished_jobs(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with SpooledCapture(root, "done", name="train.py") as job:
        job.event("context", command=["python", "train.py", "--lr", "0.1"], cwd="/home/ada/run")
        job.metadata({"batch": 64, "model": "resnet"}, *map(_record, range(1, EPOCHS + 1)))
        job.lines(*(f"line {n}" for n in range(20)))
        job.end()
    with SpooledCapture(root, "failed", name="train.py") as job:
        job.lines(*(f"line {n}" for n in range(20)))
        job.stderr("Traceback (most recent call last):", "RuntimeError: out of memory")
        job.lines("bye")
        job.end(exit_code=1)
    return root


@pytest.fixture
def server(serve: Callable[[Path], PageServer], finished_jobs: Path) -> PageServer:
    return serve(finished_jobs)


@each_look
def test_a_job_opens_with_its_most_telling_graphs_and_last_lines(
    browse: Browsing, server: PageServer, width: int, dark: bool
) -> None:
    page = open_graphs(browse, server, "job/done", width=width, dark=dark)
    expect(page.locator(".tabs a[aria-current]")).to_have_text("Overview")
    expect(page.locator(".overview-graphs h3")).to_have_text(["loss", "accuracy", "zeta", "lr"])
    expect(panel(page, "loss").locator(".graph-best")).to_have_text(
        f"val/loss: best 0.262 at epoch {BEST} of {EPOCHS}"
    )
    expect(page.locator(".overview-start")).to_contain_text("python train.py --lr 0.1")
    expect(page.locator(".overview-start tr")).to_have_text(
        ["batch64", "modelresnet", "folder/home/ada/run"]
    )
    expect(page.locator(".overview-lines .row:visible")).to_have_count(10)
    expect(page.locator(".overview-errors")).to_be_hidden()
    main = page.locator("main")
    if width > 1000:
        page.set_viewport_size({"width": 1440, "height": 900})
        assert main.evaluate("(main) => main.scrollHeight <= main.clientHeight")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    browse.picture(page)
    page.get_by_role("link", name="accuracy").click()
    expect(page.locator(".tabs a[aria-current]")).to_have_text("Graphs")


def test_a_failed_job_shows_its_last_errors(browse: Browsing, server: PageServer) -> None:
    page = browse.open("job/failed", server=server)
    expect(page.locator(".overview-errors .row:visible .text")).to_have_text(
        ["Traceback (most recent call last):", "RuntimeError: out of memory"]
    )
    expect(page.locator(".overview-graphs")).to_be_hidden()
    page.get_by_role("link", name="Last errors").click()
    expect(page.locator(".log .row.picked .text")).to_have_text(
        "Traceback (most recent call last):"
    )


def test_a_running_job_shows_its_bar_here_and_in_the_list(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    with SpooledCapture(tmp_path / "store", "runs", name="train.py") as job:
        job.beat()
        job.status("epoch 3/4 ###       176/391 [00:12<00:15, 14.2it/s]")
        server = serve(tmp_path / "store")
        page = browse.open("job/runs", server=server)
        expect(page.locator(".bars code")).to_contain_text("14.2it/s")
        expect(page.locator(".bars progress")).to_have_js_property("value", 176 / 391)
        page = browse.open(server=server)
        expect(page.locator("tr .progress")).to_have_text("45 %")


def test_train_and_validation_share_a_graph_until_they_are_separated(
    browse: Browsing, server: PageServer
) -> None:
    page = open_graphs(browse, server, "job/done/graphs")
    thin, thick = model(page, "loss")["curves"]
    assert (thin["weight"], thick["weight"]) == ("thin", "thick")
    assert thin["number"] == thick["number"], "one colour"
    assert len(thin["xs"]) == EPOCHS
    page.get_by_label("Layout").select_option("each")
    expect(panel(page, "loss")).to_have_count(0)
    (curve,) = model(page, "val/loss")["curves"]
    assert min(curve["ys"]) == 0.262
    expect(panel(page, "val/loss").locator(".graph-best")).to_have_text(
        f"best 0.262 at epoch {BEST} of {EPOCHS}"
    )
    assert "layout=each" in page.url

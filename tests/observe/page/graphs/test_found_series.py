"""Series on the page: behind all other graphs and records, under a heading of their own."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import Browsing, each_look
from tests.observe.page.graphs.graphing import model, open_graphs, panel
from tests.tools.stores.reading_store import SpooledCapture

LINE = "ignore: ['user''s loss']"


@pytest.fixture
def server(serve: Callable[[Path], PageServer], tmp_path: Path) -> PageServer:
    store = tmp_path / "store"
    for job_id in ("first", "second"):
        with SpooledCapture(store, job_id, name=job_id) as job:
            for n in (1, 2, 3):
                job.metadata({"epoch": n, "loss": 1 / n})
                job.found({"step": 10 * n, "user's loss": 3 / n, "Loss": round(1 / n, 3)})
            job.end()
    return serve(store)


@each_look
def test_graphs_of_series_have_a_heading_and_their_own_x(
    browse: Browsing, server: PageServer, width: int, dark: bool
) -> None:
    page = open_graphs(browse, server, "job/first/graphs", width=width, dark=dark)
    titles = page.locator(".graph-grid").locator("h2, h3")
    expect(titles).to_have_text(["loss", "Found in the output", "user's loss (auto)"])
    (curve,) = model(page, "user's loss (auto)")["curves"]
    assert curve["xs"] == [10, 20, 30]
    expect(page.get_by_text("Loss (auto) has the numbers of loss")).to_be_visible()
    browse.picture(page)
    page.get_by_label("Search keys").fill("epoch")
    expect(titles).to_have_count(0)


def test_not_a_series_copies_the_line_and_says_so(browse: Browsing, server: PageServer) -> None:
    page = open_graphs(browse, server, "job/first/graphs")
    key = "user's loss (auto)"
    panel(page, key).get_by_role("button", name=f"{key} is not a series").click()
    expect(panel(page, key).locator(".graph-line-status")).to_contain_text(LINE)
    assert page.evaluate("navigator.clipboard.readText()") == LINE
    page = browse.open("job/first/metadata", server=server)
    page.get_by_role("button", name=f"{key} is not a series").click()
    expect(page.locator("p.graph-rule[role=status]")).to_contain_text(LINE)


def test_records_of_series_have_a_table_of_their_own(browse: Browsing, server: PageServer) -> None:
    page = browse.open("job/first/metadata", server=server)
    tables = page.locator("table.records")
    expect(tables).to_have_count(2)
    expect(tables.nth(0).locator("thead")).to_have_text("exact lineprinted atepochloss")
    expect(tables.nth(1).locator("thead th bdi")).to_have_text(
        ["step (auto)", "user's loss (auto)", "Loss (auto)"]
    )
    expect(tables.nth(1).locator("tbody tr:not(.exact)")).to_have_count(3)
    expect(page.get_by_role("heading", name="Found in the output")).to_be_visible()


def test_compared_series_share_their_x(browse: Browsing, server: PageServer) -> None:
    page = open_graphs(browse, server, "compare/first,second")
    titles = page.locator(".graph-grid").locator("h2, h3")
    expect(titles).to_have_text(["loss", "Found in the output", "user's loss (auto)"])
    curves = model(page, "user's loss (auto)")["curves"]
    assert [curve["xs"] for curve in curves] == [[10, 20, 30]] * 2

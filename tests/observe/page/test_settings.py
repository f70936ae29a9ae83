"""The address holds the settings of a page: a reload shows the same."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import PHONE, Browsing
from tests.observe.page.graphs.graph_jobs import CURVES, OTHER, curves_of
from tests.observe.page.graphs.graphing import open_graphs, wait_for_model
from tests.observe.page.jobs import LONG, TRAINED
from tests.tools.stores.reading_store import SpooledCapture


def query(page: Page) -> set[str]:
    """Return the address's settings as soon as it has any."""
    page.wait_for_function("location.hash.includes('?')")
    return set(page.url.partition("?")[2].split("&"))


def test_graphs(browse: Browsing, graph_server: PageServer) -> None:
    page = open_graphs(browse, graph_server, f"job/{CURVES}/graphs")
    assert "?" not in page.url
    page.get_by_label("X axis").select_option("time")
    page.get_by_role("slider").fill("0.5")
    page.get_by_role("checkbox", name="Debiased").check()
    page.get_by_role("checkbox", name="Log scale").check()
    page.get_by_label("Search keys").fill("loss")
    page.get_by_label("Layout").select_option("together")
    assert query(page) == {
        "x=time",
        "smooth=0.5",
        "debias=1",
        "log=1",
        "keys=loss",
        "layout=together",
    }
    page.reload()
    shown = wait_for_model(page, "All keys", "model.curves.length === 4")
    assert shown["labels"] == ["loss", "val.loss"]
    assert (shown["smooth"], shown["y"]["log"]) == (0.5, True)
    smooth = shown["curves"][-2]["ys"]
    losses = [float(str(record["loss"])) for record in curves_of(0.1)]
    assert smooth[1] == pytest.approx((0.5 * losses[0] + losses[1]) / 1.5), "debiased"
    expect(page.get_by_label("X axis")).to_have_value("time")
    expect(page.get_by_text("Smoothing: 0.50")).to_be_visible()
    page.get_by_role("link", name="Graphs").click()  # the address without settings
    wait_for_model(page, "acc", "model.curves.length === 1")
    expect(page.get_by_text("Smoothing: off")).to_be_visible()
    page.go_back()
    wait_for_model(page, "All keys", "model.curves.length === 4")


def test_compare(browse: Browsing, graph_server: PageServer) -> None:
    page = open_graphs(browse, graph_server, f"compare/{CURVES},{OTHER}")
    page.get_by_label("One graph per value of").select_option(label="lr")
    page.get_by_role("checkbox", name="Only what differs").check()
    page.get_by_role("slider").fill("0.5")
    assert query(page) == {"facet=first%2Flr", "only=differing", "smooth=0.5"}
    page.reload()
    wait_for_model(page, "loss, lr=0.2", "model.curves.length === 2")
    expect(page.locator(".differences tr.same")).to_have_count(0)
    page.get_by_role("checkbox", name="Log scale").check()
    page.get_by_role("link", name="Leave out lr=0.2").click()
    expect(page.locator(".compare-jobs li")).to_have_count(1)
    assert {"smooth=0.5", "log=1"} <= query(page)


def test_console(browse: Browsing) -> None:
    page = browse.open(f"job/{LONG}/console")
    expect(page.locator(".row:visible").first).to_be_visible()
    page.get_by_label("Streams").select_option("stderr")
    page.get_by_role("button", name="Upper and lower").click()
    page.get_by_label("Search in the log").fill("residual")
    page.get_by_role("button", name="Times").click()
    expect(page.locator(".row.found")).to_be_visible()
    assert query(page) == {"streams=stderr", "exact=1", "q=residual", "times=0"}
    page.reload()
    expect(page.locator(".hits")).to_contain_text("of 30 lines")
    expect(page.locator(".row.found")).to_be_visible()
    expect(page.get_by_label("Streams")).to_have_value("stderr")
    for name in ("Upper and lower", "Times"):
        pressed = str(name != "Times").lower()
        expect(page.get_by_role("button", name=name)).to_have_attribute("aria-pressed", pressed)
    expect(page.get_by_role("link", name="Download")).to_have_attribute(
        "href", f"api/jobs/{LONG}/text?streams=stderr"
    )


def test_a_line_and_a_search(browse: Browsing) -> None:
    """The console shows the line of the address, and the search counts hits."""
    page = browse.open(f"job/{LONG}/console", width=PHONE)
    page.goto(page.url.partition("#")[0] + f"#/job/{LONG}/console?line=12000&q=checkpoint")
    expect(page.locator(".row.picked")).to_have_attribute("data-number", "11999")
    expect(page.locator(".hits")).to_contain_text("6 lines")


def test_metadata_and_events(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    with SpooledCapture(tmp_path / "store", TRAINED) as job:
        job.metadata(*({"epoch": epoch, "at": f"n{epoch}"} for epoch in range(3)))
        job.end()
    page = browse.open(f"job/{TRAINED}/metadata", server=serve(tmp_path / "store"))
    page.get_by_label("Search records").fill("n1")
    page.get_by_role("button", name="Oldest records").click()
    expect(page.locator(".records tbody tr:visible")).to_have_count(1)
    assert query(page) == {"search=n1", "order=oldest"}
    page.reload()
    expect(page.locator(".records tbody tr:visible")).to_have_count(1)
    expect(page.get_by_label("Search records")).to_have_value("n1")

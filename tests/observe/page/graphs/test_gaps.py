"""Graphs of NaN values and of an X that falls back: marked gaps, and curves that begin again (R22,
R24)."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import Browsing, each_look
from tests.observe.page.graphs.graphing import chart, colour_at, model, open_graphs, panel, pixel_of
from tests.tools.stores.reading_store import SpooledCapture

DIVERGED, FOLDS = "diverged", "folds"
STEPS, FIRST_NAN = 1000, 812


@pytest.fixture
def gap_server(serve: Callable[[Path], PageServer], tmp_path: Path) -> PageServer:
    """The server of a job whose loss becomes NaN, and of one with three folds."""
    store = tmp_path / "store"
    with SpooledCapture(store, DIVERGED, name="diverges.py") as job:
        for step in range(1, STEPS + 1):
            loss = math.nan if step >= FIRST_NAN or step == 300 else 2 / step
            job.metadata({"step": step, "loss": loss, "lr": 1 / (step + 9)})
        job.end()
    with SpooledCapture(store, FOLDS, name="folds.py") as job:
        for fold in range(3):
            for epoch in range(1, 11):
                job.metadata({"epoch": epoch, "loss": fold + 1 / epoch})
        job.end()
    return serve(store)


@each_look
def test_a_gap_is_marked_and_said(
    browse: Browsing, gap_server: PageServer, width: int, dark: bool
) -> None:
    page = open_graphs(browse, gap_server, f"job/{DIVERGED}/graphs", width=width, dark=dark)
    graph = model(page, "loss")
    assert [(gap["value"], gap["from"], gap["to"], gap["count"]) for gap in graph["gaps"]] == [
        ("NaN", 300, 300, 1),
        ("NaN", FIRST_NAN, STEPS, STEPS - FIRST_NAN + 1),
    ]
    assert model(page, "lr")["gaps"] == []
    (curve,) = graph["curves"]
    assert [
        x for x, y in zip(curve["xs"], curve["ys"], strict=True) if y is None or math.isnan(y)
    ] == [299]
    assert graph["x"]["high"] == STEPS, "the graph goes on to where there are only gaps"
    expect(panel(page, "loss").locator(".graph-notes")).to_contain_text(
        f"loss is NaN in {STEPS - FIRST_NAN + 2} records, first at step 300, and from step {FIRST_NAN} on"
    )
    ground = colour_at(page, "loss", 600, 1)
    assert colour_at(page, "loss", 900, 1) != ground, "a band lies over it"
    assert colour_at(page, "lr", 900, 0.08) == ground
    assert f"NaN from {FIRST_NAN} to {STEPS}" in (
        panel(page, "loss").locator("canvas").get_attribute("aria-label") or ""
    )
    browse.picture(page)
    panel(page, "loss").get_by_text("Numbers").click()
    expect(panel(page, "loss").locator(".graph-values tbody td").last).to_have_text("NaN")


def test_pointing_at_a_gap_says_what_is_there(browse: Browsing, gap_server: PageServer) -> None:
    page = open_graphs(browse, gap_server, f"job/{DIVERGED}/graphs")
    chart(page, "loss")
    page.mouse.move(*pixel_of(page, "loss", 900, 1))
    expect(panel(page, "loss").locator(".chart-tip")).to_contain_text(
        f"loss is NaN at {FIRST_NAN} to {STEPS}"
    )
    page.mouse.move(*pixel_of(page, "loss", 600, 1))
    expect(panel(page, "loss").locator(".chart-tip")).not_to_contain_text("NaN")


def test_the_table_shows_the_text(browse: Browsing, gap_server: PageServer) -> None:
    page = browse.open(f"job/{DIVERGED}/metadata", server=gap_server)
    rows = page.locator("table.records tbody tr")
    expect(rows.first).to_contain_text("NaN")
    heading = page.get_by_role("columnheader", name="loss", exact=True)
    expect(heading).to_have_class("number")


@each_look
def test_folds_are_curves_of_their_own(
    browse: Browsing, gap_server: PageServer, width: int, dark: bool
) -> None:
    page = open_graphs(browse, gap_server, f"job/{FOLDS}/graphs", width=width, dark=dark)
    graph = model(page, "loss")
    assert graph["labels"] == ["curve 1", "curve 2", "curve 3"]
    assert [curve["xs"] for curve in graph["curves"]] == [list(range(1, 11))] * 3
    browse.picture(page)
    page.get_by_role("button", name="curve 2").click()
    assert model(page, "loss")["shown"] == [False, True, False]


def test_smoothing_goes_over_a_gap(browse: Browsing, gap_server: PageServer) -> None:
    page = open_graphs(browse, gap_server, f"job/{DIVERGED}/graphs")
    page.get_by_role("slider").fill("0.5")
    graph = model(page, "loss")
    smooth = next(curve for curve in graph["curves"] if not curve["faint"])
    gaps = [
        x for x, y in zip(smooth["xs"], smooth["ys"], strict=True) if y is None or math.isnan(y)
    ]
    assert gaps == [299]

"""A click on a graph's point, or Enter at its cursor, opens the console at the point's line, in a
real browser."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from logshipper.spool.segment import Kind
from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import Browsing, each_look
from tests.observe.page.graphs.graph_jobs import LONG, LONG_RECORDS, PEAK_AT, long_line
from tests.observe.page.graphs.graphing import (
    chart,
    model,
    open_graphs,
    panel,
    pixel_of,
    wait_for_model,
)
from tests.tools.stores.reading_store import SpooledCapture

JOB, OTHER = "k3f9x2", "second"
STEPS = 20
TEXTS = 50  # lines before each record
# two clicks as a browser reports them, and whether the first one is still pending
DOUBLE_CLICK = """(chart, [left, top]) => {
    const box = chart.canvas.getBoundingClientRect();
    const at = { clientX: box.left + left, clientY: box.top + top, button: 0, bubbles: true, pointerId: 1 };
    const send = (type, name, detail) => chart.canvas.dispatchEvent(new type(name, { ...at, detail }));
    const waits = [];
    for (const detail of [1, 2]) {
        send(PointerEvent, "pointerdown", detail);
        send(PointerEvent, "pointerup", detail);
        send(PointerEvent, "click", detail);
        waits.push(chart.input.clickTimer !== 0);
    }
    send(MouseEvent, "dblclick", 2);
    return waits;
}"""


def line_of(step: int, job: int = 0) -> str:
    """Return a record whose two curves meet at step 10."""
    return json.dumps(
        {"step": step, "loss": 2 / step + job, "lr": abs(step - 10), "gap": 2 * abs(step - 10)}
    )


@pytest.fixture
def point_server(serve: Callable[[Path], PageServer], tmp_path: Path) -> PageServer:
    store = tmp_path / "store"
    for job_number, job_id in enumerate((JOB, OTHER)):
        with SpooledCapture(store, job_id, name=job_id) as job:
            job.metadata({"job": job_number})
            for step in range(1, STEPS + 1):
                job.lines(*(f"{step}: {number}" for number in range(TEXTS)))
                job.stderr(f"warning {step}")
                job.metadata(line_of(step, job_number))
            job.end()
    return serve(store)


def expect_picked(page: Page, text: str, job_id: str = JOB) -> None:
    """Check that the console shows and picks the line with this text."""
    page.wait_for_url(lambda url: f"#/job/{job_id}/console?line=" in url)
    picked = page.locator(".row.picked")
    expect(picked.locator(".text")).to_have_text(text)
    expect(picked).to_be_in_viewport()


@each_look
def test_a_click_leads_to_the_line(
    browse: Browsing, point_server: PageServer, width: int, dark: bool
) -> None:
    page = open_graphs(browse, point_server, f"job/{JOB}/graphs", width=width, dark=dark)
    x, y = pixel_of(page, "loss", 7, 2 / 7)
    canvas = panel(page, "loss").locator("canvas")
    page.mouse.move(x + 3, y - 4)
    expect(canvas).to_have_class("on-point")
    expect(panel(page, "loss").locator(".chart-tip-line")).to_have_text(
        "Click or Enter: the line of 0.285714"
    )
    browse.picture(page)
    page.mouse.move(x + 3, y - 60)
    expect(canvas).not_to_have_class("on-point")
    expect(panel(page, "loss").locator(".chart-tip-line")).to_have_count(0)
    page.mouse.click(x + 3, y - 4)
    expect_picked(page, line_of(7))
    browse.picture(page, "line")
    page.go_back()
    expect(panel(page, "loss")).to_be_visible()


def test_clicks_that_mean_something_else(browse: Browsing, point_server: PageServer) -> None:
    """A double click, the end of a drag, a click beside all points, and one with a key held."""
    page = open_graphs(browse, point_server, f"job/{JOB}/graphs")
    handle = chart(page, "loss")
    handle.evaluate("(chart) => chart.zoomTo([3, 15])")
    wait_for_model(page, "loss", "model.zoomed && model.x.low === 3")
    place = handle.evaluate("(chart) => chart.pixelOf(7, 2 / 7)")
    assert handle.evaluate(f"(chart, place) => ({DOUBLE_CLICK})(chart, place)", place) == [
        True,
        False,
    ]
    wait_for_model(page, "loss", "!model.zoomed")

    def nothing_waits() -> bool:
        return bool(handle.evaluate("(chart) => chart.input.clickTimer === 0"))

    x, y = pixel_of(page, "loss", 7, 2 / 7)
    page.mouse.move(*pixel_of(page, "loss", 3, 2 / 7))
    page.mouse.down()
    page.mouse.move(x, y, steps=4)
    page.mouse.up()
    assert nothing_waits()
    wait_for_model(page, "loss", "model.zoomed")
    panel(page, "loss").get_by_role("button", name="Show all").click()
    x, y = pixel_of(page, "loss", 7, 2 / 7)
    page.mouse.move(x, y - 50)  # a vertical drag is too narrow to zoom
    page.mouse.down()
    page.mouse.move(x, y, steps=4)
    page.mouse.up()
    assert nothing_waits()
    page.mouse.click(x, y - 50)
    assert nothing_waits()
    page.keyboard.down("Shift")
    page.mouse.click(x, y)
    page.keyboard.up("Shift")
    assert nothing_waits()
    assert not any("/point?" in url for url in browse.requests)
    page.mouse.click(x, y)
    expect_picked(page, line_of(7))


def test_enter_at_the_cursor(browse: Browsing, point_server: PageServer) -> None:
    page = open_graphs(browse, point_server, f"job/{JOB}/graphs")
    canvas = panel(page, "loss").locator("canvas")
    assert "Enter opens the console" in (canvas.get_attribute("aria-label") or "")
    canvas.focus()
    page.keyboard.press("Enter")  # there is no cursor yet
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    assert not any("/point?" in url for url in browse.requests)
    page.keyboard.press("Enter")
    expect_picked(page, line_of(STEPS - 1))


def test_the_nearest_of_several_curves(browse: Browsing, point_server: PageServer) -> None:
    """All keys in one graph, on a log scale, over time."""
    page = open_graphs(browse, point_server, f"job/{JOB}/graphs")
    page.get_by_label("X axis").select_option("time")
    page.get_by_label("Layout").select_option("together")
    graph = wait_for_model(page, "All keys", "model.labels.length === 4")
    xs = graph["curves"][0]["xs"]
    x, y = pixel_of(page, "All keys", xs[3], abs(4 - 10))
    page.mouse.move(x, y + 2)
    expect(panel(page, "All keys").locator(".chart-tip-line")).to_have_text(
        "Click or Enter: the line of lr 6"
    )
    panel(page, "All keys").get_by_role("button", name="Log").click()
    wait_for_model(page, "All keys", "model.y.log")
    page.mouse.click(*pixel_of(page, "All keys", xs[11], 4))
    expect_picked(page, line_of(12))


def test_a_smoothed_curve_leads_to_the_number_at_that_x(
    browse: Browsing, point_server: PageServer
) -> None:
    page = open_graphs(browse, point_server, f"job/{JOB}/graphs")
    page.get_by_role("slider").fill("0.9")
    graph = wait_for_model(page, "lr", "model.curves.length === 2")
    smooth = graph["curves"][1]
    at = smooth["xs"].index(10)
    page.mouse.click(*pixel_of(page, "lr", 10, smooth["ys"][at]))
    expect_picked(page, line_of(10))


@pytest.mark.parametrize("smooth", ["0", "0.9"])
def test_a_thinned_graph_and_one_that_is_zoomed(
    browse: Browsing, graph_server: PageServer, smooth: str
) -> None:
    page = open_graphs(browse, graph_server, f"job/{LONG}/graphs")
    page.get_by_role("slider").fill(smooth)
    wait_for_model(page, "loss", f"model.curves.length === {1 + (smooth != '0')}")
    page.mouse.click(*pixel_of(page, "loss", PEAK_AT, 99.5))
    expect_picked(page, long_line(PEAK_AT), LONG)
    page.go_back()
    middle = LONG_RECORDS // 2
    chart(page, "loss").evaluate("(chart, at) => chart.zoomTo([at - 5, at + 5])", middle)
    wait_for_model(page, "loss", "model.curves[0].xs.length === 11")
    loss = json.loads(long_line(middle + 2))["loss"]
    page.mouse.click(*pixel_of(page, "loss", middle + 2, loss))
    expect_picked(page, long_line(middle + 2), LONG)


def test_jobs_side_by_side(browse: Browsing, point_server: PageServer) -> None:
    """A click leads to the line of the curve's own job; means have no line."""
    view = f"compare/{JOB},{OTHER}"
    page = open_graphs(browse, point_server, view)
    wait_for_model(page, "loss", "model.curves.length === 2")
    page.mouse.click(*pixel_of(page, "loss", 9, 2 / 9 + 1))
    expect_picked(page, line_of(9, 1), OTHER)
    page = open_graphs(browse, point_server, view)
    page.get_by_label("Group by").select_option("experiment")
    graph = wait_for_model(page, "loss", "model.curves.some((curve) => curve.band)")
    curve = graph["curves"][0]
    page.mouse.move(*pixel_of(page, "loss", curve["xs"][4], curve["ys"][4]))
    expect(panel(page, "loss").locator(".chart-tip")).to_be_visible()
    assert model(page, "loss")["hover"] is not None
    assert chart(page, "loss").evaluate("(chart) => chart.target") is None
    expect(panel(page, "loss").locator(".chart-tip-line")).to_have_count(0)
    label = panel(page, "loss").locator("canvas").get_attribute("aria-label") or ""
    assert "Enter opens" not in label


def test_no_line_is_said(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    """The records' line is missing in the log."""
    with SpooledCapture(tmp_path / "store") as job:
        for step in (1, 2, 3):
            line = json.dumps({"step": step, "loss": 2 / step})
            attrs = {0: {"n": step, "origin": "mine", "copy": 1}}
            job.lines(line, kind=Kind.METADATA, attrs=attrs)
        job.end()
    page = open_graphs(browse, serve(tmp_path / "store"), f"job/{JOB}/graphs")
    page.mouse.click(*pixel_of(page, "loss", 2, 1))
    expect(panel(page, "loss").locator(".graph-line-status")).to_have_text(
        "The record comes from a line that isn't JSON (mine), and logshipper can't tell which line of the log that is."
    )
    assert page.evaluate("location.hash") == f"#/job/{JOB}/graphs"

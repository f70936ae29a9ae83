"""Helpers for graphs on the page: contents of a chart in plain values, and places of its points."""

from typing import Any

from playwright.sync_api import Locator, Page, expect

from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import Browsing

_CHART = """async (panel) => {
    const { charts } = await import(new URL("chart.js", location.href.split("#")[0]));
    return charts.get(panel.querySelector(".chart"));
}"""


def open_graphs(
    browse: Browsing, server: PageServer, view: str, **options: Any
) -> Page:  # Any: of Browsing.open
    """Open a page; return it after its first graph is painted."""
    page = browse.open(view, server=server, **options)
    expect(page.locator(".graph-panel .chart canvas[aria-label]").first).to_be_visible()
    return page


def open_separate(
    browse: Browsing, server: PageServer, view: str, **options: Any
) -> Page:  # Any: of Browsing.open
    """Open the graphs of a job with the keys loss and val.loss, one for each key."""
    page = open_graphs(browse, server, view, **options)
    page.get_by_label("Layout").select_option("each")
    expect(panel(page, "val.loss").locator("canvas[aria-label]")).to_be_visible()
    expect(panel(page, "loss").locator("canvas[aria-label]")).to_be_visible()
    return page


def panel(page: Page, key: str) -> Locator:
    return page.get_by_role("figure", name=key, exact=True)


def chart(page: Page, key: str) -> Any:  # Any: a handle to the page's own object
    """Return the chart of a key, after it is painted."""
    graph_panel = panel(page, key)
    graph_panel.scroll_into_view_if_needed()
    expect(graph_panel.locator("canvas[aria-label]")).to_be_visible()
    return graph_panel.evaluate_handle(_CHART)


def model(page: Page, key: str) -> dict[str, Any]:
    """Return the contents of a chart after the next frame, which paints all pending changes."""
    content: dict[str, Any] = chart(page, key).evaluate(
        """async (chart) => {
            for (let n = 0; n < 2; n += 1) await new Promise(requestAnimationFrame);
            const plain = (curve) => ({ ...curve, xs: [...curve.xs], ys: [...curve.ys] });
            const model = chart.model();
            return { ...model, curves: model.curves.map(plain) };
        }"""
    )
    return content


def wait_for_model(page: Page, key: str, condition: str) -> dict[str, Any]:
    """Return the contents of a chart as soon as `condition` holds, an expression of JavaScript over
    `model`."""
    handle = chart(page, key)
    page.wait_for_function(
        f"(chart) => {{ const model = chart.model(); return {condition}; }}", arg=handle
    )
    return model(page, key)


def pixel_of(page: Page, key: str, x: float, y: float) -> tuple[float, float]:
    """Return a point's place in the window."""
    offset_x, offset_y = chart(page, key).evaluate("(chart, [x, y]) => chart.pixelOf(x, y)", [x, y])
    box = panel(page, key).locator("canvas").bounding_box()
    assert box is not None
    return box["x"] + offset_x, box["y"] + offset_y


# reads from a copy: Chromium complains about repeated reads from a canvas that is drawn on
PIXEL = """(chart, left, top) => {
    const copy = document.createElement("canvas");
    copy.width = copy.height = 1;
    const context = copy.getContext("2d", { willReadFrequently: true });
    const [x, y] = [left, top].map((at) => Math.round(at * devicePixelRatio));
    context.drawImage(chart.canvas, x, y, 1, 1, 0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
}"""


def colour_at(page: Page, key: str, x: float, y: float) -> tuple[int, int, int]:
    """Return the canvas's colour at a point."""
    colour = chart(page, key).evaluate(
        f"(chart, [x, y]) => ({PIXEL})(chart, ...chart.pixelOf(x, y))", [x, y]
    )
    return colour[0], colour[1], colour[2]


def line_colour_at(page: Page, key: str, x: float, y: float) -> tuple[int, int, int]:
    """Return the colour of a line at a point: of its pixel and the eight around it, the one that
    differs most from the background."""
    colours = chart(page, key).evaluate(
        f"""(chart, [x, y]) => {{
            const [left, top] = chart.pixelOf(x, y);
            const around = [-1, 0, 1].flatMap((across) => [-1, 0, 1].map((down) => [left + across, top + down]));
            return [[2, 2], ...around].map((place) => ({PIXEL})(chart, ...place));
        }}""",
        [x, y],
    )
    ground, *pixels = [(int(red), int(green), int(blue)) for red, green, blue in colours]
    return max(
        pixels, key=lambda pixel: sum(abs(a - b) for a, b in zip(pixel, ground, strict=True))
    )


def wait_for_ground(page: Page, key: str, colour: tuple[int, int, int]) -> None:
    """Wait until the chart has another background colour."""
    page.wait_for_function(
        f"([chart, one]) => ({PIXEL})(chart, 2, 2).join() === one",
        arg=[chart(page, key), ",".join(map(str, colour))],
    )


def theme_colour(page: Page, name: str) -> tuple[int, int, int]:
    """Return a colour of the page's theme, such as `--chart-1`."""
    text = page.evaluate(
        "(name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()", name
    )
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)

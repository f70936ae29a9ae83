"""A graph that fills the window, in a real browser."""

from playwright.sync_api import Page, expect

from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import HEIGHT, Browsing, each_look
from tests.observe.page.graphs.graph_jobs import CURVES
from tests.observe.page.graphs.graphing import model, open_separate, panel, wait_for_model


def fills_the_window(page: Page, width: int) -> None:
    """Wait until the graph is as wide as the window, and takes most of its height."""
    least = [width - 60, HEIGHT * 0.55]
    frame = "model.frame.width"
    page.wait_for_function(
        """([width, height]) => {
            const canvas = document.querySelector("dialog.full-screen canvas");
            const ratio = window.devicePixelRatio || 1;
            return canvas && canvas.width / ratio >= width && canvas.height / ratio >= height;
        }""",
        arg=least,
    )
    assert wait_for_model(page, "loss", f"{frame} > {width - 160}")["frame"]["width"] < width
    assert page.evaluate("document.querySelector('dialog').scrollWidth") <= width


@each_look
def test_it_fills_the_window_and_leads_back(
    browse: Browsing, graph_server: PageServer, width: int, dark: bool
) -> None:
    page = open_separate(browse, graph_server, f"job/{CURVES}/graphs", width=width, dark=dark)
    before = model(page, "loss")["frame"]
    button = panel(page, "loss").get_by_role("button", name="Full screen")
    button.click()
    fills_the_window(page, width)
    expect(button).to_have_attribute("aria-pressed", "true")
    browse.picture(page)
    button.click()
    expect(page.locator("dialog.full-screen")).to_have_count(0)
    shown = wait_for_model(page, "loss", f"model.frame.width === {before['width']}")
    assert shown["frame"] == before
    expect(button).to_be_focused()


def test_with_keys_alone(browse: Browsing, graph_server: PageServer) -> None:
    """The focus stays in its place; Escape leaves full screen and keeps the zoom."""
    page = open_separate(browse, graph_server, f"job/{CURVES}/graphs")
    canvas = panel(page, "loss").locator("canvas")
    canvas.press("+")
    canvas.press("f")
    fills_the_window(page, 1500)
    expect(canvas).to_be_focused()
    page.keyboard.press("ArrowRight")
    assert model(page, "loss")["hover"] is not None, "keys of the graph do as before"
    page.keyboard.press("Escape")
    expect(page.locator("dialog.full-screen")).to_have_count(0)
    expect(canvas).to_be_focused()
    assert model(page, "loss")["zoomed"]
    page.keyboard.press("Tab")  # the focus is within the panel still
    page.keyboard.press("f")
    fills_the_window(page, 1500)
    page.keyboard.press("f")
    expect(page.locator("dialog.full-screen")).to_have_count(0)
    search = page.get_by_label("Search keys")
    search.press("f")
    expect(search).to_have_value("f")
    expect(page.locator("dialog.full-screen")).to_have_count(0)

"""axe-core finds nothing serious on any page, light or dark; each page works with a keyboard
alone."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import Browsing, each_look
from tests.observe.page.graphs.graph_jobs import AGAIN, CURVES, OTHER
from tests.observe.page.graphs.graphing import open_graphs, panel
from tests.observe.page.jobs import LONG, TRAINED

RUN_ONLY = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
FOCUSED = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent.trim().slice(0, 40)"
SERIOUS = ("serious", "critical")


def axe_violations(page: Page) -> list[str]:
    """Return the serious violations, with rule and place."""
    violations = Axe().run(page, options=RUN_ONLY).response["violations"]
    return [
        f"{violation['impact']} {violation['id']}: {node['html'][:200]} {node['failureSummary']}"
        for violation in violations
        for node in violation["nodes"]
        if violation["impact"] in SERIOUS
    ]


@each_look
def test_axe(browse: Browsing, width: int, dark: bool) -> None:
    page = browse.open(width=width, dark=dark, bypass_csp=True)
    expect(page.get_by_role("link", name="train.py")).to_be_visible()
    assert axe_violations(page) == []
    page.evaluate(f"location.hash = '#/job/{TRAINED}'")
    expect(page.locator(".overview-lines .row:visible").first).to_be_visible()
    assert axe_violations(page) == []
    page.evaluate(f"location.hash = '#/job/{LONG}/console'")
    page.get_by_label("Search in the log").fill("residual")
    expect(page.locator("mark").first).to_be_visible()
    page.get_by_text("Account of lines and captures").click()
    assert axe_violations(page) == []


def test_tab_reaches_everything(browse: Browsing) -> None:
    page = browse.open(f"job/{TRAINED}/console")
    expect(page.locator(".row:visible").first).to_be_visible()
    names: list[str] = []
    for _ in range(40):
        page.keyboard.press("Tab")
        name = page.evaluate(FOCUSED)
        if names and name == names[0]:
            break
        names.append(name)
    for control in ("To the content", "logshipper", "Console", "Graphs", "Metadata", "Search in the log", "Next hit",
                   "Streams", "Go to a time", "Times", "Wrap", "Copy", "Download", "The job's lines"):  # fmt: skip
        assert control in names
    assert names[0] == "To the content"


@each_look
def test_axe_on_numbers(browse: Browsing, graph_server: PageServer, width: int, dark: bool) -> None:
    """Graphs with a legend, a tip and numbers open; the table with a line and the columns open;
    jobs side by side."""
    page = open_graphs(
        browse, graph_server, f"job/{AGAIN}/graphs", width=width, dark=dark, bypass_csp=True
    )
    panel(page, "loss").get_by_role("button", name="loss, attempt 1", exact=True).click()
    panel(page, "loss").get_by_text("Numbers").click()
    panel(page, "loss").locator("canvas").focus()
    page.keyboard.press("End")
    assert axe_violations(page) == []
    page.evaluate(f"location.hash = '#/job/{AGAIN}/metadata'")
    page.get_by_role("button", name="Exact line of").first.click()
    page.locator(".columns summary").click()
    assert axe_violations(page) == []
    page.evaluate(f"location.hash = '#/compare/{CURVES},{OTHER}'")
    expect(page.locator(".differences tr.same").first).to_be_visible()
    expect(page.locator(".graph-panel canvas[aria-label]").first).to_be_visible()
    assert axe_violations(page) == []

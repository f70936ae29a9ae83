"""*Find series in the output*: graphs of series in a job's stored lines, below its other graphs."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from logshipper.spool.segment import COPY, ORIGIN, Kind
from logshipper_observe.model import reread
from logshipper_observe.page.api import reread as reread_api
from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import Browsing, each_look
from tests.observe.page.graphs.graphing import model
from tests.tools.stores.reading_store import SpooledCapture

PLAIN, STORED = "plain", "stored"
STEPS = list(range(1, 9))
FIND = "Find series in the output"


@pytest.fixture
def series_server(serve: Callable[[Path], PageServer], tmp_path: Path) -> PageServer:
    store = tmp_path / "store"
    with SpooledCapture(store, PLAIN, name="plain text") as job:
        job.metadata({"epoch": 1, "acc": 0.5}, {"epoch": 2, "acc": 0.75})
        for step in STEPS:
            job.lines(f"step {step} loss: {1 / step:.3f}")
        job.end()
    with SpooledCapture(store, STORED, name="stored series") as job:
        for step in STEPS:
            job.lines(f"step {step} loss: {1 / step:.3f}")
            attrs = {0: {"n": step, ORIGIN: "auto", COPY: 1}}
            job.lines(
                f'{{"step": {step}, "loss": {1 / step:.3f}}}', kind=Kind.METADATA, attrs=attrs
            )
        job.end()
    return serve(store)


def _find(page: Page) -> None:
    page.get_by_role("button", name=FIND).click()


@each_look
@pytest.mark.parametrize("tab", ["graphs", "metadata"])
def test_the_graphs_of_found_series(
    browse: Browsing, series_server: PageServer, tab: str, width: int, dark: bool
) -> None:
    page = browse.open(f"job/{PLAIN}/{tab}", server=series_server, width=width, dark=dark)
    _find(page)
    section = page.get_by_role("region", name="Series in the output")
    expect(section.get_by_role("heading", name="Series in the output")).to_be_visible()
    expect(section.get_by_role("status").first).to_have_text("8 records in 8 lines")
    expect(section.get_by_role("figure", name="loss (auto)")).to_be_visible()
    expect(section.get_by_role("figure")).to_have_count(1)  # step is its X, acc is stored
    (curve,) = model(page, "loss (auto)")["curves"]
    assert curve["xs"] == STEPS
    assert curve["ys"] == [float(f"{1 / step:.3f}") for step in STEPS]
    page.get_by_role("button", name=FIND).scroll_into_view_if_needed()
    browse.picture(page)


@pytest.mark.parametrize("tab", ["graphs", "metadata"])
def test_a_job_with_stored_series_has_no_button(
    browse: Browsing, series_server: PageServer, tab: str
) -> None:
    page = browse.open(f"job/{STORED}/{tab}", server=series_server)
    shown = page.locator(".graph-panel canvas, .records tbody tr")
    expect(shown.first).to_be_visible()
    expect(page.get_by_role("button", name=FIND)).to_have_count(0)


def test_a_long_job_is_read_in_several_answers(
    browse: Browsing, series_server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reread, "_LOOK_LINES", 3)
    monkeypatch.setattr(reread_api, "READ_SECS", 0.0)
    page = browse.open(f"job/{PLAIN}/graphs", server=series_server)
    _find(page)
    section = page.get_by_role("region", name="Series in the output")
    expect(section.get_by_role("status").first).to_have_text("8 records in 8 lines")
    assert sum(url.endswith("/reread") for url in browse.requests) > 2


def test_a_search_can_be_cancelled(browse: Browsing, series_server: PageServer) -> None:
    page = browse.open(f"job/{PLAIN}/graphs", server=series_server)
    page.route("**/reread", lambda route: None)  # never answered
    _find(page)
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("Cancelled")).to_be_visible()
    expect(page.get_by_role("button", name=FIND)).to_be_visible()
    page.unroute("**/reread")
    _find(page)
    expect(page.get_by_text("8 records in 8 lines")).to_be_visible()

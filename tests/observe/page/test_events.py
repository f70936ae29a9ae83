"""Events of a job on its page: the list, and marks in graphs."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from logshipper_observe.page.api import events as events_api
from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import PHONE, Browsing
from tests.observe.page.conftest import options
from tests.observe.page.graphs.graphing import open_graphs, pixel_of, wait_for_model
from tests.observe.page.jobs import STARTED_NS
from tests.observe.page.test_accessibility import axe_violations
from tests.tools.stores.reading_store import SpooledCapture

JOB, LIVE = "ev3nts", "l1ve00"
XSS = "<img src=x onerror=alert(1)>\x1b[31m"


def event_jobs(root: Path) -> None:
    """Make a job whose heartbeat is late between 12 and 42 s, with user events, one of them
    hostile, and lost lines."""
    with SpooledCapture(root, JOB, name="train.py", started_ns=STARTED_NS) as job:
        for step in range(3):
            job.sleep(4)
            job.metadata({"step": step, "loss": 1 / (step + 1)})
        job.event(
            "user_event", "checkpoint: saved", data={"name": "checkpoint", "step": 2, "big": 2**70}
        )
        job.sleep(30)
        job.metadata({"step": 3, "loss": 0.1})
        job.event("user_event", XSS, data={"name": XSS})
        job.event("lines_lost", "3 lines lost here: no space left", lines=3, reason="no space left")
        job.event("json_hint", "NaN is no JSON", reason="nan")
        job.event("values_masked", "3 values masked: npm", values=3, shapes={"npm": 3})
        job.sleep(10)
        job.metadata({"step": 4, "loss": 0.05})
        job.end(1)


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    root = tmp_path_factory.mktemp("events") / "store"
    event_jobs(root)
    with PageServer(options(root)) as server:
        yield server


def rows(page: Page) -> list[list[str]]:
    body = page.get_by_role("region", name="Events").locator("tbody tr")
    return [[cell.inner_text() for cell in row.locator("td").all()] for row in body.all()]


def test_events_are_listed_newest_first(browse: Browsing, events: PageServer) -> None:
    page = browse.open(f"job/{JOB}/events", server=events)
    expect(page.locator(".events tbody tr")).to_have_count(9)
    assert [row[1:4] for row in rows(page)] == [
        ["state", "RUNNING", "FAILED"], ["values masked", "", ""],
        ["json hint", "", ""], ["lines lost", "", ""], ["user event", "", ""],
        ["heartbeat found", "UNRESPONSIVE", "RUNNING"], ["heartbeat lost", "RUNNING", "UNRESPONSIVE"],
        ["user event", "", ""], ["state", "QUEUED", "RUNNING"],
    ]  # fmt: skip
    assert rows(page)[0][4] == "exit code 1"
    assert json.loads(rows(page)[7][5]) == {"name": "checkpoint", "step": 2, "big": 2**70}, (
        "every digit"
    )
    assert "\x1b" not in rows(page)[4][4]
    assert rows(page)[4][4].startswith("<img src=x"), "text is text"
    assert rows(page)[1][4] == "3 values masked: npm"
    expect(page.locator("dl")).to_contain_text("3 values: npm")
    page.get_by_label("Kind").select_option("user_event")
    expect(page.locator(".events tbody tr")).to_have_count(2)
    expect(page.locator("p[role=status]")).to_contain_text("2 events")
    browse.picture(page)


def test_of_very_many_events_the_newest_are_counted(
    browse: Browsing, events: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_api, "MAX_COUNTED", 4)
    page = browse.open(f"job/{JOB}/events", server=events)
    expect(page.locator(".events tbody tr")).to_have_count(4)
    expect(page.locator("p[role=status]")).to_have_text("4 events among the newest 4")
    page.get_by_label("Kind").select_option("lines_lost")
    expect(page.locator("p[role=status]")).to_have_text("1 event among the newest 4")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_serious(browse: Browsing, events: PageServer, dark: bool) -> None:
    page = browse.open(f"job/{JOB}/events", server=events, dark=dark, width=PHONE, bypass_csp=True)
    expect(page.locator(".events tbody tr")).to_have_count(9)
    assert axe_violations(page) == []


def test_events_are_marks_where_the_x_was_then(browse: Browsing, events: PageServer) -> None:
    """The job prints steps 0 to 4 at 4, 8, 12, 42 and 52 seconds."""
    page = open_graphs(browse, events, f"job/{JOB}/graphs")
    graph = wait_for_model(page, "loss", "model.marks.length === 7")
    assert [(round(mark["x"], 1), round(mark["secs"])) for mark in graph["marks"]] == [
        (4, 52), (3, 42), (3, 42), (3, 42), (2.7, 32), (2, 12), (0, 0),
    ]  # fmt: skip
    page.mouse.move(*pixel_of(page, "loss", 2, 0.33))
    tip = page.locator("figure", has_text="loss").locator(".chart-tip-mark")
    expect(tip.first).to_contain_text("12s checkpoint: saved")


def test_events_are_marks_in_graphs_over_time(browse: Browsing, events: PageServer) -> None:
    page = open_graphs(browse, events, f"job/{JOB}/graphs")
    page.get_by_label("X axis").select_option("time")
    graph = wait_for_model(page, "loss", "model.marks.length === 7 && model.marks[0].x > 50")
    assert [(round(mark["x"]), mark["look"]) for mark in graph["marks"]] == [
        (52, "state"), (42, "bad"), (42, "user"), (42, "state"), (32, "bad"), (12, "user"), (0, "state"),
    ]  # fmt: skip
    assert graph["marks"][4]["label"] == "RUNNING → UNRESPONSIVE: no heartbeat for 20 seconds"
    page.mouse.move(*pixel_of(page, "loss", 12.1, 0.33))
    tip = page.locator("figure", has_text="loss").locator(".chart-tip-mark")
    expect(tip.first).to_contain_text("checkpoint: saved")
    canvas = page.locator("figure", has_text="loss").locator("canvas")
    expect(canvas).to_have_attribute("aria-label", re.compile("7 events are marked"))
    browse.picture(page)


def test_a_running_jobs_events_come_by_themselves(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    root = tmp_path / "store"
    with SpooledCapture(root, LIVE, name="live") as job:
        job.metadata({"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25})
        job.beat()
        page = browse.open(f"job/{LIVE}/events", server=serve(root))
        expect(page.locator(".events tbody tr").first).to_contain_text("heartbeat found")
        job.event("user_event", "now", data={"name": "now"})
        expect(page.locator(".events tbody tr").first).to_contain_text("now")
        job.end()
        expect(page.locator(".events tbody tr").first).to_contain_text("COMPLETED")

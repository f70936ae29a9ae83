"""The list of jobs in the browser: search, filters, order, tags, last values, keys, and live
changes."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from logshipper_ingest.model.capture_id import JobKey
from logshipper_observe.model.overlay import MarkChange, Overlay
from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import PHONE, Browsing
from tests.observe.page.jobs import FAILED, LONG, TRAINED
from tests.tools.stores.reading_store import SpooledCapture, training


def names(page: Page) -> list[str]:
    return page.locator("td.name a").all_inner_texts()


def expect_names(page: Page, *job_names: str) -> None:
    expect(page.locator("td.name a")).to_have_text(list(job_names))


def test_what_is_listed(page: Page) -> None:
    expect_names(page, "train.py", "prepare data.sh", "simulate")
    first = page.locator("tbody tr").first
    expect(first.locator(".state")).to_have_text("COMPLETED")
    expect(first.locator(".started")).to_have_text("3 h ago")
    expect(first.locator(".last")).to_have_text(re.compile(r"loss 0\.2\s*epoch 5\s*opt\.lr 0\.1"))
    expect(page.locator("tbody tr").nth(1).locator(".outcome")).to_have_text("exit code 2")


def test_search_and_states(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("SIM")
    expect_names(page, "simulate")
    expect(page.get_by_text("1 job of 3")).to_be_visible()
    page.keyboard.press("Escape")
    expect_names(page, "train.py", "prepare data.sh", "simulate")
    page.get_by_label("State", exact=True).select_option("FAILED")
    expect_names(page, "prepare data.sh")
    page.reload()  # the address has the filter
    expect_names(page, "prepare data.sh")
    page.get_by_label("State", exact=True).select_option("")
    page.get_by_role("searchbox").fill(f"{LONG[:3]}*")
    expect_names(page, "simulate")
    page.get_by_role("searchbox").fill("nothing has this")
    expect_names(page)


def test_search_in_lines(page: Page) -> None:
    page.get_by_role("searchbox").fill("IS")
    page.get_by_role("button", name="in lines").click()
    found = page.get_by_label("Matching lines")
    expect(found.locator("h2 a")).to_have_text(["train.py", "prepare data.sh", "simulate"])
    expect(found.get_by_role("status")).to_have_text("3 jobs with matching lines, of 3")
    expect(page.locator("table.jobs")).to_be_hidden()
    page.get_by_role("searchbox").fill("checkpoint written")
    expect(found.locator("h2 a")).to_have_text(["simulate"])
    expect(found.locator("mark")).to_have_text(["checkpoint written"] * 3)
    expect(found.get_by_text("more in the job")).to_be_visible()
    page.reload()  # the address has the search
    found.locator(".match").nth(1).click()
    expect(page.get_by_text("line 5,001 is picked")).to_be_visible()
    expect(page.locator(".row mark")).to_have_text(["checkpoint written"])
    page.go_back()
    page.get_by_role("searchbox").fill("no line has this")
    expect(found.get_by_role("status")).to_have_text("0 jobs with matching lines, of 3")
    page.get_by_role("button", name="in lines").click()
    expect_names(page)
    expect(found).to_be_hidden()


def test_a_changed_text_ends_the_search_in_lines(page: Page) -> None:
    asked: list[str] = []

    def answer_slowly(route: Route) -> None:
        """Leave the first text without an answer."""
        asked.append(route.request.url)
        if "text=simulat" not in route.request.url:
            route.continue_()

    page.route("**/api/grep?*", answer_slowly)
    page.get_by_role("button", name="in lines").click()
    with page.expect_event("requestfailed", lambda request: "text=simulat" in request.url):
        page.get_by_role("searchbox").fill("simulat")
        expect(page.get_by_label("Matching lines").get_by_role("status")).to_have_text("Searching…")
        while not asked:
            page.wait_for_timeout(50)
        page.get_by_role("searchbox").fill("half of it")
    expect(page.get_by_label("Matching lines").locator(".match")).to_have_text(
        ["2 half of it is there"]
    )


def test_order(page: Page) -> None:
    page.get_by_role("button", name="Name").click()
    expect_names(page, "prepare data.sh", "simulate", "train.py")
    expect(page.get_by_role("columnheader", name="Name")).to_have_attribute(
        "aria-sort", "ascending"
    )
    page.get_by_role("button", name="Name").click()
    expect_names(page, "train.py", "simulate", "prepare data.sh")
    page.get_by_role("button", name="Lines", exact=True).click()
    expect_names(page, "simulate", "train.py", "prepare data.sh")
    page.get_by_role("button", name="Started").click()
    expect_names(page, "train.py", "prepare data.sh", "simulate")


def test_by_keyboard_alone(page: Page) -> None:
    expect_names(page, "train.py", "prepare data.sh", "simulate")
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("link", name="prepare data.sh")).to_be_focused()
    page.keyboard.press("x")
    page.keyboard.press("k")
    page.keyboard.press("x")
    expect(page.get_by_role("link", name="Compare 2")).to_have_attribute(
        "href", re.compile(f"#/compare/({FAILED},{TRAINED}|{TRAINED},{FAILED})")
    )
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="train.py")).to_be_visible()
    page.go_back()
    expect_names(page, "train.py", "prepare data.sh", "simulate")


def test_jobs_that_come_and_end(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    page = browse.open(server=serve(tmp_path / "store"))
    expect(page.get_by_text("No jobs yet")).to_be_visible()
    browse.picture(page, "none")
    with SpooledCapture(
        tmp_path / "store", "r5t8aa", name="simulate", started_ns=time.time_ns()
    ) as job:
        job.metadata({"step": 1})
        job.beat()
        expect_names(page, "simulate")
        expect(page.locator("td .state")).to_have_text("RUNNING")
        expect(page.locator("td.last")).to_have_text("step 1")
        job.metadata({"step": 2})
        job.beat()
        expect(page.locator("td.last")).to_have_text("step 2")
        job.end(exit_code=1)
    expect(page.locator("td .state")).to_have_text("FAILED")


def test_tags_notes_and_stars(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    root = tmp_path / "store"
    training(root, job_id="k3f9x2", name="one.py")
    training(root, job_id="m4n8bb", name="two.py")
    page = browse.open(server=serve(root))
    expect(page.locator("td.name a")).to_have_count(2)
    expect(page.get_by_label("Tag", exact=True)).to_be_hidden()
    overlay = Overlay(str(root / "overlay.db"))
    overlay.tag(
        JobKey("k3f9x2"), [MarkChange("baseline", ""), MarkChange("data", "cifar <b>10</b>")]
    )
    overlay.annotate(JobKey("k3f9x2"), "lr is <i>too</i> high")
    overlay.star(JobKey("m4n8bb"), True)
    expect(page.locator(".tag")).to_have_text(["baseline", "data=cifar <b>10</b>"])
    expect(page.locator(".note")).to_have_text("lr is <i>too</i> high")
    page.get_by_label("Tag", exact=True).select_option("baseline")
    expect_names(page, "one.py")
    page.get_by_label("Tag", exact=True).select_option("")
    page.get_by_role("button", name="Only starred jobs").click()
    expect_names(page, "two.py")
    page.get_by_role("button", name="Only starred jobs").click()
    page.get_by_role("searchbox").fill("too</i> high")
    expect_names(page, "one.py")
    browse.picture(page)
    page.get_by_role("link", name="one.py").click()
    expect(page.locator(".head .tag")).to_have_text(["baseline", "data=cifar <b>10</b>"])
    expect(page.locator(".head .note")).to_have_text("lr is <i>too</i> high")


@pytest.mark.parametrize("width", [PHONE, 1500])
def test_many_jobs(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path, width: int
) -> None:
    root = tmp_path / "store"
    for number in range(105):
        with SpooledCapture(root, f"job{number:03d}", name=f"run {number:03d}") as job:
            job.end()
    page = browse.open(server=serve(root), width=width)
    expect(page.locator("td.name a")).to_have_count(100)
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("td.name a")).to_have_count(105)
    expect(page.get_by_role("button", name="Show more")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_head_of_a_job(browse: Browsing) -> None:
    page = browse.open(f"job/{TRAINED}/console")
    head = page.get_by_role("region", name="The job", exact=True)
    expect(head).to_contain_text("exit code 0")
    for name, value in (
        ("Mode", "metadata"),
        ("Lines", "8"),
        ("Records", "5"),
        ("Printed", "50.0 kB"),
    ):
        expect(head.locator("dl div", has=page.get_by_text(name, exact=True))).to_contain_text(
            value
        )
    page.get_by_text("Account of lines and captures").click()
    account = page.get_by_role("region", name="Account of lines").get_by_role("row")
    expect(account.nth(2)).to_have_text(re.compile(r"stderr\s*501\s*2\s*499"))


def test_a_job_that_is_not_there(browse: Browsing) -> None:
    browse.harmless_texts = ("404",)
    page = browse.open("job/nobody/console")
    expect(page.locator(".head .failure")).to_contain_text("nobody")


def test_light_and_dark_are_chosen(page: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    button = page.get_by_role("button", name=re.compile("Colours"))
    button.click()
    assert page.evaluate(ground) == light
    button.click()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    expect(button).to_have_text("Dark")
    assert page.evaluate(ground) == dark

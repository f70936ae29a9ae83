"""The console's search by expressions, and the view of matching lines only."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from logshipper_observe.page.log import logs as logs_module
from logshipper_observe.page.log import search as search_module
from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import Browsing
from tests.observe.page.console.test_console import log, open_console, row, rows
from tests.observe.page.jobs import LONG
from tests.observe.page.test_settings import query
from tests.tools.stores.reading_store import SpooledCapture

FIELD = "Search in the log"


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def test_an_expression(browse: Browsing) -> None:
    page = open_console(browse)
    hits = page.locator("output.hits")
    page.get_by_label(FIELD).fill(r"^STEP 1\d{2} .*(checkpoint|30000)$")
    expect(hits).to_have_text("nothing found")
    press(page, "Regular expression")
    expect(hits).to_have_text(re.compile("of 100 lines"))
    found = page.locator(".row.found")
    expect(found).to_be_in_viewport()
    expect(found.locator("mark")).to_have_text(re.compile(r"^step 1\d\d of 30000$"))
    press(page, "Upper and lower case differ")
    expect(hits).to_have_text("nothing found")
    page.get_by_label(FIELD).fill(r"residual is \w+")  # colour sequences do not match
    expect(found.locator("mark")).to_have_text(["residual", " is ", "high"])
    assert query(page) == {"q=residual+is+%5Cw%2B", "exact=1", "regex=1"}
    page.reload()
    expect(hits).to_have_text(re.compile("of 30 lines"))


def test_a_refused_expression_says_why_at_the_field(browse: Browsing) -> None:
    page = open_console(browse)
    browse.harmless_texts = ("status of 400",)
    press(page, "Regular expression")
    press(page, "Show only the lines that match")
    field = page.get_by_label(FIELD)
    field.fill("(?<=a)b")
    problem = page.get_by_role("alert")
    expect(problem).to_contain_text("isn't a regular expression")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_text("30,000 lines", exact=True)).to_be_visible()  # all lines stay visible
    field.fill("checkpoint|residual")
    expect(problem).to_be_hidden()
    expect(field).to_have_attribute("aria-invalid", "false")
    expect(page.get_by_text("66 of 30,000 lines match")).to_be_visible()


def test_an_expression_that_takes_long_says_how_far_it_is(
    browse: Browsing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module.Search.scan, "__defaults__", (0.0,))  # each answer's limit
    monkeypatch.setattr(logs_module, "MAX_TEXTS", 1)  # blocks of one step
    page = open_console(browse)
    press(page, "Regular expression")
    page.get_by_label(FIELD).fill(".*o.*f.*3.*0.*x|[a-z ]{1,200}[0-9]{1,4} of")
    hits = page.locator("output.hits")
    expect(hits).to_contain_text("% looked through")
    page.get_by_label(FIELD).fill("checkpoint w")
    monkeypatch.undo()
    expect(hits).to_have_text(re.compile("of 6 lines"))


def test_only_the_lines_that_match(browse: Browsing) -> None:
    page = open_console(browse)
    field = page.get_by_label(FIELD)
    field.fill("checkpoint written")
    expect(page.locator("output.hits")).to_contain_text("of 6 lines")
    press(page, "Show only the lines that match")
    expect(page.get_by_text("6 of 30,000 lines match")).to_be_visible()
    expect(rows(page)).to_have_count(6)
    numbers = rows(page).locator(".number").all_inner_texts()
    assert numbers == ["1", "5,001", "10,001", "15,001", "20,001", "25,001"]
    before = page.locator("output.hits").inner_text()
    field.press("Enter")
    expect(page.locator("output.hits")).not_to_have_text(before)
    expect(page.locator(".row.found")).to_have_count(1)
    assert query(page) == {"q=checkpoint+written", "only=1"}
    browse.picture(page)
    page.reload()
    expect(rows(page)).to_have_count(6)
    press(page, "Copy")
    expect(page.get_by_text("6 lines copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").count("checkpoint written\n") == 6
    row(page, 15_001).locator(".number").click()
    expect(row(page, 15_001)).to_have_class(re.compile("picked"))
    expect(row(page, 15_001)).to_be_in_viewport()
    expect(row(page, 15_002)).to_be_in_viewport()
    expect(page.get_by_text(re.compile("30,000 lines, line 15,001 is picked"))).to_be_visible()
    assert query(page) == {"q=checkpoint+written", "line=15001"}


def test_thousands_of_them_scroll(browse: Browsing) -> None:
    page = open_console(browse)
    page.get_by_label("Streams").select_option("stdout")
    page.get_by_label(FIELD).fill("7 of")
    expect(page.locator("output.hits")).to_contain_text("of 3,000 lines")
    press(page, "Show only the lines that match")
    expect(page.get_by_text("3,000 of 29,970 lines match")).to_be_visible()
    log(page).focus()
    page.keyboard.press("g")
    expect(rows(page).first).to_contain_text("step 7 of")
    page.keyboard.press("G")
    expect(rows(page).last).to_contain_text("step 29997 of")
    page.get_by_label(FIELD).fill("")
    expect(page.get_by_text("29,970 lines", exact=True)).to_be_visible()


def test_lines_that_come_dont_end_what_is_looked_for(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    def hold(route: Route) -> None:
        asked.append(route)
        if len(asked) > 1:
            route.continue_()

    asked: list[Route] = []
    with SpooledCapture(
        tmp_path / "store", "r5t8ab", name="simulate", started_ns=time.time_ns() - 10**9
    ) as job:
        job.lines(*(f"step {step}" for step in range(1, 1001)))
        job.beat()
        page = browse.open("job/r5t8ab/console", server=serve(tmp_path / "store"))
        expect(row(page, 1000)).to_be_in_viewport()
        page.route("**/search?*", hold)
        with page.expect_request("**/search?*"):
            page.get_by_label(FIELD).fill("50")
        job.lines(*(f"step {step}" for step in range(1001, 2001)))
        job.beat()
        expect(page.get_by_text("2,000 lines", exact=True)).to_be_visible()
        assert len(asked) == 1
        asked[0].continue_()
        expect(page.locator("output.hits")).to_have_text(re.compile("^[0-9]+ of 40 lines$"))
        expect(page.locator(".row.found")).to_be_in_viewport()
        job.end()


def test_very_many_are_said_to_be_cut(
    browse: Browsing, monkeypatch: pytest.MonkeyPatch, serve: Callable[[Path], PageServer], store: Path
) -> None:  # fmt: skip
    monkeypatch.setattr(search_module, "MAX_HITS", 1000)
    page = browse.open(f"job/{LONG}/console", server=serve(store))
    page.goto(f"{page.url.partition('#')[0]}#/job/{LONG}/console?q=of+30&only=1")
    expect(
        page.get_by_text(re.compile(r"of 30,000 lines match, more aren't looked"))
    ).to_be_visible()


def test_they_are_followed(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    with SpooledCapture(
        tmp_path / "store", "r5t8aa", name="simulate", started_ns=time.time_ns() - 10**9
    ) as job:
        job.lines(*(f"step {step}" for step in range(1, 1001)))
        job.beat()
        page = browse.open("job/r5t8aa/console", server=serve(tmp_path / "store"))
        expect(row(page, 1000)).to_be_in_viewport()
        page.get_by_label(FIELD).fill("00")
        press(page, "Show only the lines that match")
        expect(page.get_by_text("10 of 1,000 lines match")).to_be_visible()
        log(page).focus()
        page.keyboard.press("G")
        job.lines(*(f"step {step}" for step in range(1001, 9001)))
        job.beat()
        expect(row(page, 9000)).to_be_in_viewport()
        expect(row(page, 8999)).to_have_count(0)
        job.end()

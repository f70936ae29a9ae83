"""The table of a job's metadata, in a real browser: every value as printed, newest first."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import Browsing, each_look
from tests.observe.page.graphs.graph_jobs import (
    CURVES,
    EPOCHS,
    HOSTILE,
    KEYS,
    LONG,
    LONG_RECORDS,
    WIDE_JOB,
    XSS,
    curves_of,
    long_line,
)
from tests.tools.stores.reading_store import SpooledCapture

RECORDS = curves_of(0.1)


def open_metadata(browse: Browsing, server: PageServer, job: str, **options: object) -> Page:
    page = browse.open(f"job/{job}/metadata", server=server, **options)  # type: ignore[arg-type]
    expect(page.locator(".records tbody tr").first).to_be_visible()
    return page


def rows(page: Page) -> list[list[str]]:
    """Return the visible values, without the time."""
    return [row[2:] for row in cells(page)]


def cells(page: Page) -> list[list[str]]:
    texts: list[list[str]] = page.locator(".records tbody").evaluate(
        "(body) => [...body.querySelectorAll('tr:not(.exact)')]"
        ".map((row) => [...row.cells].map((cell) => cell.innerText))"
    )
    return texts


def head(page: Page) -> list[str]:
    return page.locator(".records thead th").all_inner_texts()[2:]


@pytest.fixture
def table(browse: Browsing, graph_server: PageServer) -> Page:
    return open_metadata(browse, graph_server, CURVES)


def test_r23_newest_first_with_every_value(table: Page) -> None:
    assert head(table) == ["epoch", "loss", "acc", "val.loss", "lr", "batch", "seed", "model"]
    table_rows = rows(table)
    assert len(table_rows) == EPOCHS + 1
    last = RECORDS[-1]
    assert table_rows[0] == [
        str(EPOCHS),
        str(last["loss"]),
        str(last["acc"]),
        str(last["val"]["loss"]),  # type: ignore[index]
        "",
        "",
        "",
        "",
    ]
    assert table_rows[-1] == ["", "", "", "", "0.1", "32", "7", "resnet"]
    expect(
        table.get_by_text(f"Newest first: 1 to {EPOCHS + 1} of {EPOCHS + 1} records")
    ).to_be_visible()


def test_numbers_keep_every_digit_and_hostile_values_are_text(
    browse: Browsing, graph_server: PageServer
) -> None:
    page = open_metadata(browse, graph_server, HOSTILE)
    values = dict(zip(head(page), rows(page)[0], strict=True))
    assert (values["big"], values["exact"], values["e"]) == (
        "123456789012345678901234567890",
        "0.10",
        "1E5",
    )
    third = dict(zip(head(page), rows(page)[1], strict=True))
    assert (third["__proto__"], third["constructor"], third['""']) == ("6", "9", "15")
    assert third["text"] == XSS
    assert third["nested.a.b"] == json.dumps([1, XSS])
    assert page.evaluate("window.attacked") is None
    assert "\u202e" not in page.locator("main").inner_text()


def test_a_row_opens_to_its_exact_line_by_keys_alone(
    browse: Browsing, graph_server: PageServer
) -> None:
    page = open_metadata(browse, graph_server, HOSTILE)
    opener = page.get_by_role("button", name="Exact line of").first
    opener.focus()
    page.keyboard.press("Enter")
    expect(opener).to_have_attribute("aria-expanded", "true")
    line = (
        '{"step": 4, "a": {"b": 1}, "big": 123456789012345678901234567890, "exact": 0.10, "e": 1E5}'
    )
    expect(page.locator(".records code").first).to_have_text(line)
    page.keyboard.press("Enter")
    expect(page.locator(".records code").first).to_be_hidden()


def test_search_finds_what_people_see(browse: Browsing, graph_server: PageServer) -> None:
    page = open_metadata(browse, graph_server, LONG)
    page.get_by_role("searchbox", name="Search records").fill("99.5")
    expect(page.get_by_text("Found: 1 to 1, of")).to_be_visible()
    assert rows(page) == [["14001", "99.5"]]
    page.get_by_role("searchbox", name="Search records").fill("nowhere")
    expect(page.get_by_text(f"None of {LONG_RECORDS:,} records has this text")).to_be_visible()
    page = open_metadata(browse, graph_server, HOSTILE)
    page.get_by_role("searchbox", name="Search records").fill("日本")  # printed as \\u65e5\\u672c
    expect(page.get_by_text("Found: 1 to 3, of 4 records")).to_be_visible()


def test_pages_from_either_end(browse: Browsing, graph_server: PageServer) -> None:
    page = open_metadata(browse, graph_server, LONG)

    def steps() -> list[int]:
        return [int(row[0]) for row in rows(page)]

    def turn(name: str, first: int) -> None:
        page.get_by_role("button", name=f"{name} records").click()
        page.wait_for_function(
            "(first) => document.querySelector('.records tbody tr')?.cells[2].innerText === String(first)",
            arg=first,
        )

    last = LONG_RECORDS - 1
    assert steps() == list(range(last, last - 100, -1))
    expect(page.get_by_role("button", name="Newer records")).to_be_disabled()
    turn("Older", last - 100)
    assert steps() == list(range(last - 100, last - 200, -1))
    expect(page.get_by_text("Newest first: 101 to 200 of")).to_be_visible()
    turn("Newer", last)
    turn("Oldest", 99)
    assert steps() == list(range(99, -1, -1)), "the newest of them on top, too"
    expect(page.get_by_role("button", name="Older records")).to_be_disabled()
    turn("Newer", 199)
    turn("Newest", last)


def test_columns_are_chosen(browse: Browsing, graph_server: PageServer) -> None:
    page = open_metadata(browse, graph_server, WIDE_JOB)
    assert len(head(page)) == 40
    expect(page.get_by_text(f"{KEYS - 40} columns hidden")).to_be_visible()
    page.locator(".columns summary").click()
    page.get_by_role("button", name="None", exact=True).click()
    page.get_by_role("searchbox", name="Search columns").fill("k25")
    page.get_by_role("button", name="All", exact=True).click()
    assert head(page) == [f"k{number}" for number in range(250, 255)]
    page.get_by_role("checkbox", name="k250").uncheck()
    assert rows(page)[0] == [str(20 * number) for number in (251, 252, 253, 254)]
    page.keyboard.press("Escape")
    expect(page.get_by_role("searchbox", name="Search columns")).to_be_hidden()
    page.locator(".columns summary").click()
    page.get_by_role("searchbox", name="Search columns").fill("")
    page.get_by_role("button", name="All", exact=True).click()
    assert len(head(page)) == KEYS


def test_downloads_are_every_record_exactly(browse: Browsing, graph_server: PageServer) -> None:
    page = open_metadata(browse, graph_server, LONG)
    with page.expect_download() as download:
        page.get_by_role("button", name="All records as JSONL").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines == [long_line(step) for step in range(LONG_RECORDS)]
    page = open_metadata(browse, graph_server, HOSTILE)
    with page.expect_download() as download:
        page.get_by_role("button", name="All records as CSV").click()
    assert download.value.suggested_filename == f"{HOSTILE}-metadata.csv"
    csv_rows = list(
        csv.DictReader(io.StringIO(Path(download.value.path()).read_text(), newline=""))
    )
    assert [row["step"] for row in csv_rows] == ["1", "2", "3", "4"]
    assert (csv_rows[3]["big"], csv_rows[3]["exact"], csv_rows[0]["text"]) == (
        "123456789012345678901234567890",
        "0.10",
        XSS,
    )


def test_a_running_jobs_records_come(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    with SpooledCapture(tmp_path / "store", name="live") as job:
        job.metadata({"step": 1})
        job.beat()
        page = open_metadata(browse, serve(tmp_path / "store"), "k3f9x2")
        assert rows(page) == [["1"]]
        page.get_by_role("button", name="Exact line of").first.click()
        job.metadata({"step": 2, "more": "x"})
        job.beat()
        expect(page.get_by_text("1 to 2 of 2 records")).to_be_visible()
        assert rows(page) == [["2", "x"], ["1", ""]]
        expect(page.get_by_text('{"step": 1}')).to_be_visible()  # an open line stays open
        job.end()


@each_look
def test_the_table_fits(browse: Browsing, graph_server: PageServer, width: int, dark: bool) -> None:
    page = open_metadata(browse, graph_server, CURVES, width=width, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.querySelector('main').scrollWidth") <= width
    browse.picture(page)


def test_fractions_have_six_digits_and_all_where_one_points(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    with SpooledCapture(tmp_path / "store", "long") as job:
        job.metadata('{"loss": 0.12345678901234567, "big": 12345678901234567890, "lr": 0.10}')
        job.end()
    page = open_metadata(browse, serve(tmp_path / "store"), "long")
    assert rows(page) == [["0.123457", "12345678901234567890", "0.10"]]
    expect(page.get_by_title("0.12345678901234567", exact=True)).to_have_text("0.123457")

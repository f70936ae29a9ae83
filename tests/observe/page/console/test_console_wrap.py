"""The console with wrapped long lines: all text is visible, each line is reachable, and small
movements move by their own pixels."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import HEIGHT, PHONE, WIDE, Browsing
from tests.observe.page.console.test_console import have_lines, log, row
from tests.observe.page.test_settings import query
from tests.tools.stores.reading_store import SpooledCapture
from tests.tools.waiting import scaled, wait_until

JOB, TOTAL, MANY = "r5t8aa", 300, 10_000_000
FIELD = "Search in the log"
# rows in sight after all movement stops and each row is drawn, or after many looks: [number, top,
# bottom, text], in pixels from the box's top
PLACES = """(box, looks) => new Promise((done) => {
    let before = "";
    const look = () => {
        const { top } = box.getBoundingClientRect();
        const places = [...box.querySelectorAll(".row:not([hidden])")].map((row) => {
            const at = row.getBoundingClientRect();
            const text = row.querySelector(".text").textContent;
            return [Number(row.dataset.number) + 1, at.top - top - 1, at.bottom - top - 1, text];
        }).filter(([, top, bottom]) => bottom > 0 && top < box.clientHeight);
        const now = JSON.stringify(places);
        if ((now === before && places.every((place) => place[3])) || looks === 0) return done(places);
        before = now;
        looks -= 1;
        requestAnimationFrame(() => setTimeout(look, 150));
    };
    look();
})"""
Place = tuple[int, float, float, str]


def mixed(number: int) -> str:
    """Return a line's text: every third line fills several rows, up to some 20 on a phone. `dozen`
    is in short lines only."""
    words = "word " * (17 * number % 150) if number % 3 == 0 else ""
    return f"line {number} {words}{'dozen ' if number % 12 == 1 else ''}last"


def places(page: Page) -> list[Place]:
    """Return the rows in sight after all movement stops; they must be consecutive and fill the
    window."""
    rows: list[Place] = [tuple(place) for place in log(page).evaluate(PLACES, round(scaled(50)))]
    assert all(text for *_, text in rows), rows
    numbers = [number for number, *_ in rows]
    assert numbers == list(range(numbers[0], numbers[0] + len(rows)))
    tops, bottoms = [top for _, top, *_ in rows], [bottom for _, _, bottom, _ in rows]
    assert tops[1:] == pytest.approx(bottoms[:-1], abs=0.1)
    assert tops[0] <= 0
    assert bottoms[-1] >= height(page) - 1
    return rows


def stays(page: Page, before: list[Place]) -> bool:
    """Return whether the rows in sight kept their places, up to rounding to pixels."""
    now = places(page)
    return [place[0] for place in now] == [place[0] for place in before] and all(
        abs(place[1] - other[1]) < 1 for place, other in zip(now, before, strict=True)
    )


def height(page: Page) -> int:
    return int(log(page).evaluate("box => box.clientHeight"))


def edges(page: Page) -> set[tuple[int, str]]:
    """Return the visible beginnings and ends of the lines in sight."""
    bottom_of_box = height(page) + 1
    return {
        (number, edge)
        for number, top, bottom, _ in places(page)
        for edge, is_seen in (("first", top >= -1), ("last", bottom <= bottom_of_box))
        if is_seen
    }


def is_whole(page: Page, number: int) -> bool:
    """Return whether a line is visible from its beginning to its end."""
    return {(number, "first"), (number, "last")} <= edges(page)


def wheel(page: Page, pixels: int, end: tuple[int, str] = (0, "")) -> None:
    """Turn the wheel by one step: all lines in sight move by its pixels, or `end` comes into
    sight."""
    before = places(page)

    def moves() -> set[int]:
        tops = {number: top for number, top, *_ in places(page)}
        return {round(top - tops[number]) for number, top, *_ in before if number in tops}

    log(page).hover()
    page.mouse.wheel(0, pixels)
    wait_until(lambda: moves() == {pixels} or end in edges(page), f"lines moved by {pixels} pixels")


def open_view(page: Page, settings: str, job: str = JOB) -> None:
    page.goto(f"{page.url.partition('#')[0]}#/job/{job}/console?{settings}")
    expect(wrap_button(page)).to_have_attribute("aria-pressed", "true")
    log(page).focus()


def wrap_button(page: Page) -> Locator:
    return page.get_by_role("button", name="Wrap", exact=True)


@pytest.fixture
def open_wrapped(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> Callable[..., Page]:
    """Return a function that opens a finished job of `texts` with wrapped lines."""

    def start(width: int = WIDE, settings: str = "wrap=1", texts: tuple[str, ...] = ()) -> Page:
        with SpooledCapture(tmp_path / "store", JOB) as job:
            job.lines(*(texts or (mixed(number) for number in range(1, TOTAL + 1))))
            job.end()
        page = browse.open(f"job/{JOB}/console", width=width, server=serve(tmp_path / "store"))
        open_view(page, settings)
        return page

    return start


@pytest.fixture
def open_many(open_wrapped: Callable[..., Page]) -> Callable[[str], Page]:
    """Return a function that opens ten million wrapped lines, as the store would give them."""

    def start(settings: str = "wrap=1") -> Page:
        page = open_wrapped()
        have_lines(page, MANY, mixed)
        open_view(page, settings)
        page.reload()
        log(page).focus()
        return page

    return start


# ---- reaching lines


@pytest.mark.parametrize(("width", "total"), [(WIDE, 100), (PHONE, 30)])
def test_each_line_is_seen_from_its_beginning_to_its_end(
    open_wrapped: Callable[..., Page], browse: Browsing, width: int, total: int
) -> None:
    page = open_wrapped(width, texts=tuple(mixed(number) for number in range(1, total + 1)))
    assert (total, "last") in edges(page)
    page.keyboard.press("Home")
    wait_until(lambda: (1, "first") in edges(page), "the first line is in sight")
    browse.picture(page)
    everything = {(number, edge) for number in range(1, total + 1) for edge in ("first", "last")}
    for pixels, end in ((500, (total, "last")), (-500, (1, "first"))):
        visited = edges(page)
        while end not in visited:
            wheel(page, pixels, end)
            visited |= edges(page)
            assert log(page).evaluate(
                "box => [box, ...box.querySelectorAll('.text')].every((node) => node.scrollWidth <= node.clientWidth)"
            )
        assert visited == everything
    page.keyboard.press("End")
    wait_until(lambda: (total, "last") in edges(page), "the last line is in sight")


def test_each_of_ten_million_lines_is_reached(open_many: Callable[..., Page]) -> None:
    page = open_many()
    expect(row(page, MANY)).to_be_in_viewport()
    for _ in range(3):
        wheel(page, -300)
    expect(row(page, MANY)).not_to_be_in_viewport()
    wheel(page, 300)
    page.keyboard.press("Home")
    expect(row(page, 1)).to_be_in_viewport(ratio=1)
    wheel(page, 300)
    log(page).evaluate("box => { box.scrollTop = (box.scrollHeight - box.clientHeight) / 2; }")
    wait_until(
        lambda: abs(places(page)[0][0] - MANY / 2) < MANY / 1000, "the bar leads to the middle"
    )
    for pixels in (200, 200, -300, -400, 400):
        wheel(page, pixels)
    page.keyboard.press("End")
    expect(row(page, MANY)).to_be_in_viewport(ratio=1)


def test_an_address_leads_to_a_line_of_ten_million(open_many: Callable[..., Page]) -> None:
    page = open_many(f"wrap=1&line={MANY // 2}")
    expect(row(page, MANY // 2)).to_have_class("row picked")
    assert is_whole(page, MANY // 2)


@pytest.mark.parametrize("line", [1, 150, 285, TOTAL])
def test_an_address_leads_to_a_line(open_wrapped: Callable[..., Page], line: int) -> None:
    page = open_wrapped(PHONE, f"wrap=1&line={line}")
    expect(row(page, line)).to_have_class("row picked")
    assert is_whole(page, line)


def test_wheel_steps_without_a_pause_reach_the_beginning(open_wrapped: Callable[..., Page]) -> None:
    """The bar's length follows the lower lines at the end, so it would reach its end before the
    rows do."""
    texts = [mixed(number) if number < 100 else f"line {number}" for number in range(1, TOTAL + 1)]
    page = open_wrapped(PHONE, texts=tuple(texts))
    expect(row(page, TOTAL)).to_be_in_viewport()
    log(page).hover()

    def is_first() -> bool:
        page.mouse.wheel(0, -300)
        return row(page, 1).count() == 1 and (1, "first") in edges(page)

    wait_until(is_first, "the first line is in sight")


def test_hits_far_away_are_shown(open_wrapped: Callable[..., Page], browse: Browsing) -> None:
    page = open_wrapped(PHONE)
    for wanted in (201, 3, TOTAL, 285):
        page.get_by_label(FIELD).fill(f"line {wanted} ")
        expect(row(page, wanted).locator("mark")).to_have_count(1)
        expect(row(page, wanted)).to_be_in_viewport()
        assert is_whole(page, wanted)
    browse.picture(page)


# ---- changes of wrapping


def test_a_resize_keeps_what_is_in_sight(open_wrapped: Callable[..., Page]) -> None:
    page = open_wrapped(settings="wrap=1&line=150")
    expect(row(page, 150)).to_be_in_viewport(ratio=1)
    for width in (PHONE, WIDE, PHONE):
        page.set_viewport_size({"width": width, "height": HEIGHT})
        wait_until(lambda: is_whole(page, 150), "the line is in sight")
    wheel(page, 500)  # then the upper line stays in place
    upper = places(page)[0][0]
    for width in (WIDE, PHONE):
        page.set_viewport_size({"width": width, "height": HEIGHT})
        wait_until(lambda: places(page)[0][0] == upper, "the upper line is the same")
    page.keyboard.press("End")
    for width in (WIDE, PHONE):
        page.set_viewport_size({"width": width, "height": HEIGHT})
        wait_until(lambda: (TOTAL, "last") in edges(page), "the end is in sight")


def test_lines_that_no_longer_wrap_fill_the_window(open_wrapped: Callable[..., Page]) -> None:
    texts = tuple(f"line {number} {'word ' * 20}" for number in range(1, TOTAL + 1))
    page = open_wrapped(PHONE, texts=texts)
    wait_until(lambda: (TOTAL, "last") in edges(page), "the end is in sight")
    page.set_viewport_size({"width": WIDE, "height": HEIGHT})
    wait_until(lambda: (TOTAL, "last") in edges(page), "the end is in sight")
    assert bar_length(page) == 20 * TOTAL


def test_heights_are_measured_again_with_times(open_wrapped: Callable[..., Page]) -> None:
    """The page discards older heights, so its bar is as long as in a newly opened page."""
    page = open_wrapped(PHONE, "wrap=1&times=1&line=1")
    lengths = {"1": bar_length(page)}
    page.keyboard.press("t")
    lengths["0"] = bar_length(page)
    for shown in ("1", "0"):
        open_view(page, f"wrap=1&times={shown}&line=1")
        page.reload()
        expect(row(page, 1)).to_be_in_viewport()
        assert bar_length(page) == lengths[shown]
    assert lengths["0"] < lengths["1"]


def bar_length(page: Page) -> int:
    places(page)
    return int(log(page).evaluate("box => box.scrollHeight"))


def test_heights_are_measured_again_where_rows_are_other_lines(
    open_wrapped: Callable[..., Page],
) -> None:
    """Matching lines that fit into the window need no scrolling, whichever heights were measured
    before."""
    page = open_wrapped(PHONE)
    page.get_by_label(FIELD).fill("dozen")
    expect(page.locator("output.hits")).to_contain_text("of 25 lines")
    page.get_by_role("button", name="Show only the lines that match").click()
    expect(page.get_by_text("25 of 300 lines match")).to_be_visible()
    expect(row(page, 289)).to_be_in_viewport(ratio=1)
    box = log(page)
    wait_until(lambda: box.evaluate("box => box.scrollHeight === box.clientHeight"), "all fit")
    expect(row(page, 1)).to_be_in_viewport(ratio=1)
    row(page, 145).locator(".number").click()
    expect(row(page, 145)).to_have_class("row picked")
    wait_until(
        lambda: {(144, "last"), (145, "first"), (146, "last")} <= edges(page), "it is among all"
    )


# ---- while the job runs


def test_the_end_is_followed_or_not(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    with SpooledCapture(tmp_path / "store", JOB, started_ns=time.time_ns() - 10**9) as job:
        job.lines(*(mixed(number) for number in range(1, 101)))
        job.beat()
        page = browse.open(f"job/{JOB}/console", server=serve(tmp_path / "store"), width=PHONE)
        expect(row(page, 100)).to_be_visible()

        def add_lines(first: int, end: int) -> None:
            job.lines(*(mixed(number) for number in range(first, end)))
            job.beat()
            expect(page.get_by_text(f"{end - 1} lines", exact=True)).to_be_visible()

        page.keyboard.press("w")
        wait_until(lambda: (100, "last") in edges(page), "wrapped, the end is in sight")
        add_lines(101, 301)
        wait_until(lambda: (300, "last") in edges(page), "the end is followed")
        page.keyboard.press("f")
        seen = places(page)
        add_lines(301, 311)
        assert stays(page, seen)
        page.keyboard.press("f")
        wait_until(lambda: (310, "last") in edges(page), "the end is followed again")
        wheel(page, -200)
        seen = places(page)
        add_lines(311, 331)
        assert stays(page, seen), "whoever reads isn't moved"
        page.keyboard.press("g")
        page.set_viewport_size({"width": PHONE - 10, "height": HEIGHT})  # drops measured heights
        expect(row(page, 1)).to_be_in_viewport()
        page.get_by_label(FIELD).fill("line 312 ")
        expect(row(page, 312)).to_be_in_viewport(ratio=1)
        add_lines(331, 351)
        assert is_whole(page, 312), "a hit near the end stays in sight"
        job.end()


# ---- picking, copying, settings in the address


def test_picking_and_copying(open_wrapped: Callable[..., Page]) -> None:
    tall = "tall " * 800
    texts = [mixed(number) for number in range(1, 61)]
    page = open_wrapped(PHONE, texts=(*texts, tall, "behind it"))
    page.keyboard.press("g")
    row(page, 3).locator(".number").click()
    row(page, 5).locator(".number").click(modifiers=["Shift"])
    expect(page.get_by_text("lines 3 to 5 are picked")).to_be_visible()
    assert copy(page, 3) == texts[2:5]
    page.keyboard.press("Escape")
    wheel(page, 110)
    seen = edges(page)
    whole = [number for number in range(1, 61) if {(number, "first"), (number, "last")} <= seen]
    assert copy(page, len(whole)) == [texts[number - 1] for number in whole]
    open_view(page, "wrap=1&line=61")
    page.reload()
    expect(row(page, 61)).to_have_class("row picked")
    page.keyboard.press("Escape")
    wheel(page, 100)
    assert [number for number, *_ in places(page)] == [61], "it is higher than the window"
    assert copy(page, 1) == [tall.rstrip()]


def copy(page: Page, count: int) -> list[str]:
    """Copy `count` lines with the button; return the clipboard's lines."""
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_text(f"{count} line{'s' if count > 1 else ''} copied")).to_be_visible()
    text: str = page.evaluate("navigator.clipboard.readText()")
    return [line.rstrip() for line in text.splitlines()]


def test_a_button_out_of_sight_comes_into_sight_with_the_focus(
    open_wrapped: Callable[..., Page],
) -> None:
    """The page also draws lines above and below the window; their buttons stay reachable."""
    page = open_wrapped(WIDE, texts=("x" * 5000,) * 100)
    page.keyboard.press("g")
    wait_until(lambda: (1, "first") in edges(page), "the first line is there")
    for line in (1, 2, 3, 4):
        page.keyboard.press("Tab")
        button = row(page, line).get_by_role("button")
        expect(button).to_be_focused()
        expect(button).to_be_in_viewport(ratio=1)
        places(page)
    assert page.locator(".window").evaluate("node => node.scrollTop") == 0


def test_it_is_in_the_address(open_wrapped: Callable[..., Page]) -> None:
    page = open_wrapped(settings="wrap=1&times=0")
    page.keyboard.press("w")
    expect(wrap_button(page)).to_have_attribute("aria-pressed", "false")
    assert query(page) == {"times=0"}
    wrap_button(page).click()
    expect(wrap_button(page)).to_have_attribute("aria-pressed", "true")
    assert query(page) == {"times=0", "wrap=1"}


# ---- measured heights


def test_a_limited_number_of_heights_is_kept(page: Page) -> None:
    """The mean covers the heights measured last."""
    heights: dict[str, Any] = page.evaluate(
        """async () => {
            const { RowHeights } = await import(new URL("row_heights.js", location.href.split("#")[0]));
            const heights = new RowHeights(20);
            const others = [heights.note(0, 20), heights.note(0, 60), heights.note(0, 60)];
            const means = [heights.mean];
            for (let row = 1; row <= 20_000; row += 1) heights.note(row, row <= 10_000 ? 20 : 40);
            means.push(heights.mean);
            const rows = [heights.of(0), heights.of(20_000)];
            heights.note(1, 20_020);
            means.push(heights.mean);
            heights.clear();
            return { others, means: [...means, heights.mean], rows };
        }"""
    )
    assert heights == {"others": [False, True, False], "means": [60, 30, 31, 20], "rows": [20, 40]}

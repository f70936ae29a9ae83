"""The job's console in the browser: scrolling, search, times, streams, following, copying, and
saving."""

import re
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Locator, Page, Request, Route, expect

from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import PHONE, Browsing
from tests.observe.page.jobs import LONG, LONG_LINES, TRAINED, long_line
from tests.tools.captures.captured_runs import wait_until
from tests.tools.stores.reading_store import SpooledCapture

VIEW = f"job/{LONG}/console"


def rows(page: Page) -> Locator:
    return page.locator(".row:visible")


def log(page: Page) -> Locator:
    return page.get_by_role("region", name="The job's lines")


def row(page: Page, number: int) -> Locator:
    return page.locator(f'.row[data-number="{number - 1}"]:visible')


def wait_for_rest(box: Locator) -> None:
    """Wait until the smooth scrolling of keys ends; it would continue from any new position."""
    box.evaluate("""box => new Promise((done) => {
        let top = -1;
        const look = () => {
            if (box.scrollTop === top) return done();
            top = box.scrollTop;
            setTimeout(look, 150);
        };
        look();
    })""")


def open_console(browse: Browsing, view: str = VIEW, width: int = 1500) -> Page:
    page = browse.open(view, width=width)
    expect(rows(page).first).to_contain_text(re.compile(r"\d"))
    return page


def test_it_opens_at_the_end(browse: Browsing) -> None:
    page = open_console(browse)
    total = LONG_LINES
    expect(page.get_by_text("30,000 lines", exact=True)).to_be_visible()
    expect(row(page, total)).to_be_in_viewport()
    expect(row(page, total)).to_contain_text('{"step": 29000')
    expect(row(page, total - 1)).to_have_attribute("data-stream", "stderr")
    browse.picture(page)


def test_what_the_head_counts_and_what_the_console_does(browse: Browsing) -> None:
    page = open_console(browse, f"job/{TRAINED}/console")
    lines = page.locator(".facts div", has_text="Lines").locator("dd").inner_text()
    total = rows(page).count()
    others = total - int(lines)
    assert others > 0
    expect(
        page.get_by_text(f"{total} lines, {others} of them logshipper's notes, commands or parts")
    ).to_be_visible()


def test_scrolling_to_each_place(browse: Browsing) -> None:
    page = open_console(browse)
    box = log(page)
    box.focus()
    page.keyboard.press("Home")
    expect(row(page, 1)).to_contain_text(long_line(0))
    expect(row(page, 2)).to_contain_text(long_line(1))
    page.keyboard.press("PageDown")
    expect(row(page, 1)).to_have_count(0)
    wait_for_rest(box)
    box.evaluate("box => { box.scrollTop = 12000 * 20; }")
    expect(row(page, 12_003)).to_contain_text(long_line(12_002))
    box.hover()
    page.mouse.wheel(0, 200)
    expect(row(page, 12_013)).to_be_in_viewport()
    page.keyboard.press("End")
    expect(row(page, LONG_LINES)).to_be_in_viewport()
    assert rows(page).count() < 60  # only visible rows are drawn


def have_lines(page: Page, total: int, text_of: Callable[[int], str]) -> None:
    """Answer as if the job's log had `total` lines. text_of: a line's text by its number, from
    1."""

    def answer(route: Route, request: Request) -> None:
        query = dict(re.findall(r"(\w+)=(-?\d+)", request.url))
        begin, count = int(query["from"]), int(query["count"])
        first = total + begin if begin < 0 else begin
        answer_lines = [
            [0, "stdout", "log", text_of(at + 1), 1, 1, 0, False]
            for at in range(first, min(first + count, total))
        ]
        body = {
            "total": total,
            "generation": 0,
            "complete": True,
            "problem": "",
            "from": first,
            "lines": answer_lines,
        }
        route.fulfill(json=body)

    page.route("**/lines?*", answer)


def test_ten_million_lines_scroll(browse: Browsing) -> None:
    """The log is taller than a browser's elements can be; the scroller still reaches each place."""
    page = browse.open(VIEW)
    total = 10_000_000
    have_lines(page, total, lambda number: f"line {number}")
    page.reload()
    expect(row(page, total)).to_contain_text(f"line {total}")
    box = log(page)
    box.focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")

    def end() -> bool:
        """Press End, again if the way up was still under way."""
        page.keyboard.press("End")
        page.wait_for_timeout(100)
        return row(page, total).count() > 0

    wait_until(end, "the end is there")
    expect(row(page, total)).to_be_in_viewport()
    middle = row(page, total // 2)

    def drag() -> bool:
        """Drag the bar, again if the way to the end was still under way."""
        box.evaluate("box => { box.scrollTop = (box.scrollHeight - box.clientHeight) / 2; }")
        page.wait_for_timeout(100)
        return middle.count() > 0

    wait_until(drag, "the middle is there")
    expect(middle).to_contain_text(f"line {total // 2}")
    box.hover()
    for _ in range(
        3
    ):  # small movements move by their own pixels, though the bar stands for 25 times as much
        before = int(rows(page).first.get_attribute("data-number") or 0)
        page.mouse.wheel(0, 100)
        expect(rows(page).first).to_have_attribute(
            "data-number", re.compile(f"{before + 5}|{before + 6}|{before + 4}")
        )
    page.keyboard.press("Home")
    expect(row(page, 1)).to_be_in_viewport()


def test_search(browse: Browsing) -> None:
    page = open_console(browse)
    page.keyboard.press("/")
    page.keyboard.insert_text("CHECKPOINT")  # at once: Enter must apply to the new text
    hits = page.locator("output.hits")
    expect(hits).to_have_text(re.compile(r"\d of 6 lines"))
    for _ in range(2):
        before = hits.inner_text()
        page.keyboard.press("Enter")
        expect(hits).not_to_have_text(before)
    expect(page.locator(".row.found mark")).to_have_text("checkpoint")
    expect(page.locator(".row.found")).to_be_in_viewport()
    at = hits.inner_text()
    page.get_by_role("button", name="Next hit").click()
    expect(hits).not_to_have_text(at)
    page.get_by_role("button", name="Previous hit").click()
    expect(hits).to_have_text(at)
    browse.picture(page)
    page.get_by_role("button", name="Upper and lower case differ").click()
    expect(hits).to_have_text("nothing found")
    page.get_by_label("Search in the log").fill("step 29")
    expect(hits).to_have_text(re.compile("of 1,107 lines"))
    page.get_by_label("Search in the log").press("Escape")
    expect(hits).to_have_text("")
    expect(page.locator("mark")).to_have_count(0)


def test_search_goes_round(browse: Browsing) -> None:
    page = open_console(browse)
    field = page.get_by_label("Search in the log")
    field.fill("checkpoint written")
    hits = page.locator("output.hits")
    texts = []
    expect(hits).to_have_text(re.compile("of 6 lines"))
    for _ in range(6):
        before = hits.inner_text()
        texts.append(before)
        field.press("Enter")
        expect(hits).not_to_have_text(before)
    assert sorted(texts) == [f"{number} of 6 lines" for number in range(1, 7)]


def test_streams(browse: Browsing) -> None:
    page = open_console(browse)
    page.get_by_label("Streams").select_option("stderr")
    expect(page.get_by_text("30 lines", exact=True)).to_be_visible()
    expect(row(page, 1)).to_contain_text("warning 0: residual is high")
    assert row(page, 1).get_attribute("data-stream") == "stderr"
    colour = row(page, 1).locator(".text").evaluate("node => getComputedStyle(node).color")
    page.get_by_label("Streams").select_option("stdout")
    expect(page.get_by_text("29,970 lines", exact=True)).to_be_visible()
    assert colour != page.locator(".row:visible .text").first.evaluate(
        "node => getComputedStyle(node).color"
    )


def test_kept_colours_are_shown(browse: Browsing) -> None:
    page = open_console(browse)
    page.get_by_label("Streams").select_option("stderr")
    first = row(page, 1)
    expect(first.get_by_text("residual")).to_have_class("bold fore1")
    expect(first.get_by_text("high")).to_have_css("color", "rgb(255, 135, 0)")
    expect(first.locator(".text")).to_have_text("warning 0: residual is high")
    # a hit spans pieces of several colours
    page.get_by_label("Search in the log").fill("residual is high")
    expect(page.locator("output.hits")).to_have_text(re.compile("of 30 lines"))
    expect(first.locator("mark")).to_have_text(["residual", " is ", "high"])


def test_levels_are_marked_where_a_line_says_one(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    with SpooledCapture(tmp_path / "store", "r5t8aa") as job:
        job.lines("ERROR no GPU", "0 errors, error bars", "[\x1b[33mWARN\x1b[0m] slow")
        job.stderr("loading", "CRITICAL gone")
        job.end()
    page = browse.open("job/r5t8aa/console", server=serve(tmp_path / "store"))
    expect(rows(page)).to_have_count(5)
    signs = rows(page).locator(".sign")
    expect(signs).to_have_text(["E", "", "W", "2>", "C2>"])
    assert [node.get_attribute("aria-label") for node in signs.all()] == [
        "error", None, "warning", "stderr", "critical, stderr",
    ]  # fmt: skip
    colours = [
        node.evaluate("node => getComputedStyle(node).color")
        for node in rows(page).locator(".text").all()
    ]
    error, plain, warning, stderr, critical = colours
    assert error == critical
    assert len({error, plain, warning, stderr}) == 4
    browse.picture(page)


def test_going_to_a_time(browse: Browsing) -> None:
    page = open_console(browse)
    log(page).focus()
    page.keyboard.press("Home")
    expect(row(page, 1)).to_be_in_viewport()
    stamp = page.locator(".facts dd").first.inner_text()  # start time
    page.keyboard.press("G")
    expect(row(page, LONG_LINES)).to_be_in_viewport()
    page.get_by_label("Go to a time").fill(stamp[:19].replace(" ", "T"))
    page.get_by_label("Go to a time").press("Enter")
    expect(page.locator(".row.picked")).to_be_in_viewport()
    expect(row(page, 1)).to_be_in_viewport()


def test_picking_and_copying(browse: Browsing) -> None:
    page = open_console(browse)
    page.keyboard.press("g")
    row(page, 3).locator(".number").click()
    expect(row(page, 3)).to_have_class(re.compile("picked"))
    row(page, 6).locator(".number").click(modifiers=["Shift"])
    expect(page.get_by_text("lines 3 to 6 are picked")).to_be_visible()
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_text("4 lines copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "".join(
        f"{long_line(number)}\n" for number in range(2, 6)
    )
    assert page.url.endswith(f"#/job/{LONG}/console?line=3")
    page.reload()  # the address leads to the line
    expect(row(page, 3)).to_have_class(re.compile("picked"))
    page.keyboard.press("Escape")
    expect(page.locator(".row.picked")).to_have_count(0)


def test_that_lines_were_copied_stands_there_while_others_come(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    with SpooledCapture(tmp_path / "store", "r5t8ab", name="simulate") as job:
        job.lines("first", "second")
        job.beat()
        page = browse.open("job/r5t8ab/console", server=serve(tmp_path / "store"))
        row(page, 1).locator(".number").click()
        page.get_by_role("button", name="Copy").click()
        expect(page.get_by_text("1 line copied")).to_be_visible()
        job.lines("third")
        expect(row(page, 3)).to_be_visible()
        expect(page.get_by_text("3 lines, line 1 is picked, 1 line copied")).to_be_visible()
        row(page, 2).locator(".number").click()
        expect(page.get_by_text("3 lines, line 2 is picked")).to_be_visible()
        expect(page.get_by_text("copied")).to_have_count(0)


def test_saving(browse: Browsing) -> None:
    page = open_console(browse, f"job/{TRAINED}/console")
    page.keyboard.press("t")
    expect(page.get_by_role("button", name="Times")).to_have_attribute("aria-pressed", "false")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == f"train.py-{TRAINED}.log"
    text = Path(download.value.path()).read_text()
    assert text.startswith("Training on 1,000 samples\nUserWarning: lr is high\n")
    assert text.count("\n") == 10  # including the note and the command
    page.get_by_role("button", name="Times").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    times_text = Path(download.value.path()).read_text()
    assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z Training on", times_text)


def test_following_a_running_job(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    with SpooledCapture(
        tmp_path / "store", "r5t8aa", name="simulate", started_ns=time.time_ns() - 10**9
    ) as job:
        job.lines(*(f"step {step}" for step in range(1, 201)))
        job.status("step 200/1000  20%|██        |")
        job.beat()
        page = browse.open("job/r5t8aa/console", server=serve(tmp_path / "store"))
        expect(page.get_by_text("RUNNING", exact=True).first).to_be_visible()
        expect(row(page, 200)).to_be_in_viewport()
        expect(page.locator(".live")).to_have_text("step 200/1000  20%|██        |")
        browse.picture(page, "running")
        job.lines(*(f"step {step}" for step in range(201, 401)))
        job.status("step 400/1000  40%|████      |")
        job.beat()
        expect(row(page, 400)).to_be_in_viewport()
        expect(page.locator(".live")).to_have_text("step 400/1000  40%|████      |")
        follow = page.get_by_role("button", name="Follow")
        expect(follow).to_have_attribute("aria-pressed", "true")
        log(page).hover()
        page.mouse.wheel(0, -1000)
        expect(follow).to_have_attribute("aria-pressed", "false")
        first_number = rows(page).first.get_attribute("data-number")
        job.lines(*(f"step {step}" for step in range(401, 601)))
        job.beat()
        expect(page.get_by_text("600 lines", exact=True)).to_be_visible()
        # a reader's position does not change
        assert rows(page).first.get_attribute("data-number") == first_number
        follow.click()
        expect(row(page, 600)).to_be_in_viewport()
        job.status("")
        job.end()
    expect(page.get_by_text("COMPLETED", exact=True).first).to_be_visible()
    expect(page.locator(".live")).to_be_hidden()
    expect(follow).to_be_hidden()


def test_late_lines_of_another_rank_are_put_in_their_place(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    now_ns = time.time_ns()
    with SpooledCapture(tmp_path / "store", "r5t8aa", started_ns=now_ns - 5 * 10**9) as job:
        job.lines("first", "third")
        job.beat()
        page = browse.open("job/r5t8aa/console", server=serve(tmp_path / "store"))
        expect(row(page, 2)).to_contain_text("third")
        with SpooledCapture(
            tmp_path / "store", "r5t8aa", 2, started_ns=now_ns - 6 * 10**9
        ) as earlier:
            earlier.lines("zeroth")
            earlier.beat()
            expect(row(page, 3)).to_contain_text("third")
            expect(row(page, 1)).to_contain_text("zeroth")


def test_on_a_phone(browse: Browsing) -> None:
    page = open_console(browse, width=PHONE)
    expect(row(page, LONG_LINES)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    expect(page.locator(".row:visible .time").first).to_be_hidden()
    browse.picture(page)


def test_the_server_goes_away(
    browse: Browsing, serve: Callable[[Path], PageServer], store: Path
) -> None:
    server = serve(store)
    page = browse.open(f"job/{TRAINED}/console", server=server)
    expect(row(page, 1)).to_be_visible()
    browse.harmless_texts = ("ERR_CONNECTION",)
    server.close()
    page.get_by_role("link", name="logshipper").click()
    expect(page.get_by_text("logshipper doesn't answer")).to_be_visible()

"""Hostile output and names of jobs: the page shows them as text and executes none of them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from logshipper_ingest.model.capture_id import JobKey
from logshipper_observe.model.overlay import MarkChange, Overlay
from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import Browsing
from tests.tools.stores.reading_store import SpooledCapture

JOB, HUGE = "h0st1l", "hug3li"
XSS = [
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "<svg/onload=alert(1)>",
    "'\"><iframe src=javascript:alert(1)>",
    "javascript:alert(1)//",
    "</span></div></main><style>*{display:none}</style>",
    "&lt;b&gt; &amp; &#x3c;script&#x3e;",
    "{{constructor.constructor('alert(1)')()}} ${alert(1)}",
    "https://evil.example/?q=<a href=//evil.example>x</a>",
]
BIDI = "safe \u202egnp.exe\u202c \u2066x\u2069 \u200bzero\ufeff \u061c \U000e0041tag \u2028"
NAME = "<b>train</b>\u202e.py"
MANY_MB = 30 << 20


@pytest.fixture(scope="module")
def hostile_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile") / "store"
    with SpooledCapture(root, JOB, name=NAME) as job:
        job.lines(
            *XSS,
            BIDI,
            "nul \x00 bell \x07 del \x7f csi \x9b31m esc \x1b]0;owned\x07",
            "\x1b[31",
            "\x1b[999999999m?",
        )
        job.stderr(*XSS[:2])
        job.metadata({XSS[1]: XSS[0], "a\u202eb": 1})
        job.event("mode_changed", XSS[1])
        job.status(XSS[1])
        job.end()
    overlay = Overlay(str(root / "overlay.db"))
    overlay.tag(JobKey(JOB), [MarkChange("<i>tag</i>", XSS[1])])
    overlay.annotate(JobKey(JOB), XSS[1])
    with SpooledCapture(root, HUGE, name="huge") as job:
        part = "x" * (4 << 20)
        parts = MANY_MB // len(part)
        job.lines("before")
        for number in range(1, parts + 1):
            last = number == parts
            job.lines(part, attrs={0: {"part": f"{number}/{parts}" if last else str(number)}})
        job.lines("behind")
        job.end()
    return root


@pytest.fixture(scope="module")
def hostile(hostile_store: Path, browser: object) -> Iterator[PageServer]:
    from tests.observe.page.conftest import options

    with PageServer(options(hostile_store)) as server:
        yield server


def check_untouched(page: Page) -> None:
    assert "owned" not in page.title()
    assert (
        page.locator(
            "main script, main iframe, main style, main svg[onload], .text img, .head img, td img"
        ).count()
        == 0
    )


def test_lines(browse: Browsing, hostile: PageServer) -> None:
    page = browse.open(f"job/{JOB}/console", server=hostile)
    page.on("dialog", lambda dialog: browse.faults.append(dialog.message))
    for text in XSS:
        expect(page.locator(".row .text").get_by_text(text, exact=True).first).to_be_visible()
    texts = page.locator(".row:visible .text").all_inner_texts()
    assert (
        "safe <U+202E>gnp.exe<U+202C> <U+2066>x<U+2069> <U+200B>zero<U+FEFF> <U+061C> <U+E0041>tag <U+2028>"
        in texts
    )
    assert "nul ␀ bell ␇ del ␡ csi <U+009B>31m esc ␛]0;owned␇" in texts
    assert "␛[31" in texts
    assert "?" in texts  # an unknown colour has no effect
    expect(page.get_by_role("heading", name="<b>train</b><U+202E>.py")).to_be_visible()
    check_untouched(page)
    browse.picture(page)
    page.get_by_label("Search in the log").fill("<img SRC=x onerror")
    expect(page.locator("output.hits")).to_have_text(re.compile("of 3 lines"))
    expect(page.locator("mark").first).to_have_text("<img src=x onerror")
    check_untouched(page)


def test_jobs(browse: Browsing, hostile: PageServer) -> None:
    page = browse.open(server=hostile)
    expect(page.get_by_role("link", name="<b>train</b><U+202E>.py")).to_be_visible()
    expect(page.locator("td.last").nth(1)).to_contain_text("a<U+202E>b 1")
    expect(page.locator(".tag")).to_contain_text("<i>tag</i>=<img")
    check_untouched(page)
    browse.picture(page)


def test_addresses(browse: Browsing, hostile: PageServer) -> None:
    browse.harmless_texts = ("404",)
    page = browse.open("job/<img src=x onerror=alert(1)>/console", server=hostile)
    expect(page.locator(".head .failure")).to_contain_text("<img src=x onerror")
    check_untouched(page)


def test_inline_code_is_blocked_even_where_it_gets_in(
    browse: Browsing, hostile: PageServer
) -> None:
    browse.harmless_texts = (
        "Content Security Policy",
        "TrustedHTML",
        "request elsewhere: http://127.0.0.1:9/x.png",
    )
    page = browse.open(server=hostile)
    error = page.evaluate(
        "try { document.body.innerHTML = '<img src=x>'; 'set' } catch (error) { error.name }"
    )
    assert error == "TypeError"  # trusted types forbid it
    with page.expect_event("requestfailed") as failure:
        page.evaluate("""() => {
            const image = document.createElement('img');
            image.setAttribute('src', 'http://127.0.0.1:9/x.png');
            document.body.append(image);
        }""")
    assert failure.value.failure == "csp"


def test_a_line_of_many_megabytes(browse: Browsing, hostile: PageServer) -> None:
    page = browse.open(f"job/{HUGE}/console", server=hostile)
    expect(page.get_by_text("behind", exact=True)).to_be_visible()
    more = page.locator(".row .more")
    expect(more).to_have_count(MANY_MB // (4 << 20))
    expect(more.first).to_have_text("… 4,190,208 more characters")
    expect(page.locator(".goes-on")).to_have_count(MANY_MB // (4 << 20) - 1)
    page.get_by_label("Search in the log").fill("behind")
    expect(page.locator("output.hits")).to_have_text("1 of 1 line")
    more.first.evaluate("node => node.click()")  # the button is far to the right
    dialog = page.get_by_role("dialog", name="Line 2")
    expect(dialog).to_be_visible()
    expect(dialog.locator("pre")).not_to_have_text("…")
    assert dialog.locator("pre").evaluate("node => node.textContent.length") == 4 << 20
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_downloads_keep_every_byte(browse: Browsing, hostile: PageServer) -> None:
    page = browse.open(f"job/{HUGE}/console", server=hostile)
    expect(page.get_by_text("behind", exact=True)).to_be_visible()
    page.keyboard.press("t")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    data = Path(download.value.path()).read_bytes()
    assert data.splitlines() == [b"before", b"x" * (MANY_MB // (4 << 20) * (4 << 20)), b"behind"]


def test_a_name_of_a_file_is_safe(browse: Browsing, hostile: PageServer) -> None:
    page = browse.open(f"job/{JOB}/console", server=hostile)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == f"b-train-b-.py-{JOB}.log"

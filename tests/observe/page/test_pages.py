"""Each page as a whole: it opens without a complaint at each width and in each colour scheme."""

import re
from pathlib import Path

from playwright.sync_api import expect

import logshipper_observe.page
from tests.observe.page.browsing import Browsing, each_look
from tests.observe.page.jobs import TRAINED


@each_look
def test_jobs(browse: Browsing, width: int, dark: bool) -> None:
    page = browse.open(width=width, dark=dark)
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    expect(page.get_by_role("link", name="train.py")).to_be_visible()
    browse.picture(page)


@each_look
def test_job(browse: Browsing, width: int, dark: bool) -> None:
    page = browse.open(f"job/{TRAINED}/console", width=width, dark=dark)
    expect(page.get_by_role("heading", name="train.py")).to_be_visible()
    expect(page.locator(".head .state")).to_be_visible()
    browse.picture(page)


def test_what_is_imported_at_first_is_fetched_at_once() -> None:
    """Without preloads, the browser would fetch a chain of imports one after another."""
    assets = Path(logshipper_observe.page.__file__).parent / "assets"
    queue, modules = ["app.js"], set[str]()
    while queue:
        names = re.findall(
            r'^import .* from "\./([\w.]+)";$', (assets / queue.pop()).read_text(), re.MULTILINE
        )
        queue += set(names) - modules
        modules |= set(names)
    preloads = re.findall(
        r'rel="modulepreload" href="([\w.]+)"', (assets / "index.html").read_text()
    )
    assert set(preloads) == modules

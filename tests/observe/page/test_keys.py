"""The help of keys: it opens by ? and by its button, and lists each page's keys as documented."""

import pytest
from playwright.sync_api import expect

from tests.observe.page.browsing import Browsing
from tests.observe.page.jobs import TRAINED
from tests.tools.sources import ROOT

NAMES = {"↑": "arrows", "↓": "arrows", "←": "arrows", "→": "arrows", "PageUp": "page up", "PageDown": "page down",
         "Ctrl+Enter": "Ctrl+Enter"}  # fmt: skip


@pytest.mark.parametrize(
    ("view", "titles"),
    [
        ("", ["The list of jobs", "Every page"]),
        (f"job/{TRAINED}/console", ["The console", "Every page"]),
        (f"job/{TRAINED}/graphs", ["A graph, in focus", "Every page"]),
        (f"job/{TRAINED}/events", ["Every page"]),
    ],
)
def test_each_page_has_its_keys(browse: Browsing, view: str, titles: list[str]) -> None:
    page = browse.open(view)
    if view:
        expect(page.locator(".tabs a[aria-current]")).to_be_visible()
    if view.endswith("graphs"):
        expect(page.get_by_role("slider")).to_be_visible()
    page.get_by_role("button", name="Keys of this page").click()
    dialog = page.get_by_role("dialog", name="Keys of this page")
    expect(dialog.get_by_role("heading", level=3)).to_have_text(titles)
    docs = (ROOT / "docs" / "page.md").read_text()
    for key in dialog.locator("kbd").all_inner_texts():
        name = NAMES.get(key, key)
        assert f"`{name}`" in docs or name in docs, key
    browse.picture(page)
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)


def test_a_key_opens_it_and_escape_gives_the_focus_back(browse: Browsing) -> None:
    page = browse.open(f"job/{TRAINED}/console")
    follow = page.get_by_role("button", name="Times")
    follow.focus()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys of this page")
    expect(dialog).to_be_visible()
    page.keyboard.press("t")  # the dialog blocks the page's keys
    page.keyboard.press("?")
    expect(dialog).to_have_count(1)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(follow).to_be_focused()
    expect(follow).to_have_attribute("aria-pressed", "true")
    page.get_by_label("Search in the log").focus()
    page.keyboard.type("?")
    expect(dialog).to_have_count(0)

"""Check the built site: links and anchors lead somewhere, no page loads anything from another
server, and lists are those that GitHub shows."""

import re
import urllib.parse
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

from markdown_it import MarkdownIt

_LOADS = {"img": "src", "script": "src", "iframe": "src", "source": "src", "link": "href"}
_LISTS = ("ul", "ol", "li", "table", "tr", "pre")
_CSS_URL = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])((?:https?:)?//[^)'\"\s]+)")


class Page(HTMLParser):
    """Links, anchors and loaded files of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.links: set[str] = set()
        self.anchors: set[str] = {""}
        self.loads: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.tags[tag] += 1
        self.anchors |= {values.get("id", ""), values.get("name", "")}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        if tag in _LOADS and values.get("rel") != "canonical":
            self.loads.add(values.get(_LOADS[tag], ""))


def problems(site: Path) -> list[str]:
    """Return a line for each dead link and each file from another server."""
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    found = [
        f"{path.relative_to(site)}: {problem}"
        for path, page in pages.items()
        if path.name != "404.html"  # its addresses begin at the server's root
        for problem in _of_page(path, page, pages)
    ]
    for path in site.rglob("*.css"):
        found += [
            f"{path.relative_to(site)}: loads {url}"
            for url in _CSS_URL.findall(path.read_text("utf-8"))
        ]
    return found


def list_problems(pages: Path, site: Path) -> list[str]:
    """Return a line for each page whose lists, tables and code differ from CommonMark's. Zensical's
    Markdown wants a blank line before a list, and four spaces before an inner one."""
    found = []
    for path in sorted(pages.rglob("*.md")):
        name = path.relative_to(pages)
        text = path.read_text("utf-8")
        if text.startswith("---\n") or name.parts[0] == "reference":
            continue  # generated
        html = "index.html" if name.name == "README.md" else f"{name.stem}.html"
        shown = (site / name).with_name(html).read_text("utf-8")
        article = shown[shown.index("<article") : shown.index("</article>")]
        expected = Page(MarkdownIt().enable("table").render(text)).tags
        counts = Page(article).tags
        found += [
            f"{name}: {counts[tag]} <{tag}> instead of {expected[tag]}"
            for tag in _LISTS
            if counts[tag] != expected[tag]
        ]
    return found


def _of_page(path: Path, page: Page, pages: dict[Path, Page]) -> list[str]:
    found = []
    for link in sorted(page.links | page.loads):
        url = urllib.parse.urlsplit(link)
        if url.netloc:
            found += [f"loads {link}"] if link in page.loads else []
        elif not url.scheme:
            target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            anchors = pages[target].anchors if target in pages else {""}
            if not target.is_file() or urllib.parse.unquote(url.fragment) not in anchors:
                found.append(f"dead link {link}")
    return found

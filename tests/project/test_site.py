"""The documentation site (docs/tools): its navigation, its generated reference and its checks."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs.tools import animation, check, reference, site
from logshipper_ingest.config.agent_config import AgentSection
from tests.project.test_docs import commands, options
from tests.tools.sources import ROOT
from tests.tools.tools_of_others import needs_program_of_others, python_of


def nav_pages(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        for value in entry.values():
            yield from nav_pages(value)
    elif isinstance(entry, list):
        for value in entry:
            yield from nav_pages(value)


def test_navigation_has_each_page_once(tmp_path: Path) -> None:
    site.stage(tmp_path)
    texts = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.md")}
    pages = [name for name, text in texts.items() if not text.startswith("---\n")]  # no sources
    config = tomllib.loads((ROOT / "docs" / "zensical.toml").read_text())
    assert sorted(nav_pages(config["project"]["nav"])) == sorted(pages)
    assert "deploy/agent.toml.md" in texts
    assert "(../deploy/agent.toml.md)" in texts["docs/agent.md"]


def test_reference_has_each_command_option_and_metric() -> None:
    pages = dict(reference.pages())
    for name, parser in commands():
        (section,) = (
            text for text in pages[name.split()[0]].split("\n## ") if text.startswith(f"{name}\n")
        )
        assert all(option in section for option in options(parser)), name
    assert "| `poll_secs` | `0.25` | between two polls of the spool |" in pages["options"]
    assert "| `mode` | `enabled` |" in pages["options"]
    assert '| `default_source` | `"local"` |' in pages["options"]
    assert (
        "| `logshipper_agent_pushes_total` | counter | `result` | Pushes to Loki. |"
        in pages["metrics"]
    )
    assert "`logshipper_job_state`" in pages["metrics"]
    assert "heading: logshipper.Store\n" in pages["python"]


def test_comments_above_and_behind_a_field_belong_to_it() -> None:
    comments = reference.comments(AgentSection)
    assert comments["max_captures_per_user"] == "in the spool at the same time"
    assert comments["job_spool_soft_max_bytes"].startswith(
        "segment bytes on this node, 0 for any number: of a job"
    )
    assert comments["job_spool_hard_max_bytes"].startswith("of a job;")


def test_the_check_finds_dead_links_and_other_servers(tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text("<h1 id=there>B</h1>")
    (tmp_path / "a.html").write_text(
        "<a href='b.html#there'>1</a><a href='b.html#gone'>2</a><a href='c.html'>3</a>"
        "<a href='https://example.org'>4</a><img src='https://example.org/x.png'>"
    )
    (tmp_path / "a.css").write_text("@font-face { src: url(https://example.org/font) }")
    assert check.problems(tmp_path) == [
        "a.html: dead link b.html#gone",
        "a.html: dead link c.html",
        "a.html: loads https://example.org/x.png",
        "a.css: loads https://example.org/font",
    ]


def test_the_check_finds_lists_that_the_site_shows_differently(tmp_path: Path) -> None:
    pages, shown = tmp_path / "pages", tmp_path / "site"
    pages.mkdir()
    shown.mkdir()
    (pages / "a.md").write_text("Two:\n- one\n- two\n")
    (shown / "a.html").write_text("<article><p>Two: - one - two</article>")
    assert check.list_problems(pages, shown) == [
        "a.md: 0 <ul> instead of 1",
        "a.md: 0 <li> instead of 2",
    ]


def test_the_animation_shows_each_state_of_the_screen() -> None:
    recording = animation.Recording()
    recording.type("echo <hi>")
    recording.stream.feed(b"\x1b[31mred\x1b[0m")
    recording.keep(1)
    svg = animation.picture(recording.states)
    ElementTree.fromstring(svg)  # noqa: S314  our own
    assert svg.count("translateY") == len(recording.states) + 1
    assert "echo &lt;hi&gt;" in svg
    assert f'fill="{animation._COLOURS["red"]}">red<' in svg


def test_the_animation_in_readme_is_small() -> None:
    assert "(docs/images/terminal.svg)" in (ROOT / "README.md").read_text()
    assert animation.TARGET.stat().st_size < 300_000


@needs_program_of_others
@pytest.mark.timeout(300)
def test_the_site_has_no_dead_link(capfd: pytest.CaptureFixture[str]) -> None:
    python_of("docs")
    assert site.build() == 0, capfd.readouterr().out
    home = (site.BUILD / "site" / "index.html").read_text()
    assert '<meta name="viewport"' in home
    assert "prefers-color-scheme: dark" in home
    assert (site.BUILD / "site" / "search.json").stat().st_size > 100_000

"""One browser for all tests of the page (Debian's Chromium, driven by Playwright) and servers of
stores with fixture jobs.

Without Chromium the tests are skipped with a message. In `make test-all` as root on Debian, which
installs Chromium, they fail.
"""

import argparse
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import FLAGS, PICTURES, WAIT_MS, Browsing
from tests.observe.page.graphs.graph_jobs import graph_jobs
from tests.observe.page.jobs import fixture_jobs
from tests.tools.waiting import scaled

SETTING = "LOGSHIPPER_TEST_BROWSER"  # required, off, or "": skipped without Chromium
_WANTED = os.environ.get(SETTING, "")  # read before tests clear settings
LAUNCH_MS = scaled(60_000)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, headless."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if _WANTED == "off":
        pytest.skip(f"{SETTING}=off")
    if path is None and _WANTED == "required":
        pytest.fail("there is no Chromium: apt-get install chromium")
    if path is None:
        pytest.skip("there is no Chromium (Debian: apt-get install chromium)")
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        try:
            chromium = playwright.chromium.launch(
                executable_path=path, args=FLAGS, timeout=LAUNCH_MS
            )
        except Error as error:
            if _WANTED == "required":
                raise
            pytest.skip(f"Chromium can't be started here: {str(error).splitlines()[0]}")
        with chromium:
            yield chromium


def options(store: Path | None, **settings: object) -> argparse.Namespace:
    """Return a reading command's options: a local store, unless `settings` differ."""
    none = dict.fromkeys(("source", "site", "loki_url", "prometheus_url", "since", "cluster"))
    return argparse.Namespace(
        **{**none, "store": None if store is None else str(store), **settings}
    )


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fixture jobs' store (tests/observe/page/jobs.py), read-only for tests."""
    root = tmp_path_factory.mktemp("page") / "store"
    fixture_jobs(root)
    return root


@pytest.fixture(scope="session")
def page_server(store: Path) -> Iterator[PageServer]:
    """The server of the fixture jobs' page."""
    with PageServer(options(store)) as server:
        yield server


@pytest.fixture(scope="session")
def graph_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of jobs with graphs (tests/observe/page/graphs/graph_jobs.py), read-only for
    tests."""
    root = tmp_path_factory.mktemp("graphs") / "store"
    graph_jobs(root)
    return root


@pytest.fixture(scope="session")
def graph_server(graph_store: Path) -> Iterator[PageServer]:
    """The server of their page."""
    with PageServer(options(graph_store)) as server:
        yield server


@pytest.fixture
def serve() -> Iterator[Callable[[Path], PageServer]]:
    """Return a function that serves another store until the test ends."""
    servers: list[PageServer] = []
    messages: list[str] = []

    def start(store: Path) -> PageServer:
        server = PageServer(options(store), log=messages.append)
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.close()
    assert messages == []


@pytest.fixture
def browse(
    browser: Browser,
    page_server: PageServer,
    serve: Callable[[Path], PageServer],
    request: pytest.FixtureRequest,
) -> Iterator[Browsing]:
    """Yield an opener of pages; afterwards check that no page complained or contacted another
    server.

    serve: requested so that its servers stop after the windows close. The windows would complain of
    lost connections.
    """
    PICTURES.mkdir(parents=True, exist_ok=True)
    with Browsing(browser, page_server, request.node.name) as browsing:
        yield browsing
    browsing.check()


@pytest.fixture
def page(browse: Browsing) -> Page:
    """The fixture jobs' page, in a wide light window."""
    return browse.open()

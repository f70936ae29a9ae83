"""Browser windows for tests of the page, with checks for console errors and foreign requests."""

import os
import re
from pathlib import Path
from types import TracebackType

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request

from logshipper_observe.page.server import PageServer
from tests.tools.sources import ROOT
from tests.tools.waiting import scaled

PICTURES = ROOT / "build" / "page-pictures"  # test output: a screenshot of each page
WIDE, PHONE = 1500, 360
HEIGHT = 900
WAIT_MS = scaled(15_000)  # for any element that a page shows
FLAGS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-software-rasterizer",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    *(["--no-sandbox"] if os.geteuid() == 0 else []),  # Chromium refuses root with its sandbox
]
# width and colour scheme are independent, so two combinations cover both
each_look = pytest.mark.parametrize(
    ("width", "dark"), [(PHONE, True), (WIDE, False)], ids=["phone-dark", "wide-light"]
)


class Browsing:
    """Opens pages of a server.

    faults: complaints of pages, and their requests to other servers. harmless_texts: ignores
    complaints that contain one of these texts.
    """

    def __init__(self, browser: Browser, server: PageServer, name: str) -> None:
        self.faults: list[str] = []
        self.harmless_texts: tuple[str, ...] = ()
        self.requests: list[str] = []
        self._browser = browser
        self._server = server
        self._name = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
        self._contexts: list[BrowserContext] = []

    def open(
        self, view: str = "", *, width: int = WIDE, dark: bool = False, server: PageServer | None = None,
        bypass_csp: bool = False,
    ) -> Page:  # fmt: skip
        """Open a page with the link's token in a window of its own. view: such as `job/k3f9x2`;
        bypass_csp: for axe."""
        server = server or self._server
        context = self._browser.new_context(
            viewport={"width": width, "height": HEIGHT},
            color_scheme="dark" if dark else "light",
            bypass_csp=bypass_csp,
            accept_downloads=True,
            locale="en-GB",
            permissions=["clipboard-read", "clipboard-write"],
            timezone_id="UTC",
        )
        context.set_default_timeout(WAIT_MS)
        self._contexts.append(context)
        page = context.new_page()
        place = f"http://127.0.0.1:{server.port}/"
        page.on("console", lambda message: self._note_console(message.type, message.text))
        page.on("pageerror", lambda error: self.faults.append(f"uncaught: {error}"))
        page.on("request", lambda request: self._note_request(request, place))
        page.goto(server.link(view))
        page.wait_for_url(lambda url: "token=" not in url)
        return page

    def picture(self, page: Page, name: str = "") -> Path:
        """Save a screenshot, named after the test."""
        path = PICTURES / f"{self._name}{'-' + name if name else ''}.png"
        page.screenshot(path=path)
        return path

    def check(self) -> None:
        faults = [
            fault for fault in self.faults if not any(text in fault for text in self.harmless_texts)
        ]
        assert not faults, "\n".join(faults)

    def _note_console(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.faults.append(f"{kind}: {text}")

    def _note_request(self, request: Request, place: str) -> None:
        self.requests.append(request.url)
        if not request.url.startswith((place, "blob:", "data:")):
            self.faults.append(f"request elsewhere: {request.url}")

    def __enter__(self) -> "Browsing":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for context in self._contexts:
            context.close()

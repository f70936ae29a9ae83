"""Access control of the page's server: only browsers that opened its link, and only from the page.

Other users of a login node reach the port, too. The link's token has 256 random bits. The server
exchanges it for a cookie that scripts can't read. The page lies below a random path: browsers ignore
ports in cookies, so they send the cookie to other servers on this host, but the path keeps it
useless there. The header Host reveals another site's name for 127.0.0.1 (DNS rebinding); Origin and
Sec-Fetch-Site reveal requests from another site's page.
"""

import hmac
import html
import os
import tempfile
from http.cookies import CookieError, SimpleCookie
from typing import Protocol
from urllib.parse import quote

from logshipper_observe.page.link_secrets import new_secrets, stored_secrets

HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
_MAX_COOKIES = 4096  # characters of the header

_REDIRECT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}"><title>logshipper</title></head>
<body><p><a href="{url}">To the page</a></p></body></html>
"""


class Access:
    """The secrets of one server: stored ones of a port, or new ones. Raises ConfigError."""

    def __init__(self, port: int = 0) -> None:  # 0 for new secrets
        secrets = stored_secrets(port) if port else new_secrets()
        self.token, self.place, self._cookie, self._cookie_name = secrets

    @property
    def root(self) -> str:
        """The path of the page."""
        return f"/{self.place}/"

    def link(self, port: int, view: str = "") -> str:
        """Return the address for a browser, perhaps of a view such as `job/k3f9x2`."""
        parameter = f"&view={quote(view, safe='/')}" if view else ""
        return f"http://127.0.0.1:{port}{self.root}?token={self.token}{parameter}"

    def set_cookie(self) -> str:
        """Return the header's value, limited to the browser's session and the page's requests."""
        return f"{self._cookie_name}={self._cookie}; Path={self.root}; HttpOnly; SameSite=Strict"

    def has_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())

    def has_cookie(self, header: str) -> bool:
        if len(header) > _MAX_COOKIES:
            return False
        try:
            cookie = SimpleCookie(header).get(self._cookie_name)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(
            cookie.value.encode("utf-8", "replace"), self._cookie.encode()
        )


class Headers(Protocol):
    """A request's head."""

    def get(self, name: str) -> str | None: ...


def foreign(headers: Headers, *, entering: bool) -> str:
    """Return why a request isn't the page's own, "" if it is. `entering`: by the link, which any
    page may contain."""
    host = headers.get("Host") or ""
    name, _, port = host.rpartition(":") if host[-1:].isdigit() else (host, "", "")
    if (name or host).lower() not in HOSTS or (port and not port.isdigit()):
        return "the header Host isn't this machine's"
    origin = headers.get("Origin")
    if origin is not None and origin != f"http://{host}":
        return "the request is from another origin"
    site = headers.get("Sec-Fetch-Site")
    if not entering and site not in (None, "same-origin", "none"):
        return "the request is from another site"
    return ""


def write_redirect(link: str) -> str:
    """Write a private file that leads a browser to the link; return its path. Other users can read
    a browser's arguments. The caller removes the file. Raises OSError."""
    folder = os.environ.get("XDG_RUNTIME_DIR")
    handle, path = tempfile.mkstemp(
        ".html", "logshipper-", folder if folder and os.path.isdir(folder) else None
    )
    with open(handle, "w", encoding="utf-8") as file:  # mkstemp: mode 0600
        file.write(_REDIRECT.format(url=html.escape(link)))
    return path

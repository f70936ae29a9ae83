"""Access control of the page's server: only browsers that opened its link, and only from the page.

Other users of a login node reach the port, too. The link's token has 256 random bits. The server
exchanges it for a cookie that scripts can't read. The page lies below a random path: browsers ignore
ports in cookies, so they send the cookie to other servers on this host, but the path keeps it
useless there. The header Host reveals another site's name for 127.0.0.1 (DNS rebinding); Origin and
Sec-Fetch-Site reveal requests from another site's page.

The secrets of a chosen port outlive the server, so that bookmarks and open tabs keep working. Each
port has a file with mode 0600 in a private folder. While no server runs, another user's program may
listen at the port and receive the token from a bookmark. Therefore secrets expire after
MAX_AGE_SECS, or if another program has the port.
"""

import hmac
import html
import json
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from email.message import Message
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple
from urllib.parse import quote

from logshipper.errors import ConfigError, SpoolError, os_words
from logshipper.private_folder import claim_folder
from logshipper_observe.model.overlay import own_folder

HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
MAX_AGE_SECS = 7 * 86_400  # of stored secrets
_MAX_COOKIES = 4096  # characters of the header
_MAX_BYTES = 1_024
_SECRET = re.compile(r"[A-Za-z0-9_-]{8,64}")
# a page that leads to another one; {head}: further elements of its head
_REDIRECT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">{head}
<meta http-equiv="refresh" content="0; url={url}"><title>logshipper</title></head>
<body><p><a href="{url}">To the page</a></p></body></html>
"""


class Secrets(NamedTuple):
    """The secrets that let a browser in."""

    token: str  # of the link, 256 random bits
    place: str  # the page's path
    cookie: str
    cookie_name: str  # differs between servers


def new_secrets() -> Secrets:
    return Secrets(
        secrets.token_urlsafe(32),
        secrets.token_urlsafe(12),
        secrets.token_urlsafe(32),
        f"logshipper-{secrets.token_hex(4)}",
    )


def stored_secrets(port: int) -> Secrets:
    """Return the secrets of a port, new ones if they are missing or expired. Raises ConfigError if
    the file can't be written or others may have read it."""
    path = secrets_file(port)
    try:
        claim_folder(os.path.dirname(path))
        with suppress(FileNotFoundError):
            if time.time() - os.lstat(path).st_mtime > MAX_AGE_SECS:
                os.unlink(path)
        _make(path)
        return _read(path)
    except (SpoolError, OSError) as error:
        reason = str(error) if isinstance(error, SpoolError) else f"{path}: {os_words(error)}"
        raise ConfigError("--port", [f"logshipper can't store the link: {reason}"]) from None


def forget_secrets(port: int) -> None:
    """Remove the secrets of a port: the next start makes new ones."""
    with suppress(OSError):  # missing, or unreadable for the next start, too
        os.unlink(secrets_file(port))


def secrets_file(port: int) -> str:
    """Return the file of a port."""
    return os.path.join(own_folder(os.environ, "page"), f"port-{port}.json")


def _make(path: str) -> None:
    """Create the file atomically, unless it exists. Raises OSError."""
    if os.path.lexists(path):
        return
    part = f"{path}.{secrets.token_hex(4)}.part"
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(handle, "w", encoding="ascii") as file:
            json.dump(new_secrets()._asdict(), file)
        os.link(part, path)
    except FileExistsError:
        pass  # another process was first: its secrets count
    finally:
        os.unlink(part)


def _read(path: str) -> Secrets:
    """Read the file. Raises ConfigError, OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if not is_own or status.st_mode & 0o077:
            raise ConfigError(
                path, ["isn't your own file with mode 0600, so others may have read it; remove it"]
            )
        text = file.read(_MAX_BYTES)
    try:
        page_secrets = Secrets(**json.loads(text))
    except (ValueError, TypeError):
        page_secrets = Secrets("", "", "", "")
    if not all(isinstance(value, str) and _SECRET.fullmatch(value) for value in page_secrets):
        raise ConfigError(path, ["has no secrets of a page's server; remove it"])
    return page_secrets


class Access:
    """The secrets of one server: stored ones of a port, or new ones. Raises ConfigError."""

    def __init__(self, port: int = 0) -> None:  # 0 for new secrets
        page_secrets = stored_secrets(port) if port else new_secrets()
        self.token, self.place, self._cookie, self._cookie_name = page_secrets

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


def foreign(headers: Mapping[str, str] | Message, *, entering: bool) -> str:
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
        file.write(redirect_page(link, '<meta name="referrer" content="no-referrer">'))
    return path


def redirect_page(url: str, head: str) -> str:
    return _REDIRECT.format(url=html.escape(url), head=head)

"""The secrets of a page's server.

The secrets of a chosen port outlive the server, so that bookmarks and open tabs keep working. Each
port has a file with mode 0600 in a private folder. While no server runs, another user's program may
listen at the port and receive the token from a bookmark. Therefore secrets expire after
MAX_AGE_SECS, or if another program has the port.
"""

import json
import os
import re
import secrets
import stat
import time
from collections.abc import Mapping
from typing import NamedTuple

from logshipper.errors import ConfigError, SpoolError, os_words
from logshipper.private_folder import claim_folder
from logshipper.spool.captures import host_local_root

FOLDER = "logshipper-page"  # in the user's data folder
MAX_AGE_SECS = 7 * 86_400
_MAX_BYTES = 1_024
_SECRET = re.compile(r"[A-Za-z0-9_-]{8,64}")


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


def stored_secrets(port: int, environment: Mapping[str, str] = os.environ) -> Secrets:
    """Return the secrets of a port, new ones if they are missing or expired. Raises ConfigError if
    the file can't be written or others may have read it."""
    path = secrets_file(port, environment)
    try:
        claim_folder(os.path.dirname(path))
        try:
            if time.time() - os.lstat(path).st_mtime > MAX_AGE_SECS:
                os.unlink(path)
        except FileNotFoundError:
            pass
        _make(path)
        return _read(path)
    except SpoolError as error:
        raise ConfigError("--port", [f"logshipper can't store the link: {error}"]) from None
    except OSError as error:
        raise ConfigError(
            "--port", [f"logshipper can't store the link: {path}: {os_words(error)}"]
        ) from None


def forget_secrets(port: int, environment: Mapping[str, str] = os.environ) -> None:
    """Remove the secrets of a port: the next start makes new ones."""
    try:
        os.unlink(secrets_file(port, environment))
    except OSError:
        pass  # missing, or unreadable for the next start, too


def secrets_file(port: int, environment: Mapping[str, str] = os.environ) -> str:
    """Return the file of a port: in the data folder, or on this host for users without a home."""
    data = environment.get("XDG_DATA_HOME") or os.path.join(
        environment.get("HOME") or "/nonexistent", ".local/share"
    )
    if data.startswith("/nonexistent/") or not os.path.isabs(data):
        return os.path.join(f"{host_local_root()}-page", f"port-{port}.json")
    return os.path.join(data, FOLDER, f"port-{port}.json")


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
        if (
            not stat.S_ISREG(status.st_mode)
            or status.st_uid != os.geteuid()
            or status.st_mode & 0o077
        ):
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

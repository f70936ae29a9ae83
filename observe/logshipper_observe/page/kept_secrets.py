"""The secrets of a page's server. Those of a chosen port are kept from one start to the next, so
that a bookmark of the link and tabs that are open go on.

They lie in a file for each port, which only the user can read, in a folder that is the user's alone.
While no page is served there, somebody else's program may listen at the port, and is told the token
by whoever follows the bookmark: they are given up after MAX_AGE_SECS, and when the port was taken.
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
    """What lets a browser in."""

    token: str  # of the link, 256 random bits
    place: str  # the page's path
    cookie: str
    cookie_name: str  # several servers, one browser


def new_secrets() -> Secrets:
    return Secrets(
        secrets.token_urlsafe(32),
        secrets.token_urlsafe(12),
        secrets.token_urlsafe(32),
        f"logshipper-{secrets.token_hex(4)}",
    )


def kept_secrets(port: int, environment: Mapping[str, str] = os.environ) -> Secrets:
    """Those of a port, new ones where there are none yet, or they are too old. Raises ConfigError
    where the file can't be made, or others may know what is in it."""
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
        raise ConfigError("--port", [f"the link can't be kept: {error}"]) from None
    except OSError as error:
        raise ConfigError(
            "--port", [f"the link can't be kept: {path}: {os_words(error)}"]
        ) from None


def forget_secrets(port: int, environment: Mapping[str, str] = os.environ) -> None:
    """The next start has others."""
    try:
        os.unlink(secrets_file(port, environment))
    except OSError:
        pass  # there are none, or they can't be read again either


def secrets_file(port: int, environment: Mapping[str, str] = os.environ) -> str:
    """In the data folder, or without a home on this host."""
    data = environment.get("XDG_DATA_HOME") or os.path.join(
        environment.get("HOME") or "/nonexistent", ".local/share"
    )
    if data.startswith("/nonexistent/") or not os.path.isabs(data):
        return os.path.join(f"{host_local_root()}-page", f"port-{port}.json")
    return os.path.join(data, FOLDER, f"port-{port}.json")


def _make(path: str) -> None:
    """Appears whole, and only where there is none. Raises OSError."""
    if os.path.lexists(path):
        return
    part = f"{path}.{secrets.token_hex(4)}.part"
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(handle, "w", encoding="ascii") as file:
            json.dump(new_secrets()._asdict(), file)
        os.link(part, path)
    except FileExistsError:
        pass  # another one was first: its secrets count
    finally:
        os.unlink(part)


def _read(path: str) -> Secrets:
    """Raises ConfigError, OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if (
            not stat.S_ISREG(status.st_mode)
            or status.st_uid != os.geteuid()
            or status.st_mode & 0o077
        ):
            raise ConfigError(
                path, ["isn't a file of your own with mode 0600: others may know it; remove it"]
            )
        text = file.read(_MAX_BYTES)
    try:
        page_secrets = Secrets(**json.loads(text))
    except (ValueError, TypeError):
        page_secrets = Secrets("", "", "", "")
    if not all(isinstance(value, str) and _SECRET.fullmatch(value) for value in page_secrets):
        raise ConfigError(path, ["doesn't hold what a page's server keeps there; remove it"])
    return page_secrets

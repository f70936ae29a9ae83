"""The place of the servers' programs, outside the clone, and locks against simultaneous builds."""

import contextlib
import fcntl
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.servers.progress import Progress

MACHINE = platform.machine()
LOCK_WAIT_SECS = 3600.0
LOKI_SETTING = "LOGSHIPPER_TEST_LOKI"


class ServerMissing(Exception):
    """A server's program is missing, or can't be built. str: the reason, and instructions."""


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (
        Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache"))
        / "logshipper"
        / "servers"
    )


def _given_loki() -> Path | None:
    text = os.environ.get(LOKI_SETTING, "")
    return Path(text).expanduser().absolute() if text else None


# read at import: tests get a home and an environment of their own later (tests/conftest.py)
CACHE = _cache()
GIVEN_LOKI = _given_loki()  # see loki.py
SETTINGS = {  # for a test's subprocess that starts servers
    "XDG_CACHE_HOME": str(CACHE.parent.parent),
    **({LOKI_SETTING: str(GIVEN_LOKI)} if GIVEN_LOKI else {}),
}


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a program's lock; print a message while another process has it. Raises ServerMissing."""
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        file = open(CACHE / f".{name}.lock", "a+")  # noqa: SIM115  # closed by the `with` below
    except OSError as error:
        raise ServerMissing(
            f"{CACHE} can't be written: {error}; XDG_CACHE_HOME says another place"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read(20).strip() or "unknown"
            with Progress(f"Waiting for process {owner}, which is getting {name}"):
                _wait_for(file.fileno(), name)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _wait_for(descriptor: int, name: str) -> None:
    deadline = time.monotonic() + LOCK_WAIT_SECS
    while time.monotonic() < deadline:
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(0.5)
    raise ServerMissing(
        f"another process has been getting {name} for {LOCK_WAIT_SECS:.0f} s; end it and try again"
    )


@contextlib.contextmanager
def made_whole(place: Path) -> Iterator[Path]:
    """Yield a scratch folder; on success it becomes `place` atomically, otherwise it is removed."""
    scratch = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        yield scratch
        scratch.chmod(0o755)
        scratch.rename(place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)

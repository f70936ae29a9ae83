"""The Loki of tests, demonstrations and benchmarks; this module builds none.

Sources: LOGSHIPPER_TEST_LOKI, `loki` on the PATH, one in the cache, or the image in deploy/compose.
From the image it takes only the program (a static binary), once, into the cache. So files, ports,
users and signals work like those of any other program, and no test needs a container engine.
"""

import contextlib
import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.servers.go import run
from tests.servers.places import (
    CACHE,
    GIVEN_LOKI,
    LOKI_SETTING,
    MACHINE,
    ServerMissing,
    locked,
    made_whole,
)
from tests.servers.progress import Progress
from tests.tools.sources import ROOT

AWAITS = "awaits a Loki"  # prefix of the skip reason of tests that lack a Loki
OLDEST = (3, 0)
ENGINES = ("docker", "podman")
IN_IMAGE = "/usr/bin/loki"
ENGINE_SECS, ASK_SECS = 30.0, 60.0
HOW_TO_NAME = (
    f"name the program of Loki 3.0 or later by {LOKI_SETTING}=/path/to/loki, or put it on the PATH"
)
HOW_TO_GET = """\
no Loki is here: not by ${setting}, not as `loki` on the PATH, not in {cache}{more}
Download Loki 3.0 or later (https://grafana.com/docs/loki/latest/setup/install/local/), and set {setting}=/path/to/loki.
Or start Docker or Podman, and run this again: it takes Loki out of the image {image}."""


class LokiProgram(NamedTuple):
    """A Loki's program.

    version: its own text, such as 3.7.6; origin: a text for people.
    """

    path: Path
    version: str
    origin: str


def find_loki() -> LokiProgram:
    """Return the Loki found on this machine. Raises ServerMissing."""
    if GIVEN_LOKI is not None:
        return _given(GIVEN_LOKI)
    on_path = shutil.which("loki")
    found = _usable(Path(on_path), "from the PATH") if on_path else None
    found = found or max(_in_cache(), key=lambda program: _numbers(program.version), default=None)
    if found is None:
        raise ServerMissing(f"{AWAITS}: {HOW_TO_NAME}")
    return found


def fetch_loki() -> LokiProgram:
    """Return the Loki found on this machine; take it out of its image first if necessary. Raises
    ServerMissing: three lines."""
    try:
        return find_loki()
    except ServerMissing:
        if GIVEN_LOKI is not None:
            raise
    engine = next(filter(_responds, ENGINES), None)
    if engine is not None:
        _take_out(engine)
        with contextlib.suppress(ServerMissing):
            return find_loki()
    raise ServerMissing(_how_to_get())


def image() -> str:
    """Return the image of `docker compose`, which pins its version."""
    compose = yaml.safe_load((ROOT / "deploy" / "compose" / "docker-compose.yaml").read_text())
    return str(compose["services"]["loki"]["image"])


def _given(path: Path) -> LokiProgram:
    version = _version(path)
    if version is None:
        raise ServerMissing(f"{LOKI_SETTING}={path} isn't the program of a Loki that runs here")
    if _is_too_old(version):
        raise ServerMissing(f"{LOKI_SETTING}={path} is Loki {version}: 3.0 or later is needed")
    return LokiProgram(path, version, f"by {LOKI_SETTING}")


def _in_cache() -> Iterator[LokiProgram]:
    for path in (CACHE / "loki", *CACHE.glob("loki*/loki")):
        program = _usable(path, "from the cache")
        if program is not None:
            yield program


def _usable(path: Path, origin: str) -> LokiProgram | None:
    """Return the program; None if it is another program, for another machine, or too old."""
    version = _version(path)
    return None if version is None or _is_too_old(version) else LokiProgram(path, version, origin)


@functools.cache
def _version(path: Path) -> str | None:
    """Return the version; None if it isn't a Loki that runs here."""
    if not path.is_file() or not os.access(path, os.X_OK):
        return None
    try:
        done = subprocess.run(
            [path, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ASK_SECS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.match(r"loki, version (\S*)", done.stdout + done.stderr)
    return match[1] if match and not done.returncode else None


def require_read_and_write() -> None:
    """Raise ServerMissing if the Loki has no targets `read` and `write`, which ended with 3.7."""
    version = find_loki().version
    if _numbers(version) >= (3, 8):
        raise ServerMissing(
            f"Loki {version} has no targets `read` and `write`: 3.0 to 3.7 have them"
        )


def _is_too_old(version: str) -> bool:
    """Return whether a version is too old; one without numbers comes from between releases."""
    numbers = _numbers(version)
    return bool(numbers) and numbers < OLDEST


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"v?(\d+(?:\.\d+)+)", version)
    return tuple(map(int, match[1].split("."))) if match else ()


def _responds(engine: str) -> bool:
    """Return whether the engine exists, and runs containers for this user."""
    try:
        done = subprocess.run([engine, "ps", "--quiet"], capture_output=True, timeout=ENGINE_SECS)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _take_out(engine: str) -> None:
    name = image()
    place = CACHE / f"loki-image-{name.rpartition(':')[2]}-{MACHINE}"
    with locked("loki"):
        if place.exists():  # another process has taken it meanwhile
            return
        title = f"Taking Loki out of the image {name} by {engine}, once"
        with Progress(title), made_whole(place) as scratch:
            _copy(engine, f"docker.io/{name}", scratch)
            program = scratch / "loki"
            if _version(program) is None:
                raise ServerMissing(_how_to_get(f"; that of {name} doesn't run here"))


def _copy(engine: str, name: str, folder: Path) -> None:
    """Copy the program from a container that never starts."""
    container = f"logshipper{folder.name.replace('.', '-')}"
    run(
        [engine, "create", "--name", container, name],
        folder, os.environ, None, _how_to_get(f"; {engine} has no image {name}"),
    )  # fmt: skip
    try:
        run(
            [engine, "cp", f"{container}:{IN_IMAGE}", str(folder / "loki")],
            folder, os.environ, None, _how_to_get(f"; {name} has no {IN_IMAGE}"),
        )  # fmt: skip
    finally:
        subprocess.run([engine, "rm", container], capture_output=True, timeout=ENGINE_SECS)


def _how_to_get(more: str = "") -> str:
    return HOW_TO_GET.format(setting=LOKI_SETTING, cache=CACHE, more=more, image=image())

"""Debian packages of this clone, built once per run: the workers of pytest-xdist share them."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.tools.sources import ROOT, copy_sources
from tests.tools.waiting import scaled

BUILD_SECS = 300.0


class Debs(NamedTuple):
    """clone: the copied sources; folder: the packages; wheels: the bundled wheels."""

    clone: Path
    folder: Path
    wheels: Path


def built_debs(factory: pytest.TempPathFactory) -> Debs:
    """Return the packages, which callers must not change. The first caller builds them."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # common to all workers
    place = base / "debs"
    debs = Debs(place / "clone", place / "packages", place / "wheels")
    with (base / "debs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "built").exists():
            shutil.rmtree(place, ignore_errors=True)
            copy_of_clone(debs.clone, ROOT)
            build("deb", debs.clone, debs.folder, debs.wheels)
            (place / "built").touch()
    return debs


def copy_of_clone(clone: Path, source: Path) -> None:
    """Copy the sources to a place from which `build` can build."""
    copy_sources(clone, source)
    (clone / ".venv").symlink_to(ROOT / ".venv")


def build(
    kind: str, clone: Path, folder: Path, wheels: Path, umask: int = 0o022,
    environment: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Build packages from a clone into a folder: `deb` or `rpm`."""
    scratch = folder.with_name(f"{folder.name}-{kind}-scratch")
    scratch.mkdir()
    done = subprocess.run(
        [clone / "deploy" / "packages" / "build.sh", kind, folder],
        env={**os.environ, "WHEELS": str(wheels), "TMPDIR": str(scratch), **(environment or {})},
        umask=umask, cwd=folder.parent, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=scaled(BUILD_SECS),
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert list(scratch.iterdir()) == [], "build.sh left something behind"

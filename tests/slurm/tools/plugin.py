"""The Slurm plugin built from the clone, and a Python that runs the sidecar for a job's user."""

import compileall
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.slurm.tools.machine import SlurmMissing
from tests.tools.captures.other_users import copy_packages
from tests.tools.sources import ROOT

SOURCE = ROOT / "deploy" / "slurm" / "spank"
BUILT = ROOT / "build" / "slurm-plugin"
NOBODY = 65534
NEEDED = "import logshipper.sidecar.sidecar, orjson, yaml"


def build(folder: Path) -> Path:
    """Put the plugin and its keeper into a new folder `plugin` below folder, and return the
    plugin's path. Raise SlurmMissing."""
    if not (SOURCE / "Makefile").exists():
        raise SlurmMissing(f"there is no plugin in {SOURCE}")
    try:
        return copy_of_build(folder / "plugin", "all") / "logshipper.so"
    except subprocess.CalledProcessError as error:
        raise SlurmMissing(f"{error}:\n{error.stdout}") from None


def copy_of_build(folder: Path, *targets: str) -> Path:
    """Copy the C parts of the Makefile's targets into a new folder, and return it.

    All tests of the clone share one build, so that make compiles only after changes. The test
    keeper contains paths of its folder, and make links it again there. Raise CalledProcessError.
    """
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _make(BUILT, *targets)
        shutil.copytree(BUILT, folder, ignore=shutil.ignore_patterns("objects", "lock"))
        keeper = folder / "test" / "logshipper-keeper"
        if "relay-test" in targets:
            keeper.unlink()
            _make(folder, f"OBJECTS={BUILT / 'test' / 'objects'}", *targets)
    return folder


def _make(folder: Path, *words: str) -> None:
    subprocess.run(
        ["make", "-C", str(SOURCE), "CC=gcc", f"BUILD={folder}", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )


def python_for_users(folder: Path) -> Path:
    """Return a program that runs our Python with our packages for any user. It is our Python, or a
    script in `folder` that runs our Python or the system's with readable copies of the packages.
    Raise SlurmMissing."""
    # installations compile too, because a job's user cannot
    compileall.compile_dir(ROOT / "logshipper", quiet=1)
    if _runs(Path(sys.executable)):
        return Path(sys.executable)
    site = folder / "site"
    copy_packages(site)
    compileall.compile_dir(site / "logshipper", quiet=1)
    script = folder / "python"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for python in (sys.executable, os.path.realpath(sys.executable), f"/usr/bin/{version}"):
        script.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {python} "$@"\n')
        script.chmod(0o755)
        if _runs(script):
            return script
    raise SlurmMissing(
        f"an ordinary user can't run {sys.executable} nor /usr/bin/{version}, so the sidecar can't either"
    )


def _runs(python: Path) -> bool:
    try:
        return not subprocess.run(
            [python, "-P", "-c", NEEDED], cwd="/", env={}, user=NOBODY, group=NOBODY, extra_groups=[],
            stdin=subprocess.DEVNULL, capture_output=True,
        ).returncode  # fmt: skip
    except OSError:
        return False

"""The Slurm plugin built from the clone, and a Python that runs the sidecar for a job's user."""

import compileall
import os
import subprocess
import sys
from pathlib import Path

from tests.slurm.tools.machine import SlurmMissing
from tests.tools.captures.other_users import copy_packages
from tests.tools.sources import ROOT

SOURCE = ROOT / "deploy" / "slurm" / "spank"
NOBODY = 65534
NEEDED = "import logshipper.sidecar.sidecar, orjson, yaml"


def build(folder: Path) -> Path:
    """Build the plugin. Return its path below folder, with the keeper next to it. Raise
    SlurmMissing."""
    if not (SOURCE / "Makefile").exists():
        raise SlurmMissing(f"there is no plugin in {SOURCE}")
    target = folder / "plugin"
    command = ["make", "-C", str(SOURCE), f"BUILD={target}"]
    result = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if result.returncode:
        raise SlurmMissing(f"{' '.join(command)} ended with {result.returncode}:\n{result.stdout}")
    return target / "logshipper.so"


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

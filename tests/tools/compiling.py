"""Compile the tests while something else runs: `python -m tests.tools.compiling COMMAND...`.

In a fresh clone, each worker of the tests would otherwise rewrite the assertions of all files, and
look for constants in all modules for hypothesis, at the same time. One collection of the tests does
both, and keeps the results in the clone. Exit code: COMMAND's.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.tools.sources import ROOT

_FEW = 20  # the workers compile so many changed files themselves


def main(command: Sequence[str]) -> int:
    files = stale_files(ROOT / "tests")
    if len(files) <= _FEW:
        return subprocess.run(command).returncode
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", *files],
        cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as collection:  # fmt: skip
        try:
            status = subprocess.run(command).returncode
            collection.wait()  # the tests report its errors
        finally:
            collection.terminate()
    return status


def stale_files(folder: Path) -> list[str]:
    """Return files of tests below the folder without a compiled form as young as they are."""
    stale = []
    for path in sorted(folder.rglob("test_*.py")):
        compiled = path.parent.glob(f"__pycache__/{path.stem}.{sys.implementation.cache_tag}-pytest-*.pyc")  # fmt: skip
        written = max((file.stat().st_mtime for file in compiled), default=0.0)
        if written < path.stat().st_mtime:
            stale.append(str(path))
    return stale


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)

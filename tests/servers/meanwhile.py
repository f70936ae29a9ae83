"""Get the servers while something else runs: `python -m tests.servers.meanwhile COMMAND...`.

Builds run at low priority (go.py). If a required Loki is missing, COMMAND does not run. Exit code:
COMMAND's, or else that of getting the servers.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.servers import build, setting
from tests.servers.progress import Progress
from tests.tools.sources import ROOT

LOG = ROOT / "build" / "tests" / "servers.log"
LOOK_SECS = 1.0


def main(command: Sequence[str]) -> int:
    if setting.MUST_LOKI and (status := build.main(["loki"])):
        return status
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("wb") as log, subprocess.Popen(
        [sys.executable, "-u", "-m", "tests.servers.build"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
    ) as getting:  # fmt: skip
        try:
            status = subprocess.run(command).returncode
            return status or _wait(getting)
        finally:
            getting.terminate()


def _wait(getting: "subprocess.Popen[bytes]") -> int:
    with Progress(f"Waiting for the servers of the tests ({LOG.relative_to(ROOT)})") as progress:
        while True:
            progress.doing = _last_line(LOG)
            try:
                status = getting.wait(LOOK_SECS)
                break
            except subprocess.TimeoutExpired:
                continue
    if status:
        print(LOG.read_text(errors="replace"), file=sys.stderr)
    return status


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)

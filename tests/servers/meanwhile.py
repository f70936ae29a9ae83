"""Get the servers and others' programs while something else runs: `python -m tests.servers.meanwhile
COMMAND...`.

Builds run at low priority (go.py), as do the installations (requirements/tools.sh). If a required
Loki is missing, COMMAND does not run. Exit code: COMMAND's, or else that of getting the servers. A
failed installation does not count: `make test-all` calls tools.sh once more, and shows its messages.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.servers import build, setting
from tests.servers.progress import Progress
from tests.tools.sources import ROOT

LOG = ROOT / "build" / "tests" / "servers.log"
TOOLS = ("nice", "-n", "10", str(ROOT / "requirements" / "tools.sh"))
TOOLS_LOG = LOG.with_name("tools.log")
LOOK_SECS = 1.0


def main(command: Sequence[str]) -> int:
    if setting.MUST_LOKI and (status := build.main(["loki"])):
        return status
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("wb") as log, _tools() as tools, subprocess.Popen(
        [sys.executable, "-u", "-m", "tests.servers.build"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
    ) as getting:  # fmt: skip
        try:
            status = subprocess.run(command).returncode or _wait(getting)
            if not status:
                with Progress(f"Waiting for programs of others ({TOOLS_LOG.relative_to(ROOT)})"):
                    tools.wait()
            return status
        finally:
            getting.terminate()


@contextlib.contextmanager
def _tools() -> Iterator["subprocess.Popen[bytes]"]:
    """Start the installations in a process group, and end the whole group if it still runs."""
    with TOOLS_LOG.open("wb") as log, subprocess.Popen(
        TOOLS, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)


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

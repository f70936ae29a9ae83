"""A test's own PID, mount, network and host name namespaces, held by `inside.py`. Processes inside
die with the first one, which ends with this process, even if this one is killed."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.slurm.tools import machine

INSIDE = Path(__file__).with_name("inside.py")
END_SECS = 10.0
OWN_NUMBER = """
import fcntl
NS_GET_MNTNS_ID = 0x8008B705  # ioctl_nsfs(2)
number = bytearray(8)
try:
    fcntl.ioctl(open("/proc/self/ns/mnt"), NS_GET_MNTNS_ID, number)
except OSError:
    pass
print(int.from_bytes(number, "little"))
"""


class Namespaces:
    """Own namespaces. files: places inside by their replacing files. failed(heading): makes the
    error to raise. first_pid: of the first process, as seen from outside. Not thread-safe."""

    def __init__(
        self,
        files: Mapping[str, str],
        log: Path,
        environment: Mapping[str, str],
        failed: Callable[[str], Exception],
    ) -> None:
        self._failed = failed
        command = [
            machine.program("unshare"), "--mount", "--net", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc",
            os.path.realpath(sys.executable), "-I", "-S", str(INSIDE),
            *(f"{source}={place}" for source, place in files.items()),
        ]  # fmt: skip
        with log.open("ab") as file, older_than_any():
            self._process = subprocess.Popen(
                command, cwd="/", env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file,
                start_new_session=True,
            )  # fmt: skip
        try:
            self._answer()
            (first,) = (
                Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
                .read_text()
                .split()
            )
        except BaseException:
            self.close()
            raise
        self.first_pid = int(first)
        os.sched_setaffinity(self.first_pid, os.sched_getaffinity(0))

    def enter(self, *kinds: str) -> list[str]:
        """Return the command that enters these namespaces: mount, net, pid, uts."""
        return [
            machine.program("nsenter"),
            "-t",
            str(self.first_pid),
            *(f"--{kind}" for kind in kinds),
            "--",
        ]

    def ask(self, **request: object) -> dict[str, Any]:  # Any: JSON of inside.py
        """Return its answer. Raise the exception of failed() on an error."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = (
            json.loads(line) if line else {"error": "the first process inside has ended"}
        )
        if answer["error"]:
            raise self._failed(answer["error"])
        return answer

    def close(self) -> None:
        """End all processes inside."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(END_SECS)
        except subprocess.TimeoutExpired:
            process.kill()  # --kill-child also kills all others inside
            process.wait()
        process.stdout.close()


@contextlib.contextmanager
def older_than_any() -> Iterator[None]:
    """Run this thread and its children on the processor with the lowest namespace numbers.

    Linux 6.18 counts namespaces per processor. It binds a mount namespace to a file, as
    job_container/tmpfs does, only if that namespace has a higher number than the caller's.
    """
    usual = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(sorted(usual), key=_next_number)})
        yield
    finally:
        os.sched_setaffinity(0, usual)


def _next_number(processor: int) -> int:
    """Return the number of the next mount namespace on a processor, 0 if the kernel does not report
    it."""
    os.sched_setaffinity(0, {processor})
    own = [machine.program("unshare"), "--mount", sys.executable, "-I", "-S", "-c", OWN_NUMBER]
    done = subprocess.run(own, stdout=subprocess.PIPE, check=False)
    return int(done.stdout or 0)

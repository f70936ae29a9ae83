"""Orders for the sender, a process of its own, and its answers. Light: subprocess is imported late."""

import json
import os
import sys

from logshipper.spool.segment import Json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from subprocess import Popen

SEND_SECS = 8.0  # of a sender; then it ends itself and its commands
CHECK = "check"  # the kind of an order that sends nothing
TEST = "test"


def start(order: Json) -> "Popen[bytes]":
    """Start a sender with an order of a few KiB. Raises OSError. Its command line names no target."""
    import subprocess

    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "logshipper.notify.sender"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdin is not None  # noqa: S101  by PIPE
    try:
        process.stdin.write(json.dumps(order).encode())
        process.stdin.close()
    except BrokenPipeError:
        pass  # it has died: its exit code tells
    process.stdin = None  # `communicate` would flush it
    return process


def check(targets: "Iterable[str]", cwd: str | None) -> list[str]:
    """Check targets without a message; return a sentence for each problem. Raises TimeoutError."""
    return _execute({"kind": CHECK, "targets": [*targets], "cwd": cwd})


def test(targets: "Iterable[str]") -> list[str]:
    """Send a test message; return and raise as `check`."""
    text = "A test message of logshipper"
    message = {"job_id": "", "title": text, "body": f"{text}.", "brief": "", "cwd": None}
    return _execute({"kind": TEST, "targets": [*targets], **message})


def _execute(order: Json) -> list[str]:
    """Execute an order; return a sentence for each failed target. Raises TimeoutError."""
    import subprocess

    process = start(order)
    try:
        output, _ = process.communicate(timeout=SEND_SECS + 2)
    except subprocess.TimeoutExpired:
        kill(process)
        raise TimeoutError("no answer in time") from None
    return [f"{fault['target']}: {fault['reason']}" for fault in faults(output, process.returncode)]


def label(reference: str) -> str:
    """Return a target's name without secrets: a place of targets is public."""
    kind = reference.partition(":")[0]
    return reference if kind in ("file", "env") else kind


def kill(process: "Popen[bytes]") -> None:
    """Kill a sender and its commands."""
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        pass  # it has just ended
    process.wait()


def faults(output: bytes, exit_code: int) -> list[Json]:
    """Return the failed targets of an ended sender, each with `target` and `reason`, or `held` for
    a message that another one of the last hour precedes."""
    answers = [json.loads(line) for line in output.splitlines() if line.endswith(b"}")]
    if not answers:
        reason = f"the process that sends messages ended with exit code {exit_code}"
        return [{"target": "all targets", "reason": reason}]
    return [answer for answer in answers if answer.keys() != {"target"}]

"""Run scripts in the virtual machine, for `python -m tests.vm.run` outside of it. Requests arrive
over a virtio-serial port, answers return the same way. The machine runs a copy of this file with
its own Python, so it imports nothing of ours.

A message is one line with a JSON object. Each start of the machine sends `{"boot": ID}`. A request
is `{"id": 1, "script": "...", "user": "", "secs": 60}`, its answer `{"id": 1, "code": 0, "output":
"..."}`.

Scripts run side by side, by bash, in the user's home. output: the last MAX_OUTPUT bytes of both
streams. code: the script's exit code, 128 plus the number of a fatal signal, or TIMED_OUT after
`secs`.
"""

import json
import os
import pwd
import subprocess
import sys
import threading
from typing import Any, BinaryIO

PORT = "/dev/virtio-ports/logshipper"
MAX_OUTPUT = 64_000_000
TIMED_OUT = 124
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def encode(message: dict[str, Any]) -> bytes:  # Any: JSON
    """Return the message as a line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class Decoder:
    """Decode messages from incoming bytes. It skips anything else, such as half a message that a
    reset cut off."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the messages that are now complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        messages = []
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict):
                messages.append(message)
        return messages


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Run a request, and return its answer."""
    name = request.get("user") or "root"
    user = pwd.getpwnam(name)
    environment = {
        "HOME": user.pw_dir, "USER": name, "LOGNAME": name, "SHELL": "/bin/bash", "PATH": PATH, "LANG": "C.UTF-8",
    }  # fmt: skip
    process = subprocess.Popen(
        ["/bin/bash", "-c", request["script"]], cwd=user.pw_dir, env=environment, user=user.pw_uid,
        group=user.pw_gid, extra_groups=[], umask=0o022, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    code = None
    try:
        output, _ = process.communicate(timeout=request.get("secs", 60))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        output, _ = process.communicate()
        code = TIMED_OUT
    if code is None:
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    text = output[-MAX_OUTPUT:].decode(errors="replace")
    return {"id": request["id"], "code": code, "output": text}


def serve(port: BinaryIO) -> None:
    """Serve requests until the port closes."""
    lock = threading.Lock()

    def send(message: dict[str, Any]) -> None:
        line = encode(message)
        with lock:
            while line:
                line = line[port.write(line) or 0 :]

    def answer(request: dict[str, Any]) -> None:
        try:
            send(run(request))
        except (OSError, KeyError, subprocess.SubprocessError) as error:
            send({"id": request.get("id"), "code": 127, "output": repr(error)})

    with open("/proc/sys/kernel/random/boot_id") as file:
        send({"boot": file.read().strip()})
    decoder = Decoder()
    while data := port.read(1 << 16):
        for request in decoder.feed(data):
            threading.Thread(target=answer, args=(request,), daemon=True).start()


if __name__ == "__main__":
    with open(sys.argv[1] if len(sys.argv) > 1 else PORT, "r+b", buffering=0) as opened:
        serve(opened)

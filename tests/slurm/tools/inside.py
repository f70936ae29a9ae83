"""The cluster's first process, in its own namespaces. It starts daemons on request, reaps orphans,
and kills all remaining processes when stdin ends. Its death ends all processes of the cluster.

    unshare --mount --net --pid --uts ... python inside.py FILE=PLACE...    FILE: mounted over PLACE, for us alone

Each line of stdin is a request, one JSON object, and gets one as an answer:
- {"do": "start", "name", "argv", "log"}
- {"do": "signal", "name", "signo"}
- {"do": "ended"} (answer: wait statuses of ended daemons, by name)

It uses only the standard library, because it runs with `-I -S`.
"""

import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from typing import Any

SIOCSIFFLAGS, SIOCSIFADDR, IFF_UP = 0x8914, 0x8916, 1  # netdevice(7)
NSCD = "/run/nscd"  # it would answer for the machine's users instead of ours


class Init:
    def __init__(self) -> None:
        self.pids: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        self.awake, wake = os.pipe()
        os.set_blocking(wake, False)
        # without a handler, Python writes nothing to `wake`
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self) -> None:
        rest = b""
        while True:
            readable, _, _ = select.select([0, self.awake], [], [])
            if self.awake in readable:
                os.read(self.awake, 4096)
                self.reap()
            if 0 in readable:
                some = os.read(0, 65536)
                if not some:
                    return
                *requests, rest = (rest + some).split(b"\n")
                for request in requests:
                    os.write(1, json.dumps(self.answer(json.loads(request))).encode() + b"\n")

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for name, running in list(self.pids.items()):
                if running == pid:
                    del self.pids[name]
                    self.ended[name] = status

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:  # Any: our own JSON
        try:
            if request["do"] == "start":
                self.start(request["name"], request["argv"], request["log"])
            elif request["do"] == "signal" and request["name"] in self.pids:
                os.kill(self.pids[request["name"]], request["signo"])
        except OSError as error:
            return {"error": str(error), "ended": self.ended}
        return {"error": "", "ended": self.ended}

    def start(self, name: str, argv: list[str], log: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        self.ended.pop(name, None)
        self.pids[name] = os.posix_spawnp(
            argv[0], argv, os.environ, file_actions=actions, setsid=True
        )


def bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
        # Slurm resolves names with AI_ADDRCONFIG, which fails if 127.0.0.1 is the only address
        address = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton("127.0.0.2"))
        fcntl.ioctl(any_socket, SIOCSIFADDR, struct.pack("16s16s", b"lo:1", address))


def mount(own_files: list[str]) -> None:
    for pair in own_files:
        source, _, place = pair.partition("=")
        subprocess.run(["mount", "--bind", source, place], check=True)
    if os.path.isdir(NSCD):
        subprocess.run(["mount", "-t", "tmpfs", "none", NSCD], check=True)


def main() -> None:
    socket.sethostname("localhost")  # resolves without network
    bring_up_loopback()
    mount(sys.argv[1:])
    init = Init()
    os.write(1, b'{"error": "", "ended": {}}\n')
    try:
        init.serve()
    finally:
        os.kill(-1, signal.SIGKILL)  # all others in our namespace


if __name__ == "__main__":
    main()

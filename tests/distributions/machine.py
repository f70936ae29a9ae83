"""A machine of a distribution: an overlay in memory over a cached root. Only machines that build
packages have a network."""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from tests.distributions.releases import SLURM, TOOLS, Release
from tests.tools.debootstrap import environment, inside, root
from tests.tools.waiting import scaled

SCRIPT_SECS = 900.0
# an admin's setting in the packaged file
SET_URL = (
    """sed -i '0,/^url = ""/s,,url = "http://loki.example.org:3100",' /etc/logshipper/agent.toml"""
)
UPDATE = "apt-get -qq update"


def build_root(release: Release, mirror: str = "") -> Path:
    """Return a root with the guide's prerequisites and the distribution's own package checker.
    Raises ServerMissing."""
    more = ("rpm", "rpmlint") if release.rpms else ()
    install = f"{UPDATE} && apt-get -qq install {' '.join((*TOOLS, release.venv, *more))}"
    name, packages = f"build-{release.name}", ("ca-certificates",)  # for pip
    return root(name, release.distribution, release.name, packages, install, site=mirror)


def clean_root(release: Release, mirror: str = "") -> Path:
    """Return a root with Slurm installed, as on an admin's machine. Its apt cache holds
    our packages' dependencies and Slurm's plugins. Raises ServerMissing."""
    fetch = (
        f"{UPDATE} && apt-get -qq --download-only install python{release.python} && "
        "apt-get -qq --download-only --reinstall install slurm-wlm-basic-plugins"
    )
    return root(
        f"slurm-{release.name}", release.distribution, release.name, SLURM, fetch, site=mirror
    )


class Failed(Exception):
    """A script ended with a nonzero exit code. str: script, code and output."""


class Machine:
    """`with` mounts the machine in the mount namespace of a child process, and removes it at the
    end."""

    def __init__(self, base: Path, *, network: bool) -> None:
        self.base = base
        self.network = network
        self.folder = Path(tempfile.mkdtemp(prefix="logshipper-machine-"))
        self._keeper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        work = self.folder / "work"
        script = f"""
            mkdir {work}
            mount -t tmpfs -o mode=755,size=80% none {work}
            mkdir {work}/upper {work}/work {work}/root
            mount -t overlay -o lowerdir={self.base},upperdir={work}/upper,workdir={work}/work overlay {work}/root
            hostname node1
            echo ready
            exec cat
        """
        net = [] if self.network else ["--net"]
        self._keeper = subprocess.Popen(
            ["unshare", "--mount", "--uts", *net, "--kill-child", "--fork", "sh", "-ec", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/",
        )  # fmt: skip
        assert self._keeper.stdout is not None
        if self._keeper.stdout.readline() != b"ready\n":
            self.__exit__()
            raise Failed(f"no overlay over {self.base} could be mounted")
        return self

    def __exit__(self, *_: object) -> None:
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            assert self._keeper.stdout is not None
            self._keeper.stdin.close()
            self._keeper.wait()
            self._keeper.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def path(self) -> Path:
        """The machine's / as seen from this machine, while mounted."""
        assert self._keeper is not None
        (child,) = (
            Path(f"/proc/{self._keeper.pid}/task/{self._keeper.pid}/children").read_text().split()
        )
        return Path(f"/proc/{child}/root{self.folder}/work/root")

    def run(self, script: str, *, check: bool = True) -> str:
        """Run a shell script as root on the machine and return its output. Raises Failed."""
        child = self.path.parts[2]
        spaces = ["nsenter", "-t", child, "--mount", "--uts", *([] if self.network else ["--net"])]
        done = subprocess.run(
            [*spaces, "--", *inside(self.folder / "work/root", "sh", "-euc", f"cd /root\n{script}")],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=environment(), cwd="/", timeout=scaled(SCRIPT_SECS),
        )  # fmt: skip
        output = done.stdout.decode(errors="replace")
        if check and done.returncode:
            raise Failed(f"exit code {done.returncode} of\n{script}\n{output}")
        return output

    def take(self, pattern: str, folder: Path) -> list[Path]:
        """Copy files from the machine into a local folder."""
        paths = sorted(self.path.glob(pattern.lstrip("/")))
        return [Path(shutil.copy(path, folder)) for path in paths]

    def put(self, paths: list[Path], folder: str) -> None:
        place = self.path / folder.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        for path in paths:
            if path.is_dir():
                shutil.copytree(path, place / path.name, symlinks=True)
            else:
                shutil.copy(path, place)

"""Prometheus and VictoriaMetrics: from the PATH, or else from Debian's packages.

The packages are unpacked into the cache instead of installed, so that no service of the system
starts.
"""

import gzip
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.servers.go import run
from tests.servers.places import CACHE, MACHINE, ServerMissing, locked, made_whole
from tests.servers.progress import Progress


@dataclass(frozen=True)
class PackageProgram:
    """A package's programs.

    paths: the server's first; version: such as 2.42.0; origin: a text for people.
    """

    paths: tuple[Path, ...]
    version: str
    origin: str

    @property
    def program(self) -> Path:
        return self.paths[0]


@dataclass(frozen=True)
class DebianPackage:
    """A package of Debian.

    title: for people; programs: the server's name first; version_words: option that prints its
    version, and the text before the version; site: another source.
    """

    name: str
    title: str
    programs: tuple[str, ...]
    version_words: tuple[str, str]
    site: str

    @property
    def install(self) -> str:
        return f"install {self.title} (apt install {self.name}, or {self.site}) so that it is on the PATH"

    def find(self) -> PackageProgram | None:
        """Return the program found on this machine; None if neither the PATH nor the cache has
        it."""
        on_path = [Path(path) for path in map(shutil.which, self.programs) if path]
        folder = self._place() / "usr" / "bin"
        unpacked = [folder / name for name in self.programs]
        for paths, origin in ((on_path, "from the PATH"), (unpacked, "Debian's package")):
            version = self._version(paths[0]) if len(paths) == len(self.programs) else ""
            if version:
                return PackageProgram(tuple(paths), version, origin)
        return None

    def fetch(self) -> PackageProgram:
        """Return the program; fetch it first if necessary. Raises ServerMissing."""
        program = self.find()
        if program is not None:
            return program
        if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
            raise ServerMissing(
                f"neither {self.title} nor apt-get to fetch it is on the PATH; {self.install}"
            )
        with locked(self.name):
            if not self._place().exists():
                with (
                    Progress(f"Fetching Debian's package of {self.title} into {CACHE}"),
                    made_whole(self._place()) as scratch,
                ):
                    self._unpack(scratch)
        program = self.find()
        if program is None:
            raise ServerMissing(
                f"Debian's {self.title} in {self._place()} doesn't run here; {self.install}"
            )
        return program

    def _unpack(self, folder: Path) -> None:
        """Download with the system's lists of packages, or with new ones if those are missing or
        old."""
        apt = ["apt-get", "-q", "-o", "APT::Sandbox::User=root"]
        try:
            run([*apt, "download", self.name], folder, os.environ, None, "")
        except ServerMissing:
            state = folder / "apt"
            for name in ("lists/partial", "cache/archives/partial"):
                (state / name).mkdir(parents=True)
            places = (f"Dir::State::lists={state / 'lists'}", f"Dir::Cache={state / 'cache'}")
            apt += [word for place in places for word in ("-o", place)]
            failure = f"the lists of packages couldn't be fetched; {self.install}"
            run([*apt, "update"], folder, os.environ, None, failure)
            failure = f"there is no package {self.name}; {self.install}"
            run([*apt, "download", self.name], folder, os.environ, None, failure)
            shutil.rmtree(state)
        (package,) = folder.glob(f"{self.name}_*.deb")
        command = ["dpkg-deb", "-x", str(package), str(folder)]
        run(command, folder, os.environ, None, "the package couldn't be unpacked")
        package.unlink()

    def _place(self) -> Path:
        return CACHE / f"{self.name}-{_system()}-{MACHINE}"

    def _version(self, program: Path) -> str:
        """Return its version; "" if it doesn't run."""
        option, words = self.version_words
        changes = program.parents[1] / "share" / "doc" / self.name / "changelog.Debian.gz"
        try:
            process = subprocess.run(
                [program, option], capture_output=True, text=True, timeout=60, check=True
            )
            match = re.search(rf"{words}(\d[\d.]*\d)", process.stdout + process.stderr)
            if match is None:  # Debian's VictoriaMetrics doesn't print its own
                match = re.search(r"\((\d[\d.]*\d)", gzip.decompress(changes.read_bytes()).decode())
        except (OSError, subprocess.SubprocessError):
            return ""
        return match[1] if match else ""


PROMETHEUS = DebianPackage(
    "prometheus",
    "Prometheus",
    ("prometheus", "promtool"),
    ("--version", "version "),
    "https://prometheus.io/download",
)
VICTORIA_METRICS = DebianPackage(
    "victoria-metrics",
    "VictoriaMetrics",
    ("victoria-metrics",),
    ("-version", "-v"),
    "https://victoriametrics.com",
)


def _system() -> str:
    """Return a name such as debian-12, because several systems may share a home."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return "linux"
    return f"{release['ID']}-{release.get('VERSION_ID', 'testing')}"

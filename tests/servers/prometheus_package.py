"""Prometheus and promtool: those on the PATH, or else Debian's package, unpacked into the cache and
not installed, so that no service of the system is started."""

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

INSTALL = "install Prometheus (apt install prometheus, or https://prometheus.io/download) so that it is on the PATH"


@dataclass(frozen=True)
class PrometheusProgram:
    """program, promtool: paths; version: such as 2.42.0; origin: where they are from, for
    people."""

    program: Path
    promtool: Path
    version: str
    origin: str


def find() -> PrometheusProgram | None:
    """Prometheus as it is here; None where it was never fetched."""
    program, promtool = shutil.which("prometheus"), shutil.which("promtool")
    if program and promtool:
        version = _version(Path(program))
        if version:
            return PrometheusProgram(Path(program), Path(promtool), version, "from the PATH")
    folder = _place() / "usr" / "bin"
    if not os.access(folder / "prometheus", os.X_OK):
        return None
    version = _version(folder / "prometheus")
    if not version:
        return None
    return PrometheusProgram(
        folder / "prometheus", folder / "promtool", version, "Debian's package"
    )


def fetch() -> PrometheusProgram:
    """The same, fetched where need be. Raises ServerMissing."""
    program = find()
    if program is not None:
        return program
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise ServerMissing(f"neither Prometheus nor apt-get to fetch it is on the PATH; {INSTALL}")
    with locked("prometheus"):
        if not _place().exists():
            with (
                Progress(f"Fetching Debian's package of Prometheus into {CACHE}"),
                made_whole(_place()) as scratch,
            ):
                _unpack(scratch)
    program = find()
    if program is None:
        raise ServerMissing(f"Debian's Prometheus in {_place()} doesn't run here; {INSTALL}")
    return program


def _unpack(folder: Path) -> None:
    """Downloads by the system's lists of packages, or where they are missing or old by lists of its
    own."""
    apt = ["apt-get", "-q", "-o", "APT::Sandbox::User=root"]
    try:
        run([*apt, "download", "prometheus"], folder, os.environ, None, "")
    except ServerMissing:
        state = folder / "apt"
        for name in ("lists/partial", "cache/archives/partial"):
            (state / name).mkdir(parents=True)
        apt += ["-o", f"Dir::State::lists={state / 'lists'}", "-o", f"Dir::Cache={state / 'cache'}"]
        run(
            [*apt, "update"],
            folder,
            os.environ,
            None,
            f"the lists of packages couldn't be fetched; {INSTALL}",
        )
        run(
            [*apt, "download", "prometheus"],
            folder,
            os.environ,
            None,
            f"there is no package prometheus; {INSTALL}",
        )
        shutil.rmtree(state)
    (package,) = folder.glob("prometheus_*.deb")
    run(
        ["dpkg-deb", "-x", str(package), str(folder)],
        folder,
        os.environ,
        None,
        "the package couldn't be unpacked",
    )
    package.unlink()


def _place() -> Path:
    return CACHE / f"prometheus-{_system()}-{MACHINE}"


def _system() -> str:
    """Such as debian-12: a home may be shared by several."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return "linux"
    return f"{release['ID']}-{release.get('VERSION_ID', 'testing')}"


def _version(program: Path) -> str:
    """ "" where it doesn't run."""
    try:
        process = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.search(r"version (\d[\d.]*)", process.stdout + process.stderr)
    return match[1] if match else ""

"""Slurm's headers in the releases of Debian and Ubuntu.

apt downloads each release's package libslurm-dev into the cache once, and installs nothing.
"""

import re
import shutil
import subprocess
from pathlib import Path

from tests.servers.places import CACHE, ServerMissing, locked, made_whole
from tests.tools.debootstrap import environment, keyring, mirror

# distribution of each suite, and the part of its archive with Slurm
SUITES = {
    "bullseye": ("Debian", "main"),
    "jammy": ("Ubuntu", "universe"),
    "bookworm": ("Debian", "main"),
    "noble": ("Ubuntu", "universe"),
    "trixie": ("Debian", "main"),
    "resolute": ("Ubuntu", "universe"),
    "forky": ("Debian", "main"),
}
PACKAGE = "libslurm-dev"
APT_SECS = 300.0
_VERSION = re.compile(r"#define\s+SLURM_VERSION_NUMBER\s+0x([0-9a-f]+)")


def headers(suite: str) -> Path:
    """Return the folder that contains `slurm/spank.h`. Raises ServerMissing."""
    place = CACHE.parent / "headers" / suite
    with locked(f"headers-{suite}"):
        place.parent.mkdir(exist_ok=True)
        if not place.exists():
            with made_whole(place) as scratch:
                _get(suite, scratch)
    return place


def release(folder: Path) -> tuple[int, int]:
    """Return major and minor version of headers."""
    for name in ("slurm_version.h", "slurm.h"):
        path = folder / "slurm" / name
        match = _VERSION.search(path.read_text()) if path.exists() else None
        if match:
            number = int(match[1], 16)
            return number >> 16, number >> 8 & 0xFF
    raise AssertionError(f"{folder} has no version of Slurm")


def _get(suite: str, folder: Path) -> None:
    """Fill a folder with headers, by an apt that has all its state in that folder."""
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise ServerMissing(f"{program} isn't here: headers come from Debian's archives by it")
    distribution, component = SUITES[suite]
    (keys,) = keyring(distribution)
    apt = folder / "apt"
    for name in ("lists/partial", "cache/archives/partial", "debs"):
        (apt / name).mkdir(parents=True)
    (apt / "status").touch()
    (apt / "sources").write_text(
        f"deb [arch=amd64 signed-by={keys.removeprefix('--keyring=')}] {mirror(distribution)} {suite} {component}\n"
    )
    options = {
        "Dir::Etc::SourceList": apt / "sources", "Dir::Etc::SourceParts": "/dev/null", "Dir::Cache": apt / "cache",
        "Dir::State::Lists": apt / "lists", "Dir::State::status": apt / "status", "APT::Architecture": "amd64",
        "APT::Architectures": "amd64", "APT::Sandbox::User": "root", "Acquire::Languages": "none",
    }  # fmt: skip
    command = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    _run([*command, "update"], apt, suite)
    _run([*command, "download", PACKAGE], apt / "debs", suite)
    (package,) = (apt / "debs").glob("*.deb")
    _run(["dpkg-deb", "--extract", str(package), str(apt / "root")], apt, suite)
    shutil.copytree(apt / "root/usr/include/slurm", folder / "slurm")
    shutil.rmtree(apt)


def _run(command: list[str], folder: Path, suite: str) -> None:
    try:
        result = subprocess.run(
            command, cwd=folder, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=APT_SECS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ServerMissing(f"{PACKAGE} of {suite}: apt took over {APT_SECS:.0f} s") from None
    if result.returncode:
        raise ServerMissing(f"{PACKAGE} of {suite}: {result.stdout.strip()[-300:]}")

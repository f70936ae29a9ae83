"""A machine as an admin finds it: Debian with Slurm, and nothing of logshipper. Made once by
debootstrap from the mirror that this machine's apt uses, and kept in the cache; each machine of a
test is an overlay over it."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.servers.places import CACHE, ServerMissing, locked, made_whole
from tests.servers.progress import Progress
from tests.slurm.machine import SBIN, SlurmMissing
from tests.tools.waiting import scaled

PACKAGES = ("slurmd", "slurmctld", "slurm-client", "munge")
OF_DEBIAN_12 = (
    "python3.11"  # what the packages need besides: fetched beforehand, installed by apt in the test
)
MAKE_SECS = 1200.0
VERSION = 1  # of what is made here


def clean_root() -> Path:
    """The folder, never to be written to. Raises SlurmMissing."""
    site, suite = _mirror()
    debootstrap = shutil.which("debootstrap", path=f"{os.environ.get('PATH', os.defpath)}:{SBIN}")
    if debootstrap is None:
        raise SlurmMissing(
            "debootstrap isn't installed; requirements/system.sh does it (Debian: debootstrap)"
        )
    place = CACHE.parent / "roots" / f"{suite}-{VERSION}"
    try:
        with locked(f"root-{suite}"):
            place.parent.mkdir(exist_ok=True)
            if not place.exists():
                with (
                    Progress(f"Making a Debian {suite} with Slurm by debootstrap"),
                    made_whole(place) as scratch,
                ):
                    _make(debootstrap, scratch, site, suite)
    except ServerMissing as error:
        raise SlurmMissing(str(error)) from None
    return place


def _mirror() -> tuple[str, str]:
    if shutil.which("apt-get") is None:
        raise SlurmMissing("packages are installed on Debian only")
    release = dict(
        line.split("=", 1)
        for line in Path("/etc/os-release").read_text().splitlines()
        if "=" in line
    )
    suite = release.get("VERSION_CODENAME", "")
    result = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)", "Created-By: Packages"],
        capture_output=True, text=True,
    )  # fmt: skip
    sites = [
        line.split()[0]
        for line in result.stdout.splitlines()
        if line.split()[1:] == [suite, "main"]
    ]
    if suite != "bookworm" or not sites:
        raise SlurmMissing(
            "the packages are for Debian 12, and this isn't one with its mirror in apt's sources"
        )
    return sites[0], suite


def _make(debootstrap: str, folder: Path, site: str, suite: str) -> None:
    folder.chmod(0o755)  # it is /, for users of packages, too
    log = folder.with_name("debootstrap.log")
    commands = [
        [
            debootstrap,
            "--variant=minbase",
            f"--include={','.join(PACKAGES)}",
            suite,
            str(folder),
            site,
        ],
        [
            "chroot",
            str(folder),
            "apt-get",
            "-qq",
            "--yes",
            "install",
            "--download-only",
            OF_DEBIAN_12,
        ],
    ]
    with log.open("w") as output:
        for command in commands:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=scaled(MAKE_SECS),
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive",
                     **{name: os.environ[name] for name in ("http_proxy", "https_proxy") if name in os.environ}},
            )  # fmt: skip
            if done.returncode:
                tail = "\n".join(log.read_text().splitlines()[-10:])
                raise SlurmMissing(f"{' '.join(command)} ended with {done.returncode}:\n{tail}")

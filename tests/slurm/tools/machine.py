"""What this machine has of what a Slurm cluster needs; what is missing is said with what to do
about it."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PROGRAMS = {
    "slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client", "munged": "munge",
    "unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux",
}  # fmt: skip
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"


class SlurmMissing(Exception):
    """A cluster isn't available on this machine. str: why, and what to do about it."""


def program(name: str) -> str:
    """Raises SlurmMissing."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{SBIN}")
    if path is None:
        raise SlurmMissing(
            f"{name} isn't installed; requirements/system.sh does it (Debian: {PROGRAMS[name]})"
        )
    return path


def check() -> None:
    """Raises SlurmMissing where no cluster can be started here, of whatever proctrack."""
    if os.geteuid() != 0:
        raise SlurmMissing("Slurm's daemons start jobs as other users: that needs root")
    for name in PROGRAMS:
        program(name)
    try:
        pwd.getpwnam("munge")
    except KeyError:
        raise SlurmMissing("there is no user munge, as the package munge makes it") from None
    command = [program("unshare"), "--mount", "--pid", "--fork", "--mount-proc", "true"]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode:
        raise SlurmMissing(
            f"root may not make namespaces here ({result.stderr.strip()}); a container needs --privileged, or at least "
            "CAP_SYS_ADMIN and no seccomp profile that forbids unshare and mount"
        )


def cgroup_version(controllers: tuple[str, ...] = ()) -> str:
    """`v1` or `v2`: which cgroups proctrack/cgroup can use here. controllers: what is needed
    besides, such as memory.

    Raises SlurmMissing.
    """
    if _kind_of_mount(CGROUPS) == "cgroup2":
        has = set((CGROUPS / "cgroup.controllers").read_text().split())
        folders = [CGROUPS]
        version = "v2"
    else:
        has = {
            name for name in (*controllers, "freezer") if _kind_of_mount(CGROUPS / name) == "cgroup"
        }
        controllers = (*controllers, "freezer")
        folders = [CGROUPS / name for name in sorted(has)]
        version = "v1"
    missing = sorted(set(controllers) - has)
    if missing:
        raise SlurmMissing(
            f"no cgroup controller {', '.join(missing)} below {CGROUPS} (cgroup {version})"
        )
    for folder in folders:
        _check_writable(folder)
    return version


def _kind_of_mount(place: Path) -> str:
    with open("/proc/self/mounts") as file:
        kinds = [words[2] for line in file if (words := line.split())[1] == str(place)]
    return kinds[-1] if kinds else ""


def _check_writable(folder: Path) -> None:
    try:
        os.rmdir(tempfile.mkdtemp(prefix="logshipper-test-", dir=folder))
    except OSError as error:
        raise SlurmMissing(
            f"cgroups can't be made in {folder}: {error.strerror}; a container needs --privileged and --cgroupns=host"
        ) from None


def remove_cgroups(place: Path) -> None:
    """Removes a cgroup and those below it, where nobody is in them."""
    for folder, _, _ in os.walk(place, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)

"""Requirements of a Slurm cluster on this machine. Errors name the missing part and its remedy."""

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
    """This machine cannot run a cluster. str: reason and remedy."""


def program(name: str) -> str:
    """Return the path of a program. Raise SlurmMissing."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{SBIN}")
    if path is None:
        raise SlurmMissing(
            f"{name} isn't installed; requirements/system.sh does it (Debian: {PROGRAMS[name]})"
        )
    return path


def check() -> None:
    """Raise SlurmMissing if this machine cannot run a cluster with any proctrack."""
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
    """Return the version of cgroups for proctrack/cgroup, `v1` or `v2`. controllers: further
    required ones, such as memory.

    Raise SlurmMissing.
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
    """Remove a cgroup and those below it if they have no processes."""
    for folder, _, _ in os.walk(place, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)

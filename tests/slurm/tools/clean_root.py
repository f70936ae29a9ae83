"""A clean machine before the installation: this machine's Debian or Ubuntu with Slurm, without
logshipper. Each machine of a test is an overlay over it."""

from pathlib import Path

from tests.servers.places import ServerMissing
from tests.slurm.tools.machine import SlurmMissing
from tests.tools.debootstrap import own_release, root

PACKAGES = ("slurmd", "slurmctld", "slurm-client", "munge")


def clean_root(python: str) -> Path:
    """Return the folder. Callers must not write to it. python: package to download in advance; the
    test installs it by apt. Raise SlurmMissing."""
    try:
        distribution, suite = own_release()
        fetch = f"apt-get -qq update && apt-get -qq --download-only install {python}"
        return root(suite, distribution, suite, PACKAGES, fetch)
    except ServerMissing as error:
        raise SlurmMissing(str(error)) from None

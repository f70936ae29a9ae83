"""Distributions for the virtual machine."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Release:
    """A release. name: in its archive. kernel: package of a kernel for virtual machines. script:
    debootstrap's script, of a release that every debootstrap knows. components: of the archive."""

    name: str
    distribution: str
    kernel: str
    script: str
    components: str = "main"


DEBIAN, UBUNTU = "linux-image-cloud-amd64", "linux-image-virtual"
RELEASES = {
    release.name: release
    for release in (
        Release("trixie", "Debian", DEBIAN, "sid"),
        Release("bookworm", "Debian", DEBIAN, "sid"),
        Release("forky", "Debian", DEBIAN, "sid"),
        Release("noble", "Ubuntu", UBUNTU, "gutsy", "main,universe"),
        Release("resolute", "Ubuntu", UBUNTU, "gutsy", "main,universe"),
    )
}
PACKAGES = (
    "systemd", "systemd-sysv", "udev", "dbus", "kmod", "iproute2", "procps", "initramfs-tools", "zstd",
    "slurmctld", "slurmd", "slurm-client", "munge", "libslurm-dev", "gcc", "make", "libc6-dev", "python3",
    "python3-venv",
)  # fmt: skip

"""The distributions that the virtual machine can be of."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Release:
    """name: as its archive has it. kernel: package of a kernel for virtual machines. more: packages
    that only this one needs. components: of the archive. script: debootstrap's, where its own
    doesn't know the release."""

    name: str
    distribution: str
    kernel: str
    more: tuple[str, ...] = ()
    components: str = "main"
    script: str = ""


RELEASES = {
    release.name: release
    for release in (
        Release("trixie", "Debian", "linux-image-cloud-amd64"),
        Release("bookworm", "Debian", "linux-image-cloud-amd64"),
        Release(
            "noble",
            "Ubuntu",
            "linux-image-virtual",
            components="main,universe",
            script="jammy",
        ),
    )
}
PACKAGES = (
    "systemd", "systemd-sysv", "udev", "dbus", "kmod", "iproute2", "procps", "initramfs-tools", "zstd",
    "slurmctld", "slurmd", "slurm-client", "munge", "libslurm-dev", "gcc", "make", "libc6-dev", "python3",
    "python3-venv",
)  # fmt: skip

"""The distributions that packages are made for and tried on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Release:
    """name: as its archive has it. label: what versions of packages have of it. python: what the
    package depends on. venv: the package that has it with venv. rpms: for which Enterprise Linux it
    makes RPMs, having that Python."""

    name: str
    distribution: str
    label: str
    python: str
    venv: str = "python3-venv"
    rpms: tuple[str, ...] = ()


RELEASES = {
    release.name: release
    for release in (
        Release("bookworm", "Debian", "deb12", "3.11", rpms=("el8", "el9")),
        Release("trixie", "Debian", "deb13", "3.13"),
        Release("forky", "Debian", "deb14", "3.14"),
        Release("jammy", "Ubuntu", "ubuntu22.04", "3.11", venv="python3.11-venv"),
        Release("noble", "Ubuntu", "ubuntu24.04", "3.12", rpms=("el10",)),
        Release("resolute", "Ubuntu", "ubuntu26.04", "3.14"),
    )
}
SLURM = ("slurmd", "slurmctld", "slurm-client", "munge")
# what deploy/slurm/README.md says, and the release's own check
TOOLS = ("make", "gcc", "libc6-dev", "libslurm-dev", "lintian")

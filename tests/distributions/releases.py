"""The supported distributions, with their own packages and trials."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Release:
    """name: code name in the archive. label: suffix of package versions. python: dependency of the
    package. venv: package of that Python's venv. rpms: Enterprise Linux releases with the same
    Python, so their RPMs are built here."""

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
# prerequisites in deploy/slurm/README.md, and the release's own checker
TOOLS = ("make", "gcc", "libc6-dev", "libslurm-dev", "lintian")

"""Packages built with the guide's commands, in a root that contains only the guide's prerequisites;
and the distribution's own checks of them."""

import re
from pathlib import Path
from typing import NamedTuple

from tests.distributions import other_slurm
from tests.distributions.machine import Failed, Machine
from tests.distributions.releases import Release
from tests.tools.sources import ROOT, copy_sources

SOURCE = "/usr/src/logshipper"
BUILD = f"cd {SOURCE}; export WHEELS=/wheels;"
RPMLINT = ROOT / "deploy" / "packages" / "rpm" / "rpmlint.toml"


class Packages(NamedTuple):
    """Folders of packages: first build, newer build with a higher number, plugin for another Slurm,
    RPMs. slurm: the distribution's Slurm release."""

    first: Path
    newer: Path
    other: Path
    rpms: Path
    slurm: str


def build(machine: Machine, release: Release, folder: Path) -> Packages:
    """Build all Debian packages. Raises Failed."""
    copy_sources(folder / "logshipper")
    machine.put([folder / "logshipper"], "/usr/src")
    machine.run(f"{BUILD} make deb")
    includes = f"'/usr/include {other_slurm.HEADERS}'"
    newer = f"RELEASE=2 SLURM_INCLUDE={includes} deploy/packages/build.sh deb /newer"
    machine.run(f"{other_slurm.MAKE_HEADERS}{BUILD} {newer}")
    for name in ("first", "newer", "other", "rpms"):
        (folder / name).mkdir()
    machine.take(f"{SOURCE}/dist/*.deb", folder / "first")
    for path in machine.take("/newer/*.deb", folder / "newer"):
        if path.name.startswith(f"logshipper-slurm-{other_slurm.RELEASE}_"):
            path.rename(folder / "other" / path.name)
    names = sorted(path.name for path in (folder / "first").iterdir())
    label = re.escape(release.label)
    found = [
        re.fullmatch(rf"logshipper(-slurm-([0-9.]+))?_[0-9.]+-1\+{label}_\w+\.deb", name)
        for name in names
    ]
    if len(names) != 2 or not all(found):
        raise Failed(f"`make deb` made {names}")
    (slurm,) = (match[2] for match in found if match and match[2])
    return Packages(folder / "first", folder / "newer", folder / "other", folder / "rpms", slurm)


def check(machine: Machine) -> None:
    """Check the packages with lintian. Raises Failed on an error."""
    machine.run(f"lintian --allow-root --fail-on error --no-tag-display-limit {SOURCE}/dist/*.deb")


def build_rpms(machine: Machine, release: Release, packages: Packages) -> None:
    """Build the RPMs of each Enterprise Linux with this distribution's Python. Rebuild the plugin
    for the Slurm here from its source package. Check all RPMs with rpmlint. Raises Failed."""
    for target in release.rpms:
        machine.run(f"{BUILD} make rpm TARGET={target}")
        machine.run(
            f"rpmbuild --rebuild --nodeps --define 'dist .{target}' {SOURCE}/dist/logshipper-slurm-*.src.rpm"
        )
    machine.run(
        f"rpmlint --config {SOURCE}/{RPMLINT.relative_to(ROOT)} {SOURCE}/dist/*.rpm /root/rpmbuild/RPMS/*/*.rpm"
    )
    for pattern in (f"{SOURCE}/dist/*.rpm", "/root/rpmbuild/RPMS/*/*.rpm"):
        machine.take(pattern, packages.rpms)

"""Preparation of runs of virtual machines: command line, a release's disk with this clone's
project, and QEMU's options on this machine."""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.servers.loki import fetch_loki
from tests.servers.places import ServerMissing
from tests.servers.progress import Progress
from tests.tools.sources import ROOT
from tests.vm.machine import MachineFailed, accelerator
from tests.vm.releases import RELEASES, Release
from tests.vm.root import base_root, disk, kernel

LOGS = ROOT / "build" / "vm"


class Prepared(NamedTuple):
    """A prepared disk image, which is temporary. accelerator: its name. options: QEMU's options for
    it."""

    release: Release
    root: Path
    image: Path
    accelerator: str
    options: Sequence[str]


@contextmanager
def prepared(release_name: str, mirror: str) -> Iterator[Prepared]:
    """Prepare a release's disk and QEMU's options. Raise ServerMissing."""
    release = RELEASES[release_name]
    fetch_loki()
    root = base_root(release, mirror)
    with tempfile.TemporaryDirectory(prefix="logshipper-vm-") as folder:
        image = Path(folder) / "disk"
        with Progress("Making the disk, with this clone's project"):
            disk(root, image)
        with Progress("Looking whether KVM runs a guest"):
            name, options = accelerator(*kernel(root))
        yield Prepared(release, root, image, name, options)


def command_line(module: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all runs share."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=description.partition("\n\n")[0]
    )
    parser.add_argument("--release", choices=RELEASES, default="trixie")
    parser.add_argument("--mirror", default="", help="of the distribution (default: apt's here)")
    return parser


def exit_code(run: Callable[[], int]) -> int:
    """Return the exit code of a run, or 2 without a machine."""
    if os.geteuid() != 0:
        print(
            "make test-vm: a machine's root is made by debootstrap, which needs root",
            file=sys.stderr,
        )
        return 2
    try:
        return run()
    except (ServerMissing, MachineFailed) as error:
        print(f"make test-vm: {error}", file=sys.stderr)
        return 2

"""`python -m tests.distributions.run [--mirror URL] [RELEASE ...]`: build, check and try packages
on each release, and print a table of the results. Exit code 1 after any failure."""

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.distributions.building import build, build_rpms, check
from tests.distributions.machine import Failed, Machine, build_root, clean_root
from tests.distributions.releases import RELEASES, Release
from tests.distributions.rpm_trial import try_rpms
from tests.distributions.trial import Trial
from tests.servers.places import ServerMissing
from tests.tools.sources import ROOT

RESULTS = ROOT / "build" / "packages"
COLUMNS = (
    "built",
    "checked",
    "rpms",
    "installed",
    "loaded",
    "slurm_changed",
    "upgraded",
    "rolled_back",
    "removed",
)


class Table:
    """outcomes: by release and column, seconds or `failed`."""

    def __init__(self) -> None:
        self.outcomes: dict[str, dict[str, str]] = {}
        self.failures: list[str] = []

    @contextmanager
    def step(self, release: Release, column: str) -> Iterator[None]:
        row = self.outcomes.setdefault(release.name, {})
        begin = time.monotonic()
        try:
            yield
        except (Failed, OSError) as error:
            row[column] = "failed"
            self.failures.append(f"{release.name}, {column}: {error}")
            raise
        row[column] = f"{time.monotonic() - begin:.0f} s"
        print(f"{release.name}: {column.replace('_', ' ')}, {row[column]}", flush=True)

    def text(self) -> str:
        lines = [["release", *(column.replace("_", " ") for column in COLUMNS), "MB"]]
        for name, row in self.outcomes.items():
            sizes = [path.stat().st_size for path in (RESULTS / name / "first").glob("*.deb")]
            megabytes = f"{sum(sizes) / 1e6:.1f}" if sizes else "-"
            lines.append([name, *(row.get(column, "-") for column in COLUMNS), megabytes])
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def try_release(release: Release, mirror: str, table: Table) -> None:
    folder = RESULTS / release.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with Machine(build_root(release, mirror), network=True) as machine:
        with table.step(release, "built"):
            packages = build(machine, release, folder)
        shutil.rmtree(folder / "logshipper")
        with table.step(release, "checked"):
            check(machine)
        if release.rpms:
            with table.step(release, "rpms"):
                build_rpms(machine, release, packages)
                try_rpms(machine, release)
    with Machine(clean_root(release, mirror), network=False) as machine:
        trial = Trial(machine, release, packages)
        steps: dict[str, Callable[[], None]] = {
            "installed": trial.installed, "loaded": trial.loaded, "slurm_changed": trial.slurm_changed,
            "upgraded": trial.upgraded, "rolled_back": trial.rolled_back, "removed": trial.removed,
        }  # fmt: skip
        for column, step in steps.items():
            with table.step(release, column):
                step()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.distributions.run")
    parser.add_argument(
        "--mirror", default="", help="of the releases that are named; else the usual ones"
    )
    parser.add_argument("releases", nargs="*", choices=[*RELEASES, []], metavar="RELEASE")
    arguments = parser.parse_args()
    table = Table()
    for name in arguments.releases or RELEASES:
        try:
            try_release(RELEASES[name], arguments.mirror, table)
        except (Failed, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
        except ServerMissing as error:
            table.failures.append(f"{name}: {error}")
            print(f"{name}: {error}", file=sys.stderr, flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "table").write_text(table.text() + "\n")
    print(table.text())
    for failure in table.failures:
        print(failure.splitlines()[0], file=sys.stderr)
    return int(bool(table.failures))


if __name__ == "__main__":
    sys.exit(main())

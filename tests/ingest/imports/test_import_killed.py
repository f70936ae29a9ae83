"""Imports that are killed (SIGKILL) at any point and repeated give the same as a single import."""

import random
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logshipper.start.cli import main
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.model.overlay import Overlay
from tests.tools.sources import ROOT
from tests.tools.stores.import_tools import RECORDED, contents, store
from tests.tools.stress import crashing
from tests.tools.waiting import scaled

__all__ = ["store"]  # fixture
IMPORTING = (
    "import_written", "import_committed", "imports_marked", "imports_synced", "import_named", "imports_named",
)  # fmt: skip
ONCE = ("imports_marked", "imports_synced", "imports_named")  # passed once for all jobs together
CHILD_SECS = scaled(60)
PATHS = {"balsam": RECORDED / "balsam", "qcg": RECORDED / "qcg", "xt": RECORDED / "xt"}


def snapshot(store: Path) -> dict[str, Any]:  # Any: what readers give
    """Return jobs, allocations, and tags and notes without their times."""
    jobs = contents(store)
    with LocalStore(str(store)) as local_store:
        marks = {
            place.job_id: replace(job_marks, changed_ns=0)
            for place, job_marks in Overlay.of_local(local_store).all().items()
        }
        return {"jobs": jobs, "allocations": local_store.allocations(), "marks": marks}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the result of a single import of each system's files."""
    snapshots = {}
    for system, path in PATHS.items():
        root = tmp_path_factory.mktemp(system) / "store"
        assert main(["import", system, str(path), "--store", str(root)]) == 0
        snapshots[system] = snapshot(root)
    return snapshots


def killed(store: Path, point: str, times: int, system: str) -> bool:
    """Whether the import passed the point so often, and was killed there."""
    flag = store.parent / f"killed-{point}-{times}"
    words = ("import", system, str(PATHS[system]), "--store", str(store))
    command = crashing.command(point, times, flag, "logshipper", *words)
    return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=CHILD_SECS).returncode < 0


@pytest.mark.parametrize("point", IMPORTING)
def test_killed_and_repeated(store: Path, whole: dict[str, Any], point: str) -> None:
    """Kill two imports at random passes of the point, among new jobs."""
    dice = random.Random(point)
    system = dice.choice(sorted(PATHS))
    times = 1 if point in ONCE else dice.randint(1, 2)
    assert killed(store, point, times, system)
    killed(store, point, times + 1, system)
    assert main(["import", system, str(PATHS[system]), "--store", str(store)]) == 0
    assert snapshot(store) == whole[system]
    assert not (store / "importing").exists()


@pytest.mark.parametrize("point", ["import_written", "import_committed", "imports_marked"])
def test_killed_among_jobs_that_are_known(store: Path, whole: dict[str, Any], point: str) -> None:
    """The jobs' tags come later than the jobs themselves. A killed import must not lose them."""
    events = RECORDED / "balsam" / "events.json"
    assert main(["import", "balsam", str(events), "--store", str(store)]) == 0
    assert killed(store, point, 1 if point in ONCE else 3, "balsam")
    assert main(["import", "balsam", str(PATHS["balsam"]), "--store", str(store)]) == 0
    assert snapshot(store) == whole["balsam"]
    assert not (store / "importing.marks").exists()


def test_again_writes_nothing(store: Path) -> None:
    for system, path in PATHS.items():
        assert main(["import", system, str(path), "--store", str(store)]) == 0
    before = {path: path.read_bytes() for path in sorted(store.rglob("*.db"))}
    for system, path in PATHS.items():
        assert main(["import", system, str(path), "--store", str(store)]) == 0
    assert len(before) > 14  # jobs' databases and the catalogue
    assert [
        path.name for path in sorted(store.rglob("*.db")) if path.read_bytes() != before.get(path)
    ] == []

"""Shared fixtures for tests of importers: a target store, and its contents."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logshipper.spool.segment import Stream
from logshipper.start.cli import main
from logshipper_ingest.store.local_store import LocalStore
from tests.tools.sources import ROOT

RECORDED = ROOT / "tests" / "imports"
Import = Callable[..., tuple[int, str, str]]


def contents(store: Path) -> dict[str, Any]:  # Any: values from readers
    """Return summary, details, events, children, changes, records and lines of each job, by its
    name."""
    jobs = {}
    with LocalStore(str(store)) as local_store:
        for job in local_store.jobs():
            with local_store.open(job.job_id) as reader:
                jobs[job.name] = {
                    "summary": reader.summary,
                    "details": reader.details(),
                    "events": [(event.time_ns, event.event) for event in reader.events()],
                    "children": list(reader.children()),
                    "changes": [change[:] for change in reader.child_changes()],
                    "records": [record.line for record in reader.records()],
                    "lines": [line.text for line in reader.lines(streams=tuple(Stream))],
                }
    return jobs


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return the target of `take`; the first import creates it."""
    return tmp_path / "store"


@pytest.fixture
def take(store: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Import:
    """Return a function that runs `logshipper import SYSTEM WORD...`.

    IMPORTS of the test's module has the system and the options for each call.
    """
    system, *options = request.module.IMPORTS

    def run(*words: str | Path) -> tuple[int, str, str]:
        code = main(["import", system, *map(str, words), *options, "--store", str(store)])
        return (code, *capsys.readouterr())

    return run

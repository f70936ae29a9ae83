"""Stores, spools and the agent's state of 0.1.0 (tests/stores): this version reads them and
completes unfinished work."""

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.tools.captures.captured_runs import Home
from tests.tools.sources import ROOT
from tests.tools.stores.shipping_node import ShippingNode

WRITTEN = ROOT / "tests" / "stores" / "0.1.0"
# Any: what its commands printed
EXPECTED: dict[str, Any] = json.loads((WRITTEN / "expected.json").read_text())
MANY_YEARS_HOURS = 1e6


@pytest.fixture
def old_folder(tmp_path: Path) -> Path:
    with tarfile.open(WRITTEN / "written.tar.xz") as archive:
        archive.extraction_filter = (
            tarfile.fully_trusted_filter if hasattr(tarfile, "fully_trusted_filter") else None
        )
        archive.extractall(tmp_path)  # noqa: S202  ours
    for file in tmp_path.rglob("identity.json"):  # give the capture to the user of the tests
        identity = json.loads(file.read_text())
        if "uid" in identity:
            times = file.stat().st_atime_ns, file.stat().st_mtime_ns
            file.write_text(json.dumps({**identity, "uid": os.geteuid(), "gid": os.getegid()}))
            os.utime(file, ns=times)
    return tmp_path


@pytest.fixture
def home(old_folder: Path) -> Home:
    return Home(old_folder)


def ask(home: Home, *words: str) -> str:
    done = home.call(*words)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


@pytest.mark.parametrize("job", ["first", "second", "third"])
def test_its_jobs_are_read(home: Home, job: str) -> None:
    """Two jobs are in the store, and one was still in the spool."""
    assert ask(home, "logs", job) == EXPECTED[job]["logs"]
    assert ask(home, "logs", job, "--stream", "stderr") == EXPECTED[job]["stderr"]
    assert ask(home, "metadata", job, "--format", "jsonl") == EXPECTED[job]["metadata"]
    document = json.loads(ask(home, "show", job, "--json"))
    assert document.pop("store") == str(home.store)
    # fields of later versions
    assert (document.pop("hints"), document.pop("start"), document.pop("details")) == ([], {}, {})
    assert document.pop("masked") == {}
    assert document.pop("missed_tasks") == {"number": 0, "total": 0}
    assert all(isinstance(value, int | float) for value in document.pop("metrics_rollup").values())
    assert len(document.pop("last_lines")) == (2 if document["state"] == "FAILED" else 0)
    assert document.pop("limit_secs") is None
    later = [(key.pop("origin"), key.pop("repeats")) for key in document["keys"]]
    assert set(later) <= {(None, None)}
    assert document == EXPECTED[job]["show"]


def test_its_list_is_read(home: Home) -> None:
    document = json.loads(ask(home, "ls", "--json"))
    assert document.pop("store") == str(home.store)
    later = [(job.pop("differs"), job.pop("limit_secs")) for job in document["jobs"]]
    assert later == [({}, None)] * 3, "fields that came later"
    assert document == EXPECTED["ls"]


def test_its_agents_state_is_gone_on_from(old_folder: Path) -> None:
    """One capture was shipped completely, one partly and one not at all."""
    node = ShippingNode(old_folder / "node")
    try:
        # without this limit, its lines are too old by now
        object.__setattr__(node.config.loki, "max_age_hours", MANY_YEARS_HOURS)
        checkpoints = {checkpoint.folder: checkpoint for checkpoint in node.checkpoints.shipped()}
        assert {
            folder: [
                checkpoint.identity.job_id,
                checkpoint.identity.attempt,
                *checkpoint.position,
                checkpoint.done,
                checkpoint.account.state,
                checkpoint.counts.entries,
            ]
            for folder, checkpoint in checkpoints.items()
        } == EXPECTED["node"]["shipped"]
        node.ship()
        lines = sorted(entry.line for entry in node.loki.find('kind="log"'))
        assert lines == [b"after", b"never shipped"]
    finally:
        node.close()

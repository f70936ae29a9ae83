"""A job's time limit, from its scheduler to `show`, for each kind of capture, in the local store
and in Loki."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logshipper.spool.captures import LIMIT_MAX_SECS
from logshipper.start.cli import main
from logshipper.start.launchers import LIMITS
from tests.tools.fakes.loki_fake import FakeLoki
from tests.tools.sources import ROOT
from tests.tools.stores.loki_job import push_spool
from tests.tools.stores.loki_pushing import asking
from tests.tools.stores.reading_store import Ask, SpooledCapture, ask, store
from tests.tools.waiting import scaled

__all__ = ["ask", "store"]  # fixtures

HOURS_2 = 7200
SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_START_TIME": "1700000000",
    "SLURM_JOB_END_TIME": "1700007200",
}


def shown(ask: Ask, job: str = "last") -> tuple[str, Any]:  # Any: JSON
    """Return the words of the row Duration, and the limit in JSON."""
    code, out, _ = ask("show", job)
    assert code == 0
    (words,) = [line for line in out.splitlines() if line.startswith("Duration")]
    document = json.loads(ask("show", job, "--json")[1])
    return words.removeprefix("Duration").strip(), document["limit_secs"]


@pytest.mark.parametrize(
    ("variables", "limit"),
    [
        (SLURM, HOURS_2),
        ({**SLURM, "SLURM_JOB_END_TIME": "soon"}, None),
        ({"PBS_JOBID": "4711.head", "PBS_WALLTIME": "7200"}, HOURS_2),
        ({}, None),
    ],
)
def test_the_schedulers_limit_is_in_show(
    variables: dict[str, str], limit: int | None, store: Path, ask: Ask
) -> None:
    plain = {name: value for name, value in os.environ.items() if name not in LIMITS}
    environment = {**plain, "LOGSHIPPER_STORE": str(store), "LOGSHIPPER_AGENT": "off", **variables}
    command = [sys.executable, "-m", "logshipper", "run", "--", "true"]
    assert subprocess.run(command, env=environment, cwd=ROOT, timeout=scaled(30.0)).returncode == 0
    words, recorded = shown(ask)
    assert recorded == limit
    assert words.endswith(" of 2h00m") == (limit is not None)


def test_a_running_job_has_so_much_of_its_time(store: Path, ask: Ask) -> None:
    with SpooledCapture(store, limit_secs=HOURS_2) as job:
        job.beat()
        words, _ = shown(ask)
    assert words.endswith(" of 2h00m so far")


def test_the_newest_attempts_limit_counts(store: Path, ask: Ask) -> None:
    """Slurm's administrators can change the limit between attempts."""
    with SpooledCapture(store, "7", 1, limit_secs=60) as job:
        job.end(1)
    with SpooledCapture(store, "7", 2, limit_secs=HOURS_2) as job:
        job.end()
    assert shown(ask, "7")[1] == HOURS_2


def identify(store: Path, limit: Any) -> None:  # Any: JSON
    """Put the limit into the capture's identity, like Slurm's plugin."""
    (identity,) = (store / "spool").glob("k3f9x2@*/identity.json")
    identity.write_text(json.dumps({**json.loads(identity.read_text()), "limit_secs": limit}))


@pytest.mark.parametrize("by_plugin", [False, True])
@pytest.mark.parametrize("limit", [HOURS_2, LIMIT_MAX_SECS])
def test_loki_has_it_too(
    limit: int,
    by_plugin: bool,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with SpooledCapture(store, limit_secs=0 if by_plugin else limit) as job:
        if by_plugin:
            identify(store, limit)
        job.lines("x")
        job.end()
    fake = FakeLoki()
    push_spool(fake, store / "spool")
    from_loki = shown(asking(fake, monkeypatch, capsys))
    assert from_loki[1] == limit
    assert main(["show", "last", "--store", str(store)]) == 0
    assert from_loki[0] in capsys.readouterr().out


@pytest.mark.parametrize(
    "limit", ["7200", -1, 0, 2.5, True, None, [7200], LIMIT_MAX_SECS + 1, 10**30]
)
def test_what_can_be_no_limit_is_none(
    limit: Any, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The invalid limit is in the start record, in the identity, and in a forged event."""
    with SpooledCapture(store, limit_secs=limit) as job:
        identify(store, limit)
        job.lines("x")
        job.end()
    fake = FakeLoki()
    push_spool(fake, store / "spool")
    words, recorded = shown(asking(fake, monkeypatch, capsys))
    assert (" of " in words, recorded) == (False, None)
    assert main(["show", "last", "--json", "--store", str(store)]) == 0
    assert json.loads(capsys.readouterr().out)["limit_secs"] is None

"""A real run of QCG-PilotJob (PyPI) with `logshipper run --` before each task: every task is a
captured job."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.tools.captures.captured_runs import Home, wait_until
from tests.tools.sources import ROOT
from tests.tools.stores.import_tools import contents
from tests.tools.tools_of_others import python_of
from tests.tools.waiting import scaled

Json = Any  # Any: JSON
SCRIPT = ROOT / "tests" / "imports" / "run_qcg.py"


class QcgRun(NamedTuple):
    """home: of the user; report: the manager's report of its jobs; followed: a store of an import
    that followed the run."""

    home: Home
    report: dict[str, Json]
    followed: Path


@pytest.fixture(scope="module", params=["by itself", "inside a run"])
def qcg(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> QcgRun:
    """Return a run. "inside a run" also captures the manager, like a captured batch job."""
    home = Home(tmp_path_factory.mktemp("qcg"))
    command = [str(python_of("qcg")), str(SCRIPT), sys.executable, "-m", "logshipper"]
    if request.param == "inside a run":
        command = [sys.executable, "-m", "logshipper", "run", "--name", "manager", "--", *command]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                command, env=home.environment, cwd=home.folder, stdin=null, stdout=pipe, stderr=pipe
            )
        )
        stack.callback(process.kill)
        followed = tmp_path_factory.mktemp("followed") / "store"
        follower = stack.enter_context(following(home, followed))
        (home.folder / "go").touch()
        out, err = process.communicate(timeout=scaled(90))
        assert process.returncode == 0, err
        assert follower.wait(60) == 0  # it ends by itself after the manager's end
    return QcgRun(home, json.loads(out.splitlines()[-1]), followed)


@contextmanager
def following(home: Home, store: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """Yield `import qcg --follow` after it has imported an iteration's end, while another job still
    runs."""
    wait_until(
        lambda: any(home.folder.glob(".qcgpjm-service-*/track.reqs")), "the manager has jobs"
    )
    command = [
        sys.executable,
        "-m",
        "logshipper",
        "import",
        "qcg",
        ".",
        "--follow",
        "--store",
        str(store),
    ]
    with subprocess.Popen(
        command, env=home.environment, cwd=home.folder, stdout=subprocess.DEVNULL
    ) as process:
        try:
            wait_until(
                lambda: (store / "catalogue.db").exists() and is_some_over(store),
                "an iteration's end is imported",
                60,
            )
            yield process
        finally:
            process.kill()


def is_some_over(store: Path) -> bool:
    jobs = contents(store)
    return (
        "sim" in jobs
        and jobs["sim"]["summary"].children_finished > 0
        and jobs["quiet"]["summary"].ended_ns is None
    )


def info(home: Home, *names: str) -> list[Json]:
    result = home.call("info", *names, "--json")
    assert result.returncode == 0, result.stderr
    jobs: list[Json] = json.loads(result.stdout)["jobs"]
    return jobs


def test_each_task_is_a_job_of_its_name(qcg: QcgRun) -> None:
    jobs = json.loads(qcg.home.call("ls", "--all", "--json").stdout)["jobs"]
    names = sorted(job["name"] for job in jobs if job["name"] != "manager")
    assert names == ["post", "quiet", "sim:0", "sim:1", "sim:2", "sim:3"]
    # the job id is QCG_PM_STEP_ID
    assert all(len(job["job_id"]) == 32 for job in jobs if job["name"] != "manager")
    assert qcg.home.logs("post") == [job["job_id"] for job in jobs if job["name"] == "post"]
    assert qcg.home.logs("quiet") == ["nobody sees this"]  # QCG-PilotJob sends it to /dev/null


def test_sub_totals_are_qcgs_own(qcg: QcgRun) -> None:
    (sim,) = info(qcg.home, "sim")
    theirs = qcg.report["sim"]["data"]
    assert sim["iterations"] == {
        name: theirs["iterations"][name] for name in ("total", "finished", "failed")
    }
    assert sim["iterations"] == {"total": 4, "finished": 4, "failed": 1}
    ours = [
        (child["iteration"], child["state"], str(child["exit_code"])) for child in sim["children"]
    ]
    states = {"SUCCEED": "COMPLETED"}
    assert ours == [
        (
            child["iteration"],
            states.get(child["state"], child["state"]),
            child["runtime"]["exit_code"],
        )
        for child in theirs["childs"]
    ]
    for name in ("post", "quiet"):
        assert qcg.report[name]["data"]["status"] == "SUCCEED"
        assert info(qcg.home, name)[0]["state"] == "COMPLETED"


def test_nothing_of_the_tasks_own_output_is_changed(qcg: QcgRun) -> None:
    for number in (0, 2):
        out, err = (qcg.home.folder / f"sim-{number}.{kind}" for kind in ("out", "err"))
        assert out.read_text() == f'{{"step": {number}, "loss": 0.{number}}}\n'
        assert err.read_text() == f"of {number}\n"
        assert qcg.home.logs(f"sim:{number}", "--stream", "stderr") == [f"of {number}"]
        records = qcg.home.call("metadata", f"sim:{number}", "--format", "jsonl").stdout
        assert json.loads(records)["loss"] == number / 10


def test_status_and_wait(qcg: QcgRun) -> None:
    output = qcg.home.call("status", "sim", "nope").stdout.decode()
    assert "4 total, 4 finished, 1 failed" in output
    waited = qcg.home.call("wait", "--all", "sim:0", "sim:2", "--timeout", "5").stdout.decode()
    assert "sim:2" in waited
    assert "FAILED" in waited


def test_followed_while_it_ran(qcg: QcgRun, tmp_path: Path) -> None:
    """Following the run gave the same as a single import afterwards."""
    (run,) = qcg.home.folder.glob(".qcgpjm-service-*")
    result = qcg.home.call("import", "qcg", str(run), "--store", str(tmp_path / "store"))
    assert result.returncode == 0, result.stderr
    assert contents(qcg.followed) == contents(tmp_path / "store")


def test_its_own_account_of_the_same_run(qcg: QcgRun, tmp_path: Path) -> None:
    """`import qcg` of the run's folder agrees with the tasks' captures."""
    (run,) = qcg.home.folder.glob(".qcgpjm-service-*")
    second_home = Home(tmp_path)
    result = second_home.call("import", "qcg", str(run))
    assert result.returncode == 0, result.stderr
    (captured,) = info(qcg.home, "sim")
    imported = {
        job["name"]: job
        for job in json.loads(second_home.call("ls", "--all", "--json").stdout)["jobs"]
    }
    assert imported["sim"]["children"] == captured["iterations"]
    assert {name: job["state"] for name, job in imported.items()} == {
        name: info(qcg.home, name)[0]["state"] for name in ("post", "quiet", "sim")
    }

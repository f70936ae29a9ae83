"""`info`, `status` and `monitor` of jobs, tasks and iterations, over both stores."""

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import logshipper
from logshipper.start.cli import main
from tests.servers.running import LokiServer, PrometheusServer
from tests.tools.captures.captured_runs import Home, wait_until
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.stores.import_tools import RECORDED
from tests.tools.stores.reading_store import SpooledCapture
from tests.tools.stores.two_stores import TwoStores, two_stores
from tests.tools.waiting import scaled

BEGAN_NS = time.time_ns() - 600 * NS


def write_jobs(store: Path) -> None:
    """Make sweep:0 to sweep:2, one of them failed; `ranks`, a job of three tasks on two nodes; and
    `again`, started twice."""
    for number in range(3):
        with SpooledCapture(
            store, f"s{number}", name=f"sweep:{number}", started_ns=BEGAN_NS + number * 10 * NS
        ) as job:
            job.event(
                "context",
                "",
                command=["train", str(number)],
                cwd="/data/run",
                cores=[2 * number, 2 * number + 1],
            )
            job.metadata({"epoch": 1, "loss": number}, {"epoch": 2, "loss": 2 - number})
            job.end(3 if number == 1 else 0)
    for task in range(3):
        options: dict[str, Any] = {
            "name": "ranks",
            "started_ns": BEGAN_NS,
            "task": task,
            "suffix": f"t{task}",
        }
        with SpooledCapture(store, "ranks", host=f"n{task // 2}", **options) as job:
            job.event("context", "", cwd=f"/data/{task}", cores=[task])
            job.lines("x")
            job.end(task % 2)
    for attempt, code in ((1, 1), (2, 0)):
        with SpooledCapture(
            store, "again", attempt, name="again", started_ns=BEGAN_NS + attempt * 100 * NS
        ) as job:
            job.lines("x")
            job.end(code)


@pytest.fixture(scope="module")
def stores(
    tmp_path_factory: pytest.TempPathFactory, loki: LokiServer, prometheus: PrometheusServer
) -> Iterator[TwoStores]:
    folder = tmp_path_factory.mktemp("both")
    yield from two_stores(folder, loki, prometheus, f"i{uuid.uuid4().hex[:10]}", write_jobs)


@pytest.fixture(params=["local", "loki"])
def store(stores: TwoStores, request: pytest.FixtureRequest) -> Iterator[logshipper.Store]:
    with stores.local() if request.param == "local" else stores.loki() as open_store:
        yield open_store


def test_unknown_names_are_reported_one_by_one(store: logshipper.Store) -> None:
    infos = store.info("s0", "nobody", "again", "x9-x12")
    assert list(infos) == ["s0", "again"]
    assert [error.name for error in infos.unknown] == ["nobody", "x9-x12"]
    states = store.status("s0-s2", "nobody")
    assert dict(states) == {"s2": "COMPLETED", "s1": "FAILED", "s0": "COMPLETED"}
    assert [error.name for error in states.unknown] == ["nobody"]


def test_info_of_one_job(store: logshipper.Store) -> None:
    info = store.info("s1")["s1"]
    assert (info.job_id, info.name, info.status, info.exit_code) == ("s1", "sweep:1", "FAILED", 3)
    assert (info.wdir, info.total_cores, list(info.nodes.values())) == ("/data/run", 2, [[2, 3]])
    assert [state for _, state in info.history] == ["RUNNING", "FAILED"]
    began, end = (moment for moment, _ in info.history)
    assert began.tzinfo is UTC
    assert began == datetime.fromtimestamp((BEGAN_NS + 10 * NS) // 1000 / 1e6, UTC)
    assert timedelta() < info.time
    assert abs(info.time - (end - began)) <= timedelta(microseconds=1), (
        "both are cut to the microsecond"
    )
    assert info.is_finished
    assert (info.iterations, info.children, info.restarts) == (None, (), 0)
    assert info.metrics["loss"] == logshipper.Metric(last=1, min=1, max=1)


def test_iterations_are_found_by_their_common_name(store: logshipper.Store) -> None:
    info = store.info("sweep")["sweep"]
    assert info.iterations == logshipper.Iterations(total=3, finished=3, failed=1)
    assert [(child.name, child.iteration, child.status) for child in info.children] == [
        ("sweep:0", 0, "COMPLETED"), ("sweep:1", 1, "FAILED"), ("sweep:2", 2, "COMPLETED"),
    ]  # fmt: skip
    assert (info.status, info.exit_code, info.total_cores) == ("FAILED", 3, 6)
    assert len(info.history) == 6
    assert info.best("loss") == 0, "zero is a value"
    assert info.best("loss", maximize=True) == 2
    assert info.best("acc") is None


def test_tasks_are_children(store: logshipper.Store) -> None:
    info = store.info("ranks")["ranks"]
    assert info.iterations == logshipper.Iterations(total=3, finished=3, failed=1)
    assert {host: list(cores) for host, cores in info.nodes.items()} == {"n0": [0, 1], "n1": [2]}
    assert [(child.name, child.wdir) for child in info.children] == [
        ("ranks:0", "/data/0"), ("ranks:1", "/data/1"), ("ranks:2", "/data/2"),
    ]  # fmt: skip


def test_restarts_are_counted_and_in_the_history(store: logshipper.Store) -> None:
    info = store.info("again")["again"]
    assert info.restarts == 1
    assert [state for _, state in info.history] == [
        "RUNNING",
        "FAILED",
        "REQUEUED",
        "RUNNING",
        "COMPLETED",
    ]


def call(
    stores: TwoStores, source: str, command: str, *words: str
) -> "subprocess.CompletedProcess[str]":
    line = [sys.executable, "-m", "logshipper", command, *words, *stores.options(source)]
    return subprocess.run(line, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("source", ["local", "loki"])
def test_commands(stores: TwoStores, source: str) -> None:
    status = call(stores, source, "status", "s0", "nobody", "sweep")
    assert status.returncode == 1
    assert [line.split() for line in status.stdout.splitlines()] == [
        ["s0", "COMPLETED", "0", "sweep:0"],
        ["sweep", "FAILED", "3", "sweep", "3", "total,", "3", "finished,", "1", "failed"],
    ]
    assert "no job has the id or name 'nobody'" in status.stderr
    info = call(stores, source, "info", "sweep", "again", "--primary", "loss")
    assert info.returncode == 0
    assert "Best      loss 0" in info.stdout
    assert "Iterations  3 total, 3 finished, 1 failed" in info.stdout
    assert "Restarts  1" in info.stdout
    assert "node1[0:1:2:3:4:5]" in info.stdout
    document = json.loads(
        call(
            stores, source, "info", "s2", "nobody", "--primary", "loss", "--maximize", "--json"
        ).stdout
    )
    assert document["schema"] == "logshipper.info/1"
    assert [entry["name"] for entry in document["unknown"]] == ["nobody"]
    (job,) = document["jobs"]
    assert (job["asked"], job["state"], job["best"]) == ("s2", "COMPLETED", 2)
    assert job["metrics"]["loss"] == {"last": 0, "min": 0, "max": 2}
    assert [moment["state"] for moment in job["history"]] == ["RUNNING", "COMPLETED"]
    (state,) = json.loads(call(stores, source, "status", "s2", "--json").stdout)["jobs"]
    assert state == {"asked": "s2", "job_id": "s2", "name": "sweep:2", "state": "COMPLETED"}


@pytest.mark.parametrize("source", ["local", "loki"])
def test_a_common_name_stands_for_iterations_elsewhere_too(stores: TwoStores, source: str) -> None:
    listing = call(stores, source, "ls", "sweep", "--columns", "name")
    assert listing.stdout.split() == ["name", "sweep:2", "sweep:1", "sweep:0"]
    wait = call(stores, source, "wait", "--all", "sweep", "--check")
    assert (wait.returncode, len(wait.stdout.splitlines())) == (4, 3)
    events = call(stores, source, "events", "sweep", "--to-state", "failed")
    headings = [line for line in events.stdout.splitlines() if line.startswith("==> ")]
    assert headings == [f"==> sweep:{number} s{number} <==" for number in range(3)]
    failures = [line for line in events.stdout.splitlines() if "FAILED" in line]
    assert [line.endswith(" sweep:1: exit code 3") for line in failures] == [True]


def test_monitor_tells_states_and_follows_the_log(tmp_path: Path) -> None:
    home = Home(tmp_path)
    script = f"echo begun; until test -e {tmp_path}/go; do sleep 0.05; done; echo over; exit 3"
    with home.start(
        "run", "--job-id", "m1", "--", "sh", "-c", script, stdout=subprocess.DEVNULL
    ) as job:
        wait_until(lambda: home.call("logs", "m1").stdout == b"begun\n", "the first line")
        with home.start("monitor", "m1", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as monitor:
            assert monitor.stderr is not None
            assert b"(m1), RUNNING: stdout and stderr" in monitor.stderr.readline()
            (tmp_path / "go").touch()
            out, err = monitor.communicate(timeout=scaled(60))
        job.wait(60)
    assert (monitor.returncode, out) == (0, b"begun\nover\n")
    assert b"(m1) has ended: FAILED, exit code 3" in err
    tail = home.call("monitor", "m1", "--tail", "1")
    assert (tail.stdout, b"has ended: FAILED" in tail.stderr) == (b"over\n", True)


@pytest.fixture(scope="module")
def qcg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[logshipper.Store]:
    """Yield a store with the import of a real QCG-PilotJob run."""
    store = tmp_path_factory.mktemp("qcg") / "store"
    assert (
        main(["import", "qcg", str(RECORDED / "qcg"), "--timezone", "UTC", "--store", str(store)])
        == 0
    )
    with logshipper.Store.local(store) as local_store:
        yield local_store


def test_imported_iterations(qcg: logshipper.Store) -> None:
    """Figures equal the report of `Manager.info(["sweep"], withChilds=True)`."""
    infos = qcg.info("sweep", "sweep:4", "sweep:9", "hello", "wide", "never")
    assert [error.name for error in infos.unknown] == ["sweep:9"]
    assert infos["sweep"].iterations == logshipper.Iterations(total=6, finished=6, failed=1)
    assert [child.name for child in infos["sweep"].children] == [
        f"sweep:{number}" for number in range(6)
    ]
    iteration = infos["sweep:4"]
    assert (iteration.status, iteration.exit_code, iteration.iteration) == ("FAILED", 1, 4)
    assert iteration == infos["sweep"].children[4]
    assert [state for _, state in iteration.history] == ["QUEUED", "RUNNING", "FAILED"]
    assert (infos["hello"].wdir, infos["hello"].status) == ("/scratch/run", "COMPLETED")
    assert {host: len(cores) for host, cores in infos["wide"].nodes.items()} == {
        "node1": 1,
        "node2": 1,
    }
    assert infos["wide"].total_cores == 2
    assert infos["never"].status == "CANCELLED"


def test_imported_times_are_the_reports(qcg: logshipper.Store) -> None:
    entries = map(json.loads, (RECORDED / "qcg" / "jobs.report").read_text().splitlines())
    report = {entry["name"]: entry for entry in entries}
    info = qcg.info("hello")["hello"]
    history = report["hello"]["history"]
    assert info.history[-1][0].isoformat()[:23] == history[-1]["date"].replace(" ", "T")[:23]
    hours, minutes, secs = report["hello"]["runtime"]["rtime"].split(":")
    assert info.time.total_seconds() == pytest.approx(
        int(hours) * 3600 + int(minutes) * 60 + float(secs), abs=1e-6
    )


@pytest.fixture(scope="module")
def imported_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with imports from XT and Balsam."""
    store = tmp_path_factory.mktemp("others") / "store"
    for system in ("xt", "balsam"):
        assert main(["import", system, str(RECORDED / system), "--store", str(store)]) == 0
    return store


def test_xts_runs_have_roll_ups_and_hyperparameters(
    imported_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with logshipper.Store.local(imported_store) as store:
        run = store.info("run1.1")["run1.1"]
        assert (run.best("test-acc", maximize=True), run.metrics["train-loss"].max) == (0.6, 0.1)
        search = store.info("run1")["run1"]
        assert search.iterations == logshipper.Iterations(total=2, finished=2, failed=1)
        assert [child.name for child in search.children] == ["run1.1", "run1.2"]
        assert search.best("test-acc", maximize=True) == 0.6
    assert (
        main(
            [
                "ls",
                "run1.*",
                "--columns",
                "name,hparams.lr,metrics.test-acc",
                "--store",
                str(imported_store),
            ]
        )
        == 0
    )
    assert [row.split() for row in capsys.readouterr().out.splitlines()[1:]] == [
        ["run1.2", "0.01", "0.51"], ["run1.1", "0.1", "0.6"],
    ]  # fmt: skip
    assert main(["diff", "run1.1", "run1.2", "--changed", "--store", str(imported_store)]) == 0
    differences = {
        row.split()[1]: row.split()[2:] for row in capsys.readouterr().out.splitlines()[1:]
    }
    assert differences["command"] == [
        "python",
        "train.py",
        "--lr",
        "0.1",
        "python",
        "train.py",
        "--lr",
        "0.01",
    ]
    assert (differences["lr"], "xt.compute" in differences) == (["0.1", "0.01"], False)
    assert main(["monitor", "run1.1", "--store", str(imported_store)]) == 0
    output = capsys.readouterr()
    assert output.out.splitlines() == ["training with lr 0.1", "100%|###|", "done"]
    assert "has ended: COMPLETED" in output.err


def test_balsams_jobs(imported_store: Path) -> None:
    with logshipper.Store.local(imported_store) as store:
        info = store.info("103")["103"]
    assert (info.status, info.exit_code, info.wdir) == ("FAILED", 3, "sweep/job103")
    assert (info.nodes, info.total_nodes, info.total_cores) == ({}, 1, 2)
    assert [state for _, state in info.history] == ["QUEUED", "RUNNING", "FAILED"]

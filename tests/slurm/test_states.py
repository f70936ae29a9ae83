"""The controller's agent reports to Loki how Slurm ended each captured job, and stays silent about
uncaptured jobs."""

import re
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from logshipper.spool.segment import Kind, Stream
from logshipper.start.cli import main
from logshipper_ingest.loki.store import LokiStore
from logshipper_ingest.model.end_record import EndRecord, parse_end
from logshipper_ingest.model.job import JOB_ENDED, JobSummary, LogLine
from tests.servers.running import LokiServer
from tests.slurm.conftest import unless_missing
from tests.slurm.tools.capturing import CapturingCluster, InsideAgent
from tests.slurm.tools.cluster import JobEnd
from tests.slurm.tools.users import JobUser
from tests.tools.captures.captured_runs import wait_until
from tests.tools.sources import ROOT

HOOK = ROOT / "deploy" / "slurm" / "hooks" / "job-ended"
HOST = "controller"
NS = 10**9
TOLD_SECS = 40.0
PREEMPTION = """
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
"""
FIRST = "PartitionName=first Nodes=n2 PriorityTier=100 PreemptMode=OFF MaxTime=60 State=UP"
READY = "echo ready; sleep 600 & wait"
ON_N1, ON_N2 = "--nodelist=n1", "--nodelist=n2"


class ControlledCluster(CapturingCluster):
    """A cluster with both hooks, each with its own folder, and an agent on the controller. The
    agent reads the records of jobcomp/script. jobs: ids of the shared jobs by name."""

    def __init__(self, loki: LokiServer, **options: Any) -> None:  # Any: options of SlurmCluster
        super().__init__(loki, more=PREEMPTION, **options)
        self.loki_url = loki.url
        self.ended = {name: self.folder / f"ended-{name}" for name in ("jobcomp", "epilog")}
        hooks = {}
        for name, place in self.ended.items():
            place.mkdir(mode=0o700)
            hooks[name] = self.folder / f"hook-{name}"
            hooks[name].write_text(f"#!/bin/sh\nexec {shlex.quote(str(HOOK))} {place}\n")
            hooks[name].chmod(0o755)
        with (self.folder / "slurm.conf").open("a") as file:
            file.write(f"JobCompType=jobcomp/script\nJobCompLoc={hooks['jobcomp']}\n")
            file.write(f"EpilogSlurmctld={hooks['epilog']}\n")
        self.controller = self.new_controller(HOST, self.ended["jobcomp"])
        self.agents[HOST] = self.controller
        self.jobs: dict[str, str] = {}

    def new_controller(self, host: str, ended: Path) -> InsideAgent:
        agent = InsideAgent(self.folder / host, self.loki_url, cluster=self.cluster, host=host)
        with agent.config.open("a") as file:
            file.write(f'[slurm]\nended_dir = "{ended}"\n')
        return agent

    def describe(self, job_id: str, heading: str) -> str:
        return f"{super().describe(job_id, heading)}\n{self.controller.log.read_text()[-3000:]}"

    def ends(
        self, job_id: str, number: int = 1, by: str = "jobcomp/script"
    ) -> list[dict[str, Any]]:  # Any: JSON
        """Wait for this number of end events of the job. Return them by attempt."""

        def job_ends() -> list[dict[str, Any]]:  # Any: JSON
            return [
                event
                for event in self.events(job_id)
                if event["event"] == JOB_ENDED and event["by"] == by
            ]

        try:
            wait_until(
                lambda: len(job_ends()) >= number, f"{number} ends of {job_id} are told", TOLD_SECS
            )
        except AssertionError:
            raise AssertionError(self.describe(job_id, f"not {number} ends told")) from None
        return sorted(job_ends(), key=lambda event: int(event["attempt"]))

    def notes(self, job_id: str) -> list[str]:
        entries = [
            entry
            for entry in self.entries(job_id, kinds="log")
            if entry.metadata.get("note") == "1"
        ]
        return [entry.line for entry in entries if "(Slurm)" in entry.line]

    def summary(self, job_id: str) -> JobSummary:
        with LokiStore(self.client, cluster=self.cluster) as store, store.open(job_id) as reader:
            return reader.summary


@pytest.fixture(scope="module")
def cluster(slurm_machine: None, loki: LokiServer) -> Iterator[ControlledCluster]:
    """Yield a cluster with running jobs. Cgroups limit the jobs' memory."""
    with unless_missing(
        lambda: ControlledCluster(loki, proctrack="cgroup", constrain=True, kill_wait=2)
    ) as running:
        user = opted_in(running)
        scripts = {
            "timeout": (
                "echo begun; trap 'echo told to end' TERM; sleep 600 & wait; echo last",
                "--time=1",
            ),
            "completed": ("echo begun",),
            "failed": ("echo begun; exit 7",),
            "killed": ("echo begun; kill -SEGV $$",),
            "cancelled": (READY,),
            "again": (
                f'echo run $SLURM_RESTART_COUNT; [ -n "$SLURM_RESTART_COUNT" ] || {{ {READY}; }}',
                "--requeue",
            ),
            "memory": ("echo begun; python3 -c 'x = b\"x\" * (400 << 20)'; echo $?", "--mem=64"),
        }
        for name, (script, *options) in scripts.items():
            running.jobs[name] = running.sbatch(user, script, ON_N1, f"--job-name={name}", *options)
        running.jobs["uncaptured"] = running.sbatch(
            running.add_user(), "echo secret; exit 3", ON_N1
        )
        yield running


def opted_in(cluster: CapturingCluster) -> JobUser:
    user = cluster.add_user()
    (user.home / ".logoptin").touch()
    return user


def wait_printed(cluster: CapturingCluster, job_id: str, line: str) -> None:
    wait_until(
        lambda: any(line in lines for lines in cluster.log_of(job_id).values()),
        f"{line!r} is in Loki",
        40.0,
    )


def brief(end: dict[str, Any]) -> tuple[str, int | None, int, str]:  # Any: JSON
    return end["state"], end["exit_code"], end["signal"], end["attempt"]


def state_of(cluster: ControlledCluster, job_id: str) -> tuple[str, int | None, int]:
    summary = cluster.summary(job_id)
    return summary.state, summary.exit_code, summary.signal


def test_completed(cluster: ControlledCluster) -> None:
    job_id = cluster.jobs["completed"]
    (end,) = cluster.ends(job_id)
    assert brief(end) == ("COMPLETED", 0, 0, "1")
    assert end["label_host"] == HOST
    assert 0 <= end["started_ns"] - end["submitted_ns"] < 300 * NS
    assert state_of(cluster, job_id) == ("COMPLETED", 0, 0)
    assert cluster.notes(job_id) == []


@pytest.mark.parametrize(
    ("name", "exit_code", "signo", "words"),
    [("failed", 7, 0, "exit code 7"), ("killed", None, 11, "signal 11")],
)
def test_failed(
    cluster: ControlledCluster, name: str, exit_code: int | None, signo: int, words: str
) -> None:
    job_id = cluster.jobs[name]
    (end,) = cluster.ends(job_id)
    assert brief(end) == ("FAILED", exit_code, signo, "1")
    assert state_of(cluster, job_id) == ("FAILED", exit_code, signo)
    (note,) = cluster.notes(job_id)
    assert note.startswith(f"[logshipper: failed (Slurm), job {job_id}, 20")
    assert note.endswith(f"+00:00, {words}]")


def test_cancelled(cluster: ControlledCluster) -> None:
    """The note follows all other lines of the job."""
    job_id = cluster.jobs["cancelled"]
    wait_printed(cluster, job_id, "ready")
    assert not cluster.as_root("scancel", job_id).returncode
    assert cluster.wait(job_id).state == "CANCELLED"
    (end,) = cluster.ends(job_id)
    assert (end["state"], end["attempt"]) == ("CANCELLED", "1")
    assert cluster.summary(job_id).state == "CANCELLED"
    assert [line.text for line in lines_of(cluster, job_id)] == ["ready", *cluster.notes(job_id)]


def lines_of(cluster: ControlledCluster, job_id: str) -> list[LogLine]:
    with LokiStore(cluster.client, cluster=cluster.cluster) as store, store.open(job_id) as reader:
        return list(reader.lines(streams=(Stream.STDOUT,), kinds=(Kind.LOG, Kind.NOTE)))


def test_out_of_memory(cluster: ControlledCluster) -> None:
    job_id = cluster.jobs["memory"]
    assert cluster.wait(job_id).state == "OUT_OF_MEMORY"
    (end,) = cluster.ends(job_id)
    assert end["state"] == "OUT_OF_MEMORY"
    assert cluster.summary(job_id).state == "OUT_OF_MEMORY"
    assert len(cluster.notes(job_id)) == 1


def test_runs_of_a_requeued_job(cluster: ControlledCluster) -> None:
    job_id = cluster.jobs["again"]
    wait_printed(cluster, job_id, "ready")
    cluster.requeue(job_id)
    assert cluster.wait(job_id) == JobEnd("COMPLETED", 0, 0)
    first, second = map(brief, cluster.ends(job_id, 2))
    assert (first[0], first[3]) == ("REQUEUED", "1")
    assert second == ("COMPLETED", 0, 0, "2")
    first_end, second_end = cluster.ends(job_id, 2)
    assert (
        first_end["submitted_ns"]
        <= first_end["started_ns"]
        < first_end["ended_ns"]
        <= second_end["submitted_ns"]
        <= second_end["started_ns"]
    )
    assert state_of(cluster, job_id) == ("COMPLETED", 0, 0)
    (note,) = cluster.notes(job_id)
    assert "requeued (Slurm)" in note


def test_tasks_of_an_array(cluster: ControlledCluster) -> None:
    user = opted_in(cluster)
    cluster.sbatch(user, "exit $SLURM_ARRAY_TASK_ID", ON_N1, "--array=0-2")
    wait_until(lambda: len(cluster.job_ids(user.name)) == 3, "all tasks are known", 20.0)
    ends = [cluster.ends(job_id)[0] for job_id in cluster.job_ids(user.name)]
    assert sorted(brief(end)[:2] for end in ends) == [
        ("COMPLETED", 0),
        ("FAILED", 1),
        ("FAILED", 2),
    ]
    assert len({end["job_id"] for end in ends}) == 3


def test_a_step_that_fails_is_not_the_job(cluster: ControlledCluster) -> None:
    user = opted_in(cluster)
    steps = "srun --quiet bash -c 'exit 3'; srun --quiet true"
    assert cluster.run_as(user, "salloc", "--quiet", ON_N1, "bash", "-c", steps).returncode == 0
    (job_id,) = cluster.job_ids(user.name)
    (end,) = cluster.ends(job_id)
    assert brief(end) == ("COMPLETED", 0, 0, "1")
    assert state_of(cluster, job_id) == ("COMPLETED", 0, 0)


def test_preempted(cluster: ControlledCluster) -> None:
    job_id = cluster.sbatch(opted_in(cluster), READY, ON_N2, "--exclusive", "--no-requeue")
    wait_printed(cluster, job_id, "ready")
    result = cluster.as_root("scontrol", "create", *FIRST.split())
    assert not result.returncode, result.stderr
    preemptor = cluster.sbatch(cluster.add_user(), "true", "--partition=first", "--exclusive")
    assert cluster.wait(job_id).state == "PREEMPTED"
    (end,) = cluster.ends(job_id)
    assert end["state"] == "PREEMPTED"
    assert cluster.summary(job_id).state == "PREEMPTED"
    cluster.wait(preemptor)


def test_nothing_of_others(cluster: ControlledCluster) -> None:
    job_id = cluster.jobs["uncaptured"]
    assert cluster.wait(job_id).state == "FAILED"
    wait_until(lambda: slurm_counts(cluster)["waiting"] >= 1, "its record waits", 20.0)
    assert cluster.entries(job_id) == []
    wait_until(lambda: not list(cluster.ended["jobcomp"].iterdir()), "all records are taken", 20.0)
    wait_until(lambda: len(set(sums_of_all_jobs(cluster))) == 1, "but all jobs are in sums", 20.0)


def sums_of_all_jobs(cluster: ControlledCluster) -> tuple[float, float, float]:
    """Return three counts: jobs in hourly sums, jobs in the sums of wait times, and records from
    the hook. Further jobs may end in the meantime."""
    metrics = cluster.controller.metrics()
    jobs = re.findall(r"^logshipper_agent_slurm_hour_jobs\{.*\} (\S+)$", metrics, re.M)
    waits = re.search(r"^logshipper_agent_slurm_wait_seconds_count (\S+)$", metrics, re.M)
    assert waits is not None
    return sum(map(float, jobs)), float(waits[1]), float(slurm_counts(cluster)["taken"])


def slurm_counts(cluster: ControlledCluster) -> dict[str, Any]:  # Any: JSON
    counts: dict[str, Any] = cluster.controller.status()["slurm"]
    return counts


def test_dead_node(cluster: ControlledCluster) -> None:
    """No process on the node closes the capture."""
    job_id = cluster.sbatch(opted_in(cluster), READY, ON_N2, "--no-requeue")
    wait_until(lambda: bool(cluster.events(job_id)), "Loki knows that it began", 40.0)
    cluster.agents["n2"].stop(signal.SIGKILL)
    cluster.signal_daemon("n2")
    result = cluster.as_root("scontrol", "update", "nodename=n2", "state=down", "reason=dead")
    assert not result.returncode, result.stderr
    assert cluster.wait(job_id).state == "NODE_FAIL"
    (end,) = cluster.ends(job_id)
    assert brief(end) == ("NODE_FAIL", None, 0, "1")
    with LokiStore(cluster.client, cluster=cluster.cluster) as store, store.open(job_id) as reader:
        assert [reader.summary.state, *(capture.state for capture in reader.captures)] == [
            "NODE_FAIL"
        ] * 2
        assert reader.summary.ended_ns == end["ended_ns"]


@pytest.mark.timeout(240)  # Slurm checks limits twice a minute
def test_time_limit(cluster: ControlledCluster, capsys: pytest.CaptureFixture[str]) -> None:
    job_id = cluster.jobs["timeout"]
    assert cluster.wait(job_id, 150.0).state == "TIMEOUT"
    (end,) = cluster.ends(job_id)
    assert end["state"] == "TIMEOUT"
    lines = [line.text for line in lines_of(cluster, job_id)]
    assert lines[0] == "begun"
    assert lines[-1] == cluster.notes(job_id)[0]
    options = ["--from", "loki", "--loki-url", cluster.loki_url, "--cluster", cluster.cluster]
    assert main(["ls", "--state", "timeout", "--json", *options]) == 0
    jobs = orjson.loads(capsys.readouterr().out)["jobs"]
    assert [(job["job_id"], job["state"]) for job in jobs] == [(job_id, "TIMEOUT")]
    assert main(["show", job_id, *options]) == 0
    assert f"Slurm ended job {job_id}: TIMEOUT" in capsys.readouterr().out


def epilog_records(cluster: ControlledCluster) -> dict[str, list[EndRecord]]:
    records: dict[str, list[EndRecord]] = {}
    for path in sorted(cluster.ended["epilog"].iterdir(), key=lambda path: path.stat().st_mtime_ns):
        record = parse_end(path.read_bytes(), int(path.stat().st_mtime))
        records.setdefault(record.job_id, []).append(record)
    return records


def test_what_the_epilog_can_tell(cluster: ControlledCluster) -> None:
    """Runs last. The epilog reports exit status and end, but rarely a state. A second agent reports
    the same jobs from the epilog's records."""
    records = epilog_records(cluster)
    states = {
        name: [
            (record.state, record.exit_code, record.signal)
            for record in records[cluster.jobs[name]]
        ]
        for name in ("failed", "killed", "completed", "cancelled", "memory", "timeout", "again")
    }
    assert states == {
        "failed": [("FAILED", 7, 0)],
        "killed": [("", None, 11)],
        "completed": [("", None, 0)],
        "cancelled": [("", None, 0)],
        "memory": [("OUT_OF_MEMORY", None, 9)],
        "timeout": [("", None, 0)],
        "again": [("", None, 0), ("", None, 0)],
    }
    with second_controller(cluster):
        (failed,) = cluster.ends(cluster.jobs["failed"], by="EpilogSlurmctld")
        assert brief(failed) == ("FAILED", 7, 0, "1")
        first, second = cluster.ends(cluster.jobs["again"], 2, by="EpilogSlurmctld")
        assert (first["attempt"], second["attempt"]) == ("1", "2")
        (cancelled,) = cluster.ends(cluster.jobs["cancelled"], by="EpilogSlurmctld")
        assert cancelled["state"] is None
    assert cluster.summary(cluster.jobs["cancelled"]).state == "CANCELLED"


@contextmanager
def second_controller(cluster: ControlledCluster) -> Iterator[InsideAgent]:
    agent = cluster.new_controller("epilog", cluster.ended["epilog"])
    agent.enter = cluster.controller.enter
    with agent:
        yield agent

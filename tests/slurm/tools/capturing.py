"""A Slurm cluster with capture: the plugin on both nodes, an agent for each node, and Loki as their
store."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import orjson
import pytest

from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.servers.loki_push import Entry
from tests.servers.running import LokiServer
from tests.slurm.tools import machine, plugin
from tests.slurm.tools.cluster import NODES, SlurmCluster
from tests.slurm.tools.users import JobUser, processes_of
from tests.tools.captures.captured_runs import wait_until
from tests.tools.sources import SOURCES
from tests.tools.stores.node_agents import NodeAgent, entries_of

Stream = tuple[str, str, str, str]  # of a log: attempt, step, task, stdout or stderr
SHIPPED_SECS = 20.0
SPOOLED_LOOK_SECS = 0.5  # between two questions to Loki


# Parts of the plugin that do not depend on how Slurm tracks processes run under one proctrack:
# cgroup, Slurm's default. Only there does Slurm end the remaining processes of a job.
UNDER_BOTH = pytest.mark.parametrize("cluster", ["linuxproc", "cgroup"], indirect=True)
UNDER_CGROUP = pytest.mark.parametrize("cluster", ["cgroup"], indirect=True)


class InsideAgent(NodeAgent):
    """An agent in the cluster's PID namespace, where it can check for a job's relay as on a node.
    It uses the machine's network, where Loki is. enter: command that enters the namespace."""

    def __init__(self, folder: Path, loki_url: str, *, cluster: str, host: str) -> None:
        super().__init__(folder, loki_url, cluster=cluster, host=host)
        self.enter: list[str] = []

    def start(self, **_: object) -> "InsideAgent":
        command = [
            *self.enter,
            sys.executable,
            "-m",
            "logshipper_ingest",
            "run",
            "--config",
            str(self.config),
        ]
        environment = {**os.environ, "PYTHONPATH": SOURCES}
        ready_count = self._count()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd="/", env=environment, stdin=subprocess.DEVNULL, stderr=log
            )
        wait_until(
            lambda: self._count() > ready_count or self.has_ended(),
            f"the agent of {self.host} is ready",
        )
        assert not self.has_ended(), self.log.read_text()
        return self

    def _count(self) -> int:
        return self.log.read_text().count("ready:") if self.log.exists() else 0

    def stop(self, signo: int = signal.SIGTERM) -> int:
        """Signal the agent. Return the exit status of the entering command, which ends with the
        agent."""
        assert self.process is not None
        (agent,) = (
            Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        )
        os.kill(int(agent), signo)
        return self.process.wait(SHIPPED_SECS)

    def __exit__(self, *_: object) -> None:
        if not self.has_ended():
            self.stop(signal.SIGKILL)


class CapturingCluster(SlurmCluster):
    """Start a cluster with plugin and agents on `with`.

    Each slurmd has its own plugstack.conf and its own spool `NODE/spool`; `agents[NODE]` serves it.

    arguments: further arguments of the plugin. identity: also configure the plugin that takes the
    identity from Slurm. options: of SlurmCluster.
    """

    def __init__(
        self, loki: LokiServer, arguments: str = "", *, identity: bool = False, **options: Any
    ) -> None:  # Any: options of SlurmCluster
        super().__init__(cluster=f"slurm{secrets.token_hex(4)}", **options)
        try:
            self.plugin = plugin.build(self.folder)
            self.python = plugin.python_for_users(self.folder)
        except BaseException:
            self.close()
            raise
        self.client = LokiClient(loki.url)
        self.agents = {
            node: InsideAgent(self.node_folder(node), loki.url, cluster=self.cluster, host=node)
            for node in NODES
        }
        self.identity = identity
        identity_line = (
            f"optional {self.plugin.with_name('logshipper-identity.so')} spool=$folder/spool\n"
            if identity
            else ""
        )
        self.line = (
            f"{identity_line}optional {self.plugin} spool=$folder/spool "
            f"cluster={self.cluster} python={self.python} {arguments}"
        )
        self.set_plugstack(self.line)

    def start(self) -> Self:
        super().start()
        for agent in self.agents.values():
            agent.enter = [
                machine.program("nsenter"),
                "-t",
                str(self.first_pid),
                "--mount",
                "--pid",
                "--",
            ]
            agent.start()
        return self

    def close(self) -> None:
        for agent in getattr(self, "agents", {}).values():
            agent.__exit__()
        super().close()

    def job_ids(self, user: str) -> list[str]:
        """Return the ids of all jobs of a user. Tasks of arrays have their own ids."""
        result = self.as_root(
            "squeue", "--noheader", "--states=all", f"--user={user}", "--format=%A", "--array"
        )
        return sorted(set(result.stdout.split()), key=int)

    def entries(self, *job_ids: str, kinds: str = ".+") -> list[Entry]:
        """Return Loki's entries of one or more jobs."""
        assert job_ids, "without ids, the selector would match entries of no job"
        selector = f'| job_id=~"{"|".join(job_ids)}"'
        return entries_of(self.client, self.cluster, kinds, selector=selector)

    def events(self, *job_ids: str) -> list[dict[str, Any]]:  # Any: JSON
        """Return events of these jobs' captures, each with its `step`, `task` and `attempt`."""
        entries = self.entries(*job_ids, kinds="event")
        return [
            {**entry.metadata, **orjson.loads(entry.line), "label_host": entry.labels["host"]}
            for entry in entries
        ]

    def wait_closed(
        self, job_ids: Sequence[str], captures: int, timeout_secs: float = SHIPPED_SECS
    ) -> None:
        """Wait until Loki has this number of closed captures of the jobs. Raise AssertionError on
        time-out.

        Loki is slow to ask. While a spool has captures of the jobs, it is asked less often.
        """
        next_look = time.monotonic() + SPOOLED_LOOK_SECS

        def closed() -> bool:
            nonlocal next_look
            if time.monotonic() < next_look and any(map(self._spooled, job_ids)):
                return False
            next_look = time.monotonic() + SPOOLED_LOOK_SECS
            events = [event["event"] for event in self.events(*job_ids)]
            return events.count("closed") >= captures

        try:
            wait_until(closed, f"{captures} captures of {job_ids} are closed in Loki", timeout_secs)
        except AssertionError:
            heading = f"not {captures} captures closed in Loki"
            raise AssertionError(
                "\n".join(self.describe(job_id, heading) for job_id in job_ids)
            ) from None

    def wait_shipped(self, job_id: str) -> None:
        """Wait until no spool has a capture of the job. Lines missing from Loki by then were never
        captured."""
        wait_until(
            lambda: not self._spooled(job_id), f"captures of {job_id} are shipped", SHIPPED_SECS
        )

    def _spooled(self, job_id: str) -> list[Path]:
        """Return the captures of a job in the nodes' spools."""
        spools = [self.node_folder(node) / "spool" for node in NODES]
        return [path for spool in spools for path in spool.glob(f"{job_id}@*")]

    def end_processes(self, user: JobUser) -> None:
        """Kill the remaining processes of a user's jobs, but none of logshipper."""
        for pid, name in processes_of(user.uid).items():
            if name in {"sleep", "bash"}:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def log_of(self, job_id: str) -> dict[Stream, list[str]]:
        """Return a job's lines in Loki, without logshipper's notes."""
        return self.logs_of(job_id).get(job_id, {})

    def logs_of(self, *job_ids: str) -> dict[str, dict[Stream, list[str]]]:
        """Return the lines of several jobs, by job."""
        logs: dict[str, dict[Stream, list[str]]] = {}
        for entry in self.entries(*job_ids, kinds="log"):
            if "note" not in entry.metadata:
                of = entry.metadata
                stream = (
                    of["attempt"],
                    of.get("step", ""),
                    of.get("task", "0"),
                    entry.labels["stream"],
                )
                logs.setdefault(of["job_id"], {}).setdefault(stream, []).append(entry.line)
        return logs

    def describe(self, job_id: str, heading: str) -> str:
        """Return the heading with the reports of Loki, spool, agents and daemons about the job."""
        spools = [
            str(path)
            for node in NODES
            for path in (self.node_folder(node) / "spool").glob(f"*{job_id}*")
        ]
        agents = [
            f"  {line}"
            for agent in self.agents.values()
            for line in agent.log.read_text().splitlines()[-5:]
        ]
        about = [
            line
            for name in NODES
            for line in self.log(name).splitlines()
            if job_id in line or "spank" in line
        ]
        ours = [line for line in about if "logshipper" in line]
        keys = ("event", "step", "task", "attempt", "state", "reason", "message", "lines", "lost")
        events = [
            f"  {' '.join(f'{key}={event[key]}' for key in keys if key in event)}"
            for event in self.events(job_id)
        ]
        lists = [
            "logshipper's of slurmd:",
            *ours[-20:],
            "slurmd:",
            *about[-20:],
            "spool:",
            *spools[:20],
        ]
        lists += ["agents:", *agents, "events:", *events]
        return "\n".join([f"job {job_id}: {heading}", *lists])


def read_files(home: Path) -> dict[str, bytes]:
    """Return the output files in a home, by name."""
    return {
        path.name: path.read_bytes()
        for path in sorted(home.iterdir())
        if path.suffix in {".out", ".err"}
    }

"""A site whose users read only their own jobs, shared by all tests here: logshipper captured jobs
of several users."""

import os
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from logshipper_ingest.agent.node_spool import NodeIdentity
from tests.gateway.nginx import Nginx, SiteCertificates, site_certificates
from tests.grafana.tools.captured import TaskSocket
from tests.servers.places import ServerMissing
from tests.servers.running import LokiServer
from tests.tools.stores.node_agents import NodeAgent

ANN, BEN, ODD = "ann", "ben", "Ann.O'Dd"  # the last name is not valid for a tenant
PROGRAM = r"""
import json, os, sys
word = sys.argv[1]
print("a line of", word)
print("stderr of", word, file=sys.stderr)
for epoch in range(3):
    print(json.dumps({"epoch": epoch, "loss": float(sys.argv[2]), f"key_{word}": epoch}))
"""


@dataclass(frozen=True)
class Job:
    """A captured job. word: unique text in its lines, its name and a key; loss: unique number;
    task: unique on its node."""

    user: str
    job_id: str
    host: str
    task: int
    word: str
    loss: str

    @property
    def marks(self) -> list[bytes]:
        """Unique texts of the job, hidden from other users."""
        return [
            mark.encode() for mark in (self.word, self.job_id, self.loss, f'"user":"{self.user}"')
        ]


@dataclass(frozen=True)
class Site:
    """A Loki with tenants, behind the gateway. Each user has a job on n1. ben has another one on
    n2, so he has labels that ann's streams lack."""

    loki: LokiServer
    gateway: Nginx
    jobs: list[Job]
    begin_ns: int

    def of(self, user: str) -> list[Job]:
        return [job for job in self.jobs if job.user == user]

    def seen_of(self, user: str, body: bytes) -> list[bytes]:
        """Return the marks of a user's jobs in an answer."""
        return [mark for job in self.of(user) for mark in job.marks if mark in body]

    @property
    def span(self) -> dict[str, str]:
        """Time range of all captures."""
        return {"start": str(self.begin_ns), "end": str(time.time_ns() + 10**9)}


@pytest.fixture(scope="package")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> SiteCertificates:
    return site_certificates(tmp_path_factory.mktemp("site"))


def started(loki: LokiServer, certificates: SiteCertificates, by: str, until: ExitStack) -> Nginx:
    """Start and return the gateway; skip the test without nginx."""
    try:
        return until.enter_context(Nginx(loki.url, certificates, by=by))
    except ServerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="package")
def site(
    lokis: None, certificates: SiteCertificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    begin_ns = time.time_ns() - 10**9
    folder = tmp_path_factory.mktemp("nodes")
    with ExitStack() as until:
        loki = until.enter_context(LokiServer(auth_enabled=True, limits={"volume_enabled": True}))
        gateway = started(loki, certificates, "certificate", until)
        jobs = []
        for host, users in (("n1", (ANN, BEN, ODD)), ("n2", (BEN,))):
            agent = until.enter_context(tenant_agent(folder / host, gateway, host))
            for number, user in enumerate(users):
                jobs.append(new_job(user, host, number))
                capture(agent, jobs[-1])
            agent.wait_shipped()
        yield Site(loki, gateway, jobs, begin_ns)


def tenant_agent(folder: Path, gateway: Nginx, host: str, **options: object) -> NodeAgent:
    """Return an agent behind the gateway, with a tenant for each user. options: of [loki]."""
    node = gateway.certificates.node
    loki = {"tenant_by": "user", "ca_file": str(gateway.certificates.grafana_ca), "cert_file": str(node.cert),
            "key_file": str(node.key), **options}  # fmt: skip
    return NodeAgent(folder, gateway.agents_url, cluster="site", host=host, loki=loki)


def new_job(user: str, host: str, task: int) -> Job:
    word = f"w{uuid.uuid4().hex[:12]}"
    return Job(
        user, f"job-{word[::-1]}", host, task, word, f"{uuid.uuid4().int % 10**6 + 10**6}.4375"
    )


def capture(agent: NodeAgent, job: Job) -> None:
    """Run a job in a directory made by a scheduler's hook. The hook names the job's user."""
    identity = NodeIdentity(
        job.job_id, 1, "", job.task, job.word, os.getuid(), job.user, gid=os.getgid()
    )
    environment = {"LOGSHIPPER_AGENT_SOCKET": str(TaskSocket(agent, identity).path)}
    ran = agent.run(sys.executable, "-c", PROGRAM, job.word, job.loss, env=environment)
    assert (ran.returncode, job.word.encode() in ran.stdout) == (0, True)

"""deploy/kubernetes: manifests against Kubernetes' own schemas, and the entrypoint as a container's
first process.

No cluster runs. The entrypoint gets its own namespaces, a read-only root, no home, an unknown user
and no capabilities.
"""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from logshipper_ingest.config import agent_config
from logshipper_ingest.loki.client import LokiClient
from tests.servers.running import LokiServer
from tests.slurm.tools import machine, plugin
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.other_users import needs_root
from tests.tools.sources import ROOT
from tests.tools.stores.node_agents import NodeAgent, client, cluster, entries_of
from tests.tools.tools_of_others import needs_program_of_others, python_of
from tests.tools.waiting import scaled

__all__ = ["client", "cluster"]
FOLDER = ROOT / "deploy" / "kubernetes"
MANIFESTS = sorted(FOLDER.glob("*.yaml"))
UID = 54321  # unknown to the machine's user database
MOUNTS = """
mount --make-rprivate /
for place in $1; do mount --bind "$place" "$place"; done
mount -o remount,bind,ro /
shift
cd /
unset PWD OLDPWD
exec "$@"
"""


# ---- manifests


def validated(*files: Path) -> "subprocess.CompletedProcess[str]":
    program = python_of("kubernetes").with_name("kubernetes-validate")
    return subprocess.run(
        [program, "--strict", *map(str, files)], capture_output=True, text=True, timeout=scaled(60)
    )


@needs_program_of_others
def test_manifests_are_valid(tmp_path: Path) -> None:
    validation = validated(*MANIFESTS)
    assert validation.returncode == 0, validation.stdout + validation.stderr
    broken = tmp_path / "job.yaml"
    broken.write_text((FOLDER / "job.yaml").read_text().replace("completionMode", "completionmode"))
    assert validated(broken).returncode != 0


def documents(name: str) -> list[Any]:  # Any: YAML
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def test_manifests_fit_each_other_and_the_code(tmp_path: Path) -> None:
    """The job's mounts match the paths in the agent's configuration. A typo in either would lose
    the log."""
    (job,) = documents("job.yaml")
    _, settings, daemons = documents("agent.yaml")
    config = tmp_path / "agent.toml"
    secret = tmp_path / "password"
    secret.write_text("x\n")
    secret.chmod(0o400)
    config.write_text(
        settings["data"]["agent.toml"].replace("/etc/logshipper-metrics/password", str(secret))
    )
    metrics = agent_config.load(str(config)).metrics
    # any pod can reach a node's port, so it needs the password
    assert (metrics.is_open, metrics.job_values) == (False, True)
    spool = agent_config.load(str(config)).agent.spool_dir
    pod, agent = job["spec"]["template"]["spec"], daemons["spec"]["template"]["spec"]
    hosts = [
        {v["name"]: v["hostPath"]["path"] for v in spec["volumes"] if "hostPath" in v}
        for spec in (pod, agent)
    ]
    assert hosts[0]["spool"] == hosts[1]["spool"] == os.path.dirname(spool)
    assert hosts[0]["agent"] == hosts[1]["run"] == "/run/logshipper"
    for container in (*pod["containers"], *agent["containers"]):
        for mount in container["volumeMounts"]:
            if mount["name"] in ("spool", "agent", "run"):
                assert mount["mountPath"] in (os.path.dirname(spool), "/run/logshipper")
                assert not (mount["name"] == "spool" and mount.get("readOnly"))
    (brought,) = [
        mount["mountPath"]
        for mount in pod["containers"][0]["volumeMounts"]
        if mount["name"] == "logshipper"
    ]
    assert (FOLDER / "logshipper").read_text().startswith(f"#!{brought}/bin/python3 ")
    assert pod["containers"][0]["command"][0] == f"{brought}/libexec/capture-job"
    assert agent["hostPID"]
    volumes = {volume["name"]: volume for volume in agent["volumes"]}
    (password,) = [mount["name"] for mount in agent["containers"][0]["volumeMounts"]
                   if f"{mount['mountPath']}/password" in settings["data"]["agent.toml"]]  # fmt: skip
    assert volumes[password]["secret"]["defaultMode"] == 0o400
    assert "optional" not in volumes[password]["secret"]
    unit = (ROOT / "deploy" / "systemd" / "logshipper-agent.service").read_text()
    (bounding,) = [line for line in unit.splitlines() if line.startswith("CapabilityBoundingSet=")]
    capabilities = agent["containers"][0]["securityContext"]["capabilities"]["add"]
    assert bounding == "CapabilityBoundingSet=" + " ".join(f"CAP_{name}" for name in capabilities)


# ---- the entrypoint


class Container:
    """A container as kubelet starts it, with this machine's read-only root instead of an image.
    volumes: writable folders."""

    def __init__(self, folder: Path, *volumes: Path, **environment: str) -> None:
        self._volumes = volumes
        self._environment = {"PATH": "/usr/bin:/bin", **environment}
        self.program = folder / "libexec"
        self.program.mkdir()
        self._entrypoint = shutil.copy(ROOT / "deploy/launchers/capture-job", self.program)
        self.set_program(f'exec {plugin.python_for_users(folder)} -m logshipper "$@"')

    def set_program(self, script: str) -> None:
        path = self.program / "logshipper"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def start(self, *command: str, **environment: str) -> "subprocess.Popen[bytes]":
        namespaces = [
            machine.program("unshare"),
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]
        become = [
            machine.program("setpriv"),
            f"--reuid={UID}",
            f"--regid={UID}",
            "--clear-groups",
            "--no-new-privs",
        ]
        become += [
            "--bounding-set=-all",
            "--",
            str(self._entrypoint),
            "--name",
            "train",
            "--",
            *command,
        ]
        return subprocess.Popen(
            [*namespaces, "sh", "-ec", MOUNTS, "sh", " ".join(map(str, self._volumes)), *become],
            env={**self._environment, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *command: str, **environment: str) -> tuple[int, bytes, bytes]:
        with self.start(*command, **environment) as process:
            out, err = process.communicate(timeout=scaled(60))
            return process.returncode, out, err

    def run_until_terminated(self, script: str) -> tuple[int, bytes, bytes]:
        """Send SIGTERM to the first process once the script has printed `ready`, as kubelet does to
        end a pod."""
        with self.start("sh", "-c", script) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(first), signal.SIGTERM)
            out, err = process.communicate(timeout=scaled(60))
            return process.returncode, out, err


@pytest.fixture
def volume(open_folder: Path) -> Path:
    path = open_folder / "volume"
    path.mkdir()
    os.chown(path, UID, UID)
    return path


SURROUNDINGS = "touch /var/tmp/file 2>/dev/null || echo read only; id -u; echo home $HOME; exit 3"
SEEN = b"read only\n54321\nhome\n"
GRACEFUL = "trap 'echo last words; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
ALONE = {"LOGSHIPPER_AGENT_SOCKET": "", "LOGSHIPPER_AGENT": "off"}


@needs_root
def test_with_the_nodes_agent(
    open_folder: Path, loki: LokiServer, client: LokiClient, cluster: str
) -> None:
    """A pod is a job, and a restarted container is its next attempt. After SIGTERM a program can
    still print."""
    with NodeAgent(open_folder / "agent", loki.url, cluster=cluster) as agent:
        pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_NAME": "train-0-x7k2p"}
        container = Container(
            open_folder, agent.spool, LOGSHIPPER_AGENT_SOCKET=str(agent.socket), **pod
        )
        assert container.run("sh", "-c", SURROUNDINGS) == (3, SEEN, b"")
        assert container.run_until_terminated(GRACEFUL) == (0, b"last words\n", b"")

        def ends() -> list[Any]:  # Any: JSON
            events = [json.loads(entry.line) for entry in entries_of(client, cluster, "event")]
            return [event["exit_code"] for event in events if event["event"] == "closed"]

        def lines() -> list[tuple[str, str]]:
            return sorted(
                (entry.metadata["attempt"], entry.line)
                for entry in entries_of(client, cluster, "log")
            )

        output = sorted(
            [
                *(("1", line) for line in SEEN.decode().splitlines()),
                ("2", "ready"),
                ("2", "last words"),
            ]
        )
        wait_until(
            lambda: len(ends()) == 2 and len(lines()) >= len(output), "both captures are shipped"
        )
        assert lines() == output
        assert sorted(ends()) == [0, 3]
    assert {entry.metadata["job_id"] for entry in entries_of(client, cluster, "log")} == {
        f"train-0-x7k2p.u{UID}"
    }


@needs_root
def test_without_an_agent_a_store_in_a_volume_has_it(open_folder: Path, volume: Path) -> None:
    store = str(volume / "store")
    container = Container(open_folder, volume, LOGSHIPPER_STORE=store, **ALONE)
    assert container.run("sh", "-c", SURROUNDINGS) == (3, SEEN, b"")
    code, out, err = container.run_until_terminated("echo ready; exec sleep 100")
    # a signal's default action does not kill a first process, so capture-job exits with this code
    assert (code, out, err) == (128 + signal.SIGTERM, b"", b"")
    command = [str(container.program / "logshipper"), "ls", "--json", "--store", store]
    listing = subprocess.run(
        command, cwd="/", user=UID, group=UID, extra_groups=[], capture_output=True, check=True
    )
    jobs = [
        (job["name"], job["state"], job["exit_code"]) for job in json.loads(listing.stdout)["jobs"]
    ]
    assert sorted(jobs, key=str) == [("train", "CANCELLED", None), ("train", "FAILED", 3)]


@needs_root
def test_where_nothing_can_be_written_the_job_runs(open_folder: Path) -> None:
    container = Container(open_folder, **ALONE)
    code, out, err = container.run("sh", "-c", SURROUNDINGS)
    assert (code, out) == (3, SEEN)
    assert (
        b"logshipper: nothing of this run is logged: /var/tmp/logshipper-54321: read-only file system"
        in err.lower()
    )


@needs_root
@pytest.mark.parametrize("broken", ["exit 1", "exec /no/such/python", "exec sleep 100"])
def test_where_logshipper_is_broken_the_job_runs(broken: str, open_folder: Path) -> None:
    """This happens in an image whose libc does not fit the bundled Python."""
    container = Container(open_folder, **ALONE)
    container.set_program(broken)
    assert container.run("sh", "-c", SURROUNDINGS) == (3, SEEN, b"")


@needs_root
def test_what_can_not_be_run(open_folder: Path, volume: Path) -> None:
    container = Container(open_folder, volume, LOGSHIPPER_STORE=str(volume / "store"), **ALONE)
    assert container.run("/no/such/program")[0] == 127

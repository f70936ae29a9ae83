"""Ssh sessions that pam_slurm_adopt adopts into a job: logshipper does not capture them, they leave
the job unchanged, and they end with it."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.running import LokiServer
from tests.slurm.conftest import unless_missing
from tests.slurm.tools import cases, machine
from tests.slurm.tools.capturing import CapturingCluster
from tests.slurm.tools.cases import READY
from tests.slurm.tools.machine import SlurmMissing
from tests.slurm.tools.table import COMPLETED
from tests.slurm.tools.users import JobUser
from tests.slurm.tools.whole import helpers, ready_job
from tests.tools.captures.captured_runs import wait_until
from tests.tools.waiting import scaled

PAM = ("/lib/security/pam_slurm_adopt.so", "/lib/x86_64-linux-gnu/security/pam_slurm_adopt.so")
SERVICE = "/etc/pam.d/sshd"
PORT = "2222"  # inside the cluster's own network
END_SECS = 30.0
SAYS = "echo of ssh; echo of ssh >&2; cat /proc/self/cgroup; [ -t 1 ] || echo no terminal"
SCRIPT = "\n".join(
    [f"echo {READY}", "until [ -e go ]; do sleep 0.1; done", "for i in $(seq 2000); do echo out $i; done"]
)  # fmt: skip


class SshCluster(CapturingCluster):
    """A cluster that admits users by ssh to n1, into their job there. It refuses users without a
    job."""

    def __init__(self, loki: LokiServer) -> None:
        self._pam = next((path for path in PAM if os.path.exists(path)), "")
        if not self._pam:
            raise SlurmMissing(f"there is no {PAM[0]} (Debian: libpam-slurm-adopt)")
        for path, package in ((SERVICE, "openssh-server"), ("/usr/bin/ssh", "openssh-client")):
            if not os.path.exists(path):
                raise SlurmMissing(f"there is no {path} (Debian: {package})")
        super().__init__(loki, proctrack="cgroup", more="PrologFlags=Contain")

    def start(self) -> "SshCluster":
        super().start()
        folder = self.folder / "ssh"
        folder.mkdir()
        service = folder / "pam"
        service.write_text(
            "auth required pam_permit.so\naccount required pam_permit.so\n"
            f"account required {self._pam} nodename=n1\nsession required pam_permit.so\n"
        )
        assert self.as_root("mount", "--bind", str(service), SERVICE).returncode == 0
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "host"], check=True
        )
        (folder / "config").write_text(
            f"ListenAddress 127.0.0.1:{PORT}\nHostKey {folder}/host\nPidFile none\nUsePAM yes\nStrictModes no\n"
        )
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # required by sshd, empty and root's
        conf = f"SLURM_CONF={self.node_folder('n1') / 'slurm.conf'}"
        sshd = machine.program("sshd")
        log = self.start_program("sshd", "env", conf, sshd, "-D", "-e", "-f", f"{folder}/config")
        wait_until(lambda: "listening" in log.read_text(), "sshd listens", END_SECS)
        return self

    def add_user(self, name: str = "") -> JobUser:
        """Return a user with an ssh key."""
        user = super().add_user(name)
        folder = user.home / ".ssh"
        folder.mkdir()
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True
        )
        (folder / "key.pub").rename(folder / "authorized_keys")
        for path in (folder, *folder.iterdir()):
            os.chown(path, user.uid, user.gid)
        return user

    def ssh(self, user: JobUser, command: str, *options: str) -> "subprocess.Popen[bytes]":
        known = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-q")
        return self.start_as(
            user, "ssh", "-i", ".ssh/key", "-p", PORT, *known, *options, "127.0.0.1", command
        )


@pytest.fixture(scope="module")
def node(slurm_machine: None, loki: LokiServer) -> Iterator[SshCluster]:
    with unless_missing(lambda: SshCluster(loki)) as running:
        yield running


def has_ended_whole(node: SshCluster, user: JobUser, job_id: str) -> None:
    (user.home / "go").touch()
    assert node.wait(job_id) == COMPLETED
    expected = [READY, *(f"out {n}" for n in range(1, 2001))]
    assert cases.text_of(user, "job.out") == "".join(f"{line}\n" for line in expected)
    assert cases.text_of(user, "job.err") == ""
    if (user.home / ".logoptin").exists():
        node.wait_closed([job_id], 1)
        node.wait_shipped(job_id)
        assert node.log_of(job_id) == {("1", "batch", "0", "stdout"): expected}


@pytest.mark.parametrize("opted_in", [False, True])
def test_session_is_the_jobs_and_not_captured(node: SshCluster, opted_in: bool) -> None:
    user = node.add_user()
    job_id = ready_job(node, user, SCRIPT, opted_in=opted_in)
    with node.ssh(user, SAYS) as session:
        out, err = session.communicate(timeout=scaled(END_SECS))
    assert (session.returncode, err) == (0, b"of ssh\n")
    groups = out.decode()
    assert groups.startswith("of ssh\n")
    assert groups.endswith("no terminal\n")
    assert f"/job_{job_id}/step_extern" in groups
    has_ended_whole(node, user, job_id)
    node.wait_shipped(job_id)
    assert bool(node.entries(job_id)) == opted_in


@pytest.mark.parametrize("opted_in", [False, True])
def test_session_ends_with_its_job(node: SshCluster, opted_in: bool) -> None:
    """The session has a terminal."""
    user = node.add_user()
    job_id = ready_job(node, user, SCRIPT, opted_in=opted_in)
    with node.ssh(user, "echo begun; sleep 1000", "-tt") as session:
        assert session.stdout is not None
        assert session.stdout.readline().strip() == b"begun"
        has_ended_whole(node, user, job_id)
        session.communicate(timeout=scaled(END_SECS))
    assert session.returncode not in {0, None}
    wait_until(lambda: not helpers(node), "nothing of ours is left", END_SECS)
    left = list(Path("/sys/fs/cgroup").rglob(f"job_{job_id}"))
    wait_until(lambda: not [path for path in left if path.exists()], "cgroups go", END_SECS)


def test_nobody_without_a_job(node: SshCluster) -> None:
    with node.ssh(node.add_user(), "echo in") as session:
        out, _ = session.communicate(timeout=scaled(END_SECS))
    assert (session.returncode, out) == (255, b"")

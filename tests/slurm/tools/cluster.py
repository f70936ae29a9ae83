"""A Slurm cluster of two nodes on this machine: munged, slurmctld, slurmd n1 and n2, and ordinary
users.

The cluster runs in PID, mount, network and host name namespaces that `inside.py` holds. Its ports,
names, sockets and mounts never collide with the machine's. Remaining processes of jobs die with the
first process inside, which ends with this process, even if this one is killed. The next cluster
removes the scratch folders and cgroups of a killed process.
"""

import contextlib
import fcntl
import os
import random
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any, NamedTuple, Self

from tests.slurm.tools import machine
from tests.slurm.tools.namespaces import Namespaces
from tests.slurm.tools.users import UIDS_FILE, JobUser, Users
from tests.tools.waiting import scaled

TEMPLATES = Path(__file__).with_name("templates")
NODES = ("n1", "n2")
PREFIX = "logshipper-slurm-"
PLACES = (Path("/tmp"), Path("/var/tmp"))  # the second one if jobs have their own /tmp
START_SECS = 60.0
JOB_SECS = 60.0
TAIL_LINES = 15
OVER = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
}  # fmt: skip


class SlurmFailed(Exception):
    """A daemon or command of Slurm failed. str: the failure, and the ends of the logs."""


class JobEnd(NamedTuple):
    """End of a job. state: in scontrol's terms. exit_code, signal: of the batch script."""

    state: str
    exit_code: int
    signal: int


class SlurmCluster:
    """Start the cluster on `with`, and remove it at the end. Not thread-safe.

    proctrack: `linuxproc` or `cgroup`. constrain: limit jobs to their requested cores and memory
    (task/cgroup). kill_wait: seconds between SIGTERM and SIGKILL. cpus: number that a node claims.

    more: further lines of slurm.conf. cluster: its name. place: parent of the cluster's folder.
    plugstack: lines of plugstack.conf, in which `$folder` is the node's folder; see
    `set_plugstack`.
    """

    def __init__(
        self,
        *,
        proctrack: str = "linuxproc",
        constrain: bool = False,
        kill_wait: int = 5,
        cpus: int = 64,
        more: str = "",
        plugstack: str = "",
        cluster: str = "test",
        place: Path = PLACES[0],
    ) -> None:
        machine.check()
        version = (
            machine.cgroup_version(("cpuset", "memory") if constrain else ())
            if proctrack == "cgroup"
            else ""
        )
        _remove_dead()
        self.cluster = cluster
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        self.folder.chmod(0o755)
        self._alive = open(self.folder / "alive", "w")  # noqa: SIM115  # locked while we live: see _remove_dead
        fcntl.flock(self._alive, fcntl.LOCK_EX)
        self._users = Users(self.folder)
        self._inside: Namespaces | None = None
        self._enter: list[str] = []
        self.first_pid = 0  # in the cluster's namespaces
        self._write_configuration(
            cluster=cluster, folder=self.folder, proctrack=proctrack, kill_wait=kill_wait, cpus=cpus, more=more,
            first_job_id=random.randrange(1_000_000, 60_000_000),  # cgroups and their names belong to the machine
            task_plugin="task/affinity,task/cgroup" if constrain else "task/none",
            accounting="cgroup" if constrain else "none",
            cgroup=version or "v1", cgroup_mount=machine.CGROUPS, constrain="yes" if constrain else "no",
        )  # fmt: skip
        self.set_plugstack(plugstack)

    def add_user(self, name: str = "") -> JobUser:
        """Add an ordinary user. Works before and after the start."""
        return self._users.add(name)

    def node_folder(self, node: str) -> Path:
        """Return the folder of n1, n2 or `login` (for commands). It has slurm.conf, plugstack.conf,
        and files of the tests."""
        return self.folder / node

    def set_plugstack(self, lines: str) -> None:
        """Write plugstack.conf for the nodes and for commands. It applies from the next step on."""
        for node in ("login", *NODES):
            folder = self.node_folder(node)
            scratch = folder / "plugstack.new"
            scratch.write_text(Template(lines).substitute(folder=folder) + "\n")
            scratch.rename(folder / "plugstack.conf")

    def _write_configuration(self, **values: object) -> None:
        for name in ("munge", "controller", "login", *NODES):
            (self.folder / name).mkdir()
        (self.folder / "slurm.conf").write_text(_template("slurm.conf").substitute(values))
        cgroups = _template("cgroup.conf").substitute(values)
        for node in ("login", *NODES):
            folder = self.node_folder(node)
            (folder / "cgroup.conf").write_text(cgroups)
            plugstack_line = f"PlugStackConfig={folder}/plugstack.conf"
            (folder / "slurm.conf").write_text(
                f"include {self.folder}/slurm.conf\n{plugstack_line}\n"
            )
        key = self.folder / "munge" / "key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(1024))
        for path in (key, key.parent):
            shutil.chown(path, "munge", "munge")

    # ---- start and end

    def start(self) -> Self:
        """Start all daemons. Raise SlurmFailed."""
        self._inside = Namespaces(
            self._users.files, self.folder / "inside.log", self._environment(), self.failed
        )
        self.first_pid = self._inside.first_pid
        self._enter = self._inside.enter("mount", "net", "uts")
        self._start_munge()
        self.start_daemon("slurmctld")
        for node in NODES:
            self.start_daemon(node)
        self.wait_idle()
        return self

    def _start_munge(self) -> None:
        folder = self.folder / "munge"
        munged = [machine.program("munged"), "--foreground", "--force", f"--key-file={folder}/key"]
        munged += [
            f"--socket={folder}/socket",
            f"--pid-file={folder}/pid",
            f"--log-file={folder}/log",
        ]
        munged += [f"--seed-file={folder}/seed"]
        become = [
            machine.program("setpriv"),
            "--reuid=munge",
            "--regid=munge",
            "--clear-groups",
            "--",
        ]
        self._ask(
            do="start", name="munged", argv=[*become, *munged], log=str(self.folder / "munged.log")
        )
        self._wait((folder / "socket").exists, "munged listens", START_SECS)

    def start_daemon(self, name: str) -> None:
        """Start slurmctld, or the slurmd of a node, also after `signal_daemon`. Raise
        SlurmFailed."""
        if name == "slurmctld":
            log = self.folder / "slurmctld.log"
            argv = [
                machine.program("slurmctld"),
                "-D",
                "-f",
                str(self.folder / "login" / "slurm.conf"),
            ]
        else:
            folder = self.node_folder(name)
            log = folder / "slurmd.stderr"  # slurmstepd shares the real log: SlurmdLogFile
            argv = [machine.program("slurmd"), "-D", "-N", name, "-f", str(folder / "slurm.conf")]
        self._ask(do="start", name=name, argv=argv, log=str(log))

    def start_program(self, name: str, *argv: str) -> Path:
        """Start another daemon, which dies with the cluster. Return its log. Raise SlurmFailed."""
        log = self.folder / f"{name}.log"
        self._ask(do="start", name=name, argv=list(argv), log=str(log))
        return log

    def wait_idle(self) -> None:
        """Wait until all nodes are up and have no job. Raise SlurmFailed."""
        self._wait(self._all_idle, "all nodes are idle", START_SECS)

    def resume_nodes(self) -> None:
        """Return drained nodes to service."""
        self.as_root("scontrol", "update", f"nodename={','.join(NODES)}", "state=resume")

    def signal_daemon(self, name: str, signo: int = signal.SIGKILL) -> None:
        """Signal slurmctld, or the slurmd of a node. Raise SlurmFailed."""
        self._ask(do="signal", name=name, signo=signo)

    def close(self) -> None:
        """End the cluster with all remaining processes of jobs, and remove its files."""
        inside, self._inside = self._inside, None
        if inside is not None:
            inside.close()
        _remove(self.folder)
        self._alive.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, **request: object) -> dict[str, Any]:  # Any: JSON of inside.py
        assert self._inside is not None, "the cluster isn't running"
        return self._inside.ask(**request)

    def _all_idle(self) -> bool:
        ended = self._ask(do="ended")["ended"]
        if ended:
            raise self.failed(
                f"{', '.join(f'{name} ended with wait status {status}' for name, status in ended.items())}"
            )
        states = self.as_root("sinfo", "--noheader", "--Node", "--format=%N %t").stdout.split()
        return states == [word for node in NODES for word in (node, "idle")]

    def failed(self, heading: str) -> SlurmFailed:
        """Return an error with the heading and the last lines of the daemons' logs."""
        report = [heading]
        logs = sorted(self.folder.glob("*.log"))
        logs += [
            self.node_folder(node) / "slurmd.stderr"
            for node in NODES
            if not (self.folder / f"{node}.log").exists()
        ]
        for log in filter(Path.exists, logs):
            lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
            report += [f"the end of {log.name}:", *(f"  {line[:300]}" for line in lines)]
        return SlurmFailed("\n".join(report))

    def log(self, name: str) -> str:
        """Return the log of slurmctld, n1 or n2."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    # ---- commands

    def _environment(self, user: JobUser | None = None) -> dict[str, str]:
        name, home = (user.name, str(user.home)) if user else ("root", "/")
        path = "/usr/local/bin:/usr/bin:/bin" + ("" if user else f":{machine.SBIN}")
        variables = {
            "HOME": home,
            "USER": name,
            "LOGNAME": name,
            "SHELL": "/bin/bash",
            "PATH": path,
            "LANG": "C.UTF-8",
        }
        return {**variables, "SLURM_CONF": str(self.folder / "login" / "slurm.conf")}

    def as_root(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in the cluster, such as sinfo or scontrol."""
        return subprocess.run(
            [*self._enter, *command], cwd="/", env=self._environment(), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=scaled(JOB_SECS),
        )  # fmt: skip

    def start_as_root(
        self, *command: str, **options: Any
    ) -> "subprocess.Popen[bytes]":  # Any: options of Popen
        """Start a command in the cluster, but outside its PID namespace. The caller must end it."""
        options = {"stdin": subprocess.DEVNULL, **options}
        return subprocess.Popen(
            [*self._enter, *command], cwd="/", env=self._environment(), **options
        )

    @contextlib.contextmanager
    def mounted(self, place: Path, size: str) -> Iterator[Path]:
        """Mount a disk of the given size (such as `64k`) over a folder, with the mode of a spool.
        Only the cluster sees it. Raise SlurmFailed."""
        place.mkdir(exist_ok=True)
        result = self.as_root(
            "mount", "-t", "tmpfs", "-o", f"size={size},mode=711", "none", str(place)
        )
        if result.returncode:
            raise self.failed(f"mount said {result.stderr.strip()}")
        try:
            yield place
        finally:
            self.as_root("umount", "--lazy", str(place))

    def start_as(
        self, user: JobUser, *command: str, env: Mapping[str, str] | None = None, **options: Any
    ) -> "subprocess.Popen[bytes]":  # Any: options of Popen
        """Start a command as a user, in the home. The process has the command's pid, and dies with
        this thread."""
        become = [
            machine.program("setpriv"),
            f"--reuid={user.uid}",
            f"--regid={user.gid}",
            "--init-groups",
        ]
        become += ["--pdeathsig=KILL", "--", "env", f"--chdir={user.home}"]
        options = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **options,
        }
        environment = {**self._environment(user), **(env or {})}
        return subprocess.Popen(
            [*self._enter, *become, *command], cwd="/", env=environment, **options
        )

    def run_as(
        self, user: JobUser, *command: str, timeout_secs: float = JOB_SECS, **options: Any
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run a command as a user, such as srun. options: of start_as."""
        with self.start_as(user, *command, **options) as process:
            try:
                out, err = process.communicate(timeout=scaled(timeout_secs))
            except subprocess.TimeoutExpired:
                process.kill()
                raise self.failed(f"{command} didn't end within {timeout_secs:.0f} s") from None
        return subprocess.CompletedProcess(command, process.returncode, out or b"", err or b"")

    def sbatch(self, user: JobUser, script: str, *options: str, **more: Any) -> str:
        """Submit a script and return the job's id. A script without `#!` is a bash script. Raise
        SlurmFailed."""
        with tempfile.NamedTemporaryFile("w", dir=self.folder, suffix=".sh") as file:
            file.write(script if script.startswith("#!") else f"#!/bin/bash\n{script}")
            file.flush()
            os.chmod(file.name, 0o644)
            name = (
                ()
                if any(option.startswith("--job-name") for option in options)
                else ("--job-name=job.sh",)
            )
            result = self.run_as(user, "sbatch", "--parsable", *name, *options, file.name, **more)
        if result.returncode:
            raise self.failed(f"sbatch said {result.stderr.decode(errors='replace').strip()}")
        return result.stdout.decode().strip()

    def scancel(self, user: JobUser, *words: str) -> None:
        """Run scancel as the user. Raise SlurmFailed."""
        result = self.run_as(user, "scancel", *words)
        if result.returncode:
            raise self.failed(f"scancel said {result.stderr.decode(errors='replace').strip()}")

    def requeue(self, job_id: str) -> None:
        """Restart a running job, without Slurm's usual wait of two minutes. Raise SlurmFailed."""
        result = self.as_root("scontrol", "requeue", job_id)
        if result.returncode:
            raise self.failed(f"scontrol said {result.stderr.strip()}")
        self.wait_state(job_id, "PENDING")
        # slurmd compares whole seconds. It would also kill a job launched within the same second.
        time.sleep(1.1)
        result = self.as_root("scontrol", "update", f"jobid={job_id}", "StartTime=now")
        if result.returncode:
            raise self.failed(f"scontrol said {result.stderr.strip()}")

    def show(self, job_id: str) -> list[dict[str, str]]:
        """Return the fields of `scontrol show job`: one mapping for a job, several for arrays and
        heterogeneous jobs."""
        result = self.as_root("scontrol", "--oneliner", "show", "job", job_id)
        if result.returncode:
            raise self.failed(f"scontrol said {result.stderr.strip()}")
        return [
            dict(re.findall(r"(\S+?)=(\S*)", line))
            for line in result.stdout.splitlines()
            if line.startswith("JobId=")  # the command takes further lines
        ]

    def wait(self, job_id: str, timeout_secs: float = JOB_SECS) -> JobEnd:
        """Wait for a job's end. Raise SlurmFailed."""
        (end,) = self.wait_all(job_id, timeout_secs)
        return end

    def wait_all(self, job_id: str, timeout_secs: float = JOB_SECS) -> list[JobEnd]:
        """Wait for the ends of all tasks of an array, or all parts of a heterogeneous job."""
        limit = scaled(timeout_secs)
        deadline = time.monotonic() + limit
        while True:
            begin = time.monotonic()
            jobs = self.show(job_id)
            if {job["JobState"] for job in jobs} <= OVER:
                break
            if time.monotonic() > deadline:
                states = ", ".join(
                    f"{job['JobId']} {job['JobState']} ({job['Reason']})" for job in jobs
                )
                raise self.failed(f"jobs weren't over within {limit:.0f} s: {states}")
            time.sleep(max(0.05, time.monotonic() - begin))  # a busy machine needs its time itself
        return [JobEnd(job["JobState"], *map(int, job["ExitCode"].split(":"))) for job in jobs]

    def wait_state(self, job_id: str, state: str, timeout_secs: float = JOB_SECS) -> None:
        """Wait until a job with all its parts is in a state such as RUNNING. Raise SlurmFailed."""
        self._wait(
            lambda: {job["JobState"] for job in self.show(job_id)} == {state},
            f"{job_id} is {state}",
            timeout_secs,
        )

    def _wait(self, condition: Callable[[], bool], purpose: str, timeout_secs: float) -> None:
        limit = scaled(timeout_secs)
        deadline = time.monotonic() + limit
        while not condition():
            if time.monotonic() > deadline:
                raise self.failed(f"not within {limit:.0f} s: {purpose}")
            time.sleep(0.05)


def _template(name: str) -> Template:
    return Template((TEMPLATES / name).read_text())


def _remove(folder: Path) -> None:
    """Remove the cgroups and the scratch folder of a cluster that no longer runs."""
    uids = (folder / UIDS_FILE).read_text().split() if (folder / UIDS_FILE).exists() else []
    for controller in machine.CGROUPS.iterdir():
        for node in NODES:
            top = controller / f"slurm_{node}"
            for uid in uids:
                machine.remove_cgroups(top / f"uid_{uid}")
            with contextlib.suppress(OSError):
                top.rmdir()  # fails if another cluster uses it
    shutil.rmtree(folder, ignore_errors=True)


def _remove_dead() -> None:
    """Remove the remains of clusters whose own process was killed."""
    left = (uids for place in PLACES for uids in place.glob(f"{PREFIX}*/{UIDS_FILE}"))
    for uids in left:  # written after `alive` was locked
        with contextlib.suppress(OSError), uids.with_name("alive").open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(uids.parent)

"""deploy/slurm/README.md as an admin follows it: its command blocks by heading, and machines to run
them on."""

import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.servers.running import free_port
from tests.slurm.tools import machine
from tests.tools.captures.captured_runs import wait_until
from tests.tools.sources import ROOT
from tests.tools.waiting import scaled

GUIDE = ROOT / "deploy" / "slurm" / "README.md"
UNIT = ROOT / "deploy" / "systemd" / "logshipper-agent.service"
INSIDE = Path(__file__).with_name("inside.py")
MACHINES = ("controller", "node", "login")
# shared by all machines, as on many clusters
SHARED = ("etc/slurm", "home", "run/munge", "etc/munge")
SLURM_WORDS = ("sbatch", "srun", "scontrol", "squeue", "scancel", "sinfo")
DOWNGRADE = "apt install --allow-downgrades ./logshipper_*.deb ./logshipper-slurm-*.deb"
BLOCK_SECS = 120.0
READY_SECS = 60.0
SLURM_CONF = """
ClusterName=hpc
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=slurm
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
ReturnToService=2
FirstJobId={first}
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmctldPidFile=/run/slurmctld.pid
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmdPidFile=/run/slurmd.pid
SlurmdLogFile=/var/log/slurm/slurmd.log
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdParameters=config_overrides
NodeName=localhost NodeAddr=127.0.0.1 CPUs=128 RealMemory=1000
PartitionName=main Default=YES Nodes=ALL MaxTime=60 State=UP
"""


def blocks() -> dict[str, list[str]]:
    """Return the `sh` blocks below each heading, in order. Blocks of other languages are not for
    these machines."""
    by_heading: dict[str, list[str]] = {}
    heading = ""
    for part in re.split(
        r"^(#+ [^\n]+\n|```\w*\n.*?^```\n)", GUIDE.read_text(), flags=re.MULTILINE | re.DOTALL
    ):
        if part.startswith("#"):
            heading = part.strip("# \n")
        elif part.startswith("```sh\n"):
            by_heading.setdefault(heading, []).append(
                part.removeprefix("```sh\n").removesuffix("```\n")
            )
    return by_heading


def unit_value(key: str) -> str:
    (value,) = re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return str(value)


class Site:
    """A controller, a compute node and a login machine, each with its own clean root, on one
    kernel. `with` starts them. replacements: this site's values for words of the guide, such as
    Loki's address.

    The machines run without systemd, so the class replaces its commands:
    - `systemctl enable ...` does nothing.
    - `systemctl restart logshipper-agent` starts the agent by the unit's ExecStart, with the unit's
      capabilities.
    - `systemctl restart slurmctld` restarts slurmctld.

    Tests stop the agent before `apt remove`, like the package's script with systemd. apt asks for
    no confirmation.
    """

    def __init__(self, root: Path, replacements: Mapping[str, str]) -> None:
        self.root = root
        self.cluster = f"hpc{secrets.token_hex(4)}"
        self.replacements = {**replacements, "hpc": self.cluster}
        self.folder = Path(tempfile.mkdtemp(prefix="logshipper-site-", dir="/tmp"))
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self.transcript: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._first = ""

    # ---- start and end

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self.agents.values():
            agent.kill()
            agent.wait()
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait(20.0)
            self._process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self) -> None:
        work = self.folder / "work"  # in memory, and gone with the namespace
        lines = [f"mkdir {work}", f"mount -t tmpfs -o mode=755 none {work}", f"mkdir {work}/shared"]
        for place in SHARED:
            lines += [
                f"mkdir -p {work}/shared/{place}",
                f"[ ! -d {self.root}/{place} ] || cp -a {self.root}/{place}/. {work}/shared/{place}",
            ]
        for name in MACHINES:
            base, at = f"{work}/{name}", f"{work}/{name}/root"
            lines += [
                f"mkdir {base} {base}/upper {base}/work {at}",
                f"mount -t overlay -o lowerdir={self.root},upperdir={base}/upper,workdir={base}/work overlay {at}",
                f"mount -t proc proc {at}/proc", f"mount --rbind /dev {at}/dev", f"mount --rbind /sys {at}/sys",
                f"mount -t tmpfs -o mode=755 none {at}/run", f"mount -t tmpfs -o mode=1777 none {at}/tmp",
            ]  # fmt: skip
            for place in SHARED:
                lines += [
                    f"mkdir -p {at}/{place}",
                    f"mount --bind {work}/shared/{place} {at}/{place}",
                ]
        python = os.path.realpath(sys.executable)
        lines += [f"exec {shlex.quote(python)} -I -S {shlex.quote(str(INSIDE))}"]
        command = [
            machine.program("unshare"), "--mount", "--net", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc",
            "sh", "-e", "-c", "\n".join(lines),
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "the machines didn't start"
        self._first = (
            Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
            .read_text()
            .split()[0]
        )
        self._start_slurm()

    def _start_slurm(self) -> None:
        first = secrets.randbelow(50_000_000) + 1_000_000
        self.put(
            "controller",
            "/etc/slurm/slurm.conf",
            SLURM_CONF.replace("hpc", self.cluster).format(first=first),
        )
        key = "/etc/munge/munge.key"
        self.run("controller", f"[ -s {key} ] || (umask 077; head -c 1024 /dev/urandom > {key})")
        self.run("controller", "chown -R munge: /etc/munge /run/munge; chmod 755 /run/munge")
        for name in MACHINES:
            folders = "/var/lib/slurm/slurmctld /var/lib/slurm/slurmd /var/log/slurm"
            self.run(
                name,
                f"mkdir -p {folders}; chown -R slurm: {folders}; chown root: /var/lib/slurm/slurmd",
            )
            self.put(name, "/etc/apt/apt.conf.d/90-yes", 'APT::Get::Assume-Yes "true";\n')
            self.run(
                name, "useradd --uid 41411 --user-group --home-dir /home/ann --shell /bin/bash ann"
            )
        self.run("node", "dpkg --purge slurmctld")
        self.run("login", "dpkg --purge slurmctld slurmd")
        self.run("login", "install -d -m 700 -o ann -g ann /home/ann")
        self.daemon(
            "controller",
            "munged",
            "setpriv --reuid=munge --regid=munge --clear-groups munged --foreground",
        )
        wait_until(
            lambda: self.has("controller", "/run/munge/munge.socket.2"),
            "munged listens",
            READY_SECS,
        )
        self.daemon("controller", "slurmctld", "slurmctld -D")
        self.daemon("node", "slurmd", "slurmd -D -N localhost")
        wait_until(self.is_up, "the node is up", READY_SECS)

    def is_up(self) -> bool:
        states = self.run("login", "sinfo -h -o %T", check=False).split()
        return bool(states) and set(states) <= {"idle", "mixed", "allocated"}

    # ---- commands

    def enter(self, name: str, *, network: bool, user: str = "") -> list[str]:
        """Return the command that enters a machine. network: use the cluster's network, where Slurm
        is; otherwise this machine's, where Loki is."""
        inside = [machine.program("nsenter"), "-t", self._first, "--mount", "--pid", "--uts"]
        become = [f"--userspec={user}:{user}"] if user else []
        home = f"/home/{user}" if user else "/root"
        return [
            *inside, *(["--net"] if network else []), "--", "chroot", *become, f"{self.folder}/work/{name}/root",
            "env", "-i", f"HOME={home}", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
        ]  # fmt: skip

    def run(self, name: str, script: str, *, user: str = "", check: bool = True) -> str:
        """Return the output of a script. Scripts of Slurm's commands run in the cluster's
        network."""
        network = script.split(maxsplit=1)[0] in SLURM_WORDS
        done = subprocess.run(
            [*self.enter(name, network=network, user=user), "sh", "-e", "-c", f"cd ~\n{script}"], cwd="/",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=scaled(BLOCK_SECS),
        )  # fmt: skip
        output = done.stdout.decode(errors="replace")
        self.transcript.append(f"{name}{f' ({user})' if user else ''}# {script}\n{output}")
        assert not check or done.returncode == 0, f"exit code {done.returncode}\n" + "\n".join(
            self.transcript[-8:]
        )
        return output

    def has(self, name: str, path: str) -> bool:
        return self.run(name, f"test -e {path} && echo yes || :") == "yes\n"

    def put(self, name: str, path: str, content: str | bytes) -> None:
        text = content.encode() if isinstance(content, str) else content
        subprocess.run(
            [*self.enter(name, network=False), "sh", "-c", f"cat > {path}"],
            input=text,
            cwd="/",
            check=True,
        )

    def daemon(self, name: str, label: str, line: str) -> None:
        """Start a daemon that ends with the site."""
        program = [*self.enter(name, network=True), *shlex.split(line)]
        with (self.folder / f"{label}.log").open("ab") as log:
            self.agents[label] = subprocess.Popen(
                program, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def follow(self, heading: str, name: str, *, user: str = "", which: int = 0) -> str:
        """Run a block of the guide as written, except for `replacements` and lines of systemctl.
        Return its output."""
        text = blocks()[heading][which]
        for theirs, ours in {**self.replacements, '":9310"': f'"127.0.0.1:{free_port()}"'}.items():
            text = text.replace(theirs, ours)
        output, script = "", ""
        for line in text.splitlines():
            if line.startswith("systemctl "):
                output += self.run(name, script, user=user) if script else ""
                self.systemctl(name, line)
                script = ""
            elif line.startswith(SLURM_WORDS) and not line.startswith(" "):
                output += self.run(name, script, user=user) if script else ""
                output += self.run(name, line, user=user)
                script = ""
            else:
                script += f"{line}\n"
        return output + (self.run(name, script, user=user) if script else "")

    def systemctl(self, name: str, line: str) -> None:
        _, verb, service = line.split()
        if verb == "enable":
            return
        assert verb == "restart", line
        if service == "slurmctld":
            self.stop("slurmctld")
            self.daemon(name, "slurmctld", "slurmctld -D")
            wait_until(self.is_up, "the node is up again", READY_SECS)
        else:
            assert service == "logshipper-agent", line
            self.stop(f"agent-{name}")
            self.start_agent(name)

    def start_agent(self, name: str) -> None:
        label = f"agent-{name}"
        self.run(name, f"install -d -m 755 /run/{unit_value('RuntimeDirectory')}")
        capabilities = ",".join(
            [
                "-all",
                *(f"+{cap[4:].lower()}" for cap in unit_value("CapabilityBoundingSet").split()),
            ]
        )
        command = [
            "setpriv",
            f"--bounding-set={capabilities}",
            *shlex.split(unit_value("ExecStart")),
        ]
        log = self.folder / f"{label}.log"
        ready_count = self._ready(log)
        with log.open("ab") as output:
            self.agents[label] = subprocess.Popen(
                [*self.enter(name, network=False), *command],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        wait_until(
            lambda: self._ready(log) > ready_count or self.agents[label].poll() is not None,
            f"{label} is ready",
            READY_SECS,
        )
        assert self.agents[label].poll() is None, log.read_text()

    def _ready(self, log: Path) -> int:
        return log.read_text().count("ready:") if log.exists() else 0

    def stop(self, label: str) -> None:
        """Stop a daemon: send SIGTERM to the process that nsenter started."""
        process = self.agents.pop(label, None)
        if process is None:
            return
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children:
            subprocess.run(["kill", child], check=True)
        process.wait(scaled(READY_SECS))

    def describe(self) -> str:
        logs = [
            f"{log.name}:\n" + "\n".join(log.read_text().splitlines()[-10:])
            for log in self.folder.glob("*.log")
        ]
        for name, path in (("node", "slurmd"), ("controller", "slurmctld")):
            logs.append(self.run(name, f"tail -n 30 /var/log/slurm/{path}.log", check=False))
        return "\n".join([*self.transcript[-6:], *logs])

    def wait_for(
        self, condition: str, name: str = "login", *, user: str = "ann", secs: float = READY_SECS
    ) -> None:
        """Wait until a script succeeds on the machine."""
        limit = scaled(secs)
        deadline = time.monotonic() + limit
        while self.run(name, f"{condition} && echo so it is || :", user=user).splitlines()[-1:] != [
            "so it is"
        ]:
            assert time.monotonic() < deadline, (
                f"not within {limit:.0f} s: {condition}\n{self.describe()}"
            )
            time.sleep(0.1)

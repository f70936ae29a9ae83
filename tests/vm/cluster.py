"""Slurm in the machine: users, jobs, their files, and Loki's data about them."""

import base64
import shlex
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tests.slurm.tools.cases import READY, Case, Run, normal
from tests.slurm.tools.users import JobUser
from tests.vm.answers import Account, Job, accounts_of, files_of, jobs_of
from tests.vm.machine import Machine
from tests.vm.root import LAST_USER

JOB_SECS = 400.0
SHIPPED_SECS = 240.0
# for all nodes
NODES_UP = (
    "sinfo -h -N -o %T | grep -q . && ! sinfo -h -N -o %T | grep -qvx -e idle -e mixed -e allocated"
)
LOOK_SECS = 2.0  # scontrol takes a while on an emulated processor
PLUGSTACK = "/etc/slurm/plugstack.conf.d/10-logshipper.conf"
# Python takes seconds to start on an emulated processor
PATIENT = "stall_secs=300 drain_secs=60"
FILES = """cd /home; for user in {users}; do for file in $user/*.out $user/*.err $user/*.txt; do
[ -f "$file" ] && echo "$user $(base64 -w0 "$file") ${{file#*/}}"; done; done; true"""


class GuestCluster:
    """Methods for single users and jobs are thread-safe, methods for the whole cluster are not."""

    agents = "logshipper-agent logshipper-agent-n2"  # units

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.figures: dict[str, dict[str, bytes]] = {}
        self._numbers = iter(range(100, LAST_USER + 1))
        self._lock = threading.Lock()
        self._jobs: list[Job] = []
        self._looked = 0.0

    # ---- whole cluster

    def wait_up(self) -> None:
        """Wait until Slurm accepts jobs, and Loki and the agents answer."""
        self.machine.until(NODES_UP, 300)
        self.machine.until(
            f"systemctl is-active --quiet {self.agents} && (exec 3<>/dev/tcp/127.0.0.1/3100)", 200
        )

    def set_plugin(self, *, loaded: bool) -> None:
        """Add the plugin to plugstack.conf or remove it, from the next step on."""
        if loaded:
            line = f"optional logshipper.so spool=/var/spool/logshipper cluster=vm {PATIENT}"
            self.machine.output(f"""
                mkdir -p {Path(PLUGSTACK).parent}; echo {line!r} >{PLUGSTACK}
                grep -qs '^include' /etc/slurm/plugstack.conf ||
                    echo 'include /etc/slurm/plugstack.conf.d/*' >>/etc/slurm/plugstack.conf
            """)
        else:
            self.machine.output(f"rm -f {PLUGSTACK}")

    def wait_shipped(self) -> None:
        """Wait until the spools are empty, so that Loki has everything."""
        self.machine.until(
            "! ls /var/spool/logshipper /var/spool/logshipper-n2 | grep -q @", SHIPPED_SECS
        )

    def accounts(self) -> dict[str, Account]:
        """Return Loki's data by job."""
        script = "/opt/logshipper/bin/python -I /usr/local/lib/vm/entries.py"
        return accounts_of(self.machine.output(script, secs=300))

    # ---- users and jobs

    def add_user(self) -> JobUser:
        with self._lock:
            number = next(self._numbers)
        return JobUser(f"u{number}", 3000 + number, 3000 + number, Path(f"/home/u{number}"))

    def jobs(self) -> list[Job]:
        """Return all jobs that Slurm knows, at most LOOK_SECS old."""
        with self._lock:
            if time.monotonic() - self._looked > LOOK_SECS:
                answer = self.machine.run("scontrol --oneliner show job", secs=120)
                self._jobs = jobs_of(answer.output) if answer.code == 0 else []
                self._looked = time.monotonic()
            return self._jobs

    def begin(self, case: Case, run: Run, *, opted_in: bool) -> None:
        """Submit the case's job as the run's user, or call its command."""
        name = run.user.name
        if opted_in:
            content, arrow, target = case.opt_in.partition("-> ")
            write = (
                f"ln -s {target} .logoptin"
                if arrow
                else f"printf %s {shlex.quote(content)} >.logoptin"
            )
            self.machine.output(write, user=name)
        if case.script:
            options = list(case.options)
            if not any(option.startswith("--job-name") for option in options):
                options.append("--job-name=job.sh")
            run.job_id = self._sbatch(name, case.script, options)
        else:
            words = f"{shlex.join(case.command)} >command.out 2>command.err"
            run.code = self.machine.run(words, user=name, secs=JOB_SECS).code

    def _sbatch(self, user: str, script: str, options: Sequence[str]) -> str:
        text = script if script.startswith("#!") else f"#!/bin/bash\n{script}"
        content = base64.b64encode(text.encode()).decode()
        submit = f"sbatch --parsable {shlex.join(options)} /tmp/{user}.sh"
        words = f"echo {content} | base64 -d >/tmp/{user}.sh; chmod 644 /tmp/{user}.sh; {submit}"
        return self.machine.output(words, user=user, secs=120).split()[-1]

    def wait_ready(self, run: Run) -> None:
        """Wait until the run's job has printed READY."""
        self.machine.until(f"grep -qs -a '{READY}' {run.user.home}/*.out", 180)

    def act(self, case: Case, run: Run) -> None:
        """Perform the case's action on a job after it has printed READY."""
        if case.act is not None:
            self.wait_ready(run)
            case.act(self, run.user, run.job_id)

    def finish(self, run: Run) -> None:
        """Wait for the ends of all jobs of the user."""
        name = run.user.name
        deadline = time.monotonic() + JOB_SECS
        while True:
            jobs = [job for job in self.jobs() if job.user == name]
            if jobs and all(job.is_over for job in jobs):
                break
            if time.monotonic() > deadline:
                raise self.machine.failed(f"jobs aren't over within {JOB_SECS:.0f} s: {jobs}")
            time.sleep(LOOK_SECS)
        run.job_ids = sorted((job.job_id for job in jobs), key=int)
        own = [job for job in jobs if not run.job_id or run.job_id in (job.job_id, job.group)]
        run.ends = sorted(job.end for job in own)

    def fetch(self, runs: Sequence[Run]) -> None:
        """Fetch the users' output files. Store the content of their *.txt files in `figures`, by
        user."""
        users = " ".join(run.user.name for run in runs)
        files = files_of(self.machine.output(FILES.format(users=users), secs=300))
        for run in runs:
            own = files.get(run.user.name, {})
            outputs = {name: content for name, content in own.items() if name[-4:] != ".txt"}
            run.files = normal(outputs, run.job_ids, run.user)
            self.figures[run.user.name] = {name: own[name] for name in own.keys() - outputs.keys()}

    # ---- actions on jobs

    def scancel(self, user: JobUser, *words: str) -> None:
        self.machine.output(shlex.join(["scancel", *words]), user=user.name, secs=120)

    def requeue(self, job_id: str) -> None:
        self.machine.output(f"scontrol requeue {job_id}", secs=120)
        self.machine.until(f"scontrol show job {job_id} | grep -q JobState=PENDING", 120)
        # Slurm would also kill a job launched within the same second
        self.machine.output(f"sleep 2; scontrol update jobid={job_id} StartTime=now", secs=120)

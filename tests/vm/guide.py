"""deploy/slurm/README.md as an admin follows it in the machine, under systemd: upgrade, rollback
and removal of packages while jobs run, and installation in seven steps."""

import re
import time

from tests.slurm.tools.cases import APART, BOTH, READY, Case
from tests.slurm.tools.followed_guide import DOWNGRADE, blocks
from tests.slurm.tools.users import JobUser
from tests.vm.answers import Result
from tests.vm.cases import Fault
from tests.vm.cluster import GuestCluster
from tests.vm.machine import Machine, MachineFailed

APT_SECS = 600.0
REPLACEMENTS = {
    "http://loki.example.org:3100": "http://127.0.0.1:3100", "http://prometheus.example.org:9090": "http://127.0.0.1:9",
    "hpc": "vm",
}  # fmt: skip
# apt asks for no confirmation, and uses no other source
APT = """printf 'APT::Get::Assume-Yes "true";\\n' >/etc/apt/apt.conf.d/90-yes; export DEBIAN_FRONTEND=noninteractive"""
VERSIONS = "dpkg-query -W -f '${Version}\\n' 'logshipper*' | sed 's/.*-//; s/+.*//' | sort -u"
# captured jobs wait for a signal to continue, others don't
WAITS = f"{BOTH.format(50)}echo {READY}; until [ -e go ] || [ ! -e ~/.logoptin ]; do sleep 0.5; done\n{BOTH.format(20)}"
STEPS = (
    "3. Each compute node",
    "4. Where users log in",
    "5. The line in plugstack.conf",
    "6. The controller",
)
HELLO = ["hello from n1", "hello from a step"]


def step(heading: str, which: int = 0) -> str:
    """Return a block of the guide, with the machine's own servers."""
    text = blocks()[heading][which]
    for theirs, ours in REPLACEMENTS.items():
        text = text.replace(theirs, ours)
    return text


def faults(machine: Machine) -> list[Fault]:
    """Return the faults in their order. The last one leaves nothing installed."""

    def apt(folder: str, script: str, number: int) -> None:
        versions = machine.output(
            f"set -e; {APT}; cd /root/{folder}; {script}\n{VERSIONS}", secs=APT_SECS
        )
        if number and versions.split()[-1] != str(number):
            raise machine.failed(f"{script}: not version {number}: {versions}")

    def fault(name: str, folder: str, script: str, number: int) -> Fault:
        def act(_: object, user: JobUser, job_id: str) -> None:
            machine.until(f"ls /var/spool/logshipper/{job_id}@*/segments | grep -q seg", 180)
            apt(folder, script, number)
            machine.output(f"touch {user.home}/go")

        return Fault(Case(name, WAITS, APART, act=act), "captured")

    taken_out = "\n".join(
        [
            "systemctl stop logshipper-agent-n2",
            *(step("Taking it out", which) for which in range(3)),
        ]
    )
    again = f"""{APT}; cd /root/packages
        {step("2. Every machine")}
        systemctl start logshipper-agent logshipper-agent-n2"""
    return [
        fault("upgraded", "newer", step("Upgrading"), 2),
        fault("rolled_back", "packages", DOWNGRADE, 1),
        fault("taken_out", "packages", taken_out, 0)._replace(after=again),
    ]


def seven_steps(cluster: GuestCluster) -> Result:
    """Install by the guide on a machine after a purge. At the end, Loki has a user's job."""
    machine = cluster.machine
    begin = time.monotonic()
    problems = []
    user = cluster.add_user()
    try:
        machine.output(
            f"{APT}; apt purge logshipper 'logshipper-slurm-*'; rm -f /etc/slurm/plugstack.conf",
            secs=APT_SECS,
        )
        left = machine.run(
            "ls -d /opt/logshipper /var/lib/logshipper /var/spool/logshipper /etc/logshipper/agent.toml"
        )
        problems += [
            f"left by a purge: {line}" for line in left.output.splitlines() if line.startswith("/")
        ]
        machine.output(f"{APT}; cd /root/packages; {step('2. Every machine')}", secs=APT_SECS)
        for heading in STEPS:
            machine.output(f"set -e\n{step(heading)}", secs=200)
        cluster.wait_up()
        output = machine.output(step("7. A job"), user=user.name, secs=300)
        (job_id,) = re.findall(r"Submitted batch job (\d+)", output)
        logs = f"[ $(logshipper logs {job_id} --from loki | grep -c '^hello from') = {len(HELLO)} ]"
        machine.until(logs, 200)
        own = machine.output(f"cat {user.home}/slurm-{job_id}.out").splitlines()
        if own != HELLO:
            problems.append(f"the job's own file: {own}")
        right = machine.run(step("Is it right?"), secs=200)
        if right.code:
            problems.append(f"Is it right? exit code {right.code}: {right.output[-1500:]}")
    except MachineFailed as error:
        problems.append(str(error))
    return Result("seven_steps", time.monotonic() - begin, problems)

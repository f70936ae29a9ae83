"""The cases: those of tests/slurm's table, and cases that need a machine with systemd and cgroup
v2. Cases without `ends` must end as without the plugin."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

from tests.slurm.test_limits import LIMITS
from tests.slurm.tools.cases import APART, BOTH, READY, Case
from tests.slurm.tools.table import CASES, TIMED, ended
from tests.slurm.tools.users import JobUser
from tests.vm.cluster import NODES_UP
from tests.vm.machine import Machine

# cases of tests/slurm's table that run side by side
TABLE = """
    time_limit time_limit_killed both_streams one_file no_last_newline silent exit_1 exit_7 exit_255 signal_9 signal_11
    signal_15 scancel scancel_signal tail_after_scancel array nested_srun nested_srun_exit_code steps os_wait background
    any_bytes not_a_terminal srun_unbuffered srun_exit_code srun_8 salloc per_task outlives_term surroundings of_a_job
    srun_killed nested_srun_label het het_srun srun srun_patterns
""".split()
HANGING = "-> /mnt/hang/.logoptin"  # a link to this path
EATS = "x = [bytearray(1 << 20) for n in range(400)]"
SLOW = f"echo {READY}; for i in $(seq 60); do echo out $i; echo err $i >&2; sleep 0.3; done\n"
WAITS = BOTH.format(150) + f"echo {READY}\n[ $SLURM_RESTART_COUNT ] || sleep 1000\n"
FIGURES = """
group=/sys/fs/cgroup$(sed -n 's/^0:://; s|/step_.*||p' /proc/self/cgroup)
cat $group/memory.current $group/memory.peak >memory.txt 2>/dev/null
cat $group/cpu.stat >cpu.txt
"""
# From 26.05 on, the cgroup's name is not the job's number. Take the cgroup of the script's process,
# without the step.
COMMANDS = """cd /sys/fs/cgroup
names() {{ cat $(find "$@" -name cgroup.procs) /dev/null | while read pid; do cat /proc/$pid/comm; done; }}
names .$(sed -n 's/^0:://; s|/step_.*||p' /proc/$(pgrep -o -u {user} slurm_script)/cgroup); echo --
names system.slice/*slurmstepd.scope/logshipper 2>/dev/null || :
"""
# slurmctld notices that a job is gone when slurmd registers, some time after the job's start
NOTICE = "for n in $(seq 12); do squeue -h | grep -q . || break; sleep 15; systemctl restart slurmd; done"
# slurmctld saves its jobs some seconds after a change
SAVED = """touch /run/changed
for job in $(squeue -h -o %A); do scontrol update jobid=$job comment=vm; done
until [ /var/lib/slurm/slurmctld/job_state -nt /run/changed ]; do sleep 1; done"""
SCOPE = "n1_slurmstepd.scope"


# a file system that never answers; waiting processes cannot be killed, as after the loss of an NFS
# server
HANG = """mkdir -p /mnt/hang
systemd-run --quiet --unit=hang sh -c 'tail -f /dev/null | python3 -I /usr/local/lib/vm/fuse_home.py /mnt/hang 0 hang'
until grep -q ' /mnt/hang ' /proc/mounts; do sleep 0.5; done"""
HANG_ENDS = "systemctl stop hang; umount --lazy /mnt/hang"


class Fault(NamedTuple):
    """A case that runs alone. before, after: root's scripts around the captured run.

    to: runs that the fault affects. `captured`: only this run; the run without the plugin is an
    ordinary one. `each`: every run by itself. `both`: both runs at once, side by side.
    """

    case: Case
    to: Literal["captured", "each", "both"]
    before: str = ""
    after: str = ""


def table() -> list[Case]:
    """Return the cases in the order of TABLE, the long ones first."""
    cases = {case.name: case for case in (*CASES, *TIMED)}
    # its output names its node
    cases["surroundings"] = replace(cases["surroundings"], options=(*APART, "--nodelist=n1"))
    # compare with the ends without the plugin, because the table counts one of its two jobs twice
    cases["het_srun"] = replace(cases["het_srun"], ends=())
    return [cases[name] for name in TABLE] + [
        LIMITS[0],  # out of memory
        Case("out_of_memory_step", BOTH.format(50) + f"srun --mem=40 python3 -c '{EATS}' 2>/dev/null\necho out $?\n",
             (*APART, "--mem=120"), ends=()),
        Case("accounted", BOTH.format(3000) + FIGURES, APART),
        Case("parallel_steps", "for n in 1 2 3; do srun -n1 --exact bash -c \"echo out $n\" & done; wait",
             (*APART, "-n3"), sorted_lines=True),
        Case("pty", command=("script", "-qec", "srun --pty bash -c 'test -t 0 && echo out 1; exit 3'", "/dev/null"),
             code=3, ends=ended(3), captures=0),
        Case("requeue", WAITS, (*APART, "--requeue", "--open-mode=append"), captures=2,
             act=lambda controls, _, job_id: controls.requeue(job_id), log=attempts(150)),
    ]  # fmt: skip


def attempts(lines: int) -> dict[tuple[str, str, str, str], list[str]]:
    """Return the log of a job that printed the lines of WAITS twice."""
    out, err = ([f"{word} {n}" for n in range(1, lines + 1)] for word in ("out", "err"))
    return {
        (attempt, "batch", "0", stream): content
        for attempt in "12"
        for stream, content in (("stdout", [*out, READY]), ("stderr", err))
    }


def faults(machine: Machine) -> list[Fault]:
    """Return the faults of agent, slurmd, systemd and machine during a job."""

    def does(*scripts: str) -> Callable[..., None]:
        def act(*_: object) -> None:
            for script in scripts:
                machine.output(script, secs=300)

        return act

    def slow(name: str, *scripts: str, to: Literal["captured", "both"] = "captured") -> Fault:
        return Fault(Case(name, SLOW, APART, act=does(*scripts)), to)

    unit = "logshipper-agent"
    up = f"until {NODES_UP}; do sleep 1; done"
    drop_in = f"/run/systemd/system/{unit}.service.d"

    def begin_anew(script: str) -> None:
        count = machine.boots
        machine.start(script)
        machine.wait_boots(count + 1)
        machine.output(f"{up}; {NOTICE}", secs=300)

    def reboot(*_: object) -> None:
        begin_anew("systemctl reboot")

    def reset(*_: object) -> None:
        """Reset at once, with the current state of the disk, which includes slurmctld's record of
        the running jobs."""
        machine.output(SAVED, secs=120)
        begin_anew("sync; echo b >/proc/sysrq-trigger")

    restarts = f"systemctl show -P NRestarts {unit}"
    hung = f"""mkdir -p {drop_in}; printf '[Service]\\nWatchdogSec=20\\n' >{drop_in}/vm.conf; systemctl daemon-reload
        systemctl restart {unit}; before=$({restarts}); systemctl kill -s STOP {unit}
        until [ $({restarts}) -gt $before ] && systemctl is-active -q {unit}; do sleep 1; done
        rm -r {drop_in}; systemctl daemon-reload; systemctl restart {unit}"""
    active = f"until systemctl is-active -q {unit}; do sleep 1; done"
    stopped = f"systemctl stop {SCOPE}; systemctl restart slurmd"

    def look(_: object, user: JobUser, __: str) -> None:
        """Check the processes inside and next to the job's cgroup."""
        inside, _, outside = machine.output(COMMANDS.format(user=user.name)).partition("--\n")
        machine.output(f"touch {user.home}/go")
        captured = machine.run(f"test -e {user.home}/.logoptin").code == 0
        helpers = [name for name in outside.split() if name.startswith("logship")]
        if "logship" in inside or "slurm_script" not in inside or (len(helpers) >= 3) != captured:
            raise machine.failed(f"in the job's cgroup: {inside}\nnext to it: {outside}")

    return [
        Fault(Case("cgroups", BOTH.format(50) + f"echo {READY}; until [ -e go ]; do sleep 0.2; done", APART, act=look),
              "each"),
        slow("agent_restarted", f"systemctl restart {unit}"),
        slow("agent_killed", f"systemctl kill -s KILL {unit}; sleep 3; {active}"),
        slow("agent_stopped", f"systemctl stop {unit}; sleep 15; systemctl start {unit}"),
        slow("agent_hung", hung),
        slow("slurmd_restarted", "systemctl restart slurmd", up, to="both"),
        slow("slurmd_stopped", "systemctl stop slurmd; sleep 30; systemctl start slurmd", up, to="both"),
        slow("slurmd_killed", "systemctl kill -s KILL slurmd; sleep 5; systemctl restart slurmd", up, to="both"),
        Fault(Case("scope_stopped", WAITS, (*APART, "--no-requeue"), ends=(), act=does(stopped, up)), "both"),
        Fault(Case("hanging_opt_in", BOTH.format(50), APART, captures=0, opt_in=HANGING), "captured", HANG, HANG_ENDS),
        Fault(Case("reboot", WAITS, (*APART, "--no-requeue"), ends=(), act=reboot), "both"),
        Fault(Case("reset", WAITS, (*APART, "--no-requeue"), ends=(), act=reset), "both"),
    ]  # fmt: skip

"""The cases. What each one's script prints is numbered, so that a missing or repeated line shows."""

from collections.abc import Callable

from tests.slurm.capturing import CapturingCluster
from tests.slurm.cases import APART, BOTH, READY, Case, write
from tests.slurm.cluster import JobEnd
from tests.slurm.users import JobUser

FAILED = "FAILED"
COMPLETED = JobEnd("COMPLETED", 0, 0)

LOOP_ON_WAIT = """#!/usr/bin/python3
import os, sys

for number in range(3):
    if os.fork() == 0:
        os._exit(number)
ended = 0
while True:
    try:
        os.wait()
        ended += 1
    except ChildProcessError:
        break
print("out", ended)
print("err none is left", file=sys.stderr)
"""

TAIL_ON_TERM = f"""
trap 'kill $! 2>/dev/null; for i in $(seq 500); do echo out tail $i; done; echo err tail >&2; exit 3' TERM
{BOTH.format(20)}
echo {READY}
sleep 1000 & wait
"""

ANY_BYTES = """#!/usr/bin/python3
import os, sys

for stream in (1, 2):
    for number in range(200):
        os.write(stream, bytes(range(256)) + b"\\r\\n\\x1b[31m%d\\x1b[0m\\r \\xff\\n" % number)
"""

FLOOD = """#!/usr/bin/python3
import sys

for number in range(40_000):
    print("out", number, "of a flood that fills pipes and segments on its way")
    print("err", number, file=sys.stderr)
"""

IS_A_TERMINAL = """#!/usr/bin/python3
import os, stat

kinds = {"fifo": stat.S_ISFIFO, "file": stat.S_ISREG, "characters": stat.S_ISCHR}
print("out", [os.isatty(fd) for fd in range(3)])
"""

HET = """#!/bin/bash
#SBATCH -n1
#SBATCH hetjob
#SBATCH -n1
echo out 1
srun --het-group=0,1 bash -c 'echo out p$SLURM_PROCID'
"""

DAEMON = """
setsid bash -c 'sleep 2; echo out of the daemon; exec sleep 1000' &
echo out of the script
"""


def with_output(cluster: CapturingCluster, user: JobUser) -> None:
    write(user, "job.out", "out of before\n")
    (user.home / "job.out").chmod(0o666)


def scancel(*words: str) -> Callable[[CapturingCluster, JobUser, str], None]:
    return lambda cluster, user, job_id: cluster.scancel(user, *words, job_id)


def ended(code: int, signal: int = 0, state: str = FAILED) -> tuple[JobEnd, ...]:
    return (JobEnd(state, code, signal),)


CASES = [
    Case("both_streams", BOTH.format(2000), APART),
    Case("one_file", BOTH.format(2000)),
    Case("no_last_newline", "printf 'out 1\\nout 2'; printf 'err 1\\nerr 2' >&2", APART),
    Case("silent", "true", APART),
    *(Case(f"exit_{code}", BOTH.format(50) + f"exit {code}", APART, ends=ended(code)) for code in (1, 7, 255)),
    *(Case(f"signal_{no}", BOTH.format(50) + f"kill -{no} $$", APART, ends=ended(0, no)) for no in (9, 11, 15)),
    Case(
        "scancel",
        BOTH.format(100) + f"echo {READY}; exec sleep 1000",
        APART,
        act=scancel(),
        ends=ended(0, 15, "CANCELLED"),
    ),
    Case(
        "scancel_signal",
        BOTH.format(100) + f"trap 'echo out caught; exit 5' USR1; echo {READY}; sleep 1000 & wait",
        APART,
        act=scancel("--batch", "--signal=USR1"),
        ends=ended(5),
    ),
    Case("tail_after_scancel", TAIL_ON_TERM, APART, act=scancel("--full"), ends=ended(3, 0, "CANCELLED")),
    Case("patterns", BOTH.format(20), ("--output=%x-%j-%N-%u.out", "--error=%j_%t.err", "--job-name=ab c")),
    Case("append", BOTH.format(20), (*APART, "--open-mode=append"), before=with_output,
         log={("1", "batch", "0", f"std{name}"): [f"{name} {n}" for n in range(1, 21)] for name in ("out", "err")}),
    Case("array", "echo out $SLURM_ARRAY_TASK_ID; echo err $SLURM_ARRAY_TASK_ID >&2", ("--array=0-3", "--output=%a.out",
         "--error=%a.err"), ends=(COMPLETED,) * 4, captures=4),
    Case("nested_srun", "srun -n2 bash -c 'for i in $(seq 200); do echo out $SLURM_PROCID $i; done'", (*APART, "-n2"),
         sorted_lines=True),
    Case("nested_srun_label", "srun -N2 -n2 --label bash -c 'echo out $SLURM_PROCID'", (*APART, "-N2", "-n2"),
         sorted_lines=True),
    Case("nested_srun_unbuffered", "srun -n8 --unbuffered bash -c 'echo out $SLURM_PROCID'", (*APART, "-n8"),
         sorted_lines=True),
    Case("nested_srun_exit_code", "srun bash -c 'echo out; exit 9'", APART, ends=ended(9)),
    Case("nested_srun_none", "echo out 1; srun --output=none echo hidden; echo out 2", APART),
    Case("steps", "srun echo out 1; echo out 2; srun echo out 3; srun bash -c 'echo err 4 >&2'", APART),
    Case("os_wait", LOOP_ON_WAIT, APART),
    Case("background", "sleep 1000 & echo out $((1 + 1))", APART),
    Case("daemon", DAEMON, APART, log={}),
    Case("any_bytes", ANY_BYTES, APART, log={}),
    Case("flood", FLOOD, APART),
    Case("not_a_terminal", IS_A_TERMINAL, APART, opt_in="tty: false\n"),
    Case("het", HET,
         APART, ends=(COMPLETED, COMPLETED), sorted_lines=True),
    Case("srun", command=("srun", "-N2", "-n2", "bash", "-c", "echo out $SLURM_PROCID; echo err $SLURM_PROCID >&2"),
         sorted_lines=True, captures=2,
         log={("1", "0", task, stream): [f"{stream[3:]} {task}"] for task in "01" for stream in ("stdout", "stderr")}),
    Case("srun_exit_code", command=("srun", "bash", "-c", "echo out; exit 6"), code=6, ends=ended(6),
         log={("1", "0", "0", "stdout"): ["out"]}),
    Case("srun_8", command=("srun", "-n8", "bash", "-c", "for i in $(seq 300); do echo out $SLURM_PROCID $i; done"),
         sorted_lines=True, captures=8,
         log={("1", "0", str(task), "stdout"): [f"out {task} {n}" for n in range(1, 301)] for task in range(8)}),
    Case("salloc", command=("salloc", "--quiet", "srun", "--quiet", "echo", "out"),
         log={("1", "0", "0", "stdout"): ["out"]}),
    Case("per_task", "srun -n2 bash -c 'for i in $(seq 200); do echo out $SLURM_PROCID $i; done'", (*APART, "-n2"),
         opt_in="per_task: true\n", sorted_lines=True, captures=3,
         log={("1", "batch", "0", "stdout"): [f"out {task} {n}" for task in range(2) for n in range(1, 201)],
              **{("1", "0", str(task), "stdout"): [f"out {task} {n}" for n in range(1, 201)] for task in range(2)}}),
    Case("time_limit", TAIL_ON_TERM, (*APART, "--time=1"), ends=ended(3, 0, "TIMEOUT")),
]  # fmt: skip

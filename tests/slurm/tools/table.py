"""Table of the cases. The scripts number their lines, so that missing or repeated lines show."""

import os
from collections.abc import Callable, Sequence

from tests.slurm.tools.capturing import CapturingCluster, Stream
from tests.slurm.tools.cases import APART, BOTH, READY, Case, Controls, write
from tests.slurm.tools.cluster import JobEnd
from tests.slurm.tools.users import JobUser

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

# Two writers of whole lines into one file. A long line passes the terminal in several pieces.
TWO_WRITERS = """#!/usr/bin/python3
import os

name, fd = ("err", 2) if os.fork() == 0 else ("out", 1)
for number in range(3000):
    size = 60_000 if number % 500 == 250 else number % 400
    line = b"%s %d %s|\\n" % (name.encode(), number, b"x" * size)
    while line:
        line = line[os.write(fd, line) :]
if fd == 1:
    os.wait()
"""

# everything that a program can see of its environment, except for its terminals
SURROUNDINGS = """
own() { sed "s/$(id -u)/UID/g"; }
grep -E '^(Sig(Blk|Ign|Pnd)|NoNewPrivs|Cap|Cpus_allowed|Mems_allowed_list|Groups|Seccomp|Uid)' /proc/self/status | own
ls /proc/self/fd | cat
ulimit -aS; ulimit -aH; umask; nice; pwd; cat /proc/self/oom_score_adj; own </proc/self/cgroup
[ $(ps -o sid= -p $$) = $(ps -o pgid= -p $$) ] && echo one group; ps -o tty=,stat=,ni=,cls=,nlwp= -p $$
env | sed 's/=.*//' | grep -v -e ^LOGSHIPPER_CAPTURED -e ^LOGSHIPPER_JOB_ID -e ^SLURM_LOGSHIPPER_JOB_ID | sort
ps -u $(id -u) -o comm= | grep -v -e ^logship -e ^python -e ^sed -e ^ps -e ^grep -e ^sort | sort -u
"""

# waits without a process of its own: bash may still report the end of a killed one
OUTLIVES_TERM = f"""
trap '' TERM
exec 9<> <(:)
for i in $(seq 500); do echo out $i; done; echo err 1 >&2
echo {READY}
while :; do read -rt 1 -u 9; done
"""

SUBMITS = """
echo out 1
sbatch --quiet --wait --output=inner.out --wrap='echo out of the inner job'
echo out 2
"""

HUNDRED = "for i in {1..100}; do echo out $i; done; echo err 1 >&2; wait"
LIMITS = [
    ("NPROC", "-u 3", "sleep 0.5 & sleep 0.5 & " + HUNDRED),  # as many processes as allowed
    ("NOFILE", "-n 10", HUNDRED),
    ("AS", "-v 20000", HUNDRED),
    ("STACK", "-s 256", HUNDRED),
    ("CPU", "-t 1", HUNDRED),
]

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


def with_input(cluster: CapturingCluster, user: JobUser) -> None:
    write(user, "input", "".join(f"out {n}\n" for n in range(1, 501)))
    (user.home / "input").chmod(0o644)


def with_folder(cluster: CapturingCluster, user: JobUser) -> None:
    (user.home / "sub").mkdir()
    os.chown(user.home / "sub", user.uid, user.gid)


def scancel(*words: str) -> Callable[[Controls, JobUser, str], None]:
    return lambda cluster, user, job_id: cluster.scancel(user, *words, job_id)


def batch_log(stdout: Sequence[str], stderr: Sequence[str] = ()) -> dict[Stream, Sequence[str]]:
    streams = {"stdout": stdout, "stderr": stderr}
    return {("1", "batch", "0", stream): lines for stream, lines in streams.items() if lines}


def limited(limit: str, name: str, script: str) -> tuple[str, ...]:
    """Return the command that calls sbatch with a small limit, which the job inherits."""
    submit = f"exec sbatch --parsable --propagate={name} {' '.join(APART)} limited.sh"
    return (
        "bash",
        "-c",
        f"printf '#!/bin/bash\\n%s\\n' \"$0\" >limited.sh; ulimit {limit}; {submit}",
        script,
    )


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
    Case("outlives_term", OUTLIVES_TERM, APART, act=scancel("--full"), ends=ended(0, 9, "CANCELLED")),
    Case("two_writers", TWO_WRITERS),
    Case("surroundings", SURROUNDINGS, APART, log={}),
    Case("stdin", "cat; srun cat", ("--input=input", *APART), before=with_input),
    Case("chdir", "echo out ${PWD##*/}", ("--chdir=sub", "--output=../job.out"), before=with_folder),
    Case("no_output", "echo out 1; echo err 1 >&2", ("--output=/dev/null", "--error=/dev/null"),
         log=batch_log(["out 1"], ["err 1"])),
    Case("closed_by_the_job", "exec 1>&-; echo err 1 >&2; exec 2>&-; sleep 0.1; exit 4", APART, ends=ended(4)),
    Case("of_a_job", SUBMITS, APART, captures=2, log=batch_log(["out 1", "out of the inner job", "out 2"])),
    Case("het_srun", command=("srun", "-n1", "bash", "-c", "echo out $SLURM_PROCID", ":", "-n2", "bash", "-c",
         "echo out $SLURM_PROCID"), ends=(COMPLETED,) * 3, captures=3, sorted_lines=True,
         log={("1", "0", "0", "stdout"): ["out 0", "out 1"], ("1", "0", "1", "stdout"): ["out 2"]}),
    Case("wrap", command=("sbatch", "--wait", "--parsable", *APART, "--wrap", "echo out 1; echo err 2 >&2"),
         log=batch_log(["out 1"], ["err 2"])),
    Case("no_environment", "[ $HOME = $PWD ] && echo out 1; srun --export=NONE /bin/echo out 2",
         (*APART, "--export=NONE")),
    Case("python_program", command=("sbatch", "--wait", "--parsable", *APART, "--export=NONE", "--wrap",
         "exec /usr/bin/python3 -c 'for n in range(1, 501): print(\"out\", n)'"),
         log=batch_log([f"out {n}" for n in range(1, 501)])),
    Case("srun_no_environment", command=("srun", "--export=NONE", "/bin/echo", "out 1"),
         log={("1", "0", "0", "stdout"): ["out 1"]}),
    Case("srun_label", command=("srun", "-n4", "--label", "bash", "-c",
         "for i in {1..50}; do echo out $SLURM_PROCID $i; done"), sorted_lines=True, captures=4,
         log={("1", "0", str(task), "stdout"): [f"out {task} {n}" for n in range(1, 51)] for task in range(4)}),
    Case("srun_unbuffered", command=("srun", "-n2", "--unbuffered", "bash", "-c", "echo out $SLURM_PROCID"),
         sorted_lines=True, captures=2, log={("1", "0", task, "stdout"): [f"out {task}"] for task in "01"}),
    Case("srun_patterns", command=("srun", "-N2", "-n4", "--output=%j-%t.out", "--error=%j-%N-%t.err", "bash", "-c",
         "echo out $SLURM_PROCID; echo err $SLURM_PROCID >&2"), captures=4,
         log={("1", "0", task, f"std{name}"): [f"{name} {task}"] for task in "0123" for name in ("out", "err")}),
    Case("srun_append", command=("srun", "--output=job.out", "--open-mode=append", "echo", "out", "1"),
         before=with_output, log={("1", "0", "0", "stdout"): ["out 1"]}),
    Case("srun_none", command=("srun", "--output=none", "--error=none", "bash", "-c", "echo out 1; echo err 1 >&2"),
         log={("1", "0", "0", stream): [f"{stream[3:]} 1"] for stream in ("stdout", "stderr")}),
    Case("srun_stdin", command=("bash", "-c", "seq -f 'out %g' 2000 | srun cat"),
         log={("1", "0", "0", "stdout"): [f"out {n}" for n in range(1, 2001)]}),
    *(Case(f"limited_{name}", command=limited(limit, name, script),
           log=batch_log([f"out {n}" for n in range(1, 101)], ["err 1"])) for name, limit, script in LIMITS),
    Case("srun_killed", command=("srun", "bash", "-c", "kill -9 $$"), code=137, ends=ended(0, 9), log={}),
]  # fmt: skip
TIMED = [
    Case("time_limit", TAIL_ON_TERM, (*APART, "--time=1"), ends=ended(3, 0, "TIMEOUT"),
         or_ends=ended(0, 0, "TIMEOUT")),
    Case("time_limit_killed", OUTLIVES_TERM, (*APART, "--time=1"), ends=ended(0, 9, "TIMEOUT"),
         or_ends=ended(0, 0, "TIMEOUT")),
]  # fmt: skip

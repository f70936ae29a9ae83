"""The job, step and rank of this process by the launcher's environment: one table of all launchers.

An array's task starts and ends by itself, so it is a separate job (`4711.3`). A rank lives and dies
with its job, so it is a task of that job. Environments are untrusted: they decide the place of a
user's own run, and no more (a node's agent turns `4711` into `4711.uUID`; docs/segment-format.md,
"The socket").

Every `logshipper run` imports it: light imports only.
"""

import os
import stat
import time

from logshipper.named_tuple import NamedTuple
from logshipper.spool.captures import JOB_ID_MAX_CHARS, LIMIT_MAX_SECS, process_started
from logshipper.spool.place import Place

# as long as it still is one when an agent has added the user
ID_MAX_CHARS = JOB_ID_MAX_CHARS - len(".u4294967295")
# QCG-PilotJob's before that of the allocation that it runs in; Slurm, PBS, SGE
NODE_COUNTS = ("QCG_PM_NNODES", "SLURM_JOB_NUM_NODES", "PBS_NUM_NODES", "NHOSTS")
# Slurm's from 23.02 on; TORQUE's
SLURM_START, SLURM_END, WALLTIME = "SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME", "PBS_WALLTIME"
LIMITS = SLURM_START, SLURM_END, WALLTIME
_STEP_MAX_CHARS = 32
_NO_ARRAY = ("", "0", "undefined")  # LSF's and SGE's word for a job that is none
_MAX_AD_BYTES = 256 << 10

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    Environment: TypeAlias = Mapping[str, str]


class _Launcher(NamedTuple):
    """A launcher."""

    name: str
    present: tuple[str, ...]  # variables that must all be set
    job_id: "Callable[[Environment], str]"  # "" if this is not its job
    # number of the job's restarts; None if unknown
    restarts: "Callable[[Environment], int | None]" = lambda _: 0
    step: str = ""  # the variable with it
    apart: bool = False  # see Place


class _Ranks(NamedTuple):
    """A launcher of ranks."""

    name: str
    rank: str
    present: tuple[str, ...] = ()
    # the common variable of a job's processes without a scheduler; "": only the process that
    # started them
    group: str = ""
    restarts: str = ""  # the variable that counts them


def _array_job(variable: str, task: str, between: str) -> "Callable[[Environment], str]":
    return lambda environment: _array(environment[variable], environment.get(task, ""), between)


def _value_of(variable: str) -> "Callable[[Environment], str]":
    return lambda environment: environment.get(variable, "")


def _count(variable: str) -> "Callable[[Environment], int | None]":
    return lambda environment: _number(environment, variable) or 0


def _pbs_job(environment: "Environment") -> str:
    """`4711[3].server` of an array, `4711.server` else; the server's name is the cluster's."""
    number, _, rest = environment["PBS_JOBID"].partition(".")[0].partition("[")
    return _array(number, rest.rstrip("]"), "_")


def _array(job_id: str, task: str, between: str) -> str:
    return job_id if task in _NO_ARRAY else f"{job_id}{between}{task}"


def _condor_job(environment: "Environment") -> str:
    ad = _condor_ad(environment)
    return f"{ad['ClusterId']}.{ad.get('ProcId', '0')}" if "ClusterId" in ad else ""


def _condor_restarts(environment: "Environment") -> int | None:
    text = _condor_ad(environment).get("NumJobStarts", "0")
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _condor_ad(environment: "Environment") -> dict[str, str]:
    """`Name = value` lines of the job's ClassAd, as condor_starter writes it next to the job."""
    try:
        fd = os.open(
            environment["_CONDOR_JOB_AD"], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        )
        try:
            is_file = stat.S_ISREG(os.fstat(fd).st_mode)  # a FIFO is never waited for
            text = (os.read(fd, _MAX_AD_BYTES) if is_file else b"").decode("utf-8", "replace")
        finally:
            os.close(fd)
    except OSError:
        return {}
    pairs = [line.split("=", 1) for line in text.splitlines() if "=" in line]
    return {name.strip(): value.strip() for name, value in pairs}


def _flux_job(environment: "Environment") -> str:
    # which Flux itself takes for its own letter
    return environment["FLUX_JOB_ID"].replace("\u0192", "f")


def _parallel_job(environment: "Environment") -> str:
    """Return an id for GNU parallel, whose only id is its process', known on its own host only."""
    pid = _number(environment, "PARALLEL_PID")
    started = process_started(pid) if pid else 0
    return f"parallel-{pid}-{started}.{environment['PARALLEL_SEQ']}" if started else ""


_PARALLEL = "GNU parallel"

# the innermost first: QCG-PilotJob runs in Slurm's job, and its tasks are its own
_LAUNCHERS = (
    _Launcher("QCG-PilotJob", ("QCG_PM_STEP_ID",), _value_of("QCG_PM_STEP_ID"), apart=True),
    _Launcher(
        _PARALLEL, ("PARALLEL_SEQ", "PARALLEL_PID"), _parallel_job, lambda _: None, apart=True
    ),
    _Launcher("Flux", ("FLUX_JOB_ID",), _flux_job),
    _Launcher(
        "Slurm",
        ("SLURM_JOB_ID",),
        _value_of("SLURM_JOB_ID"),
        _count("SLURM_RESTART_COUNT"),
        "SLURM_STEP_ID",
    ),
    _Launcher(
        "Grid Engine",
        ("JOB_ID", "SGE_TASK_ID"),
        _array_job("JOB_ID", "SGE_TASK_ID", "."),
        _count("RESTARTED"),
    ),
    _Launcher("PBS", ("PBS_JOBID",), _pbs_job),
    _Launcher("LSF", ("LSB_JOBID",), _array_job("LSB_JOBID", "LSB_JOBINDEX", "_")),
    _Launcher("HTCondor", ("_CONDOR_JOB_AD",), _condor_job, _condor_restarts),
    # set by the manifest, from metadata.name; a container that is restarted is the pod's next
    # attempt
    _Launcher(
        "Kubernetes", ("KUBERNETES_SERVICE_HOST", "POD_NAME"), _value_of("POD_NAME"), lambda _: None
    ),
)
_RANKS = (
    _Ranks(
        "torchrun",
        "RANK",
        ("LOCAL_RANK", "WORLD_SIZE"),
        group="TORCHELASTIC_RUN_ID",
        restarts="TORCHELASTIC_RESTART_COUNT",
    ),
    _Ranks("Open MPI", "OMPI_COMM_WORLD_RANK", group="PMIX_NAMESPACE"),
    _Ranks("MVAPICH2", "MV2_COMM_WORLD_RANK"),
    _Ranks("PALS", "PALS_RANKID", group="PALS_APID"),
    _Ranks("MPI", "PMI_RANK"),
    _Ranks("MPI", "PMIX_RANK", group="PMIX_NAMESPACE"),
    _Ranks("Flux", "FLUX_TASK_RANK", ("FLUX_JOB_ID",)),
    # a batch script has a SLURM_PROCID, too
    _Ranks("Slurm", "SLURM_PROCID", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
)

# they identify a launcher
VARIABLES = frozenset(
    {name for launcher in _LAUNCHERS for name in launcher.present}
    | {name for ranks in _RANKS for name in (ranks.rank, *ranks.present)}
)


def find(environment: "Environment") -> Place | None:
    """The place that the environment names; None where no launcher known here has started this
    process."""
    ranks = _ranks(environment)
    task = _number(environment, ranks.rank) if ranks else None
    for launcher in _LAUNCHERS:
        if all(environment.get(name) for name in launcher.present):
            job_id = _clean(launcher.job_id(environment), ID_MAX_CHARS)
            if job_id:
                restarts = launcher.restarts(environment)
                # ranks begin together: counting them would make each an attempt
                attempt = restarts + 1 if restarts is not None else 1 if ranks else None
                step = _clean(environment.get(launcher.step, ""), _STEP_MAX_CHARS)
                return Place(launcher.name, job_id, attempt, step, task, apart=launcher.apart)
    return _by_ranks(ranks, environment) if ranks else None


def is_scheduled(place: Place | None) -> bool:
    """Return whether a scheduler, or a launcher of ranks, started this process, and not a person:
    GNU parallel runs a person's own command lines."""
    return place is not None and place.launcher != _PARALLEL


def nodes(environment: "Environment") -> int:
    """Return the job's number of nodes by the nearest launcher or scheduler; 0 if unknown."""
    text = next((environment[name] for name in NODE_COUNTS if name in environment), "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0


def limit_secs(environment: "Environment", place: Place | None) -> int:
    """Return the time limit, in seconds, of the job in place; 0 without a valid one, as for most
    schedulers, and Slurm before 23.02."""
    launcher = place.launcher if place is not None else ""
    limit = None
    if launcher == "Slurm":
        begin, end = _number(environment, SLURM_START, 12), _number(environment, SLURM_END, 12)
        limit = end - begin if begin and end else None
    elif launcher == "PBS":
        limit = _number(environment, WALLTIME)
    return limit if limit and 0 < limit <= LIMIT_MAX_SECS else 0


def ends_at(environment: "Environment", place: Place | None) -> float:
    """Return the Unix time of the limit of the job in place; 0 if unknown. PBS tells no start: the
    limit counts from now on."""
    limit = limit_secs(environment, place)
    end = _number(environment, SLURM_END, 12) if place and place.launcher == "Slurm" else None
    return float(end or time.time() + limit) if limit else 0.0


def is_gathered(environment: "Environment") -> bool:
    """Return whether this process' launcher prints its output, usually from a pipe: those of ranks
    do, and parallel."""
    return _ranks(environment) is not None or bool(environment.get("PARALLEL_SEQ"))


def _ranks(environment: "Environment") -> _Ranks | None:
    for ranks in _RANKS:
        has_rank = _number(environment, ranks.rank) is not None
        if has_rank and all(environment.get(name) for name in ranks.present):
            return ranks
    return None


def _by_ranks(ranks: _Ranks, environment: "Environment") -> Place:
    """Ranks without a scheduler: those that one process started, or that have a group's name in
    common, are a job."""
    group = environment.get(ranks.group, "") if ranks.group else ""
    if group in ("", "none"):  # torchrun's word for a run without --rdzv-id
        parent = os.getppid()
        group = f"{parent}-{process_started(parent)}"
    job_id = _clean(f"{ranks.name.replace(' ', '').lower()}-{group}", ID_MAX_CHARS)
    restarts = _number(environment, ranks.restarts) if ranks.restarts else None
    return Place(ranks.name, job_id, (restarts or 0) + 1, "", _number(environment, ranks.rank))


def _number(environment: "Environment", variable: str, max_chars: int = 9) -> int | None:
    text = environment.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= max_chars else None


def _clean(text: str, max_chars: int) -> str:
    """Clean a job id or step: other characters than letters, digits, `.`, `_` and `-` become `_`."""
    clean_text = "".join(
        char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in text
    )
    return clean_text.lstrip("._-")[:max_chars]

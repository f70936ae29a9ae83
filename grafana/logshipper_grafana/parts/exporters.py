"""PromQL for a job's resources, from exporters on its nodes: one query per measure for all
exporters, about that job alone.

Series have `node`, the job's host, and those of GPUs `gpu`. Exporters know a job by Slurm's number,
which is `job_id`. Variables are Grafana's; `span` comes from queries.span.
"""

from typing import NamedTuple

from logshipper_grafana.parts.queries import OF_ATTEMPT, job_metric, seen

_JOB = "${job:percentencode}"  # contains no backtick and no backslash for any input
_INSTANCE = 'instance=~"(${host:pipe})([.:].*)?"'
_HOSTNAME = '=~"((${host:pipe})([.].*)?)?"'  # or none: then `instance` decides
_DCGM = f"Hostname{_HOSTNAME}, hostname{_HOSTNAME}"
_RATE = "[$__rate_interval]"
_MIB = 1048576
_UNLIMITED = "1e15"  # bytes: a cgroup without a limit reports more

# each exporter's own way to name a job
_PRINCETON = f'{{jobid=`{_JOB}`, step="", task=""}}'
_CGROUP = f"{{cgroup=~`.*/job_\\Q{_JOB}\\E`}}"
_CEEMS = f"{{uuid=`{_JOB}`}}"
_SLURM_JOB = f"{{slurmjobid=`{_JOB}`}}"


class Measure(NamedTuple):
    """of_job: the exporters' series of the job, with any labels; of_nodes: of everything on its
    nodes; of_any: proves that an exporter has jobs, if of_job does not; by: labels of the series.
    """

    of_job: str
    of_nodes: str
    of_any: str = ""
    by: str = "node"

    def series(self) -> str:
        """Return the job's series during the chosen attempt."""
        return self._named(_while_it_ran(self.of_job))

    def over_time(self, function: str, at: str = "") -> str:
        """Return a function (`avg`) of the series over many moments of the page's time.

        at: `@ end()` for a graph. Labels are added to the result, at a tenth of the cost.
        """
        return self._named(
            f"{function}_over_time(({_while_it_ran(self.of_job)})[$__range:$__interval]{at})"
        )

    def series_or_whole_nodes(self) -> str:
        """Return the same, or series of whole nodes, marked by `of`, if no exporter knows jobs
        during the page's time."""
        info = seen(job_metric("logshipper_job_info", OF_ATTEMPT))
        hosts = f'group by(node)(label_replace({info}, "node", "$1", "host", "(.+)"))'
        told = Measure(self.of_any or self.of_job, "").over_time("count", at=" @ end()")
        nodes = self._named(_while_it_ran(self.of_nodes))
        nodes = f"({nodes} and on(node) {hosts} unless on(node) {told})"
        return f'{self.series()} or label_replace({nodes}, "of", " (whole node)", "", "")'

    def _named(self, series: str) -> str:
        """Add `node`, and the numbers of GPUs, with parts (MIG) as 0.1."""
        if "gpu" in self.by:
            series = f'label_replace({series}, "lspart", ".$1", "GPU_I_ID", "(.+)")'
            series = f'label_join({series}, "gpu", "", "gpu", "minor_number", "lspart")'
        places = f'label_join({series}, "lsplace", " ", "Hostname", "hostname", "instance")'
        host = "(?:.* )?(${host:pipe})(?:[.: ].*)?"
        named = f'label_replace({places}, "node", "$1", "lsplace", "{host}")'
        # vector(0) has no node, as series of other nodes
        return f"(max by({self.by})({named}) unless on(node) vector(0))"


def _while_it_ran(series: str) -> str:
    return f"{series} and on() (vector(time()) >= ${{span:text}} <= ${{span:raw}})"


def _either(*series: str) -> str:
    return f"({' or '.join(series)})"


def _princeton_gpu(metric: str) -> str:
    """Return a metric of nvidia_gpu_prometheus_exporter, which gives a GPU's job as a number."""
    jobs = f'count_values by(instance, uuid)("jobid", nvidia_gpu_jobId{{{_INSTANCE}}})'
    job = f'label_replace(vector(0), "jobid", `{_JOB}`, "", "")'
    return f"({metric}{{{_INSTANCE}}} and on(instance, uuid) ({jobs} and on(jobid) {job}))"


def _dcgm_gpu(metric: str) -> str:
    """Return a metric of DCGM's exporter, if it labels jobs, or CEEMS' exporter names the job's
    GPUs, by labels of its documentation."""
    gpus = f'{metric}{{{_DCGM}, gpuuuid!=""}}'
    of_ceems = f"({gpus} and on(gpuuuid, gpuiid) ceems_compute_unit_gpu_index_flag{_CEEMS})"
    return _either(f"{metric}{{hpc_job=`{_JOB}`}}", of_ceems)


def _dcgm_node(metric: str) -> str:
    return f'{metric}{{{_DCGM}, hpc_job=""}}'


_IDLE = f'node_cpu_seconds_total{{{_INSTANCE}, mode="idle"}}'
_NODE_CORES = f"count by(instance)({_IDLE})"
_UTILIZATION, _FB_USED, _FB_FREE = (
    f"DCGM_FI_DEV_{name}" for name in ("GPU_UTIL", "FB_USED", "FB_FREE")
)
# proof that GPUs are known by their jobs: others are not the job's
_GPUS_OF_JOBS = _either(
    f"nvidia_gpu_jobId{{{_INSTANCE}}}",
    f'{_FB_USED}{{{_DCGM}, hpc_job!=""}}',
    f"ceems_compute_unit_gpu_index_flag{{{_INSTANCE}}}",
    f"slurm_job_memory_usage_gpu{{{_INSTANCE}}}",
)

CPU = Measure(  # cores
    _either(
        f"rate(cgroup_cpu_total_seconds{_PRINCETON}{_RATE})",
        f"rate(cgroup_cpu_total_seconds{_CGROUP}{_RATE})",
        f"(rate(ceems_compute_unit_cpu_user_seconds_total{_CEEMS}{_RATE})"
        f" + rate(ceems_compute_unit_cpu_system_seconds_total{_CEEMS}{_RATE}))",
        f"sum by(instance)(rate(slurm_job_core_usage_total{_SLURM_JOB}{_RATE})) / 1e9",
    ),
    f"({_NODE_CORES} - sum by(instance)(rate({_IDLE}{_RATE})))",
)
CORES = Measure(
    _either(
        f"cgroup_cpus{_PRINCETON}",
        f"cgroup_cpus{_CGROUP}",
        f"ceems_compute_unit_cpus{_CEEMS}",
        f"count by(instance)(slurm_job_core_usage_total{_SLURM_JOB})",
    )
    + " > 0",
    _NODE_CORES,
)
# bytes, without the page cache, which makes room where memory is short
MEMORY = Measure(
    _either(
        f"(cgroup_memory_rss_bytes{_PRINCETON} + cgroup_memory_shmem_bytes{_PRINCETON})",
        f"cgroup_memory_rss_bytes{_PRINCETON}",  # of before June 2026
        f"(cgroup_memory_used_bytes{_CGROUP} - cgroup_memory_cache_bytes{_CGROUP})",
        f"ceems_compute_unit_memory_rss_bytes{_CEEMS}",
        f"slurm_job_memory_rss{_SLURM_JOB}",
    ),
    f"(node_memory_MemTotal_bytes{{{_INSTANCE}}} - node_memory_MemAvailable_bytes{{{_INSTANCE}}})",
)
MEMORY_LIMIT = Measure(
    _either(
        f"cgroup_memory_total_bytes{_PRINCETON}",
        f"cgroup_memory_total_bytes{_CGROUP}",
        f"ceems_compute_unit_memory_total_bytes{_CEEMS}",
        f"slurm_job_memory_limit{_SLURM_JOB}",
    )
    + f" > 0 < {_UNLIMITED}",
    f"node_memory_MemTotal_bytes{{{_INSTANCE}}}",
)
GPU = Measure(  # share of the time in which it did something
    _either(
        _princeton_gpu("nvidia_gpu_duty_cycle"),
        _dcgm_gpu(_UTILIZATION),
        f"slurm_job_utilization_gpu{_SLURM_JOB}",
    )
    + " / 100",
    f"{_dcgm_node(_UTILIZATION)} / 100",
    _GPUS_OF_JOBS,
    by="node, gpu",
)
GPU_MEMORY = Measure(
    _either(
        _princeton_gpu("nvidia_gpu_memory_used_bytes"),
        f"{_dcgm_gpu(_FB_USED)} * {_MIB}",
        f"slurm_job_memory_usage_gpu{_SLURM_JOB}",
    ),
    f"{_dcgm_node(_FB_USED)} * {_MIB}",
    _GPUS_OF_JOBS,
    by="node, gpu",
)
GPU_MEMORY_TOTAL = Measure(
    _either(
        _princeton_gpu("nvidia_gpu_memory_total_bytes"),
        f"({_dcgm_gpu(_FB_USED)} + {_dcgm_gpu(_FB_FREE)}) * {_MIB}",
        f"slurm_job_memory_total_gpu{_SLURM_JOB}",
    ),
    f"({_dcgm_node(_FB_USED)} + {_dcgm_node(_FB_FREE)}) * {_MIB}",
    _GPUS_OF_JOBS,
    by="node, gpu",
)

# ---- the verdict

# limits of sentences: jobstats' own numbers, except the last two
MIN_SECS = 300  # of a run: a shorter one gets a sentence only about memory near its limit
LOW_GPU, SOMEWHAT_LOW_GPU = 15, 25  # percent, of all GPUs on average
LOW_CPU, SOMEWHAT_LOW_CPU = 65, 80  # of all cores, for jobs without a GPU
LOW_MEMORY = 70  # at most
NEAR_LIMIT = 95  # at some time
UNUSED_CORES = 0.01  # of a node on average: the need of waiting processes

UNUSED, IS_NEAR = "unused", "out of memory is near"
LOW, SOMEWHAT_LOW = ": low", ": somewhat low"
ALL_USED = "nothing to remark: what was allocated was used"
TOO_SHORT = f"shorter than {MIN_SECS // 60} minutes: too short for a verdict"
NOT_TOLD = "no exporter tells of this job"

_GIB = 2**30
_HOURS_FROM = 7200  # seconds: shorter times are in minutes
_END = "scalar(clamp_max(vector(${span:raw}), ${__to} / 1000))"  # of the run, or of the page
_RAN_SECS = f"vector({_END} - ${{span:text}})"


def verdict() -> str:
    """Return sentences as the label `words`, larger values for worse ones.

    ALL_USED or TOO_SHORT without other sentences; no series without an exporter for the job.
    """
    told = " or ".join(measure.over_time("count") for measure in (CPU, MEMORY, GPU))
    sentences = " or ".join(
        (*_unused_gpus(), _unused_cores(), _low_gpu(), _low_cpu(), _low_memory())
    )
    fine = f'label_replace({_RAN_SECS} >= {MIN_SECS}, "words", "{ALL_USED}", "", "")'
    short = f'label_replace({_RAN_SECS} < {MIN_SECS}, "words", "{TOO_SHORT}", "", "")'
    return (
        f"({_near_limit()} or ({sentences}) and on() {_RAN_SECS} >= {MIN_SECS})"
        f" or on() (0 * ({fine} or {short}) and on() ({told}))"
    )


def _unused_gpus() -> list[str]:
    """Return GPUs that were idle at the end, as far as exporters and the page's time reach."""
    last, last_use = (
        GPU._replace(of_job=f"{times} * time()").over_time("max")
        for times in (f"({GPU.of_job} >= bool 0)", f"({GPU.of_job} > bool 0)")
    )
    idle = f"({last} - clamp_min(clamp_min({last_use}, ${{span:text}}), ${{__from}} / 1000))"
    words = f"GPU $2 on $1 {UNUSED} for $3"
    minutes = f"floor(({idle} >= {MIN_SECS} < {_HOURS_FROM}) / 60)"
    hours = _tenths(f"({idle} >= {_HOURS_FROM}) / 3600")
    return [
        _sentence(3, f"{words} {unit}", number, by=GPU.by)
        for unit, number in (("minutes", minutes), ("hours", hours))
    ]


def _unused_cores() -> str:
    cores = f"{CORES.over_time('max')} and on(node) {CPU.over_time('avg')} < {UNUSED_CORES}"
    return _sentence(3, f"$2 cores on $1 {UNUSED}", cores, by=CPU.by)


def _low_gpu() -> str:
    percent = f"round(100 * avg({GPU.over_time('avg')})) < {SOMEWHAT_LOW_GPU}"
    return _sentence(2, "GPU utilization: $1 % on average", percent, low=LOW_GPU)


def _low_cpu() -> str:
    used, cores = f"sum({CPU.over_time('avg')})", f"sum({CORES.over_time('max')})"
    low = f"({used} <= {SOMEWHAT_LOW_CPU / 100} * {cores} unless on() {GPU.over_time('count')})"
    words = "$1 cores allocated, $2 used on average ($3 %)"
    numbers = (cores, _tenths(low), f"round(100 * {used} / {cores})")
    sentence = _sentence(2, words, *numbers, low=LOW_CPU)
    return f'label_replace({sentence}, "words", "1 core $1", "words", "1 cores (.*)")'


def _low_memory() -> str:
    used, limit = f"sum({MEMORY.over_time('max')})", f"sum({MEMORY_LIMIT.over_time('max')})"
    low = f"({used} < {LOW_MEMORY / 100} * {limit})"
    numbers = (low, limit)
    gibs = (_tenths(f"{number} / {_GIB}") for number in numbers)
    words = "memory: at most $1 of $2 GiB ($3 %)"
    return _sentence(1, words, *gibs, f"round(100 * {used} / {limit})")


def _near_limit() -> str:
    share = f"{MEMORY.over_time('max')} / {MEMORY_LIMIT.over_time('max')}"
    percent = f"floor(100 * ({share} >= {NEAR_LIMIT / 100}))"
    return _sentence(3, f"memory on $1: $2 % of the limit: {IS_NEAR}", percent, by=MEMORY.by)


def _tenths(number: str) -> str:
    """Round to tenths; systems read the second argument of `round` differently."""
    return f"round(10 * ({number})) / 10"


def _sentence(severity: int, words: str, *numbers: str, by: str = "", low: int = 0) -> str:
    """Return series with `words` and the value severity, for labels that all numbers share.

    by: these labels, $1 and so on in words, followed by the numbers. low: a percentage, the last
    number: up to it LOW ends the sentence, then SOMEWHAT_LOW.
    """
    names = [f"lsnumber{place}" for place in range(len(numbers))]
    counts = [
        f'count_values by({by})("{name}", {number})'
        for name, number in zip(names, numbers, strict=True)
    ]
    series = counts[0]
    for name, count in zip(names[1:], counts[1:], strict=True):
        series = f"{series} * on({by}) group_left({name}) {count}"
    labels = [*filter(None, by.split(", ")), *names]
    joined = ", ".join(f'"{label}"' for label in labels)
    series = f'label_join({series}, "lsnumbers", "/", {joined})'
    ends = {LOW: ".*", SOMEWHAT_LOW: _two_digits_from(low + 1)} if low else {"": ".*"}
    for end, last in ends.items():
        pattern = "(.*)/" * (len(labels) - 1) + f"({last})"
        series = f'label_replace({series}, "words", "{words}{end}", "lsnumbers", "{pattern}")'
    return f"{severity} * group by(words)({series})"


def _two_digits_from(number: int) -> str:
    tens, ones = divmod(number, 10)
    return f"{tens}[{ones}-9]|[{tens + 1}-9][0-9]"

"""A job's use of its nodes, in a real Prometheus with each exporter's series: the verdict's words,
the graphs' numbers, and no other job's data."""

import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from logshipper_grafana.parts import exporters, links
from logshipper_grafana.parts.exporters import ALL_USED, IS_NEAR, NOT_TOLD, TOO_SHORT, UNUSED
from tests.grafana.test_cluster_analytics import backfill
from tests.grafana.tools.captured import CLUSTER
from tests.grafana.tools.interpolation import Text
from tests.grafana.tools.pages import Page, Sources, dashboard
from tests.grafana.tools.sources import LokiSource, PrometheusSource, Range
from tests.servers.running import PrometheusServer
from tests.tools.sources import ROOT

STEP = 15  # seconds between scrapes
SECS = 3 * 3600
EXPIRE = 300  # seconds for which an agent exports an ended job
GIB = 2**30
NO_LIMIT = 2.0**64  # treydock's value for a cgroup without a limit
VERDICT = "What the job used: verdict"
GRAPHS = ["CPU", "Memory", "GPUs", "GPU memory"]
Value = float | Callable[[int], float]  # number, or function of the seconds since the series began


class Series(NamedTuple):
    """start, end: seconds since the page's begin."""

    name: str
    labels: dict[str, str]
    value: Value
    start: int
    end: int


class Run(NamedTuple):
    """An attempt of a job on a node. vanishes: no series has its end."""

    job: str
    host: str
    start: int = 600
    end: int = 4200
    attempt: int = 1
    vanishes: bool = False

    def captured(self) -> Iterator[Series]:
        """Yield the series of the node's agent."""
        labels = {
            **{"cluster": CLUSTER, "job_id": self.job, "attempt": str(self.attempt), "step": "0"},
            **{"task": self.host[1:], "instance": f"{self.host}:9310"},
        }
        until = self.end + EXPIRE
        yield self._series(
            "logshipper_job_info", {**labels, "host": self.host, "user": "u"}, 1, until
        )
        yield self._series("logshipper_job_start_time_seconds", labels, self.start, until)
        yield self._series(
            "logshipper_job_heartbeat_time_seconds",
            labels,
            lambda secs: min(self.start + secs, self.end),
            until,
        )
        if not self.vanishes:
            yield Series("logshipper_job_end_time_seconds", labels, self.end, self.end, until)

    def _series(self, name: str, labels: dict[str, str], value: Value, end: int) -> Series:
        return Series(name, labels, value, self.start, end)

    def of(self, port: int, metrics: dict[str, Value], **labels: str) -> Iterator[Series]:
        """Yield the job's series from an exporter on that port of the node, while the job runs."""
        labels["instance"] = f"{self.host}.example.org:{port}"
        for name, value in metrics.items():
            yield self._series(name, labels, value, self.end)

    def princeton(
        self, cores: int, used: float, gib: float, *, has_shared: bool = True
    ) -> Iterator[Series]:
        """Yield series of plazonic's cgroup_exporter; the steps' series equal the job's.
        has_shared: as of June 2026."""
        shared = 0.2 if has_shared else 0
        metrics: dict[str, Value] = {
            "cgroup_cpus": cores,
            "cgroup_cpu_total_seconds": lambda secs: 5 + used * secs,
            "cgroup_memory_rss_bytes": (gib - shared) * GIB,
            "cgroup_memory_total_bytes": 64 * GIB,
        }
        if has_shared:
            metrics["cgroup_memory_shmem_bytes"] = shared * GIB
        for step in ("", "batch"):
            yield from self.of(9306, metrics, jobid=self.job, step=step, task="")

    def treydock(
        self, cores: int, used: float, gib: float, cache: float, limit: float, path: str
    ) -> Iterator[Series]:
        metrics: dict[str, Value] = {
            "cgroup_cpus": cores,
            "cgroup_cpu_total_seconds": lambda secs: used * secs,
            "cgroup_memory_rss_bytes": (gib + cache) * GIB,
            "cgroup_memory_used_bytes": (gib + cache) * GIB,
            "cgroup_memory_cache_bytes": cache * GIB,
            "cgroup_memory_total_bytes": limit,
        }
        return self.of(9306, metrics, cgroup=f"{path}/job_{self.job}")

    def princeton_gpu(
        self, gpu: int, percent: Value, gib: float = 10, *, has_job: bool = False
    ) -> Iterator[Series]:
        """has_job: as of 0.2.2, which also has a label with the job."""
        labels = {"minor_number": str(gpu), "ordinal": str(gpu), "uuid": f"GPU-{self.host}-{gpu}"}
        if has_job:
            labels |= {"jobid": self.job, "userid": "1000"}
        metrics: dict[str, Value] = {
            "nvidia_gpu_jobId": float(self.job),
            "nvidia_gpu_duty_cycle": percent,
            "nvidia_gpu_memory_used_bytes": gib * GIB,
            "nvidia_gpu_memory_total_bytes": 80 * GIB,
        }
        return self.of(9445, metrics, **labels)

    def dcgm(
        self, gpu: int, percent: Value, gib: float = 10, *, label: str = "Hostname", **labels: str
    ) -> Iterator[Series]:
        """label: newer versions use `hostname`."""
        metrics: dict[str, Value] = {
            "DCGM_FI_DEV_GPU_UTIL": percent,
            "DCGM_FI_DEV_FB_USED": gib * 1024,
            "DCGM_FI_DEV_FB_FREE": (80 - gib) * 1024,
        }
        labels |= {"gpu": str(gpu), "UUID": f"GPU-{self.host}-{gpu}", label: self.host}
        return (
            series._replace(labels={**series.labels, "instance": "10.0.0.7:9400"})
            if label == "Hostname"
            else series
            for series in self.of(9400, metrics, **labels)
        )

    def ceems(self, cores: int, used: float, gib: float, gpu: int) -> Iterator[Series]:
        metrics: dict[str, Value] = {
            "ceems_compute_unit_cpus": cores,
            "ceems_compute_unit_cpu_user_seconds_total": lambda secs: 0.75 * used * secs,
            "ceems_compute_unit_cpu_system_seconds_total": lambda secs: 0.25 * used * secs,
            "ceems_compute_unit_memory_rss_bytes": gib * GIB,
            "ceems_compute_unit_memory_total_bytes": 64 * GIB,
        }
        unit = {"manager": "slurm", "uuid": self.job, "hostname": self.host}
        yield from self.of(9010, metrics, **unit)
        flag: dict[str, Value] = {"ceems_compute_unit_gpu_index_flag": 1.0}
        yield from self.of(9010, flag, **unit, index="0", gpuuuid=f"GPU-{self.host}-{gpu}")

    def slurm_job(self, cores: int, used: float, gib: float, percent: float) -> Iterator[Series]:
        job = {"user": "u", "account": "a", "slurmjobid": self.job}
        metrics: dict[str, Value] = {
            "slurm_job_memory_rss": gib * GIB,
            "slurm_job_memory_limit": 64 * GIB,
        }
        yield from self.of(9798, metrics, **job)
        for core in range(cores):
            usage: dict[str, Value] = {
                "slurm_job_core_usage_total": lambda secs: 1e9 * secs * used / cores
            }
            yield from self.of(9798, usage, **job, core=str(core))
        gpu: dict[str, Value] = {
            "slurm_job_utilization_gpu": percent,
            "slurm_job_memory_usage_gpu": 10 * GIB,
            "slurm_job_memory_total_gpu": 80 * GIB,
        }
        yield from self.of(9798, gpu, **job, gpu="0", gpu_type="A100")

    def node(self, cores: int, used: float, gib: float) -> Iterator[Series]:
        """Yield series of node_exporter for the whole time."""
        metrics: dict[str, Value] = {
            "node_memory_MemTotal_bytes": 256 * GIB,
            "node_memory_MemAvailable_bytes": (256 - gib) * GIB,
        }
        whole = self._replace(start=0, end=SECS)
        yield from whole.of(9100, metrics)
        idle: dict[str, Value] = {"node_cpu_seconds_total": lambda secs: secs * (1 - used / cores)}
        for cpu in range(cores):
            yield from whole.of(9100, idle, mode="idle", cpu=str(cpu))


def until(secs: int, percent: float) -> Callable[[int], float]:
    """Return a function with a constant value until a moment, then zero."""
    return lambda at: percent if at <= secs else 0.0


def series() -> Iterator[Series]:
    v2, v1 = "/system.slice/slurmstepd.scope", "/slurm/uid_1000"
    cpu, gpu, newer, other = (Run(job, "n1") for job in ("100", "200", "210", "999"))
    later = Run("998", "n1", 4230, SECS)
    treydock, treydock_v1 = Run("300", "n2"), Run("310", "n2")
    dcgm, dcgm_new, ceems, slurm_job = (Run(job, "n3") for job in ("400", "410", "500", "600"))
    no_gpu = Run("420", "n3")
    nobody, short, idle = Run("700", "n4"), Run("800", "n1", 600, 700), Run("850", "n1", 0, 9600)
    first, second = Run("900", "n1", 600, 1800), Run("900", "n5", 2400, 4200, 2)
    two = (Run("950", "n1"), Run("950", "n5"))
    plain = Run("name.u1000", "n1")
    runs = Run("960", "n1", 9000, 2 * SECS)
    vanished = Run("970", "n4", vanishes=True)
    untold = Run("980", "n1")
    for run in (
        *(cpu, gpu, newer, treydock, treydock_v1, dcgm, dcgm_new, no_gpu, ceems, slurm_job, nobody),
        *(short, idle, first, second, *two, plain, runs, vanished, untold),
    ):
        yield from run.captured()
    # CPU alone, next to another user's job with high use
    yield from cpu.princeton(8, 1.1, 3.2)
    yield from other.princeton(56, 56, 63.9)
    # of two GPUs one is in use for 20 minutes; memory near the limit; other jobs before and after
    yield from gpu.princeton(8, 0.5, 62.8)
    yield from gpu.princeton_gpu(0, 90, 40)
    yield from gpu.princeton_gpu(1, until(1200, 80))
    yield from other.princeton_gpu(2, 0)
    yield from later.princeton_gpu(0, 0, 79)
    yield from newer.princeton(8, 0.5, 50, has_shared=False)
    yield from newer.princeton_gpu(3, 20, has_job=True)
    # page cache and a cgroup without a limit; one with a limit, of cgroup v1
    yield from treydock.treydock(4, 3.9, 2, 58, NO_LIMIT, v2)
    yield from treydock_v1.treydock(1, 0.3, 60, 3.9, 64 * GIB, v1)
    yield from Run("3000", "n2").treydock(64, 0, 1, 0, 64 * GIB, v2)
    yield from dcgm.dcgm(0, 10, hpc_job="400")
    yield from dcgm_new.dcgm(1, 90, label="hostname", hpc_job="410")
    yield from ceems.ceems(8, 7.6, 50, 2)
    yield from ceems.dcgm(2, 60, gpuuuid="GPU-n3-2")
    yield from ceems.dcgm(3, 0, gpuuuid="GPU-n3-3")
    yield from slurm_job.slurm_job(4, 1, 50, 0)
    yield from nobody.node(16, 4, 100)
    yield from nobody.dcgm(0, 70)
    yield from short.princeton(8, 0.1, 1)
    yield from short.princeton_gpu(4, 0)
    yield from idle.princeton(8, 1, 60)
    yield from idle.princeton_gpu(5, 0)
    yield from first.princeton(8, 8, 63.9)
    yield from second.princeton(8, 4.05, 50)
    yield from two[0].princeton(8, 7.6, 60)
    yield from two[1].princeton(8, 0, 60)
    yield from runs.princeton_gpu(6, 0)
    # its exporter stops after half an hour
    yield from untold._replace(end=2400).princeton_gpu(7, until(1200, 80))
    yield from cpu.node(64, 60, 200)
    yield from treydock.node(64, 60, 200)


def openmetrics(t0: int) -> Iterator[str]:
    """Yield lines of OpenMetrics, by family. Values that are times shift with the page, too."""
    families: dict[str, list[str]] = {}
    for name, labels, value, start, end in series():
        text = ",".join(f'{label}="{label_value}"' for label, label_value in labels.items())
        offset = t0 if name.endswith("_time_seconds") else 0
        for at in range(-(-start // STEP) * STEP, min(end + 1, SECS), STEP):
            number = (value(at - start) if callable(value) else value) + offset
            families.setdefault(name, []).append(f"{name}{{{text}}} {number!r} {t0 + at}")
    for name, lines in families.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        yield f"# TYPE {name.removesuffix('_total')} {kind}"
        yield from lines
    yield "# EOF\n"


class _ClusterSource(LokiSource):
    """A Loki source with clusters but without lines."""

    def variable(self, query: object, when: Range) -> list[str]:
        return [CLUSTER]


def test_the_docs_have_the_sentences_and_where_they_begin() -> None:
    text = (ROOT / "docs" / "grafana.md").read_text("utf-8")
    _, _, table = text.partition("| sentence | where |")
    table, _, _ = table.partition("## Compare")
    for sentence in (f"{ALL_USED}`", TOO_SHORT, NOT_TOLD, f" {UNUSED} for 40 minutes", IS_NEAR):
        assert sentence in table
    for numbers in (
        (exporters.LOW_GPU, exporters.SOMEWHAT_LOW_GPU),
        (exporters.LOW_CPU, exporters.SOMEWHAT_LOW_CPU),
    ):
        assert re.search(r"up to {} %, `somewhat low` (below|up to) {} %".format(*numbers), table)
    assert f"below {exporters.LOW_MEMORY} %" in table
    assert f"{exporters.NEAR_LIMIT} % at some time" in table
    assert f"the last {exporters.MIN_SECS // 60} minutes" in table


def test_graphs_cost_nothing_until_they_are_looked_at() -> None:
    titles = {
        panel["title"]: [inside["title"] for inside in panel.get("panels", ())]
        for panel in dashboard(links.JOB)["panels"]
        if "job used" in panel["title"]
    }
    assert titles == {
        "What the job used": [],
        VERDICT: [],
        "CPU, memory and GPUs that the job used, over time": GRAPHS,
    }


Open = Callable[..., Page]


@pytest.fixture(scope="module")
def page(prometheuses: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    t0 = (int(time.time()) - 2 * SECS) // 600 * 600
    text = tmp_path_factory.mktemp("resources") / "series.txt"
    text.write_text("\n".join(openmetrics(t0)))
    # backfilled series have no staleness markers
    prometheus = PrometheusServer(flags=["--query.lookback-delta=20s"])
    backfill(prometheus, text)
    with prometheus:
        source = PrometheusSource(prometheus.url, scrape_ms=STEP * 1000)
        sources: Sources = {"loki": _ClusterSource(""), "prometheus": source}

        def opened(job: str, begin: int = 0, end: int = SECS - STEP, **selections: Text) -> Page:
            when = Range((t0 + begin) * 1000, (t0 + end) * 1000)
            return Page(links.JOB, sources, when, cluster=CLUSTER, job=job, **selections)

        yield opened


def words(page: Page) -> list[str]:
    return [row["words"] for row in page.show(VERDICT).rows()]


def graph(page: Page, title: str) -> dict[str, list[float]]:
    return {
        frame.fields[1].display_name: frame.fields[1].values for frame in page.show(title).frames
    }


@pytest.mark.parametrize(
    ("job", "sentences"),
    [
        (
            "100",
            [
                "8 cores allocated, 1.1 used on average (14 %): low",
                "memory: at most 3.2 of 64 GiB (5 %)",
            ],
        ),
        (
            "200",
            ["GPU 1 on n1 unused for 40 minutes", f"memory on n1: 98 % of the limit: {IS_NEAR}"],
        ),
        ("210", ["GPU utilization: 20 % on average: somewhat low"]),
        ("300", [ALL_USED]),
        ("310", ["1 core allocated, 0.3 used on average (30 %): low"]),
        ("400", ["GPU utilization: 10 % on average: low"]),
        ("410", [ALL_USED]),
        ("500", [ALL_USED]),
        ("600", ["GPU 0 on n3 unused for 60 minutes", "GPU utilization: 0 % on average: low"]),
        ("700", []),
        ("800", [TOO_SHORT]),
        ("850", ["GPU 5 on n1 unused for 2.7 hours", "GPU utilization: 0 % on average: low"]),
        ("950", ["8 cores on n5 unused", "16 cores allocated, 7.6 used on average (47 %): low"]),
        ("960", ["GPU 6 on n1 unused for 29 minutes", "GPU utilization: 0 % on average: low"]),
        ("980", ["GPU 7 on n1 unused for 10 minutes"]),
        ("name.u1000", []),
        ("30", []),
        ("[0-9]+", []),
    ],
)
def test_a_verdict_in_words(job: str, sentences: list[str], page: Open) -> None:
    assert sorted(words(page(job))) == sorted(sentences)


def test_the_worst_comes_first(page: Open) -> None:
    assert words(page("600"))[0].startswith("GPU 0 on n3 unused")
    assert words(page("100"))[-1].startswith("memory")


def test_each_attempt_by_itself(page: Open) -> None:
    near = f"memory on n1: 99 % of the limit: {IS_NEAR}"
    low = "8 cores allocated, 4 used on average (50 %): low"
    assert words(page("900")) == [low]
    assert words(page("900", attempt="1")) == [near]
    assert near in words(page("900", attempt="all"))


def test_a_part_of_the_jobs_time(page: Open) -> None:
    """GPU 1 was in use before this part; the begin of its idle time is unknown."""
    assert "GPU 1 on n1 unused for 20 minutes" in words(page("200", begin=3000))
    assert not any("unused" in sentence for sentence in words(page("200", end=1500)))


def test_one_node_of_several(page: Open) -> None:
    assert not any("n5" in sentence for sentence in words(page("950", host=["n1"])))


@pytest.mark.parametrize(
    ("job", "cores", "gib", "limit"),
    [
        ("100", (1.1, 8), 3.2, 64),
        ("210", (0.5, 8), 50, 64),
        ("300", (3.9, 4), 2, 256),
        ("310", (0.3, 1), 60, 64),
        ("500", (7.6, 8), 50, 64),
        ("600", (1, 4), 50, 64),
    ],
)
def test_cpu_and_memory(
    job: str, cores: tuple[float, int], gib: float, limit: int, page: Open
) -> None:
    """The graphs leave out other jobs on the node. Without a limit, the node's memory is the limit."""
    opened = page(job)
    ((host, _),) = opened.variables["host"].options
    cpu = graph(opened, "CPU")
    assert cpu.keys() == {host, f"{host}: allocated"}
    full = cpu[host][4:]  # skips the start, which is shorter than a rate's window
    assert full == pytest.approx([cores[0]] * len(full), rel=0.01)
    assert {*cpu[f"{host}: allocated"]} == {cores[1]}
    memory = graph(opened, "Memory")
    assert memory.pop(host)[1:] == pytest.approx([gib * GIB] * (3600 // STEP))
    name = f"{host} (whole node): limit" if job == "300" else f"{host}: limit"
    assert {title: {*values} for title, values in memory.items()} == {name: {limit * GIB}}


def test_gpus(page: Open) -> None:
    """The graphs have only the job's GPUs, even if other jobs used them afterwards."""
    gpus = graph(page("200"), "GPUs")
    assert gpus.keys() == {"n1 GPU 0", "n1 GPU 1"}
    assert {*gpus["n1 GPU 0"]} == {0.9}
    assert {*gpus["n1 GPU 1"]} == {0.8, 0.0}
    assert graph(page("400"), "GPUs").keys() == {"n3 GPU 0"}
    memory = graph(page("500"), "GPU memory")
    assert {name: {*values} for name, values in memory.items()} == {
        "n3 GPU 2": {10 * GIB},
        "n3 GPU 2: total": {80 * GIB},
    }
    assert graph(page("100"), "GPUs") == {}
    assert graph(page("420"), "GPUs") == {}, "GPUs there are known to be others'"


@pytest.mark.parametrize("job", ["700", "970"])
def test_whole_nodes_where_nobody_tells_of_the_job(job: str, page: Open) -> None:
    opened = page(job)
    cpu = graph(opened, "CPU")
    assert cpu.keys() == {"n4 (whole node)", "n4 (whole node): allocated"}
    assert cpu["n4 (whole node)"][5] == pytest.approx(4, rel=0.01)
    assert len(cpu["n4 (whole node)"]) == pytest.approx(3600 / STEP, abs=2), "while the job ran"
    assert graph(opened, "Memory")["n4 (whole node)"][5] == 100 * GIB
    assert graph(opened, "GPUs").keys() == {"n4 GPU 0 (whole node)"}


def test_a_job_that_nobody_knows(page: Open) -> None:
    for title in (VERDICT, *GRAPHS):
        assert page("999").show(title).frames == [], "other users' jobs aren't captured"
        assert page("").show(title).frames == []

"""`logshipper analyze` and `allocations` on jobs with known times and nodes; snippets from Balsam's
document on analytics; examples from docs/analytics.md."""

import csv
import io
import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

import logshipper
from logshipper.start.cli import main
from logshipper.start.launchers import NODE_COUNTS
from logshipper_observe.base.words import utc
from logshipper_observe.commands.analysis.analyze import _within
from tests.servers.running import LokiServer, PrometheusServer
from tests.tools.captures.captured_runs import TIMEOUT_SECS
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.sources import ROOT
from tests.tools.stores.reading_store import SpooledCapture
from tests.tools.stores.two_stores import HOST, TwoStores, two_stores

T0_NS = 1_777_636_800 * NS  # 2026-05-01 12:00 UTC
JOBS = {  # by id: start and end in seconds, nodes, exit code
    "123": (0, 600, 4, 0),
    "124": (60, 300, 2, 0),
    "125": (300, 360, 1, 1),
    "126": (300, 900, None, 0),
}


def make(store: Path, t0_ns: int = T0_NS, hosts: Sequence[str] = ("n0", "n1")) -> None:
    for job_id, (start, end, nodes, code) in JOBS.items():
        options: dict[str, Any] = {
            "name": f"train{job_id}",
            "started_ns": t0_ns + start * NS,
            "nodes": nodes or 0,
        }
        with SpooledCapture(store, job_id, host=hosts[int(job_id) % len(hosts)], **options) as job:
            job.lines("hello")
            job.end(code, time_ns=t0_ns + end * NS)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "store"
    monkeypatch.setenv("LOGSHIPPER_STORE", str(root))
    make(root)
    with logshipper.Store.local(root) as local_store:
        for job in local_store.jobs("123", "124"):
            job.tag("experiment=foo")
    return root


Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(store: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    def run(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        return code, *capsys.readouterr()

    return run


def secs(times: list[datetime]) -> list[int]:
    return [
        round((time - datetime.fromtimestamp(T0_NS // NS, UTC)).total_seconds()) for time in times
    ]


def document(answer: tuple[int, str, str]) -> dict[str, Any]:
    assert answer[0] == 0
    content: dict[str, Any] = json.loads(answer[1])
    return content


def curve(series: dict[str, Any]) -> tuple[list[int], list[float]]:
    return secs([datetime.fromisoformat(x[:26]).replace(tzinfo=UTC) for x in series["x"]]), series[
        "y"
    ]


# ---- the snippets of Balsam's document: verbatim, but for the import and the tag's place in a store

THROUGHPUT = """
events = EventLog.objects.filter(scheduler_id=123)
times, done_counts = throughput_report(events, to_state="RUN_DONE")

t0 = min(times)
elapsed_minutes = [(t - t0).total_seconds() / 60 for t in times]
plt.step(elapsed_minutes, done_counts, where="post")
"""
UTILIZATION = """
events = EventLog.objects.filter(scheduler_id=123)
times, util = utilization_report(events, node_weighting=True)

t0 = min(times)
elapsed_minutes = [(t - t0).total_seconds() / 60 for t in times]
plt.step(elapsed_minutes, util, where="post")
"""
AVAILABLE = """
foo_batchjobs = BatchJob.objects.filter(
    filter_tags={"experiment": "foo"}
)
times, node_counts = available_nodes(foo_batchjobs)
"""
IMPORTS = """
from logshipper import BatchJob, EventLog
from logshipper_observe.analytics.analytics import available_nodes, throughput_report, utilization_report
from matplotlib import pyplot as plt
"""


@pytest.fixture
def pyplot() -> Iterator[Any]:
    mpl.use("agg")
    from matplotlib import pyplot as plt

    plt.figure()
    yield plt
    plt.close("all")


def step_curve(plt: Any) -> tuple[list[float], list[float]]:
    (line,) = plt.gca().get_lines()
    assert line.get_drawstyle() == "steps-post"
    return list(line.get_xdata()), list(line.get_ydata())


def run(snippet: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(IMPORTS + snippet, names)  # noqa: S102  the snippet is ours
    return names


def test_balsams_throughput(store: Path, pyplot: Any) -> None:
    names = run(THROUGHPUT)
    assert (secs(names["times"]), names["done_counts"]) == ([600], [1])
    assert step_curve(pyplot) == ([0], [1])
    names = run(THROUGHPUT.replace("scheduler_id=123", ""))
    assert (secs(names["times"]), names["done_counts"]) == ([300, 600, 900], [1, 2, 3])


def test_balsams_utilization(store: Path, pyplot: Any) -> None:
    names = run(UTILIZATION)
    assert (secs(names["times"]), names["util"]) == ([0, 600], [4, 0])
    assert step_curve(pyplot) == ([0, 10], [4, 0])
    names = run(UTILIZATION.replace("scheduler_id=123", ""))
    assert secs(names["times"]) == [0, 60, 300, 300, 300, 360, 600, 900]
    assert names["util"] == [4, 6, 4, 5, 6, 5, 1, 0]


def test_balsams_available_nodes(store: Path) -> None:
    names = run(AVAILABLE)
    assert (secs(names["times"]), names["node_counts"]) == ([0, 60, 300, 600], [4, 6, 4, 0])


# ---- allocations


def test_allocations_are_queried_as_batch_jobs(store: Path) -> None:
    query = logshipper.BatchJob.objects
    assert [
        job.id for job in query.order_by("start_time").filter(filter_tags={"experiment": "foo"})
    ] == ["123", "124"]
    assert {job.id for job in query.filter(scheduler_id=[125, 126], state="finished")} == {
        "125",
        "126",
    }
    assert query.filter(state="running").count() == 0
    job = query.filter(id=123)[0]
    assert (job.num_nodes, job.state, job.is_running, job.name, job.tags) == (
        4, "COMPLETED", False, "train123", {"experiment": "foo"}
    )  # fmt: skip
    assert [job.id for job in query.filter(id=["124", "123"])[:1]] == ["124"]
    with pytest.raises(ValueError, match="start_time"):
        query.order_by("num_nodes")


def test_a_restarted_job_has_two_allocations_and_a_running_one_is_open(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with SpooledCapture(root, "7", started_ns=T0_NS, nodes=2) as job:
        job.end(1, time_ns=T0_NS + 60 * NS)
    with SpooledCapture(root, "7", 2, started_ns=T0_NS + 90 * NS, nodes=3, suffix="bbbb") as job:
        job.beat()
        with logshipper.Store.local(root) as local_store:
            allocations = list(logshipper.BatchJob.over(local_store).order_by("start_time"))
            times, nodes = logshipper.available_nodes(allocations)
    assert [(job.attempt, job.state, job.num_nodes, job.is_running) for job in allocations] == [
        (1, "FAILED", 2, False), (2, "RUNNING", 3, True)
    ]  # fmt: skip
    assert (secs(times), nodes) == ([0, 60, 90], [2, 0, 3])


def test_nodes_are_at_least_those_that_a_job_was_seen_on(tmp_path: Path) -> None:
    root = tmp_path / "store"
    for task in range(3):
        with SpooledCapture(
            root, "8", started_ns=T0_NS, task=task, host=f"n{task}", suffix=f"s{task}"
        ) as job:
            job.end()
    with logshipper.Store.local(root) as local_store:
        assert [job.num_nodes for job in logshipper.BatchJob.over(local_store)] == [3]


@pytest.mark.parametrize(
    ("counts", "nodes"),
    [
        ({"SLURM_JOB_NUM_NODES": "4"}, 4),
        ({"SLURM_JOB_NUM_NODES": "4", "QCG_PM_NNODES": "2"}, 2),
        ({"PBS_NUM_NODES": "3"}, 3),
        ({"SLURM_JOB_NUM_NODES": "many"}, 1),
        ({}, 1),
    ],
)
def test_the_scheduler_says_how_many_nodes_a_run_has(
    tmp_path: Path, counts: dict[str, str], nodes: int
) -> None:
    """The launcher's count takes precedence over the count of the enclosing allocation."""
    plain = {name: value for name, value in os.environ.items() if name not in NODE_COUNTS}
    environment = {**plain, "LOGSHIPPER_STORE": str(tmp_path), "LOGSHIPPER_AGENT": "off", **counts}
    command = [sys.executable, "-m", "logshipper", "run", "--", "true"]
    assert subprocess.run(command, env=environment, cwd=ROOT, timeout=TIMEOUT_SECS).returncode == 0
    with logshipper.Store.local(tmp_path) as local_store:
        assert [job.num_nodes for job in logshipper.BatchJob.over(local_store)] == [nodes]


def test_the_command_lists_allocations(ask: Ask) -> None:
    code, out, err = ask("allocations")
    assert (code, out) == (0, "")
    assert "--history" in err
    code, out, _ = ask("allocations", "--history", "--tag", "experiment=foo")
    assert [line.split()[:3] for line in out.splitlines()] == [
        ["id", "state", "nodes"], ["124", "COMPLETED", "2"], ["123", "COMPLETED", "4"]
    ]  # fmt: skip
    answer = document(ask("allocations", "--state", "failed", "--json"))
    assert answer["schema"] == "logshipper.allocations/1"
    assert [(row["id"], row["num_nodes"], row["end_time"]) for row in answer["allocations"]] == [
        ("125", 1, utc(T0_NS + 360 * NS))
    ]
    code, _, err = ask("allocations", "no-such")
    assert code == 1
    assert "no-such" in err


# ---- analyze


def test_throughput(ask: Ask) -> None:
    answer = document(ask("analyze", "throughput", "--json"))
    assert answer["title"] == "Captured jobs that became COMPLETED: 3 in 10m00s, 12 an hour"
    assert (answer["report"], answer["to_state"], answer["unknown"]) == (
        "throughput",
        "COMPLETED",
        [],
    )
    assert curve(answer["series"][0]) == ([300, 600, 900], [1, 2, 3])
    failures = document(ask("analyze", "throughput", "--to-state", "RUN_ERROR", "--json"))
    assert curve(failures["series"][0]) == ([360], [1])
    late = document(
        ask("analyze", "throughput", "12*", "--after", "2026-05-01T12:06:00Z", "--json")
    )
    assert curve(late["series"][0]) == ([600, 900], [1, 2])


def test_jobs_may_stand_behind_options(ask: Ask) -> None:
    answer = document(
        ask("analyze", "throughput", "--to-state", "completed", "12[34]", "--json", "126")
    )
    assert curve(answer["series"][0]) == ([300, 600, 900], [1, 2, 3])
    code, out, _ = ask("allocations", "124", "--history", "123")
    assert (code, [line.split()[0] for line in out.splitlines()]) == (0, ["id", "124", "123"])
    with pytest.raises(SystemExit, match="2"):
        ask("analyze", "throughput", "--to-state", "completed", "124", "--no-such")


def test_utilization_by_nodes_and_by_jobs(ask: Ask) -> None:
    answer = document(ask("analyze", "utilization", "--json"))
    assert curve(answer["series"][0]) == (
        [0, 60, 300, 300, 300, 360, 600, 900],
        [4, 6, 4, 5, 6, 5, 1, 0],
    )
    assert answer["title"] == "Nodes that ran captured jobs: 6 at most, 3.933 on average in 15m00s"
    jobs = document(
        ask("analyze", "utilization", "--no-node-weighting", "--tag", "experiment", "--json")
    )
    assert (jobs["unit"], *curve(jobs["series"][0])) == ("jobs", [0, 60, 300, 600], [1, 2, 1, 0])


def test_what_ran_before_the_time_still_counts(ask: Ask) -> None:
    span = ("--after", "2026-05-01T12:01:30Z", "--before", "2026-05-01T12:05:30Z")
    answer = document(ask("analyze", "utilization", *span, "--json"))
    assert curve(answer["series"][0]) == ([90, 300, 300, 300, 330], [6, 4, 5, 6, 6])


def test_nodes_that_there_are_and_that_are_used(ask: Ask) -> None:
    answer = document(ask("analyze", "nodes", "124", "--json"))
    assert [(series["name"], *curve(series)) for series in answer["series"]] == [
        ("available", [60, 300], [2, 0]), ("in use", [60, 300], [2, 0])
    ]  # fmt: skip


def test_overheads_of_captured_jobs_are_their_run_times(ask: Ask) -> None:
    answer = document(ask("analyze", "overheads", "--json"))
    times = answer["statistics"]["run_time"]
    assert (
        times["number"],
        times["min"],
        times["max"],
        times["mean"],
        times["median"],
    ) == pytest.approx((4, 60, 600, 375, 420), abs=0.1)
    assert answer["statistics"]["launched_to_started"] is None
    assert {row["core"]: row["busy"] for row in answer["cores"]} == pytest.approx(
        {"n0": 14 / 15, "n1": 2 / 3}, abs=0.01
    )


def test_gantt(ask: Ask, tmp_path: Path) -> None:
    """n0 ran 124 and 126 one after the other; n1 ran 123 and, at the same time, 125."""
    answer = document(ask("analyze", "gantt", "--json"))
    t0 = T0_NS // NS
    spans = [
        (
            span["node"],
            span["core"],
            span.get("job"),
            *(moment - t0 for moment in (moment_of(span["start"]), moment_of(span["end"]))),
        )
        for span in (*answer["spans"], *answer["gaps"])
    ]
    assert spans == [
        ("n0", None, "124", 60, 300), ("n0", None, "126", 300, 900),
        ("n1", None, "123", 0, 600), ("n1", None, "125", 300, 360),
        ("n0", None, None, 0, 60), ("n1", None, None, 600, 900),
    ]  # fmt: skip
    assert {row["core"]: row["busy"] for row in answer["cores"]} == pytest.approx(
        {"n0": 14 / 15, "n1": 2 / 3}
    )
    assert answer["title"] == "Captured jobs on 2 nodes: 4 runs, busy 80 % of the time on average"
    _, out, _ = ask("analyze", "gantt", "--csv", "-", "--after", "2026-05-01T12:10:00Z")
    assert list(csv.reader(io.StringIO(out))) == [
        ["node", "core", "job", "start", "end", "secs"],
        ["n0", "", "126", utc(T0_NS + 600 * NS), utc(T0_NS + 900 * NS), "300"],
        ["n1", "", "123", utc(T0_NS + 600 * NS), utc(T0_NS + 600 * NS), "0"],
        ["n1", "", "", utc(T0_NS + 600 * NS), utc(T0_NS + 900 * NS), "300"],
    ]
    code, out, _ = ask("analyze", "gantt", "12[36]", "--by", "node")
    assert (code, [line.split()[:6] for line in out.splitlines()[3:5]]) == (
        0, [["n0", "1", "66.7", "%", "1", "5m00s"], ["n1", "1", "66.7", "%", "1", "5m00s"]]
    )  # fmt: skip
    for option, begin in (("--png", b"\x89PNG"), ("--svg", b"<?xml")):
        path = tmp_path / f"gantt{option}"
        assert ask("analyze", "gantt", option, str(path))[0] == 0
        assert path.read_bytes()[: len(begin)] == begin
        assert option == "--png" or re.search(r"<!-- (n1) -->", path.read_text())


def moment_of(text: str) -> float:
    return datetime.fromisoformat(text[:26]).replace(tzinfo=UTC).timestamp()


def test_what_runs_is_in_the_gantt_until_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A restarted job has only its last run: the first one has ended, though without an end
    record."""
    began_ns = time.time_ns() - 100 * NS
    with SpooledCapture(tmp_path, "7", started_ns=began_ns) as first:
        first.beat()
    with SpooledCapture(tmp_path, "7", 2, started_ns=began_ns + 40 * NS, suffix="bbbb") as job:
        job.beat()
        assert main(["analyze", "gantt", "--json", "--store", str(tmp_path)]) == 0
    answer = json.loads(capsys.readouterr().out)
    (first_end, _), (end, start) = [
        (moment_of(span["end"]), moment_of(span["start"])) for span in answer["spans"]
    ]
    assert start == pytest.approx(began_ns / NS + 40, abs=0.001)
    assert time.time() - 60 < first_end < end <= time.time()


def test_the_ends_of_a_span_of_time_are_there_where_more_is_known_beyond(ask: Ask) -> None:
    """Idle time within the span counts for the average: 123 and 124 end, nothing runs, 126
    would."""
    span = ("--after", "2026-05-01T11:59:00Z", "--before", "2026-05-01T12:20:00Z")
    answer = document(ask("analyze", "utilization", "124", *span, "--json"))
    assert curve(answer["series"][0]) == ([60, 300], [2, 0]), "nothing is known before or after"
    after = document(
        ask("analyze", "utilization", "124", "--after", "2026-05-01T12:06:00Z", "--json")
    )
    assert curve(after["series"][0]) == ([], [])
    early = document(
        ask("analyze", "utilization", "124", "126", "--before", "2026-05-01T12:00:30Z", "--json")
    )
    assert curve(early["series"][0]) == ([], [])
    future = document(ask("analyze", "utilization", "--after", "2100-01-01", "--json"))
    assert curve(future["series"][0]) == ([], [])


def test_a_run_of_no_time_is_not_shown_as_less_than_nothing() -> None:
    """Slurm ends a run, to the second, before its node reports the start: the end comes first."""
    moment = datetime.fromtimestamp(T0_NS // NS, UTC)
    events = [
        logshipper.StateEvent("a", "7", T0_NS, "QUEUED", "RUNNING", {"num_nodes": 4}),
        logshipper.StateEvent("b", "7", T0_NS, "RUNNING", "FAILED"),
    ]
    times, nodes = logshipper.utilization_report(events)
    assert nodes == [-4, 0]
    assert _within(times, nodes, (None, None)) == ([moment], [0])


def test_csv_and_pictures(ask: Ask, tmp_path: Path) -> None:
    code, out, _ = ask("analyze", "throughput", "--csv", "-")
    assert code == 0
    assert list(csv.reader(io.StringIO(out)))[:2] == [
        ["series", "time", "jobs"],
        ["jobs", utc(T0_NS + 300 * NS), "1"],
    ]
    rows = tmp_path / "runs.csv"
    assert ask("analyze", "overheads", "--csv", str(rows))[0] == 0
    assert [row["job"] for row in csv.DictReader(io.StringIO(rows.read_text()))] == [
        "123",
        "124",
        "125",
        "126",
    ]
    for option, begin in (("--png", b"\x89PNG"), ("--svg", b"<?xml")):
        path = tmp_path / f"picture{option}"
        code, out, _ = ask("analyze", "nodes", option, str(path))
        assert (code, path.read_bytes()[: len(begin)]) == (0, begin)
        assert "Nodes of captured jobs" in out


def test_the_terminal_has_graph_and_statistics(ask: Ask) -> None:
    code, out, _ = ask("analyze", "utilization")
    assert code == 0
    assert out.startswith("Nodes that ran captured jobs: 6 at most")
    assert "time since the start (min)" in out
    _, out, _ = ask("analyze", "overheads")
    assert re.search(r"run time +4 +375 s +420 s", out)
    assert "2 nodes busy 80 % of the time on average" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["utilization", "--to-state", "failed"], "--to-state: is for throughput"),
        (["throughput", "--no-node-weighting"], "--no-node-weighting: is for utilization"),
        (["nodes", "--after", "yesterday"], "--after: 'yesterday' isn't a time"),
        (["nodes", "--by", "node"], "--by: is for gantt"),
        (["nodes", "--all-jobs"], "--all-jobs: is for throughput and utilization"),
        (["throughput", "123", "--all-jobs"], "JOB: not with --all-jobs"),
        (["throughput", "--all-jobs", "--tag", "x"], "--tag: not with --all-jobs"),
        (["utilization", "--all-jobs"], "--all-jobs: Prometheus knows of them: give --from loki"),
        (
            ["utilization", "--all-jobs", "--from", "loki", "--loki-url", "http://127.0.0.1:9"],
            "give --prometheus-url",
        ),
        (
            ["nodes", "--after", "2026-05-02", "--before", "2026-05-01"],
            "--before: 2026-05-01 is before --after 2026-05-02",
        ),
    ],
)
def test_what_makes_no_sense_is_told(ask: Ask, words: list[str], message: str) -> None:
    code, _, err = ask("analyze", *words)
    assert (code, message in err) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        ["throughput", "--to-state", "TIMEOUT", "--png", "x.png"],
        ["gantt", "--tag", "none=such", "--svg", "x.svg"],
    ],
)
def test_nothing_to_draw(ask: Ask, words: list[str]) -> None:
    code, _, err = ask("analyze", *words)
    assert (code, "nothing to draw" in err) == (1, True)


def test_unknown_jobs_are_told_and_others_counted(ask: Ask) -> None:
    code, out, err = ask("analyze", "throughput", "123", "no-such", "--json")
    assert code == 1
    assert "no-such" in err
    answer = json.loads(out)
    assert [job["name"] for job in answer["unknown"]] == ["no-such"]
    assert curve(answer["series"][0]) == ([600], [1])


@pytest.mark.parametrize(
    ("report", "titles"),
    [
        ("throughput", "series,time,jobs"),
        ("utilization", "series,time,nodes"),
        ("nodes", "series,time,nodes"),
        ("overheads", "job,started,run_secs,queued,scheduled,launched,over"),
        ("gantt", "node,core,job,start,end,secs"),
    ],
)
def test_a_store_that_is_not_there_yet_has_empty_answers_of_the_same_kind(
    report: str, titles: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ("--store", str(tmp_path / "none"))
    assert main(["analyze", report, "--json", *place]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert all(series["x"] == series["y"] == [] for series in answer["series"])
    assert main(["analyze", report, "--csv", "-", *place]) == 0
    assert capsys.readouterr().out == f"{titles}\n"
    assert main(["analyze", report, *place]) == 0
    assert "captured jobs" in capsys.readouterr().out.lower()
    for command in (["analyze", report], ["allocations"], ["events"]):
        assert main([*command, "no-such", *place]) == 1
        assert "no job 'no-such'" in capsys.readouterr().err


def test_the_pages_python_runs(
    store: Path, pyplot: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "analytics.md").read_text()
    snippets = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(snippets) == 3
    for snippet in snippets:
        exec(snippet, {})  # noqa: S102  the page's own
    assert pyplot.gca().containers[0].datavalues == pytest.approx([14 / 15, 2 / 3], abs=0.01)
    assert capsys.readouterr().out == "None\n"  # no job has a launch time


# ---- both stores


@pytest.fixture(scope="module")
def stores(
    tmp_path_factory: pytest.TempPathFactory, loki: LokiServer, prometheus: PrometheusServer
) -> Iterator[TwoStores]:
    began_ns = time.time_ns() - 1000 * NS
    folder = tmp_path_factory.mktemp("both")
    yield from two_stores(
        folder, loki, prometheus, f"t{uuid.uuid4().hex[:10]}", lambda at: make(at, began_ns, [HOST])
    )


def test_both_stores_have_the_same_analytics(
    stores: TwoStores, capsys: pytest.CaptureFixture[str]
) -> None:
    def reports(store: logshipper.Store) -> list[Any]:
        events = logshipper.EventLog(store).filter(job_id=[123, 124, 125, 126])
        return [
            logshipper.throughput_report(events), logshipper.throughput_report(events, to_state="FAILED"),
            logshipper.utilization_report(events), logshipper.utilization_report(events, node_weighting=False),
            logshipper.available_nodes(logshipper.BatchJob.over(store)),
        ]  # fmt: skip

    with stores.local() as local_store, stores.loki() as loki_store:
        local_reports, loki_reports = reports(local_store), reports(loki_store)
        assert [job.num_nodes for job in logshipper.BatchJob.over(loki_store)] == [1, 1, 2, 4]
    assert local_reports == loki_reports
    assert all(report[0] for report in local_reports)
    for name in ("throughput", "utilization", "nodes", "overheads", "gantt"):
        documents = []
        for source in ("local", "loki"):
            assert main(["analyze", name, "--json", *stores.options(source)]) == 0
            documents.append(json.loads(capsys.readouterr().out))
        assert documents[0] | {"store": ""} == documents[1] | {"store": ""}

"""Metrics in real servers: promtool's check, Prometheus' answers over two nodes, and Loki's json
expressions."""

import json
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
import requests

from logshipper_ingest.config.agent_config import MetricsSection
from logshipper_ingest.metrics.agent_metrics import AgentMetrics, exposition
from logshipper_ingest.metrics.job_metrics import JobMetrics
from logshipper_ingest.metrics.metrics_server import MetricsServer
from logshipper_ingest.metrics.remote_write import RemoteWriteMetrics
from logshipper_ingest.model.ledger import COLUMNS
from logshipper_ingest.model.metadata_keys import Path
from logshipper_ingest.model.ranks import json_path, unfit
from logshipper_ingest.model.x_axis import MAX_KEYS, XAxis, merge_all
from tests.servers.debian_package import PROMETHEUS
from tests.servers.running import LokiServer, PrometheusServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.stores.job_views import SECOND, START_NS, FakeCapture, job_metrics, rule_in
from tests.tools.waiting import scaled

SCRAPED_WITHIN_SECS = 30.0
X = "bottomk(1,max by(key,path)(max_over_time(logshipper_x_rank{{job_id={job},choice={choice}}}[10m])))"
HOSTILE = 'a"} 1\nlogshipper_job_info{job_id="forged'


@contextmanager
def node(jobs: JobMetrics, host: str) -> Iterator[str]:
    """Yield the address of a node agent's /metrics."""
    server = MetricsServer("127.0.0.1:0", AgentMetrics("c1", host), jobs)
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        server.close()


def ask(prometheus: PrometheusServer, promql: str) -> list[tuple[dict[str, str], float]]:
    """Return labels and values of an instant query."""
    with requests.Session() as session:
        session.trust_env = False
        answer = session.get(f"{prometheus.url}/api/v1/query", params={"query": promql}, timeout=10)
    document = answer.json()
    assert document["status"] == "success", document
    return [(series["metric"], float(series["value"][1])) for series in document["data"]["result"]]


def x_of(
    prometheus: PrometheusServer, job: str, choice: str = "auto"
) -> tuple[str, str, int] | None:
    """Return key, path and rule by GRAFANA's query."""
    series = ask(prometheus, X.format(job=json.dumps(job), choice=json.dumps(choice)))
    if not series:
        return None
    ((labels, value),) = series
    assert labels.keys() == {"key", "path"}
    return labels["key"], labels["path"], rule_in(value)


def test_promtool_finds_no_fault() -> None:
    package = PROMETHEUS.find()
    if package is None:
        pytest.skip("promtool isn't there: python -m tests.servers.build gets it")
    jobs, agent = job_metrics(), AgentMetrics("c1", "n1")
    capture = FakeCapture(identity={"name": HOSTILE}).print(
        {"a": 1, "$": 1, "opt": {"b": 1.5}}, {"a": 2}
    )
    ledger = dict.fromkeys(("stdout", "stderr"), dict.fromkeys(COLUMNS, 1))
    jobs.update(capture.view(over=True, ledger=ledger, signal=9))
    for count in (
        agent.pushes,
        agent.entries,
        agent.retries,
        agent.refused_entries,
        agent.left_out,
        agent.captures,
    ):
        count.labels("x")
    for gauge in (agent.disk_free_bytes, agent.disk_size_bytes):
        gauge.labels("spool").set(float("nan"))
    RemoteWriteMetrics(agent.registry).retries.labels("x")
    text, _ = exposition(agent, jobs)
    checked = subprocess.run(
        [package.paths[1], "check", "metrics"], input=text, capture_output=True, timeout=scaled(30)
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_a_job_that_always_prints_new_keys_has_an_end_of_series(
    prometheus: PrometheusServer,
) -> None:
    """The job prints a thousand keys, then another thousand."""
    job = f"job-{uuid.uuid4()}"
    jobs = job_metrics()
    capture = FakeCapture(job_id=job)
    selector = f'logshipper_metadata_value{{job_id="{job}"}}'
    with node(jobs, "n1") as target:
        prometheus.set_targets([target])
        for number in (2, 1):  # later keys come first in the alphabet
            for key in range(1000):
                capture.print({f"k{number}{key:03}": key})
            jobs.update(capture.view(bytes_printed=number))
            printed = f'logshipper_job_bytes{{job_id="{job}",what="printed"}} == {number}'
            wait_until(
                lambda query=printed: ask(prometheus, query),  # type: ignore[misc]
                "it is scraped",
                SCRAPED_WITHIN_SECS,
            )
            assert len(ask(prometheus, selector)) == MetricsSection().max_keys
        ((_, left_out),) = ask(
            prometheus, f'logshipper_keys_left_out{{job_id="{job}",reason="too_many"}}'
        )
        assert left_out > 0
        ever = ask(prometheus, f"last_over_time({selector}[10m])")
        assert MetricsSection().max_keys <= len(ever) <= MAX_KEYS


def test_one_x_for_a_job_on_two_nodes(prometheus: PrometheusServer) -> None:
    job = f"job-{uuid.uuid4()}"
    first_capture, second_capture, third_capture = (
        FakeCapture(key=f"c{task}", job_id=job, task=task) for task in range(3)
    )
    nodes = [job_metrics(), job_metrics(host="n2")]
    of_node = {0: nodes[0], 1: nodes[0], 2: nodes[1]}

    def print_all(step: int) -> None:
        opt = {"opt": {"beta": 0.9 - step / 10}}
        first_capture.print({"val/acc": step, "step": step, "a": step, **opt})
        second_capture.print({"step": step + 70, "loss": 1 / step})
        third_capture.print({"step": step, "a": 10 - step})  # `a` falls on this node only

    def tell(*, over: bool = False) -> None:
        for capture in (first_capture, second_capture, third_capture):
            of_node[capture.task].update(capture.view(over=over))

    def job_axis() -> XAxis:
        return merge_all(capture.axis for capture in (first_capture, second_capture, third_capture))

    with node(nodes[0], "n1") as first, node(nodes[1], "n2") as second:
        print_all(1)
        tell()
        prometheus.set_targets([first, second])
        for target in (first, second):
            prometheus.wait_for_target(target)
        assert x_of(prometheus, job) is None  # no key has changed yet
        print_all(2)
        print_all(3)
        tell()
        wait_until(
            lambda: x_of(prometheus, job) == ("step", "step", 3),
            "the X is known",
            SCRAPED_WITHIN_SECS,
        )
        assert job_axis().choose().key == "step"
        beta = ("opt.beta", 'opt"]["beta', 6)
        wait_until(
            lambda: x_of(prometheus, job, "opt.beta") == beta,
            "the override is known",
            SCRAPED_WITHIN_SECS,
        )
        wait_until(
            lambda: rules(prometheus, job)["a"] == 5,
            "both nodes' `a` is known",
            SCRAPED_WITHIN_SECS,
        )
        requeued = FakeCapture(key="c9", job_id=job, attempt=2, identity={"name": HOSTILE})
        nodes[1].update(requeued.print({"epoch": 1, "step": 1}).view())
        wait_until(
            lambda: x_of(prometheus, job) == ("epoch", "epoch", 2),
            "`epoch` is known",
            SCRAPED_WITHIN_SECS,
        )
        tell(over=True)
        nodes[1].update(requeued.view(over=True))
        choice = job_axis().merge(requeued.axis).choose()
        assert (choice.key, choice.rule) == ("epoch", 2)
        hosts = f'count by(host,name)(logshipper_job_info{{job_id="{job}"}})'
        series = {("n1", "train.py"), ("n2", "train.py"), ("n2", HOSTILE)}
        assert {(labels["host"], labels["name"]) for labels, _ in ask(prometheus, hosts)} == series
        for jobs in nodes:
            jobs.expire(START_NS)
            jobs.expire(START_NS + 301 * SECOND)
        selector = f'logshipper_x_rank{{job_id="{job}"}}'
        wait_until(
            lambda: not ask(prometheus, selector), "the job's series are gone", SCRAPED_WITHIN_SECS
        )
        assert x_of(prometheus, job) == ("epoch", "epoch", 2)  # Prometheus remembers its rank
        assert all(value == 1 for _, value in ask(prometheus, "up"))


def rules(prometheus: PrometheusServer, job: str) -> Mapping[str, int]:
    by_key = f'max by(key)(logshipper_x_rank{{job_id="{job}",choice="auto"}})'
    return {labels["key"]: rule_in(value) for labels, value in ask(prometheus, by_key)}


# ---- Loki


FIT: tuple[Path, ...] = (
    *(
        ("loss",),
        ("opt", "beta"),
        ("val/acc",),
        ("a.b",),
        ("x y",),
        ("ü",),
        ("日本", "🙂"),
        ("a'b",),
        ("{a}",),
        ("100%",),
    ),
    *(("a,b",), ("[0",), ("0",), ("<b>&",), ("|=",), ("lsx",)),
)
UNFIT: tuple[Path, ...] = (("loss[0]",), ("{{.x}}",), ("a`",), ("a\\b",), ('"a"',))


def test_loki_understands_every_key_that_is_exported(loki: LokiServer) -> None:
    job = f"job-{uuid.uuid4()}"
    record: dict[str, object] = {}
    for number, path in enumerate(FIT + UNFIT):
        inner = record
        for key in path[:-1]:
            inner = inner.setdefault(key, {})  # type: ignore[assignment]  # an object, put there by this line
        inner[path[-1]] = number
    now = time.time_ns()
    labels = {"cluster": "c1", "kind": "metadata", "service_name": "logshipper"}
    stream = {"stream": labels, "values": [[str(now), json.dumps(record), {"job_id": job}]]}
    with requests.Session() as session:
        session.trust_env = False
        pushed = session.post(
            f"{loki.url}/loki/api/v1/push", json={"streams": [stream]}, timeout=10
        )
        assert pushed.status_code == 204, pushed.text

        def lines(path: Path) -> list[str]:
            """Return the lines of GRAFANA's query for one panel per key, or none if the query can't
            hold the key."""
            key = ".".join(path)
            query = f'{{cluster="c1",kind="metadata"}} | job_id="{job}" | json lsx=`["{json_path(path)}"]`'
            query += f' | lsx=~`-?[0-9].*` | line_format `{{"{key}":{{{{.lsx}}}}}}`'
            parameters: dict[str, str | int] = {
                "query": query,
                "start": now - SECOND,
                "end": now + SECOND,
            }
            answer = session.get(
                f"{loki.url}/loki/api/v1/query_range", params=parameters, timeout=10
            )
            if answer.status_code != 200:
                return []
            return [
                line for result in answer.json()["data"]["result"] for _, line in result["values"]
            ]

        wait_until(lambda: lines(("loss",)), "the record can be queried", 30)
        for number, path in enumerate(FIT):
            assert unfit(path, 128) == ""
            assert [json.loads(line) for line in lines(path)] == [{".".join(path): number}], path
        for number, path in enumerate(UNFIT, start=len(FIT)):
            assert unfit(path, 128) == "characters"
            assert lines(path) != [json.dumps({".".join(path): number}, separators=(",", ":"))], (
                path
            )

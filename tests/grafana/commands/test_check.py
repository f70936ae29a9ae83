"""`logshipper-grafana check`: a fake Grafana that forwards to real Loki and Prometheus, and tables
for its rules."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from logshipper_grafana.parts import links
from logshipper_grafana.tool.check import check, choose_source, judge_source
from logshipper_grafana.tool.check_loki import judge_labels, reading_limits
from logshipper_grafana.tool.check_prometheus import judge_scrapes, judge_series
from logshipper_grafana.tool.check_queries import QueryContext, check_queries
from logshipper_grafana.tool.cli import main
from logshipper_grafana.tool.content import wanted_dashboards, wanted_data_sources
from logshipper_ingest.checks.findings import Finding
from logshipper_ingest.loki.client import Entry, LokiClient
from logshipper_ingest.metrics.prometheus import Target
from logshipper_ingest.servers.server_access import ServerAccess
from tests.grafana.tools import fake_grafana, printed
from tests.grafana.tools.captured import CLUSTER, Fixture
from tests.grafana.tools.fake_grafana import ADMIN, VIEWER, FakeGrafana
from tests.grafana.tools.frames import Json
from tests.grafana.tools.lint import panels_of
from tests.servers.running import COMPOSE, LokiServer, PrometheusServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.fakes.faulty_server import FaultyServer, Said

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def token(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "token"
        path.write_text(text)
        path.chmod(0o600)
        return str(path)

    return write


def access(grafana: FakeGrafana, token_file: str) -> ServerAccess:
    return ServerAccess(url=grafana.url, token_file=token_file, timeout_secs=30)


def set_up(grafana: FakeGrafana, token_file: str, loki: str, prometheus: str) -> None:
    words = ["--token-file", token_file, "--loki-url", loki, "--prometheus-url", prometheus]
    assert main(["apply", "--url", grafana.url, *words]) == 0


def wrong(findings: list[Finding]) -> list[str]:
    return [f"{finding.about}: {finding.words}" for finding in findings if finding.level == "wrong"]


def the(findings: list[Finding], about: str) -> Finding:
    (match,) = (finding for finding in findings if finding.about == about)
    return match


# ---- real servers


@pytest.mark.parametrize("version", ["9.4.3", "11.6.0"])
def test_where_all_is_well(version: str, jobs: Fixture, token: Callable[[str], str]) -> None:
    with FakeGrafana(version) as grafana:
        set_up(grafana, token(ADMIN), jobs.loki.url, jobs.prometheus.url)
        before = len(grafana.changes())
        findings = check(access(grafana, token(ADMIN)))
        assert wrong(findings) == []
        assert {call for call in grafana.changes()[before:] if "/proxy/" not in call} == set()
    for about in (
        "grafana version",
        "loki version",
        "loki labels",
        "loki structured metadata",
        "prometheus series",
    ):
        assert the(findings, about).level == "ok", about
    for about in (
        "loki max_entries_limit_per_query",
        "loki allow_structured_metadata",
        "prometheus labels",
    ):
        assert the(findings, about).level == "ok", about
    assert the(findings, "prometheus scrape").words.endswith("agents, every 1 s")
    assert the(findings, "prometheus retention").words.startswith("15 days")
    for uid, dashboard in wanted_dashboards().items():
        assert the(findings, f"dashboard {uid}").words == "is there, as in this version"
        targets = sum(len(panel.get("targets", [])) for panel in panels_of(dashboard))
        query_count = int(the(findings, f"page {uid}").words.split()[1])
        assert query_count >= targets
    page_job = (
        the(findings, f"page {links.JOB}").words.partition(" for the job ")[2].partition(",")[0]
    )
    assert page_job in {job.job_id for job in jobs.jobs.values()}


@pytest.mark.parametrize("name", [printed.THREE_NODES.name, printed.ENDED.name])
def test_a_job_of_ones_choice(
    name: str, jobs: Fixture, token: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The second job has several keys, so Compare repeats a row for each."""
    job = jobs.jobs[name].job_id
    with FakeGrafana() as grafana:
        set_up(grafana, token(ADMIN), jobs.loki.url, jobs.prometheus.url)
        words = ["check", "--url", grafana.url, "--token-file", token(ADMIN)]
        assert main([*words, "--job", job]) == 0
    assert f"answer for the job {job}," in capsys.readouterr().out


def test_the_command_says_it_for_people_and_programs(
    jobs: Fixture, token: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeGrafana() as grafana:
        set_up(grafana, token(ADMIN), jobs.loki.url, jobs.prometheus.url)
        capsys.readouterr()
        words = ["check", "--url", grafana.url, "--token-file", token(ADMIN)]
        assert main(words) == 0
        out = capsys.readouterr().out
        assert out.splitlines()[-1].endswith(", 0 wrong")
        assert f"of the cluster {CLUSTER}" in out
        del grafana.versions[links.JOB]
        assert main([*words, "--job", "never.heard", "--json"]) == 1
        document = json.loads(capsys.readouterr().out)
    assert document["wrong"] == 1
    findings = {finding["about"]: finding for finding in document["findings"]}
    assert findings[f"dashboard {links.JOB}"]["level"] == "wrong"
    assert "the job never.heard" in findings["queries"]["words"]
    assert findings[f"page {links.JOB}"]["level"] == "ok", (
        "queries of a job that isn't there answer, by nothing"
    )


def test_servers_that_nothing_was_sent_to(
    lokis: None, prometheuses: None, token: Callable[[str], str]
) -> None:
    with LokiServer() as loki, PrometheusServer() as prometheus, FakeGrafana() as grafana:
        set_up(grafana, token(ADMIN), loki.url, prometheus.url)
        findings = check(access(grafana, token(ADMIN)))
    assert the(findings, "loki labels").level == "note"
    assert the(findings, "prometheus series").words.startswith("no agent was scraped")
    assert [fault for fault in wrong(findings) if not fault.startswith("prometheus series")] == []
    assert the(findings, "queries").level == "note"


def test_limits_that_are_too_low(
    lokis: None, prometheus: PrometheusServer, token: Callable[[str], str]
) -> None:
    """Both the configuration check and the failed queries report the low limits."""
    limits = {"max_entries_limit_per_query": 100, "max_query_length": "10m"}
    with LokiServer(limits=limits) as loki, FakeGrafana() as grafana:
        set_up(grafana, token(ADMIN), loki.url, prometheus.url)
        findings = check(access(grafana, token(ADMIN)))
    entries = the(findings, "loki max_entries_limit_per_query")
    assert (entries.level, entries.fix) == (
        "wrong",
        "limits_config: max_entries_limit_per_query: 5000.",
    )
    assert the(findings, "loki max_query_length").level == "wrong"
    failures = [
        finding
        for finding in findings
        if finding.about.startswith(f"page {links.JOB}, panel") and finding.level == "wrong"
    ]
    assert failures
    assert any(finding.fix == "Loki, limits_config: max_query_length: 31d." for finding in failures)


def test_entries_that_are_too_few_for_queries(
    lokis: None, prometheus: PrometheusServer, token: Callable[[str], str]
) -> None:
    with LokiServer(limits={"max_entries_limit_per_query": 100}) as loki, FakeGrafana() as grafana:
        set_up(grafana, token(ADMIN), loki.url, prometheus.url)
        findings = check(access(grafana, token(ADMIN)))
    fixes = {
        finding.fix
        for finding in findings
        if finding.about.startswith("page ") and finding.level == "wrong"
    }
    assert fixes == {"Loki, limits_config: max_entries_limit_per_query: 5000."}


def test_structured_metadata_that_is_lost(
    lokis: None, prometheus: PrometheusServer, token: Callable[[str], str]
) -> None:
    """One pipeline drops the metadata, another converts it to labels."""
    with LokiServer() as loki, FakeGrafana() as grafana:
        set_up(grafana, token(ADMIN), loki.url, prometheus.url)
        labels = {
            "cluster": "c",
            "host": "n1",
            "kind": "log",
            "stream": "stdout",
            "service_name": "logshipper",
        }
        with LokiClient(loki.url) as client:
            client.push(labels, [Entry(time.time_ns(), "a line", {})])
            finding = the(check(access(grafana, token(ADMIN))), "loki structured metadata")
            assert (finding.level, "without job_id" in finding.words) == ("wrong", True)
            client.push({**labels, "job_id": "1"}, [Entry(time.time_ns(), "another", {})])
            findings = check(access(grafana, token(ADMIN)))
            assert the(findings, "loki structured metadata").words.startswith("job_id is a label")
            assert the(findings, "loki labels").level == "note"
            client.push(labels, [Entry(time.time_ns(), "a third", {"job_id": "2"})])
            assert (
                the(check(access(grafana, token(ADMIN))), "loki structured metadata").level == "ok"
            )


METRICS = b"""logshipper_agent_build_info{cluster="alpha",host="n1",version="1"} 1
logshipper_job_info{cluster="alpha",host="n1",job_id="1",name="a",user="u"} 1
logshipper_job_state{cluster="alpha",job_id="1",state="RUNNING"} 1
logshipper_job_start_time_seconds{cluster="alpha",job_id="1"} 1
logshipper_job_lines{cluster="alpha",job_id="1"} 1
"""


@pytest.mark.parametrize(("honored", "level"), [(True, "ok"), (False, "wrong")])
def test_labels_of_targets_that_clash(
    honored: bool, level: str, loki: LokiServer, prometheuses: None, token: Callable[[str], str]
) -> None:
    exporter = Said(200, METRICS, {"Content-Type": "text/plain; version=0.0.4"})
    prometheus = PrometheusServer()
    path = prometheus.folder / "prometheus.yml"
    config = yaml.safe_load(path.read_text())
    config["scrape_configs"][0]["honor_labels"] = honored
    path.write_text(yaml.safe_dump(config))
    with FaultyServer(exporter) as agent, FakeGrafana() as grafana:
        address = agent.url.removeprefix("http://")
        targets = [{"targets": [address], "labels": {"cluster": "beta"}}]
        (prometheus.folder / "targets" / "agents.yml").write_text(json.dumps(targets))
        with prometheus:
            prometheus.wait_for_target(address)
            set_up(grafana, token(ADMIN), loki.url, prometheus.url)
            findings: list[Finding] = []

            def is_job_known() -> bool:
                findings[:] = check(access(grafana, token(ADMIN)))
                return the(findings, "prometheus series").level == "ok"

            wait_until(is_job_known, "the job is known")
    finding = the(findings, "prometheus labels")
    assert finding.level == level
    if not honored:
        assert finding.words == "agents' own labels were renamed: exported_cluster"
        assert "honor_labels: true, or no label cluster" in finding.fix


# ---- Grafana


def test_data_sources_that_arent_reached(loki: LokiServer, token: Callable[[str], str]) -> None:
    with FakeGrafana() as grafana:
        set_up(grafana, token(ADMIN), NOWHERE, loki.url)
        findings = check(access(grafana, token(ADMIN)))
    finding = the(findings, "loki")
    assert (finding.level, "HTTP 502" in finding.words, "does Grafana reach" in finding.fix) == (
        "wrong",
        True,
        True,
    )
    assert the(findings, "prometheus").level == "wrong", "it is a Loki"
    assert "weren't asked" in the(findings, "queries").words


def test_credentials_that_dont_fit(token: Callable[[str], str]) -> None:
    with FaultyServer(Said(401, b"no")) as server, FakeGrafana() as grafana:
        set_up(grafana, token(ADMIN), server.url, server.url)
        findings = check(access(grafana, token(ADMIN)))
    for kind in ("loki", "prometheus"):
        assert (
            the(findings, kind).fix
            == "The credentials on the data source's page in Grafana don't fit."
        )


@pytest.mark.parametrize(
    ("away", "level"), [((), "ok"), (("/config",), "ok"), (("/config", "/limits"), "note")]
)
def test_a_gateway_that_keeps_the_configuration_away(
    away: tuple[str, ...],
    level: str,
    loki: LokiServer,
    prometheus: PrometheusServer,
    token: Callable[[str], str],
) -> None:
    with FakeGrafana() as grafana:
        set_up(grafana, token(ADMIN), loki.url, prometheus.url)
        no = fake_grafana.Response(403, b"no", "text/plain")
        grafana.meddle = lambda method, path: no if away and path.endswith(away) else None
        findings = check(access(grafana, token(ADMIN)))
    if level == "ok":
        assert the(findings, "loki max_query_length").level == "ok"
    else:
        finding = the(findings, "loki limits")
        assert (finding.level, "max_entries_limit_per_query" in finding.fix) == ("note", True)


@pytest.mark.parametrize(
    ("away", "level"), [("/loki/api/v1/status/buildinfo", "note"), ("/loki/api/v1/", "wrong")]
)
def test_a_gateway_that_keeps_the_version_away(
    away: str,
    level: str,
    loki: LokiServer,
    prometheus: PrometheusServer,
    token: Callable[[str], str],
) -> None:
    """Other allowed endpoints identify the server as Loki."""
    with FakeGrafana() as grafana:
        set_up(grafana, token(ADMIN), loki.url, prometheus.url)
        no = fake_grafana.Response(404, b"no", "text/plain")
        grafana.meddle = lambda method, path: no if away in path else None
        findings = check(access(grafana, token(ADMIN)))
    assert the(findings, "loki version" if level == "note" else "loki").level == level
    has_page = any(finding.about == "page logshipper-job" for finding in findings)
    assert has_page == (level == "note")


def test_a_tenants_own_limits_go_before(
    loki: LokiServer, prometheus: PrometheusServer, token: Callable[[str], str]
) -> None:
    with FakeGrafana() as grafana:
        set_up(grafana, token(ADMIN), loki.url, prometheus.url)
        limits = fake_grafana.Response(200, b"max_query_series: 3\n", "text/plain")
        grafana.meddle = lambda method, path: (
            limits if path.endswith("/config/tenant/v1/limits") else None
        )
        findings = check(access(grafana, token(ADMIN)))
    assert the(findings, "loki max_query_series").level == "wrong"
    assert the(findings, "loki max_entries_limit_per_query").level == "ok"


def test_tokens_and_versions(token: Callable[[str], str]) -> None:
    with FakeGrafana("8.5.0") as grafana:
        assert "HTTP 401" in check(access(grafana, token("x" * 20)))[0].words
        grafana.reads_for_all = False
        (denied,) = check(access(grafana, token(VIEWER)))
        assert "needs a service account with the role Admin" in denied.words
        findings = check(access(grafana, token(ADMIN)))
    assert the(findings, "grafana version").level == "wrong"
    assert the(findings, "data source loki").level == "wrong"
    assert the(findings, f"dashboard {links.JOB}").level == "wrong"


def test_another_dashboard_than_this_versions(
    loki: LokiServer, prometheus: PrometheusServer, token: Callable[[str], str]
) -> None:
    with FakeGrafana() as grafana:
        set_up(grafana, token(ADMIN), loki.url, prometheus.url)
        grafana.save_by_hand(links.JOB, description="mine")
        grafana.save_in_new_editor(links.CLUSTER)
        findings = check(access(grafana, token(ADMIN)))
    assert the(findings, f"dashboard {links.JOB}").level == "note"
    finding = the(findings, f"dashboard {links.CLUSTER}")
    assert (finding.level, "new editor's form (v2)" in finding.words) == ("note", True)
    assert "apply --force" in finding.fix


# ---- queries


def test_queries_that_fail_are_named(loki: LokiServer, prometheus: PrometheusServer) -> None:
    context = QueryContext(ServerAccess(url=loki.url), ServerAccess(url=prometheus.url))
    dashboard = json.loads(json.dumps(wanted_dashboards()[links.JOB]))
    panels = [panel for panel in panels_of(dashboard) if panel.get("targets")]
    of_loki = next(panel for panel in panels if panel["targets"][0]["datasource"]["type"] == "loki")
    of_prometheus = next(
        panel for panel in panels if panel["targets"][0]["datasource"]["type"] == "prometheus"
    )
    of_loki["targets"][0]["expr"] = "{"
    of_prometheus["targets"][0]["expr"] = "no_such_function(1)"
    (variable,) = (model for model in dashboard["templating"]["list"] if model["name"] == "dec")
    variable["query"]["query"] = "query_result(bottomk())"
    dashboard["annotations"]["list"][0]["expr"] = '{kind="event"} | wrong'
    findings = check_queries(context, {links.JOB: dashboard})
    failures = {finding.about.removeprefix(f"page {links.JOB}, "): finding for finding in findings}
    assert set(failures) == {
        "variable dec",
        f"annotation {dashboard['annotations']['list'][0]['name']!r}",
        f"panel {of_loki['title']!r}, query {of_loki['targets'][0]['refId']}",
        f"panel {of_prometheus['title']!r}, query {of_prometheus['targets'][0]['refId']}",
    }
    assert all(finding.level == "wrong" and "HTTP 400" in finding.words for finding in findings)
    assert "Is the server as new as" in failures["variable dec"].fix


def test_errors_within_an_answer_count(prometheus: PrometheusServer) -> None:
    stream = {
        "stream": {"__error__": "JSONParserErr", "__error_details__": "x"},
        "values": [["1", "line"]],
    }
    answer = {"status": "success", "data": {"resultType": "streams", "result": [stream]}}
    target = {"datasource": {"type": "loki"}, "expr": '{a="b"}', "queryType": "range", "refId": "A"}
    page = {
        "uid": "x",
        "templating": {"list": []},
        "annotations": {"list": []},
        "panels": [{"title": "p", "type": "logs", "targets": [target]}],
    }
    with FaultyServer(Said(200, json.dumps(answer).encode())) as loki:
        (finding,) = check_queries(
            QueryContext(ServerAccess(url=loki.url), ServerAccess(url=prometheus.url)), {"x": page}
        )
    assert (finding.level, finding.about) == ("wrong", "page x, panel 'p', query A")
    assert "JSONParserErr" in finding.words


# ---- rules: each with and without a violation


def source(uid: str, kind: str = "loki", **more: object) -> Json:
    return {
        "uid": uid,
        "type": kind,
        "name": more.pop("name", uid),
        "access": "proxy",
        "jsonData": {},
        **more,
    }


def test_which_data_source_is_looked_at() -> None:
    ours, first, default = (
        source("logshipper-loki", name="Loki"),
        source("a", name="A"),
        source("z", isDefault=True),
    )

    def choose(*sources: Json, uid: str = "") -> tuple[str, str]:
        choice, (finding,) = choose_source(list(sources), "loki", uid)
        return (choice or {}).get("uid", ""), finding.level

    assert choose(ours) == ("logshipper-loki", "ok")
    assert choose(ours, first) == ("logshipper-loki", "note"), "the pages take another at first"
    assert choose(ours, first, uid="a") == ("a", "ok")
    assert choose(first, default) == ("z", "note")
    assert choose(first, source("b")) == ("a", "note")
    assert choose() == choose(source("p", "prometheus")) == ("", "wrong")
    assert choose(source("logshipper-loki", "elasticsearch")) == ("", "wrong")
    assert choose(ours, uid="other") == ("", "wrong")
    called_loki = source("logshipper-prometheus", "prometheus", name="Loki")
    choice, (finding,) = choose_source([called_loki], "prometheus", "")
    assert (choice, finding.level) == (None, "wrong"), "the pages take it for Loki"


def test_settings_of_data_sources() -> None:
    loki, prometheus, _ = wanted_data_sources()
    assert judge_source(loki) == judge_source(prometheus) == []
    (direct,) = judge_source({**prometheus, "access": "direct"})
    assert (direct.level, direct.about) == ("wrong", "data source prometheus")
    (get,) = judge_source({**prometheus, "jsonData": {"httpMethod": "GET"}})
    assert (get.level, get.about) == ("wrong", "data source prometheus httpMethod")
    (bare,) = judge_source({**loki, "jsonData": {}})
    assert (bare.level, bare.words) == ("note", "job is missing")


def compose_limits() -> dict[str, Any]:  # Any: YAML
    document: dict[str, Any] = yaml.safe_load((COMPOSE / "loki" / "loki.yaml").read_text())
    return document


@pytest.mark.parametrize(
    ("limits", "about", "level"),
    [
        ({"max_entries_limit_per_query": 5000}, "max_entries_limit_per_query", "ok"),
        ({"max_entries_limit_per_query": 0}, "max_entries_limit_per_query", "ok"),
        ({"max_entries_limit_per_query": 4999}, "max_entries_limit_per_query", "wrong"),
        ({"max_query_series": 499}, "max_query_series", "wrong"),
        ({"max_query_series": 500}, "max_query_series", "note"),
        ({"max_query_series": 20_000}, "max_query_series", "ok"),
        ({"max_query_series": 0}, "max_query_series", "ok"),
        ({"max_query_series": 100}, "max_query_series", "wrong"),
        ({"max_query_length": "0s"}, "max_query_length", "ok"),
        ({"max_query_length": "31d"}, "max_query_length", "ok"),
        ({"max_query_length": "30d1h"}, "max_query_length", "note"),
        ({"max_query_length": "30d"}, "max_query_length", "note"),
        ({"max_query_length": "7d"}, "max_query_length", "wrong"),
        ({"max_query_lookback": "0s"}, "max_query_lookback", ""),
        ({"max_query_lookback": "7d"}, "max_query_lookback", "note"),
        ({"max_query_bytes_read": "0B"}, "max_query_bytes_read", ""),
        ({"max_query_bytes_read": "10GB"}, "max_query_bytes_read", "note"),
        ({"max_query_range": "0s"}, "max_query_range", ""),
        ({"max_query_range": "1d"}, "max_query_range", "note"),
        ({"allow_structured_metadata": True}, "allow_structured_metadata", "ok"),
        ({"allow_structured_metadata": False}, "allow_structured_metadata", "wrong"),
    ],
)
def test_limits(limits: Mapping[str, object], about: str, level: str) -> None:
    findings = {finding.about: finding for finding in reading_limits({"limits_config": limits})}
    finding = findings.get(f"loki {about}")
    assert (finding.level if finding else "") == level
    assert finding is None or finding.level == "ok" or f"limits_config: {about}: " in finding.fix


def test_limits_of_the_compose_file_are_well_and_only_those_for_reading_are_looked_at() -> None:
    findings = reading_limits(compose_limits())
    assert {finding.level for finding in findings} == {"ok"}
    assert {finding.about for finding in findings} == {
        "loki schema_config", "loki allow_structured_metadata", "loki max_query_length", "loki max_query_series"
    }  # fmt: skip
    old = compose_limits()
    old["schema_config"]["configs"][0]["schema"] = "v12"
    old["server"]["grpc_server_max_recv_msg_size"] = 4 << 20
    assert {
        finding.about: finding.level for finding in reading_limits(old) if finding.level != "ok"
    } == {"loki schema_config": "wrong", "loki grpc_server_max_recv_msg_size": "note"}
    assert reading_limits({}) == []


OURS = {
    "cluster": "c",
    "host": "n1",
    "kind": "log",
    "stream": "stdout",
    "service_name": "logshipper",
}


@pytest.mark.parametrize(
    ("streams", "other_streams", "level", "words"),
    [
        ([OURS], [], "ok", "1 streams of the last day, of the cluster c"),
        ([OURS, {**OURS, "cluster": "d", "replay": "1"}], [], "ok", "of the clusters c, d"),
        ([], [], "note", "no agent sent anything"),
        (
            [],
            [{"kind": "event", "app": "k8s", "service_name": "k"}],
            "note",
            "no agent sent anything",
        ),
        (
            [],
            [{**OURS, "service_name": "unknown_service"}],
            "wrong",
            "their service is unknown_service",
        ),
        (
            [OURS, {"service_name": "logshipper", "kind": "log"}],
            [],
            "wrong",
            "without cluster, host",
        ),
        ([{**OURS, "pod": "x", "job_id": "1"}], [], "note", "no agent gives: job_id, pod"),
    ],
)
def test_labels(
    streams: list[dict[str, str]], other_streams: list[dict[str, str]], level: str, words: str
) -> None:
    (finding,) = judge_labels(streams, other_streams)
    assert (finding.level, words in finding.words) == (level, True), finding


AGENT = {"cluster": "c", "host": "n1", "instance": "n1:9310"}
OF_JOBS = [
    "logshipper_job_info",
    "logshipper_job_state",
    "logshipper_job_start_time_seconds",
    "logshipper_job_lines",
]


@pytest.mark.parametrize(
    ("agents", "jobs", "names", "levels"),
    [
        (
            [AGENT],
            [{**AGENT, "job_id": "1"}],
            OF_JOBS,
            {"prometheus labels": "ok", "prometheus series": "ok"},
        ),
        ([], [], [], {"prometheus series": "wrong"}),
        ([AGENT], [], [], {"prometheus labels": "ok", "prometheus series": "note"}),
        ([AGENT], [AGENT], OF_JOBS[:2], {"prometheus labels": "ok", "prometheus series": "wrong"}),
        (
            [{**AGENT, "exported_host": "n1"}],
            [AGENT],
            OF_JOBS,
            {"prometheus labels": "wrong", "prometheus series": "ok"},
        ),
        (
            [{"instance": "x"}],
            [AGENT],
            OF_JOBS,
            {"prometheus labels": "wrong", "prometheus series": "ok"},
        ),
    ],
)
def test_series(
    agents: list[dict[str, str]],
    jobs: list[dict[str, str]],
    names: list[str],
    levels: dict[str, str],
) -> None:
    findings = judge_series(agents, jobs, names)
    assert {finding.about: finding.level for finding in findings} == levels
    assert all(finding.fix for finding in findings if finding.level == "wrong")


def target(secs: float | None, health: str = "up") -> Target:
    return Target({}, "http://n1:9310/metrics", health, "" if health == "up" else "refused", secs)


@pytest.mark.parametrize(
    ("targets", "interval_secs", "levels"),
    [
        ([target(15.0)], 15.0, {"prometheus scrape": "ok"}),
        ([target(15.0)], None, {"prometheus scrape": "ok"}),
        ([target(30.0), target(60.0)], 60.0, {"prometheus scrape": "ok"}),
        ([target(60.0)], 15.0, {"prometheus scrape": "ok", "data source timeInterval": "note"}),
        ([target(60.0)], None, {"prometheus scrape": "ok", "data source timeInterval": "note"}),
        ([target(120.0)], 120.0, {"prometheus scrape": "wrong"}),
        ([target(None)], None, {}),
        ([target(None, "down")], None, {"prometheus scrape": "note"}),
        ([], None, {}),
    ],
)
def test_scrapes(
    targets: list[Target], interval_secs: float | None, levels: dict[str, str]
) -> None:
    assert {
        finding.about: finding.level for finding in judge_scrapes(targets, interval_secs)
    } == levels

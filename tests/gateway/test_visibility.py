"""Users read their own jobs through the gateway, and no query reveals another user's job (R32)."""

import json
import os
import socket
from collections.abc import Mapping
from typing import Any

import pytest

from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.servers.server_access import ServerAccess
from tests.gateway.conftest import ANN, BEN, ODD, Site
from tests.gateway.nginx import answer_of, question
from tests.tools.captures.captured_runs import TIMEOUT_SECS, wait_until

ALL = '{service_name="logshipper"}'
ENTRIES = [
    ALL,
    '{cluster=~".+"}',
    '{host=~".+", kind=~".+"}',
    f'{ALL} | user=~".+"',
    f"{ALL} | json | line_format `{{{{__line__}}}} {{{{.user}}}} {{{{.job_id}}}}`",
    '{kind="metadata"} | json',
    '{kind="event"}',
    f'{ALL} |~ "(?i)[a-z]" or "ben"',
]
NUMBERS = [
    f"sum by(user, job_id)(count_over_time({ALL}[1h]))",
    'max by(job_id)(max_over_time({kind="metadata"} | json loss=`["loss"]` | unwrap loss [1h]))',
    'topk(100, sum by(user)(bytes_over_time({cluster="site"}[1h])))',
    f"label_replace(sum by(job_id)(rate({ALL}[1h])), `x`, `$1`, `job_id`, `(.*)`)",
    f"sum by(user)(count_over_time({ALL}[1h])) or sum by(job_id)(count_over_time({ALL}[1h]))",
]
OF_BEN = [
    '{host="n2"}',
    f'{ALL} | user="ben"',
    '{__tenant_id__="ben"}',
    '{__tenant_id__=~"ann|ben"}',
    f'{ALL} | __tenant_id__="ben"',
    f'{ALL} |= "ben"',
    'sum by(__tenant_id__)(count_over_time({__tenant_id__=~".+"}[1h]))',
    'count_over_time({host="n2"}[1h])',
    'absent_over_time({host="n2"}[1h])',
]


def answer_body(site: Site, user: str, path: str, **params: str) -> bytes:
    """Return the body of a successful answer."""
    answer = site.gateway.as_grafana(user, question(path, **params))
    assert answer.status == 200, answer
    return answer.body


def ranged(site: Site, user: str, logql: str) -> bytes:
    return answer_body(
        site, user, "query_range", query=logql, limit="1000", step="600", **site.span
    )


def test_each_user_reads_all_of_the_own_jobs(site: Site) -> None:
    for user, count in ((ANN, 1), (BEN, 2)):
        body = ranged(site, user, ALL)
        assert len(site.of(user)) == count
        assert set(site.seen_of(user, body)) == {
            mark for job in site.of(user) for mark in job.marks
        }
        for job in site.of(user):
            assert f"a line of {job.word}".encode() in body
            assert f"stderr of {job.word}".encode() in body


@pytest.mark.parametrize("logql", [*ENTRIES, *NUMBERS])
def test_no_question_finds_anything_of_another_user(site: Site, logql: str) -> None:
    """ben asks first, so a cache of his answers would leak to ann."""
    instants = [
        *NUMBERS,
        *(f"count_over_time({selector}[1h])" for selector in ENTRIES if selector == logql),
    ]
    for user, stranger in ((BEN, ANN), (ANN, BEN), (BEN, ANN)):
        bodies = [ranged(site, user, logql)]
        if logql in instants:
            bodies.append(answer_body(site, user, "query", query=logql))
        for body in bodies:
            assert site.seen_of(user, body), f"{user} sees their own ones: {body[:300]!r}"
            assert site.seen_of(stranger, body) == []
            assert site.seen_of(ODD, body) == []


@pytest.mark.parametrize("logql", OF_BEN)
def test_questions_for_another_user_find_nothing(site: Site, logql: str) -> None:
    answer = site.gateway.as_grafana(
        ANN, question("query_range", query=logql, step="600", **site.span)
    )
    assert answer.status in (200, 400)
    assert site.seen_of(BEN, answer.body) == []
    if answer.status == 200 and "absent" not in logql:
        assert json.loads(answer.body)["data"]["result"] == []
    assert site.seen_of(BEN, ranged(site, BEN, '{host="n2"}'))


# ---- browsing


def answer_document(site: Site, user: str, path: str, **params: str) -> Any:  # Any: JSON
    body = answer_body(site, user, path, **site.span, **params)
    assert site.seen_of(BEN if user == ANN else ANN, body) == []
    return json.loads(body)


@pytest.mark.parametrize("selector", [{}, {"query": '{host=~".+"}'}])
def test_labels_and_their_values_are_those_of_the_own_streams(
    site: Site, selector: Mapping[str, str]
) -> None:
    assert "host" in answer_document(site, ANN, "labels")["data"]
    assert answer_document(site, ANN, "label/host/values", **selector)["data"] == ["n1"]
    assert answer_document(site, BEN, "label/host/values", **selector)["data"] == ["n1", "n2"]
    for name in ("user", "job_id", "__tenant_id__", "tenant"):
        assert not answer_document(site, ANN, f"label/{name}/values", **selector).get("data")


@pytest.mark.parametrize(
    "match", ['{host=~".+"}', '{cluster="site"}', '{host="n2"}', '{__tenant_id__="ben"}']
)
def test_series_are_the_own_ones(site: Site, match: str) -> None:
    hosts = {
        user: {
            labels["host"] for labels in answer_document(site, user, "series", match=match)["data"]
        }
        for user in (ANN, BEN)
    }
    assert hosts[ANN] <= {"n1"}
    if "__tenant_id__" not in match:
        assert "n2" in hosts[BEN]
        assert hosts[ANN] == (set() if "n2" in match else {"n1"})


def test_sizes_are_those_of_the_own_streams(site: Site) -> None:
    def entries(user: str, selector: str) -> int:
        return int(answer_document(site, user, "index/stats", query=selector)["entries"])

    site.loki.flush()
    wait_until(
        lambda: entries(BEN, '{host="n2"}') and entries(ANN, '{host="n1"}'),
        "what is flushed is counted",
    )
    assert entries(ANN, '{host="n2"}') == entries("carol", '{host=~".+"}') == 0
    for path in ("index/volume", "index/volume_range"):
        query = {"query": '{host=~".+"}', "step": "600"}
        volumes = {
            user: answer_document(site, user, path, **query)["data"]["result"]
            for user in (ANN, BEN)
        }
        assert {series["metric"]["host"] for series in volumes[ANN]} == {"n1"}
        assert {series["metric"]["host"] for series in volumes[BEN]} == {"n1", "n2"}


def test_questions_by_post_are_the_same(site: Site) -> None:
    form = ("Content-Type", "application/x-www-form-urlencoded")
    body = b"query=%7Bhost%3D~%22.%2B%22%7D&limit=1000&start=" + site.span["start"].encode()
    for user, stranger in ((ANN, BEN), (BEN, ANN)):
        answer = site.gateway.as_grafana(
            user, "/loki/api/v1/query_range", form, method="POST", body=body
        )
        assert answer.status == 200
        assert site.seen_of(user, answer.body)
        assert site.seen_of(stranger, answer.body) == []
        # parameters in the address and in the form don't select the tenant
        mixed = "/loki/api/v1/query_range?X-Scope-OrgID=ben&tenant=ben"
        answer = site.gateway.as_grafana(
            user, mixed, form, method="POST", body=body + b"&X-Scope-OrgID=ben&orgId=ben"
        )
        assert site.seen_of(stranger, answer.body) == []
        assert site.seen_of(user, answer.body)


# ---- following


UPGRADE = (
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
)


def test_tail_is_denied(site: Site) -> None:
    """Grafana shares one connection among all listeners of a query, across users."""
    target = question("tail", query=ALL)
    request = [f"GET {target} HTTP/1.1", "Host: loki", "Connection: Upgrade", "X-Scope-OrgID: ben"]
    request += [f"{name}: {value}" for name, value in UPGRADE]
    with socket.create_connection(("127.0.0.1", site.loki.port), TIMEOUT_SECS) as direct:
        direct.sendall("\r\n".join([*request, "", ""]).encode())
        assert answer_of(direct.recv(1 << 16)).status == 101, "Loki itself would do it"
    for user in (ANN, BEN):
        answer = site.gateway.as_grafana(user, target, ("Connection", "Upgrade"), *UPGRADE)
        assert answer.status == 404
        assert site.seen_of(BEN, answer.body) == []
        # an allowed query does not become a tunnel either
        upgraded = site.gateway.as_grafana(
            user, question("query", query="1+1"), ("Connection", "Upgrade"), *UPGRADE
        )
        assert upgraded.status == 200
        assert b'"1+1"' not in upgraded.body


# ---- names not valid for tenants


def test_a_user_whose_name_can_t_be_a_tenant_s_is_read_by_nobody_but_admins(site: Site) -> None:
    (job,) = site.of(ODD)
    for name in (ODD, ODD.lower(), f"uid!{os.getuid()}", "Ann.O", "ann.o"):
        answer = site.gateway.as_grafana(name, question("query_range", query=ALL, **site.span))
        assert answer.status in (200, 403)
        assert job.word.encode() not in answer.body
    with LokiClient(ServerAccess(url=site.loki.url, tenant=f"uid!{os.getuid()}")) as admin:
        entries = list(admin.entries(ALL, site.begin_ns, int(site.span["end"])))
    assert f"a line of {job.word}" in [entry.line for entry in entries]
    assert {entry.metadata["user"] for entry in entries} == {ODD}


def test_all_is_there_after_loki_wrote_it_to_disk(site: Site) -> None:
    site.loki.flush()
    for user, stranger in ((ANN, BEN), (BEN, ANN)):
        body = ranged(site, user, ALL)
        assert len(site.seen_of(user, body)) >= 3 * len(site.of(user))
        assert site.seen_of(stranger, body) == []

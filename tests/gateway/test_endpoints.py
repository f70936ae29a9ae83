"""Only queries pass the gateway: Loki's documented paths, by GET and POST."""

import time

import pytest
import requests

from logshipper_ingest.servers.loki_push import Entry, compress, encode_push
from tests.gateway.conftest import ANN, BEN, Site
from tests.gateway.nginx import QUESTION, question
from tests.tools.captures.captured_runs import TIMEOUT_SECS

ALL = '{service_name="logshipper"}'
ALLOWED = {
    "query": {"query": f"count_over_time({ALL}[1h])"},
    "query_range": {"query": ALL},
    "labels": {},
    "label/host/values": {},
    "series": {"match": ALL},
    "index/stats": {"query": ALL},
    "index/volume": {"query": ALL},
    "index/volume_range": {"query": ALL},
}
# Loki's own endpoints, with the method and the status that prove their existence
OTHERS = {
    "/config": ("GET", 200),
    "/ring": ("GET", 200),
    "/metrics": ("GET", 200),
    "/ready": ("GET", 200),
    "/services": ("GET", 200),
    "/log_level": ("GET", 200),
    "/flush": ("POST", 204),
    "/distributor/ring": ("GET", 200),
    "/debug/pprof/": ("GET", 200),
    "/loki/api/v1/push": ("POST", 204),
    "/otlp/v1/logs": ("POST", 400),
    "/api/prom/push": ("POST", 204),
    f"/api/prom/query?query={ALL}": ("GET", 200),
    "/api/prom/label": ("GET", 200),
    f"/api/prom/tail?query={ALL}": ("GET", 400),
    "/loki/api/v1/label": ("GET", 200),
    "/loki/api/v1/status/buildinfo": ("GET", 200),
    f"/loki/api/v1/tail?query={ALL}": ("GET", 400),
    "/loki/api/v1/rules": ("GET", 400),
    "/loki/api/v1/delete": ("GET", 404),
    f"/loki/api/v1/detected_labels?query={ALL}": ("GET", 200),
    f"/loki/api/v1/detected_fields?query={ALL}": ("GET", 200),
    f"/loki/api/v1/patterns?query={ALL}": ("GET", 404),
    f"/loki/api/v1/format_query?query={ALL}": ("GET", 200),
    f"/loki/api/v1/index/shards?query={ALL}": ("GET", 400),
}
NEVER_TRIED = [
    "/ingester/shutdown",
    "/ingester/prepare_shutdown",
    "/loki/api/v1/cache/generation_numbers",
    "/ui/",
    "/",
]


@pytest.mark.parametrize("path", ALLOWED)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_questions_pass(site: Site, path: str, method: str) -> None:
    answer = site.gateway.as_grafana(
        ANN, question(path, **ALLOWED[path], **site.span), method=method
    )
    assert answer.status == (
        405 if method == "POST" and path.startswith("label/") and answer.status == 405 else 200
    )
    assert site.seen_of(BEN, answer.body) == []


@pytest.mark.parametrize("target", [*OTHERS, *NEVER_TRIED])
def test_everything_else_is_denied(site: Site, target: str) -> None:
    """Loki's own answer to an owner of the tenant is the control."""
    method, status = OTHERS.get(target, ("GET", 0))
    entry = Entry(time.time_ns(), "pushed next to the gateway")
    body = compress(encode_push({"a": "b"}, [entry])) if target.endswith("/push") else b""
    if status:
        headers = {
            "X-Scope-OrgID": "control",
            "Content-Type": "application/x-protobuf" if body else "text/plain",
        }
        with requests.Session() as session:
            session.trust_env = False
            control = session.request(
                method, site.loki.url + target, headers=headers, data=body, timeout=TIMEOUT_SECS
            )
        assert control.status_code == status, control.text
    for verb in ("GET", "POST"):
        for user in (ANN, BEN):
            answer = site.gateway.as_grafana(user, target.replace(" ", ""), method=verb, body=body)
            assert answer.status == 404
            assert b"<center>nginx" in answer.body
            assert site.seen_of(user, answer.body) == []


@pytest.mark.parametrize("path", ["/loki/api/v1/push", "/api/prom/push", "/otlp/v1/logs"])
def test_readers_push_nothing(site: Site, path: str) -> None:
    line = f"forged {time.time_ns()}"
    body = compress(encode_push({"service_name": "logshipper"}, [Entry(time.time_ns(), line)]))
    kind = ("Content-Type", "application/x-protobuf")
    for tenant in (ANN, BEN):
        answer = site.gateway.as_grafana(
            ANN, path, kind, ("X-Scope-OrgID", tenant), method="POST", body=body
        )
        assert answer.status == 404
    for user in (ANN, BEN):
        lookup = site.gateway.as_grafana(
            user, question("query_range", query=f'{ALL} |= "forged"', **site.span)
        )
        assert (lookup.status, b"forged 1" in lookup.body) == (200, False)


@pytest.mark.parametrize(
    ("method", "status"),
    [("HEAD", 405), ("PUT", 405), ("DELETE", 405), ("PATCH", 405), ("OPTIONS", 405), ("TRACE", 405), ("PROPFIND", 405),
     ("MOVE", 405), ("PURGE", 405), ("LOCK", 405), ("CONNECT", 405), ("get", 400), ("GETX", 405), ("POSTGET", 405)],
)  # fmt: skip
def test_other_methods_are_denied(site: Site, method: str, status: int) -> None:
    for target in (
        QUESTION,
        question("query_range", query=ALL, **site.span),
        "/loki/api/v1/delete?query={}",
    ):
        answer = site.gateway.as_grafana(ANN, target, method=method)
        assert answer.status in (status, 400)
        assert site.seen_of(ANN, answer.body) == []
    assert site.gateway.as_grafana(ANN, question("query", query="vector(1)")).status == 200


@pytest.mark.parametrize(
    "target",
    [
        "//config",
        "/loki/api/v1//query",
        "//loki/api/v1/query",
        "/loki//api/v1/query",
        "/./loki/api/v1/query",
        "/loki/api/v1/./query",
        "/loki/api/v1/query/",
        "/loki/api/v1/query/.",
        "/loki/api/v1/query/..",
        "/loki/api/v1/push/../query",
        "/loki/api/v1/query/../push",
        "/loki/api/v1/query/../../../../config",
        "/loki/api/v1/../../../config",
        "/../config",
        "/loki/api/v1/%2e%2e/v1/query",
        "/loki/api/v1/query/%2e%2e/push",
        "/loki/api/v1/query%2f..%2fpush",
        "/loki/api/v1/query/..%2f..%2f..%2f..%2fconfig",
        "/loki%2fapi%2fv1%2fquery",
        "/loki/api/v1%2fquery",
        "/loki/api/v1/%71uery",
        "/loki/api/v1/quer%79",
        "/loki/api/v1/query%20",
        "/loki/api/v1/query%3fquery=1",
        "/loki/api/v1/query%23",
        "/loki/api/v1/query%00",
        "/loki/api/v1/query%0a",
        "/loki/api/v1/query%0d%0aX-Scope-OrgID:%20ben",
        "/loki/api/v1/query HTTP/1.1%0d%0aX-Scope-OrgID:%20ben",
        "/loki/api/v1/query#",
        "/loki/api/v1/query#?query=1",
        "/loki/api/v1/query;a=b",
        "/loki/api/v1/query&query=1",
        "/loki/api/v1/query\\",
        "/loki\\api\\v1\\query",
        "/loki/api/v1/queryx",
        "/loki/api/v1/query_rangex",
        "/loki/api/v1/Query",
        "/LOKI/API/V1/QUERY",
        "/x/loki/api/v1/query",
        "loki/api/v1/query",
        "/loki/api/v1/label//values",
        "/loki/api/v1/label/host",
        "/loki/api/v1/label/host/",
        "/loki/api/v1/label/host/values/",
        "/loki/api/v1/label/host/values/../../../push",
        "/loki/api/v1/label/../push/values",
        "/loki/api/v1/label/..%2f..%2fpush%3f/values",
        "/loki/api/v1/label/%2e%2e/values",
        "/loki/api/v1/label/a/b/values",
        "/loki/api/v1/label/a%2fb/values",
        "/loki/api/v1/label/a%3fb/values",
        "/loki/api/v1/label/a-b/values",
        "/loki/api/v1/label/h\u00f6st/values",
        "/loki/api/v1/label/" + "a" * 129 + "/values",
        "/loki/api/v1/index",
        "/loki/api/v1/index/../push",
        "/loki/api/v1/index/stats/../../push",
        "http://loki/config",
        "http://loki/loki/api/v1/push",
        "http://127.0.0.1/loki/api/v1/query/../push",
        "https://loki:443//config",
        "*",
        "/?/loki/api/v1/query",
        "/config?/loki/api/v1/query",
        "/config#/loki/api/v1/query",
    ],
)
def test_other_spellings_of_a_path_are_denied(site: Site, target: str) -> None:
    span = site.span
    query = f"{target}{'&' if '?' in target else '?'}query=%7Bservice_name%3D%22logshipper%22%7D&start={span['start']}"
    for spelling in (target, query):
        for method in ("GET", "POST"):
            answer = site.gateway.as_grafana(ANN, spelling, ("X-Scope-OrgID", BEN), method=method)
            assert answer.status in (400, 404), answer
            assert b"<center>nginx" in answer.body, "nobody else answered"
    fine = query.replace(target, "/loki/api/v1/query_range").replace(
        "&query", "?query", "?" in target
    )
    assert site.seen_of(ANN, site.gateway.as_grafana(ANN, fine).body)


def test_an_absolute_address_is_the_same_question(site: Site) -> None:
    """A proxy's form of a request names a host; the gateway ignores that host."""
    target = question("query_range", query=ALL, **site.span)
    for host in ("loki", "example.org", f"127.0.0.1:{site.loki.port}", "ben@loki"):
        answer = site.gateway.as_grafana(ANN, f"http://{host}{target}")
        assert answer.status in (200, 400)
        assert site.seen_of(BEN, answer.body) == []
        assert answer.status == 400 or site.seen_of(ANN, answer.body)


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "", "HTTP/1.1 HTTP/1.1"])
def test_other_versions_of_http_read_nothing_of_another(site: Site, version: str) -> None:
    target = question("query_range", query=ALL, **site.span)
    request = f"GET {target} {version}\r\nX-Grafana-User: ann\r\nX-Scope-OrgID: ben\r\nConnection: close\r\n\r\n"
    answer = site.gateway.send(
        request.encode(), site.gateway.certificates.grafana, site.gateway.port
    )
    assert site.seen_of(BEN, answer.body) == []
    assert answer.status in (0, 200, 400, 505)

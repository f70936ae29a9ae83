"""Only Grafana can name the user: headers from other clients, or sent through Grafana, have no
effect."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.servers.loki_push import Entry
from logshipper_ingest.servers.server_access import ServerAccess
from tests.gateway.conftest import ANN, BEN, Site, started
from tests.gateway.nginx import SECRET, Answer, Nginx, SiteCertificates, question

ALL = '{service_name="logshipper"}'
USER, TENANT, SECRET_HEADER = "X-Grafana-User", "X-Scope-OrgID", "X-Logshipper-Secret"


@pytest.fixture(scope="module")
def by_secret(site: Site, certificates: SiteCertificates) -> Iterator[Nginx]:
    with ExitStack() as until:
        yield started(site.loki, certificates, "secret", until)


def all_of(site: Site) -> str:
    return question("query_range", query=ALL, limit="1000", **site.span)


def is_ann_s(site: Site, answer: Answer) -> bool:
    """Return whether the answer has ann's jobs and no other user's."""
    return (
        answer.status == 200
        and bool(site.seen_of(ANN, answer.body))
        and site.seen_of(BEN, answer.body) == []
    )


def is_denied(site: Site, answer: Answer, *statuses: int) -> bool:
    """Return whether the gateway itself, not Loki, denied the request."""
    own_words = b"<center>nginx</center>" in answer.body
    return (
        answer.status in statuses
        and own_words
        and not any(site.seen_of(user, answer.body) for user in (ANN, BEN))
    )


# ---- Grafana's credentials


@pytest.mark.parametrize("holder", ["nobody", "neighbour", "node", "controller"])
def test_without_grafana_s_certificate_nothing_is_answered(site: Site, holder: str) -> None:
    """The certificates come from another CA, or from Grafana's CA for another name."""
    certificates = site.gateway.certificates
    certificate = {
        "neighbour": certificates.neighbour,
        "node": certificates.node,
        "controller": certificates.controller,
    }.get(holder)
    answer = site.gateway.ask(all_of(site), [(USER, BEN)], certificate=certificate)
    assert is_denied(site, answer, 401 if holder == "neighbour" else 400)
    secret = site.gateway.ask(
        all_of(site), [(USER, BEN), (SECRET_HEADER, SECRET)], certificate=certificate
    )
    assert secret.status == answer.status
    assert is_ann_s(site, site.gateway.as_grafana(ANN, all_of(site)))


@pytest.mark.parametrize(
    "secret",
    [None, "", "wrong", SECRET.upper(), SECRET.lower(), SECRET[:-1], SECRET + "x", f"x{SECRET}", f"{SECRET},{SECRET}",
     f"wrong, {SECRET}", ".*", f"^{SECRET}"],
)  # fmt: skip
def test_without_the_secret_nothing_is_answered(
    site: Site, by_secret: Nginx, secret: str | None
) -> None:
    headers = [(USER, BEN)] if secret is None else [(USER, BEN), (SECRET_HEADER, secret)]
    assert is_denied(site, by_secret.ask(all_of(site), headers), 401)
    assert is_ann_s(site, by_secret.ask(all_of(site), [(USER, ANN), (SECRET_HEADER, SECRET)]))


def test_the_secret_under_another_name_is_none(site: Site, by_secret: Nginx) -> None:
    for name in (
        "X_Logshipper_Secret",
        "X-Logshipper_Secret",
        "Logshipper-Secret",
        "Authorization",
    ):
        assert is_denied(site, by_secret.ask(all_of(site), [(USER, BEN), (name, SECRET)]), 401)
    answer = by_secret.ask(
        all_of(site), [(USER, BEN), (SECRET_HEADER, "wrong"), (SECRET_HEADER, SECRET)]
    )
    assert is_denied(site, answer, 401)


def test_the_secret_goes_no_further(site: Site, by_secret: Nginx) -> None:
    """Loki can log the headers of a query, so the gateway passes no header of the client."""
    assert is_denied(site, by_secret.ask("/config", [(USER, ANN), (SECRET_HEADER, SECRET)]), 404)
    assert (
        "proxy_pass_request_headers off;"
        in (by_secret.folder / "logshipper" / "common.conf").read_text()
    )


# ---- users and tenants


@pytest.mark.parametrize(
    "headers",
    [
        [(TENANT, BEN)],
        [(TENANT.lower(), BEN)],
        [(TENANT.upper(), BEN)],
        [("X_Scope_OrgID", BEN)],
        [("X-Scope_OrgID", BEN)],
        [(TENANT, f"{ANN}|{BEN}")],
        [(TENANT, BEN), (TENANT, BEN)],
        [(TENANT, "")],
        [("Connection", TENANT)],
        [("Connection", f"close, {TENANT}, {USER}")],
        [("X_Grafana_User", BEN)],
        [("X-Grafana_User", BEN)],
        [("X-Grafana-User-", BEN)],
        [
            ("X-Forwarded-User", BEN),
            ("X-WEBAUTH-USER", BEN),
            ("Remote-User", BEN),
            ("X-Remote-User", BEN),
        ],
        [("Authorization", "Basic YmVuOg==")],
        [("Cookie", "X-Scope-OrgID=ben")],
        [("X-Original-URL", "/config"), ("X-Rewrite-URL", "/config")],
        [("X-HTTP-Method-Override", "DELETE")],
        [("X-Loki-Tenant", BEN), ("X-Tenant", BEN), ("X-OrgID", BEN)],
        [("X-Loki-Response-Encoding-Flags", f"categorize-labels\t{TENANT}: {BEN}")],
        [("Accept-Encoding", "identity"), (f"{TENANT} ", BEN)],
    ],
)
def test_no_header_changes_whose_jobs_are_read(site: Site, headers: list[tuple[str, str]]) -> None:
    answer = site.gateway.as_grafana(ANN, all_of(site), *headers)
    assert is_ann_s(site, answer) or is_denied(site, answer, 400), answer
    before = site.gateway.ask(
        all_of(site), [*headers, (USER, ANN)], certificate=site.gateway.certificates.grafana
    )
    assert is_ann_s(site, before) or is_denied(site, before, 400), before
    alone = site.gateway.ask(all_of(site), headers, certificate=site.gateway.certificates.grafana)
    assert is_denied(site, alone, 403, 400), alone


@pytest.mark.parametrize("name", [USER, USER.lower(), USER.upper()])
def test_two_users_are_never_both(site: Site, name: str) -> None:
    """Before 1.23, nginx takes the first header. Newer versions join both into one value, which is
    not a valid name."""
    headers = [(USER, ANN), (name, BEN)]
    answer = site.gateway.ask(all_of(site), headers, certificate=site.gateway.certificates.grafana)
    assert is_ann_s(site, answer) or is_denied(site, answer, 403)


@pytest.mark.parametrize(
    "name",
    [
        "", " ", "ben|ann", "ann|ben", "|ben", "ben|", "ann,ben", "ann ben", "ann\tben", "ann;ben", "ann/ben", "../ben",
        ".", "..", ".ben", "-ben", "1000", "Ben", "BEN", "bEn", "ben%7Cann", "%62en", "ben%00", "ben\u00a0", "b\u00e9n",
        "\uff42\uff45\uff4e", "be\u0301n", "ben\u200b", "ben@example.org", "EXAMPLE\\ben", "ben$", "*", ".*", "^ben$",
        "b(e)n", "uid!0", "nobody!", "fake!", "b" * 33, "b" * 5000, '"ben"', "'ben'", "{ben}", "${USER}", "ben\x7f",
    ],
)  # fmt: skip
def test_what_is_no_user_s_name_reads_nothing(site: Site, name: str) -> None:
    answer = site.gateway.as_grafana(name, all_of(site))
    assert is_denied(site, answer, 403, 400), answer
    assert is_denied(site, site.gateway.as_grafana(name, all_of(site), (TENANT, BEN)), 403, 400)


@pytest.mark.parametrize("name", ["b", "_ben", "ben.k", "ben-1", "b" * 32, "anonymous", "be"])
def test_a_user_without_jobs_reads_nothing(site: Site, name: str) -> None:
    answer = site.gateway.as_grafana(name, all_of(site))
    assert answer.status == 200
    assert b'"result":[]' in answer.body
    assert not any(site.seen_of(user, answer.body) for user in (ANN, BEN))


def test_a_user_called_as_the_tenant_of_what_was_stored_before_tenants_reads_nothing(
    site: Site,
) -> None:
    """The tenant `fake` contains all users' jobs from before tenants."""
    with LokiClient(ServerAccess(url=site.loki.url, tenant="fake")) as before_tenants:
        before_tenants.push({"service_name": "logshipper"}, [Entry(time.time_ns(), "of all users")])
        assert before_tenants.query(f"count_over_time({ALL}[1h])")
    answer = site.gateway.as_grafana("fake", all_of(site))
    assert is_denied(site, answer, 403), answer
    assert site.gateway.as_grafana("faker", all_of(site)).status == 200


def test_whom_grafana_names_nobody_for_reads_nothing(site: Site) -> None:
    """Grafana omits the header for anonymous visitors, public dashboards and alert rules."""
    assert is_denied(site, site.gateway.as_grafana(None, all_of(site)), 403)
    assert is_denied(site, site.gateway.as_grafana(None, all_of(site), (TENANT, BEN)), 403)


# ---- requests within requests


@pytest.mark.parametrize(
    "head",
    [
        f"{USER}: ann\r\n {TENANT}: ben",
        f"{USER}: ann\r\n\tben",
        f"{USER}: ann\n{TENANT}: ben",
        f"{USER}: ann\r{TENANT}: ben",
        f"{USER}: ann\x00ben",
        f"{USER} : ben",
        f"{USER}\t: ben",
        f" {USER}: ben",
        f"{USER}: ann\r\n{USER}:ben",
        f"{TENANT}\x0b: ben\r\n{USER}: ann",
        f"X: y\r\n\r\n{USER}: ben",
    ],
)
def test_odd_heads_read_nothing_of_another(site: Site, head: str) -> None:
    request = f"GET {all_of(site)} HTTP/1.1\r\nHost: loki\r\nConnection: close\r\n{head}\r\n\r\n"
    answer = site.gateway.send(
        request.encode(), site.gateway.certificates.grafana, site.gateway.port
    )
    assert is_ann_s(site, answer) or is_denied(site, answer, 400, 403), answer


@pytest.mark.parametrize(
    "lengths",
    [
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding : chunked",
        "Content-Length: 0\r\nContent-Length: 200",
        "Content-Length: +5",
        "Content-Length: 0",
        "Transfer-Encoding: chunked",
    ],
)
def test_no_second_request_hides_in_a_first_one(site: Site, lengths: str) -> None:
    """Loki receives as a body exactly the bytes that nginx treats as one. The gateway checks any
    further request separately."""
    inner = (
        f"GET {all_of(site)} HTTP/1.1\r\nHost: loki\r\n{TENANT}: ben\r\nConnection: close\r\n\r\n"
    )
    outer = f"POST {all_of(site)} HTTP/1.1\r\nHost: loki\r\n{USER}: ann\r\n{lengths}\r\n\r\n0\r\n\r\n{inner}"
    answer = site.gateway.send(outer.encode(), site.gateway.certificates.grafana, site.gateway.port)
    assert site.seen_of(BEN, answer.body) == []
    assert answer.status in (200, 400, 501)
    for _ in range(3):  # the connection carries no leftover into the next request
        assert is_ann_s(site, site.gateway.as_grafana(ANN, all_of(site)))


def test_requests_on_one_connection_are_each_their_user_s(site: Site) -> None:
    def request(user: str, close: str) -> str:
        return f"GET {all_of(site)} HTTP/1.1\r\nHost: loki\r\n{USER}: {user}\r\nConnection: {close}\r\n\r\n"

    payload = (request(ANN, "keep-alive") + request("Ben", "close")).encode()
    answer = site.gateway.send(payload, site.gateway.certificates.grafana, site.gateway.port)
    assert b"403 Forbidden" in answer.body
    assert site.seen_of(ANN, answer.body)
    assert site.seen_of(BEN, answer.body) == []

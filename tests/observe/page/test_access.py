"""Access to the page: it rejects clients without the link, other origins, other host names, and bad
requests."""

import http.client
import json
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from logshipper_observe.page import server as page_server
from logshipper_observe.page.access import Access, foreign, write_redirect
from logshipper_observe.page.server import POLICY, PageServer
from tests.observe.page.jobs import TRAINED
from tests.tools.waiting import scaled

SECS = scaled(20.0)


class Client:
    """Sends requests to a page's server by hand. cookie: the cookie of an admitted browser."""

    def __init__(self, server: PageServer) -> None:
        self.server = server
        self.host = f"127.0.0.1:{server.port}"
        self.root = server.access.root
        self.cookie = server.access.set_cookie().split(";")[0]

    def ask(
        self, path: str, method: str = "GET", *, cookie: bool = True, **headers: str
    ) -> "Answer":
        """Send a request. path: below the page's own path, or with a slash from the host's root.
        headers: `_` stands for `-`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=SECS)
        try:
            fields = {"Host": self.host, **({"Cookie": self.cookie} if cookie else {})}
            fields |= {name.replace("_", "-"): value for name, value in headers.items()}
            connection.putrequest(
                method, path if path.startswith("/") else self.root + path, skip_host=True
            )
            for name, value in fields.items():
                connection.putheader(name, value)
            connection.endheaders()
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def raw(self, data: bytes) -> bytes:
        """Return all bytes of the response until the server closes."""
        with socket.create_connection(("127.0.0.1", self.server.port), SECS) as connection:
            connection.sendall(data)
            response = b""
            while piece := connection.recv(65_536):
                response += piece
            return response


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()


@pytest.fixture
def client(page_server: PageServer) -> Client:
    return Client(page_server)


def test_the_link_is_changed_for_a_cookie(client: Client) -> None:
    link = client.server.link("job/k3f9x2").removeprefix(f"http://127.0.0.1:{client.server.port}")
    # the link comes from a file of the user's own
    answer = client.ask(link, cookie=False, Sec_Fetch_Site="cross-site")
    assert answer.status == 200
    cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Strict", f"Path={client.root}"} <= set(cookie.split("; "))
    assert b"#/job/k3f9x2" in answer.body
    assert client.server.access.token.encode() not in answer.body
    page = client.ask("", cookie=False, Cookie=cookie.split(";")[0])
    assert page.status == 200
    assert b"<title>logshipper</title>" in page.body


def test_what_the_link_shows_is_no_html(client: Client) -> None:
    link = client.server.link('"><script>alert(1)</script>').removeprefix(f"http://{client.host}")
    assert b"<script" not in client.ask(link, cookie=False).body


@pytest.mark.parametrize(
    "path", ["", "app.js", "api/jobs", f"api/jobs/{TRAINED}/lines", "?token=", "nothing-is-here"]
)
def test_nothing_without_cookie_or_token(client: Client, path: str) -> None:
    """The answer does not reveal which paths exist."""
    for cookie in (
        {},
        {"Cookie": client.cookie[:-1]},
        {"Cookie": client.cookie + "x"},
        {"Cookie": ";;=\x00"[:3]},
    ):
        answer = client.ask(path, cookie=False, **cookie)
        assert answer.status == 403
        assert json.loads(answer.body) == {
            "error": "open the page by the link that `logshipper` printed"
        }
        assert "Set-Cookie" not in answer.headers


def test_a_wrong_token(client: Client) -> None:
    token = client.server.access.token
    for wrong in (token[:-1], token + "A", "", "é", token.swapcase()):
        assert (
            client.ask(
                f"?token={wrong.encode().hex() if wrong == 'é' else wrong}", cookie=False
            ).status
            == 403
        )


def test_the_cookie_counts_below_the_random_path_only(client: Client) -> None:
    for path in (
        "/",
        "/api/jobs",
        "/index.html",
        "/favicon.ico",
        client.root[:-1],
        client.root.upper(),
    ):
        assert client.ask(path).status == 403


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::2]:80", "127.0.0.1:x"],
)
def test_other_names_of_the_host(client: Client, host: str) -> None:
    """DNS rebinding: another site's name that resolves to 127.0.0.1."""
    assert client.ask("api/jobs", Host=host).status == 403
    assert client.ask(f"?token={client.server.access.token}", Host=host).status == 403


def test_a_forwarded_port(client: Client) -> None:
    """ssh -L may have given the page another port."""
    for host in ("localhost:9999", "127.0.0.1:8", "LOCALHOST", "[::1]:9"):
        assert client.ask("api/jobs", Host=host).status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://127.0.0.1:1",
        "https://{host}",
        "http://localhost:{port}",
    ],
)
def test_other_origins(client: Client, origin: str) -> None:
    origin = origin.format(host=client.host, port=client.server.port)
    assert client.ask("api/jobs", Origin=origin).status == 403
    assert client.ask("api/jobs", Origin=f"http://{client.host}").status == 200


def test_other_sites(client: Client) -> None:
    for site in ("cross-site", "same-site"):  # same-site: another port of this host
        assert client.ask("api/jobs", Sec_Fetch_Site=site).status == 403
    for site in ("same-origin", "none"):
        assert client.ask("api/jobs", Sec_Fetch_Site=site).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "../server.py", "..%2fserver.py", "%2e%2e/server.py", "assets/app.js", "./app.js", "app.js/", "/etc/passwd",
        "app.js%00", "api/jobs/../../../../etc/passwd", "api/jobs/..%2f..%2fcatalogue", "api/jobs/%00", "api/jobs/",
        "api//jobs", "api", "api/jobs/k3f9x2/lines/../..", "api/jobs/.", "api/jobs/%2e%2e", "API/jobs",
    ],
)  # fmt: skip
def test_path_tricks(client: Client, path: str) -> None:
    answer = client.ask(path)
    assert answer.status in (403, 404)
    assert b"root:" not in answer.body
    assert set(json.loads(answer.body)) == {"error"}


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"]
)
def test_methods(client: Client, method: str) -> None:
    answer = client.ask("api/jobs", method)
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET, HEAD"
    assert answer.headers["Connection"] == "close"


def test_head(client: Client) -> None:
    answer = client.ask("app.js", "HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["Content-Length"]) == len(client.ask("app.js").body)


def test_a_body_is_not_taken_for_a_request(client: Client) -> None:
    head = (
        f"GET {client.root}api/jobs HTTP/1.1\r\nHost: {client.host}\r\nContent-Length: 40\r\n\r\n"
    )
    answer = client.raw(head.encode() + b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 505),
    ],
    ids=["long line", "longer line", "long header", "many headers", "tls", "no path", "version"],
)
def test_heads_that_are_no_heads(client: Client, data: bytes, status: int) -> None:
    assert client.raw(data).startswith(b"HTTP/1.1 %d " % status)


def test_many_parameters(client: Client) -> None:
    assert client.ask("api/jobs?" + "&".join(f"a{number}=1" for number in range(100))).status == 400


@pytest.mark.parametrize(
    "query",
    [
        "lines?count=1001", "lines?count=-1", "lines?from=x", "lines?from=-1001",
        "lines?from=99999999999999999999", "lines?streams=all", "search", "search?q=", "search?q=a%0Ab",
        "search?q=" + "a" * 201, "search?exact=2&q=a", "at?time=-1", "at?time=1e3", "text?count=100001",
        "lines?attempt=-1",
    ],
)  # fmt: skip
def test_bad_queries(client: Client, query: str) -> None:
    answer = client.ask(f"api/jobs/{TRAINED}/{query}")
    assert answer.status == 400
    assert json.loads(answer.body)["error"].startswith(
        query.partition("?")[2].partition("=")[0] or "q"
    )


def test_unknown_jobs(client: Client) -> None:
    for path in ("api/jobs/nobody", "api/jobs/nobody/lines", "api/jobs/nobody/text"):
        answer = client.ask(path)
        assert answer.status == 404
        assert "nobody" in json.loads(answer.body)["error"]


def test_headers_of_every_answer(client: Client) -> None:
    for path, cookie in (
        ("", True),
        ("app.js", True),
        ("api/jobs", True),
        ("nothing", True),
        ("", False),
    ):
        headers = client.ask(path, cookie=cookie).headers
        assert headers["Content-Security-Policy"] == POLICY
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] in ("no-store", "no-cache")
        assert "Access-Control-Allow-Origin" not in headers
    assert "unsafe" not in POLICY
    assert POLICY.startswith("default-src 'none'; script-src 'self';")


def test_it_listens_on_this_machine_only(page_server: PageServer) -> None:
    ports = [
        line.split()
        for path in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(path).read_text().splitlines()
    ]
    addresses = [
        words[1]
        for words in ports
        if words[3] == "0A" and words[1].endswith(f":{page_server.port:04X}")
    ]
    assert addresses == [f"0100007F:{page_server.port:04X}"]


def test_foreign_names() -> None:
    assert foreign({"Host": "127.0.0.1:80"}, entering=False) == ""
    assert foreign({}, entering=True) != ""


# ---- slow and many


@pytest.fixture
def impatient(
    monkeypatch: pytest.MonkeyPatch, store: Path, serve: Callable[[Path], PageServer]
) -> Client:
    monkeypatch.setattr(page_server, "HEAD_SECS", 0.5)
    monkeypatch.setattr(page_server, "MAX_CONNECTIONS", 4)
    return Client(serve(store))


def test_a_client_that_sends_nothing_is_let_go(impatient: Client) -> None:
    assert impatient.raw(b"") == b""
    assert impatient.raw(b"GET / HT") == b""
    assert impatient.raw(b"GET / HTTP/1.1\r\nHost: a\r\n") == b""


def test_whoever_waits_longest_makes_room(
    impatient: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server, "HEAD_SECS", 600.0)
    idle = [socket.create_connection(("127.0.0.1", impatient.server.port), SECS) for _ in range(6)]
    try:
        assert impatient.ask("api/jobs").status == 200
        idle[0].settimeout(SECS)
        assert idle[0].recv(1) == b""  # the server closed the oldest connection
    finally:
        for connection in idle:
            connection.close()


# ---- the file that hands the link over


def test_the_redirect_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    link = Access().link(8090, "job/k3f9x2")
    path = Path(write_redirect(link))
    assert path.parent == tmp_path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_uid == os.geteuid()
    assert link.replace("&", "&amp;") in path.read_text()


def test_each_server_has_secrets_of_its_own() -> None:
    first, second = Access(), Access()
    assert (
        len(
            {
                first.token,
                second.token,
                first.place,
                second.place,
                first.set_cookie(),
                second.set_cookie(),
            }
        )
        == 6
    )
    assert not first.has_token(second.token)
    assert not first.has_cookie(second.set_cookie().split(";")[0])
    assert len(first.token) >= 43  # 256 bits

"""`logshipper-grafana apply`: credentials and failures."""

import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from logshipper_grafana.parts import links
from logshipper_grafana.tool.cli import main
from logshipper_grafana.tool.content import content, wanted_dashboards
from logshipper_grafana.tool.render import text_of
from tests.grafana.commands.conftest import ADDRESSES, LOKI, PROMETHEUS, Run
from tests.grafana.tools.fake_grafana import ADMIN, PASSWORD, USER, VIEWER, FakeGrafana
from tests.tools.fakes.faulty_server import FaultyServer, Said
from tests.tools.fakes.tls_gateway import Authority
from tests.tools.sources import SOURCES
from tests.tools.waiting import scaled


def test_a_user_with_a_password(grafana: FakeGrafana, secret: Callable[[str], str]) -> None:
    words = [
        "apply",
        "--url",
        grafana.url,
        "--username",
        USER,
        "--password-file",
        secret(PASSWORD),
        *ADDRESSES,
    ]
    assert main(words) == 0


def test_below_a_path(secret: Callable[[str], str], capsys: pytest.CaptureFixture[str]) -> None:
    with FakeGrafana(prefix="/grafana") as grafana:
        words = ["--token-file", secret(ADMIN), *ADDRESSES]
        for url in (grafana.url, f"{grafana.url}/"):
            assert main(["apply", "--url", url, *words]) == 0
        assert main(["apply", "--url", grafana.url.removesuffix("/grafana"), *words]) == 1
    assert (
        "a redirect to /login: --url must be the address that answers itself"
        in capsys.readouterr().err
    )


def test_a_token_that_is_wrong_or_may_too_little(grafana: FakeGrafana, run: Run) -> None:
    code, out, err = run(token=ADMIN[:-1])
    assert (code, out) == (1, "")
    assert err == (
        f"logshipper-grafana: Grafana at {grafana.url}: HTTP 401: Invalid API key; look at --token-file; "
        "the token may have expired, or be of another Grafana\n"
    )
    grafana.add_source("x", "loki", LOKI)
    grafana.add_source("y", "prometheus", PROMETHEUS)
    code, out, err = run(token=VIEWER)
    assert code == 1
    assert "HTTP 403: You'll need additional permissions" in err
    assert "Editor for folder and dashboards" in err


def test_a_file_that_everybody_may_read_is_refused(
    grafana: FakeGrafana, tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "open"
    path.write_text(ADMIN)
    path.chmod(0o644)
    for words in (["--token-file", str(path)], ["--username", USER, "--password-file", str(path)]):
        assert main(["apply", "--url", grafana.url, *words]) == 1
    assert grafana.requests == []


def test_what_is_wrong_with_options_is_said_at_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = [
        "apply",
        "--url",
        "http://me:pw@x/",
        "--token-file",
        str(tmp_path / "none"),
        "--loki-url",
        "loki:3100",
    ]
    assert main(words) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[2] for line in lines] == ["--url", "--token-file", "--loki-url"]
    assert "pw" not in "".join(lines)
    assert main([*words[:2], "http://x", *words[3:5], "--prometheus-url", "http://a:b@p/"]) == 1
    assert "credentials belong to the data source's page" in capsys.readouterr().err
    for wrong in (
        ["apply"],
        ["apply", "--url", "http://x"],
        ["apply", "--url", "http://x", "--token-file", "a", "--username", "b"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(wrong)
        assert ended.value.code == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            Said(500, b'{"message":"database is locked"}'),
            "HTTP 500: database is locked; Grafana's own log",
        ),
        (
            Said(503, b"<html><title>Bad gateway</title>"),
            "HTTP 503: Bad gateway; Grafana's own log, or that of a gateway",
        ),
        (Said(200, b"<html>Welcome"), "no JSON came: is --url what stands before /api"),
        (
            Said(404, b"404 page not found"),
            "HTTP 404: 404 page not found; is --url what stands before /api",
        ),
        (
            Said(301, b"", {"Location": "https://grafana/"}),
            "a redirect to https://grafana/: --url must be",
        ),
        (Said(200, b"{}"), "this isn't how Grafana answers"),
        (Said(200, b"[", {}, 100), "the answer was cut off"),
        (Said(hang=True), "no answer within 1 s"),
        (Said(429, b'{"message":"slow down"}'), "try later"),
    ],
)
def test_other_answers(
    answer: Said, words: str, secret: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    with FaultyServer(answer) as server:
        code = main(
            ["apply", "--url", server.url, "--token-file", secret(ADMIN), "--timeout-secs", "1"]
        )
        err = capsys.readouterr().err
        assert code == 1
        assert words in err
        assert f"Grafana at {server.url}" in err
        assert ADMIN not in err


def test_nobody_is_there(secret: Callable[[str], str], capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        assert main(["apply", "--url", url, "--token-file", secret(ADMIN)]) == 1
    err = capsys.readouterr().err
    assert f"Grafana at {url}: Connection refused; does Grafana run there, is --url right" in err


def test_the_token_is_not_shown_where_it_is_repeated(
    secret: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    with FaultyServer(Said(500, f'{{"message":"bad header {ADMIN}"}}'.encode())) as server:
        main(["apply", "--url", server.url, "--token-file", secret(ADMIN)])
    err = capsys.readouterr().err
    assert ADMIN not in err
    assert "[hidden]" in err


def test_without_the_library(secret: Callable[[str], str]) -> None:
    code = (
        "import sys; sys.modules['grafana_client'] = None; "
        "from logshipper_grafana.tool.cli import main; sys.exit(main())"
    )
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    words = ["apply", "--url", "http://x", "--token-file", secret(ADMIN)]
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=scaled(60),
    )
    assert done.returncode == 1
    hint = "grafana-client: isn't installed here: pip install 'grafana-client>=3.11.2,<4'"
    assert done.stderr == f"logshipper-grafana: {hint}\n"


def test_diffs_are_fit_for_a_terminal(grafana: FakeGrafana, run: Run) -> None:
    run(*ADDRESSES)
    grafana.save_by_hand(links.JOB, description="\x1b]0;evil\x07 \u202e \x9b")
    out = run("--dry-run")[1]
    assert all(char.isprintable() or char == "\n" for char in out)


def test_rendered_text_is_what_is_compared() -> None:
    assert all(
        text_of(content(dashboard)) == text_of(content({**dashboard, "id": 7, "version": 9}))
        for dashboard in wanted_dashboards().values()
    )


def test_tls(
    secret: Callable[[str], str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("grafana", "IP:127.0.0.1")
    with FakeGrafana() as grafana:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        grafana.server.socket = context.wrap_socket(grafana.server.socket, server_side=True)
        url = grafana.url.replace("http://", "https://")
        words = ["--token-file", secret(ADMIN), *ADDRESSES]
        assert main(["apply", "--url", url, *words, "--ca-file", str(authority.ca)]) == 0
        assert main(["apply", "--url", url, *words]) == 1
        assert (
            "--ca-file must hold the certificate of the CA that signed the server's"
            in capsys.readouterr().err
        )
        assert main(["apply", "--url", grafana.url, *words]) == 1
        assert "if it speaks TLS, --url is https://" in capsys.readouterr().err

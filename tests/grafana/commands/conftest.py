"""Fixtures for `logshipper-grafana apply` against a fake of Grafana's HTTP API."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logshipper_grafana.parts import links
from logshipper_grafana.tool.cli import main
from tests.grafana.tools.fake_grafana import ADMIN, FakeGrafana

PAGES = sorted((links.JOBS, links.JOB, links.COMPARE, links.CLUSTER))
LOKI, PROMETHEUS = "http://loki.example.org:3100", "http://prometheus.example.org:9090"
ADDRESSES = ("--loki-url", LOKI, "--prometheus-url", PROMETHEUS)
Run = Callable[..., tuple[int, str, str]]


# versions with different answers; all other tests use the oldest version
VERSIONS = pytest.mark.parametrize("grafana", ["9.4.3", "11.6.0"], indirect=True)


@pytest.fixture
def grafana(request: pytest.FixtureRequest) -> Iterator[FakeGrafana]:
    with FakeGrafana(getattr(request, "param", "9.4.3")) as fake:
        yield fake


@pytest.fixture
def secret(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that writes a secret to a file readable only by its owner, and returns its
    path."""

    def write(text: str) -> str:
        path = tmp_path / "secret"
        path.write_text(f"{text}\n")
        path.chmod(0o600)
        return str(path)

    return write


@pytest.fixture
def run(
    grafana: FakeGrafana, secret: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> Run:
    """Return a function that runs `apply` and returns its exit code, stdout and stderr."""

    def called(*words: str, token: str = ADMIN, url: str = "") -> tuple[int, str, str]:
        code = main(["apply", "--url", url or grafana.url, "--token-file", secret(token), *words])
        output = capsys.readouterr()
        return code, output.out, output.err

    return called


def line_about(out: str, subject: str) -> str:
    """Return the only line about a subject."""
    (line,) = (
        line for line in out.splitlines() if re.match(rf"\w+ +{re.escape(subject)}(:|$)", line)
    )
    return line

"""Where Loki and Prometheus are: site files, environment and flags, and what is said where they are wrong."""

from pathlib import Path

import pytest

from ingest import site
from ingest.server_access import ServerAccess
from logshipper.cli import main
from logshipper.errors import ConfigError

LOKI = "https://loki.example.org"


@pytest.fixture(autouse=True)
def no_system_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the machine itself has in /etc tells nothing here."""
    monkeypatch.setattr(site, "SYSTEM_PATH", str(tmp_path / "etc" / "site.toml"))


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_the_first_of_flag_environment_user_and_system_counts(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    with pytest.raises(ConfigError):
        site.find(environment)
    write(tmp_path / "etc" / "site.toml", '[loki]\nurl = "http://system:3100"')
    assert site.find(environment).loki.url == "http://system:3100"
    write(tmp_path / "xdg" / "logshipper" / "site.toml", '[loki]\nurl = "http://user:3100"')
    assert site.find(environment).loki.url == "http://user:3100"
    environment["LOGSHIPPER_SITE"] = write(tmp_path / "other.toml", '[loki]\nurl = "http://named:3100"')
    assert site.find(environment).loki.url == "http://named:3100"
    flagged = write(tmp_path / "flag.toml", '[loki]\nurl = "http://flag:3100"\n[prometheus]\nurl = "http://flag:9090"')
    found = site.find(environment, path=flagged)
    assert (found.loki.url, found.prometheus.url, found.path) == ("http://flag:3100", "http://flag:9090", flagged)
    environment["LOGSHIPPER_LOKI_URL"] = "http://environment:3100"
    assert site.find(environment).loki.url == "http://environment:3100"
    assert site.find(environment, loki_url=LOKI, prometheus_url="http://p").loki.url == LOKI


def test_the_users_file_is_in_the_home_without_xdg(tmp_path: Path) -> None:
    write(tmp_path / ".config" / "logshipper" / "site.toml", f'[loki]\nurl = "{LOKI}"')
    assert site.find({"HOME": str(tmp_path)}).loki.url == LOKI


def test_credentials_go_to_the_server_that_the_file_names_only(tmp_path: Path) -> None:
    token, certificates = tmp_path / "token", tmp_path / "ca.pem"
    token.write_text("secret\n")
    token.chmod(0o600)
    certificates.write_text("")
    file = write(
        tmp_path / "site.toml",
        f'[loki]\nurl = "{LOKI}/a"\ntoken_file = "{token}"\ntenant = "t"\nca_file = "{certificates}"\ntimeout_secs = 5',
    )
    assert site.find({}, path=file, loki_url=f"{LOKI}/b").loki.token_file == str(token)
    for other in ("http://loki.example.org", "https://loki.example.org:3100", "https://evil.example.org"):
        assert site.find({}, path=file, loki_url=other).loki == ServerAccess(
            url=other, tenant="t", ca_file=str(certificates), timeout_secs=5
        )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[lokki]\nurl = "http://x"', "[lokki]: there is no such table; did you mean loki?"),
        ('[loki]\nurll = "http://x"', "[loki] urll: there is no such option; did you mean url?"),
        ("[loki]\nurl = 7", "[loki] url: must be a string, not 7"),
        ('loki = "http://x"', "[loki]: must be a table"),
        ('[loki]\nurl = "loki:3100"', "isn't an address; it looks like http://loki.example.org:3100"),
        ('[loki]\nurl = "http://x"\n[prometheus]\ntoken_file = "/nowhere/t"', "[prometheus] token_file: /nowhere/t:"),
        ("[loki", "isn't TOML"),
        ("[prometheus]", "nothing says where Loki is: give --loki-url URL, set $LOGSHIPPER_LOKI_URL"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "site.toml", text)
    assert main(["ls", "--from", "loki", "--site", file]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"logshipper: {file}: ")
    assert problem in err
    assert len(err.splitlines()) == 1


def test_a_site_file_that_is_named_and_missing_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "--from", "loki", "--site", "/nowhere/site.toml"]) == 1
    assert "/nowhere/site.toml: can't be read: no such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ls", "--from", "loki"], "--from loki: nothing says where Loki is"),
        (["ls", "--cluster", "alpha"], "--cluster: is for Loki only: give --from loki as well"),
        (["logs", "x", "--loki-url", LOKI], "--loki-url: is for Loki only"),
        (["ls", "--from", "loki", "--store", "/x", "--loki-url", LOKI], "--store: is a local store's folder: not"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 1
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("text", ["7", "d", "0d", "-1d", "1e3d", "9999d", "٣d", "7 d"])
def test_a_span_that_is_none_is_wrong_usage(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["ls", "--from", "loki", f"--since={text}"])
    assert error.value.code == 2
    assert "isn't a span of time; it looks like 12h or 7d" in capsys.readouterr().err


def test_completion_asks_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    from argparse import Namespace

    from observe import completers

    opened: list[object] = []
    for name in ("opened", "opened_local", "_open_loki"):
        monkeypatch.setattr(f"observe.opening.{name}", opened.append)
    options = Namespace(source="loki", loki_url=LOKI, job="x")
    assert completers.jobs("", options) == {}
    assert completers.keys("", options) == []
    assert opened == []
    options.source = "local"
    completers.jobs("", options)
    assert len(opened) == 1

"""Addresses of Loki and Prometheus from site files, environment and flags, and messages about
faults."""

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from logshipper.errors import ConfigError
from logshipper.start.cli import main
from logshipper_ingest.config import site
from logshipper_ingest.servers.server_access import ServerAccess
from logshipper_observe.base.waiting import Watch
from tests.tools.captures.captured_runs import wait_until
from tests.tools.fakes.faulty_server import FaultyServer, Said
from tests.tools.stores.reading_store import training

LOKI = "https://loki.example.org"


@pytest.fixture(autouse=True)
def no_system_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the machine's own file in /etc."""
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
    environment["LOGSHIPPER_SITE"] = write(
        tmp_path / "other.toml", '[loki]\nurl = "http://named:3100"'
    )
    assert site.find(environment).loki.url == "http://named:3100"
    flagged = write(
        tmp_path / "flag.toml",
        '[loki]\nurl = "http://flag:3100"\n[prometheus]\nurl = "http://flag:9090"',
    )
    servers = site.find(environment, path=flagged)
    assert (servers.loki.url, servers.prometheus.url, servers.path) == (
        "http://flag:3100",
        "http://flag:9090",
        flagged,
    )
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
    for url in (
        "http://loki.example.org",
        "https://loki.example.org:3100",
        "https://evil.example.org",
    ):
        assert site.find({}, path=file, loki_url=url).loki == ServerAccess(
            url=url, tenant="t", ca_file=str(certificates), timeout_secs=5
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
def test_what_is_wrong_is_said(
    text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "site.toml", text)
    assert main(["ls", "--from", "loki", "--site", file]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"logshipper: {file}: ")
    assert problem in err
    assert len(err.splitlines()) == 1


def test_a_site_file_that_is_named_and_missing_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["ls", "--from", "loki", "--site", "/nowhere/site.toml"]) == 1
    assert "/nowhere/site.toml: can't be read: no such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ls", "--cluster", "alpha"], "--cluster: is for Loki only: give --from loki as well"),
        (["logs", "x", "--loki-url", LOKI], "--loki-url: is for Loki only"),
        (["ls", "--from", "loki", "--store", "/x", "--loki-url", LOKI], "--store: is a local store's folder: not"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert sentence in capsys.readouterr().err


def test_nothing_says_where_loki_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "--from", "loki"]) == 1
    assert "--from loki: nothing says where Loki is" in capsys.readouterr().err


@pytest.mark.parametrize("program", ["loki", "prometheus"])
@pytest.mark.parametrize("by", ["option", "setting"])
def test_a_wrong_address_is_blamed_on_whoever_gave_it(
    program: str,
    by: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = write(tmp_path / "site.toml", f'[loki]\nurl = "{LOKI}"')
    option, setting = f"--{program}-url", f"LOGSHIPPER_{program.upper()}_URL"
    words = ["ls", "--from", "loki", "--site", file]
    if by == "option":
        words += [option, "127.0.0.1:1"]
    else:
        monkeypatch.setenv(setting, "127.0.0.1:1")
    assert main(words) == 1
    source = option if by == "option" else f"${setting}"
    looks = "isn't an address; it looks like http://loki.example.org:3100"
    assert capsys.readouterr().err == f"logshipper: {source}: '127.0.0.1:1' {looks}\n"


@pytest.mark.parametrize(
    "option", [["--from", "loki"], ["--cluster", "alpha"], ["--from=loki", "--loki-url", LOKI]]
)
def test_what_is_in_loki_is_not_removed_here(
    option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        main(["rm", "x", *option])
    assert error.value.code == 2
    assert (
        "logshipper rm: only jobs of the local store are removed; what is in Loki goes"
        in capsys.readouterr().err
    )
    with pytest.raises(SystemExit):
        main(["rm", "x", "--form", "loki"])
    assert "unrecognized arguments: --form" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["7", "d", "0d", "-1d", "1e3d", "9999d", "٣d", "7 d"])
def test_a_span_that_is_none_is_wrong_usage(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["ls", "--from", "loki", f"--since={text}"])
    assert error.value.code == 2
    assert (
        "isn't a span of time; it looks like 90s, 12h or 7d, ten years at most"
        in capsys.readouterr().err
    )


# ---- jobs in other places

AGENT = "runs on this node go to its agent: --from loki reads them"
IN_LOKI = "jobs on nodes with an agent are in Loki: --from loki reads them"


@pytest.fixture
def socket_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a socket like that of a node's agent; the environment names no store."""
    path = tmp_path / "agent.sock"
    monkeypatch.setenv("LOGSHIPPER_AGENT_SOCKET", str(path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("LOGSHIPPER_STORE")
    monkeypatch.setattr("logshipper.spool.captures.network_type", lambda _: None)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        yield path


@pytest.mark.parametrize(
    "words", [["show", "last"], ["logs", "last"], ["ls"], ["rm", "--yes", "last"]]
)
def test_on_a_node_with_an_agent_newer_jobs_are_elsewhere(
    words: list[str], socket_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training(tmp_path / "logshipper")
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert "train.py" in out or "epoch" in out
    assert err == f"logshipper: {AGENT}\n"


@pytest.mark.parametrize("words", [["show", "none"], ["logs", "none"], ["rm", "--yes", "none"]])
@pytest.mark.parametrize("any_job", [False, True])
def test_a_job_that_is_not_here_may_be_elsewhere(
    any_job: bool,
    words: list[str],
    socket_path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if any_job:
        training(tmp_path / "logshipper")
    assert main(words) == 1
    err = capsys.readouterr().err
    assert err.endswith(f"; {AGENT}\n")
    assert err.count("\n") == 1


def test_what_is_said_of_other_places_is_true(
    socket_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """There is no notice if the user names a place, or if no other place has jobs."""
    training(tmp_path / "logshipper")

    def notice(*options: str) -> str:
        assert main(["show", "last", *options]) == 0
        return capsys.readouterr().err.removeprefix("logshipper: ").rstrip("\n")

    assert notice() == AGENT
    assert notice("--from", "local") == ""
    assert notice("--store", str(tmp_path / "logshipper")) == ""
    with monkeypatch.context() as patch:
        patch.setenv("LOGSHIPPER_STORE", str(tmp_path / "logshipper"))
        assert notice() == ""
    socket_path.unlink()
    assert notice() == ""
    socket_path.write_text("no socket")
    assert notice() == ""
    monkeypatch.setenv("LOGSHIPPER_AGENT_SOCKET", "")
    assert notice() == ""
    write(tmp_path / "etc" / "site.toml", f'[loki]\nurl = "{LOKI}"')
    assert notice() == IN_LOKI
    (tmp_path / "etc" / "site.toml").unlink()
    monkeypatch.setenv("LOGSHIPPER_LOKI_URL", LOKI)
    assert notice() == IN_LOKI


# ---- a slow server


def test_a_frozen_loki_is_named_while_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("logshipper_observe.base.waiting.AFTER_SECS", 0.05)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with FaultyServer(Said(hang=True)) as server:
        file = write(tmp_path / "site.toml", f'[loki]\nurl = "{server.url}"\ntimeout_secs = 0.4')
        assert main(["ls", "--from", "loki", "--site", file]) == 1
    notices = capsys.readouterr().err.replace("\r\x1b[K", "").splitlines()
    assert notices == [
        f"logshipper: waiting for Loki at {server.url}",
        f"logshipper: Loki at {server.url}: no answer within 0.4 s (3 tries)",
    ]


def test_nobody_is_told_of_a_wait_that_is_over_or_where_nobody_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("logshipper_observe.base.waiting.AFTER_SECS", 0.05)
    with FaultyServer(Said(hang=True)) as server:
        file = write(tmp_path / "site.toml", f'[loki]\nurl = "{server.url}"\ntimeout_secs = 0.2')
        assert main(["ls", "--from", "loki", "--site", file]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    notices: list[str] = []
    now = [100.0]  # a clock of the test's own, so that a busy machine makes no server slow
    monkeypatch.setattr(
        "logshipper_observe.base.waiting.time", SimpleNamespace(monotonic=lambda: now[0])
    )
    monkeypatch.setattr("logshipper_observe.base.waiting._tell", notices.append)
    watch = Watch()
    for _ in range(3):
        with watch.waiting_for("a quick server"):
            now[0] += 0.04
    with watch.waiting_for("a slow server"):
        now[0] += 0.06
        wait_until(lambda: bool(notices), "the slow server is told of")
    watch.close()
    assert notices == ["waiting for a slow server"]


def test_completion_asks_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    from argparse import Namespace

    from logshipper_observe.commands import completers

    openings: list[object] = []
    for name in ("open_store", "open_local", "_open_loki"):
        monkeypatch.setattr(f"logshipper_observe.query.opening.{name}", openings.append)
    options = Namespace(source="loki", loki_url=LOKI, job="x")
    assert completers.jobs("", options) == {}
    assert completers.keys("", options) == []
    assert openings == []
    options.source = "local"
    completers.jobs("", options)
    assert len(openings) == 1


# ---- the default of --from


def test_the_site_file_may_say_where_jobs_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file's default applies only if the command and the environment name no other place."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LOGSHIPPER_STORE", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    file = tmp_path / ".config" / "logshipper" / "site.toml"
    closed = '[loki]\nurl = "http://127.0.0.1:9"\n'
    write(file, closed + '[reading]\ndefault_source = "loki"')
    assert main(["ls"]) == 1
    assert "Loki at http://127.0.0.1:9" in capsys.readouterr().err
    assert main(["rm", "4711"]) == 1
    assert "only jobs of the local store are removed" in capsys.readouterr().err
    training(tmp_path / "store")
    for words in (["--store", str(tmp_path / "store")], ["--from", "local"]):
        assert main(["ls", *words]) == 0
        assert "Loki" not in capsys.readouterr().err
    monkeypatch.setenv("LOGSHIPPER_STORE", str(tmp_path / "store"))
    assert main(["show", "last"]) == 0
    assert "train.py" in capsys.readouterr().out


def test_a_broken_default_hides_no_own_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LOGSHIPPER_STORE", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / ".local" / "share").mkdir(parents=True)
    training(tmp_path / ".local" / "share" / "logshipper")
    file = tmp_path / ".config" / "logshipper" / "site.toml"
    for text, word in (
        ('[reading]\ndefault_source = "grafana"', "default_source"),
        ("[loki", "site.toml"),
    ):
        write(file, text)
        assert main(["show", "last"]) == 0
        out, err = capsys.readouterr()
        assert out.startswith("train.py")
        assert word in err.splitlines()[0]
        assert "the local store is read" in err


def test_a_file_at_home_is_each_readers_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "token", "secret\n")
    (tmp_path / "token").chmod(0o600)
    file = write(tmp_path / "site.toml", f'[loki]\nurl = "{LOKI}"\ntoken_file = "~/token"')
    assert site.find({}, path=file).loki.token_file == str(tmp_path / "token")

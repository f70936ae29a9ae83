"""`logshipper url`: the address of a job's page, with and without answers of Loki."""

import argparse
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest

import logshipper_observe.commands.pages.url
from logshipper.errors import QueryError
from logshipper.start.cli import main
from logshipper_ingest.config import site
from logshipper_ingest.config.site import Grafana
from logshipper_ingest.loki.store import LokiStore
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.fakes.faulty_server import FaultyServer, Said
from tests.tools.fakes.loki_fake import FakeLoki
from tests.tools.stores.loki_pushing import Pushing
from tests.tools.waiting import scaled

GRAFANA = "https://grafana.example.org"
PAGE = f"{GRAFANA}/d/logshipper-job"
PAD_MS = 60_000
Url = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def no_system_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(site, "SYSTEM_PATH", str(tmp_path / "etc" / "site.toml"))
    monkeypatch.setattr(
        logshipper_observe.commands.pages.url, "SYSTEM_PATH", str(tmp_path / "etc" / "site.toml")
    )


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeLoki:
    fake = FakeLoki()

    def open_fake(
        _: site.Site, args: argparse.Namespace, messages: list[str], *, by_id: bool
    ) -> LokiStore:
        return LokiStore(
            fake, cluster=args.cluster, since_secs=args.since or 7 * 86_400, say=messages.append
        )

    monkeypatch.setattr(logshipper_observe.commands.pages.url, "_open_store", open_fake)
    return fake


@pytest.fixture
def url(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Url:
    """Return a function that runs the command with a site file; it returns exit code, stdout and
    stderr.

    text: the site file's contents.
    """

    def run(
        *words: str,
        text: str = f'[loki]\nurl = "http://loki.invalid"\n[grafana]\nurl = "{GRAFANA}"',
    ) -> object:
        file = tmp_path / "site.toml"
        file.write_text(text)
        code = main(["url", *words, "--site", str(file)])
        out, err = capsys.readouterr()
        return code, out.removesuffix("\n"), err.replace(str(file), "FILE")

    return run  # type: ignore[return-value]  # a Callable can't declare keywords


def values(address: str) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(address).query, strict_parsing=True))


def test_a_job_that_is_over_has_its_own_range(fake: FakeLoki, url: Url) -> None:
    began_ns = time.time_ns() - 500 * NS
    Pushing(fake, job_id="4711", began_ns=began_ns).close(50 * NS)
    code, out, err = url("4711")
    assert (code, err) == (0, "")
    began_ms = began_ns // 1_000_000
    query = {"var-cluster": "local", "var-job": "4711", "from": str(began_ms - PAD_MS)}
    assert out.startswith(f"{PAGE}?")
    assert values(out) == {**query, "to": str((began_ns + 50 * NS) // 1_000_000 + PAD_MS)}


def test_a_running_job_goes_on_to_now(fake: FakeLoki, url: Url) -> None:
    Pushing(fake, job_id="4711")
    assert values(url("4711")[1])["to"] == "now"


def test_all_attempts_are_in_the_range(fake: FakeLoki, url: Url) -> None:
    began_ns = time.time_ns() - 5000 * NS
    Pushing(fake, job_id="4711", began_ns=began_ns).close()
    Pushing(fake, job_id="4711", attempt="2").close(30 * NS)
    query = values(url("4711")[1])
    assert int(query["from"]) == began_ns // 1_000_000 - PAD_MS
    assert int(query["to"]) > time.time() * 1000


@pytest.mark.parametrize("name", ["last", "train.py", "47"])
def test_names_mean_what_they_mean_everywhere(name: str, fake: FakeLoki, url: Url) -> None:
    """A number is always the whole id, because such a job may not exist yet."""
    Pushing(fake, job_id="4711").close()
    code, out, err = url(name)
    assert code == 0
    job_id = "47" if name == "47" else "4711"
    assert (values(out)["var-job"], "from" in values(out)) == (job_id, name != "47")
    assert err == ("logshipper: nothing of job 47 is in Loki in memory yet: the address has no range of time\n"
                   if name == "47" else "")  # fmt: skip


def test_a_wrong_name_is_answered_as_everywhere(fake: FakeLoki, url: Url) -> None:
    Pushing(fake, job_id="4711")
    code, out, err = url("trian.py")
    assert (code, out) == (1, "")
    assert "did you mean train.py?" in err


def test_a_job_of_several_clusters(fake: FakeLoki, url: Url) -> None:
    for cluster in ("alpha", "beta"):
        push = Pushing(fake, job_id="4712")
        push._labels["cluster"] = cluster
        push.event(
            {
                "event": "started",
                "name": "x",
                "user": "me",
                "host": "n",
                "started_ns": push.began_ns,
            }
        )
    code, out, err = url("4712")
    assert (code, out) == (1, "")
    assert "several clusters" in err
    assert "--cluster NAME" in err
    assert values(url("4712", "--cluster", "beta")[1])["var-cluster"] == "beta"


@pytest.mark.parametrize("name", ["4711", "mine.u1000"])
def test_an_id_has_an_address_also_while_loki_is_away(name: str, fake: FakeLoki, url: Url) -> None:
    fake.broken = QueryError("Loki in memory", 503, "away")
    message = "logshipper: Loki in memory: HTTP 503: away: the address has no range of time\n"
    assert url(name) == (0, f"{PAGE}?var-job={name}", message)


@pytest.mark.parametrize("name", ["last", "train.py"])
def test_what_only_loki_can_tell_needs_it(name: str, fake: FakeLoki, url: Url) -> None:
    fake.broken = QueryError("Loki in memory", 503, "away")
    assert url(name) == (1, "", "logshipper: Loki in memory: HTTP 503: away\n")


def test_a_hung_loki_holds_up_for_a_stated_time(url: Url, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logshipper_observe.commands.pages.url, "LOOK_SECS", 0.3)
    with FaultyServer(Said(hang=True)) as server:
        text = f'[loki]\nurl = "{server.url}"\n[grafana]\nurl = "{GRAFANA}"'
        began = time.monotonic()
        code, out, err = url("4711", text=text)
        duration_secs = time.monotonic() - began
    assert (code, out) == (0, f"{PAGE}?var-job=4711")
    assert (
        err
        == f"logshipper: Loki at {server.url}: no answer within 0.3 s: the address has no range of time\n"
    )
    assert duration_secs < scaled(2)


def test_without_loki_in_the_site_file(url: Url) -> None:
    text = f'[grafana]\nurl = "{GRAFANA}/sub/"\njob_dashboard = "own_one"\norg_id = 3\ncluster = "alpha"'
    code, out, err = url("4711", text=text)
    assert (code, out) == (0, f"{GRAFANA}/sub/d/own_one?orgId=3&var-cluster=alpha&var-job=4711")
    assert err == "logshipper: FILE doesn't say where Loki is: the address has no range of time\n"
    assert url("a b&c", text=text)[2].endswith(", and takes a b&c for a job's id\n")
    assert url("last", text=text)[0] == 1


def test_what_is_wrong_about_loki_does_not_matter(url: Url) -> None:
    text = f'[loki]\nurl = "http://loki.invalid"\ntoken_file = "/nowhere/t"\n[grafana]\nurl = "{GRAFANA}"'
    code, out, err = url("4711", text=text)
    assert (code, out) == (0, f"{PAGE}?var-job=4711")
    assert err.startswith("logshipper: [loki] token_file: /nowhere/t:")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "FILE: no address of Grafana: write `url = \"https://grafana.example.org\"` into the table [gra"),
        ('[graphana]\nurl = "x"', "FILE: [graphana]: there is no such table; did you mean grafana?; no address"),
        ('[grafana]\nurl = "grafana:3000"', "FILE: [grafana] url: must be an address without `?`, `#` and credentials"),
        ('[grafana]\nurl = "https://a:b@example.org"', "FILE: [grafana] url: must be an address"),
        ('[grafana]\nurl = "https://example.org/?x=1"', "FILE: [grafana] url: must be an address"),
        ('[grafana]\nurl = "https://example.org:x"', "FILE: [grafana] url: must be an address"),
        ('[grafana]\nurl = "https://example.org"\njob_dashboard = "a/b"', "[grafana] job_dashboard: must be a"),
        ('[grafana]\nurl = "https://example.org"\norg_id = -1', "[grafana] org_id: must be"),
        ('[grafana]\nurl = "https://example.org"\ncluster = "a b"', "[grafana] cluster: must be"),
        ('[grafana]\nurll = "https://example.org"', "[grafana] urll: there is no such option; did you mean url?"),
    ],
)  # fmt: skip
def test_no_address_or_a_wrong_one(text: str, sentence: str, url: Url) -> None:
    code, out, err = url("4711", text=text)
    assert (code, out) == (1, "")
    assert sentence in err
    assert len(err.splitlines()) == 1


def test_where_to_write_it_where_there_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["url", "4711"]) == 1
    place = f"{tmp_path}/logshipper/site.toml or {tmp_path}/etc/site.toml"
    assert capsys.readouterr().err.endswith(f"into the table [grafana] of {place}\n")


# ---- in a job


def test_in_a_job_it_is_the_jobs_own(
    fake: FakeLoki, url: Url, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_JOB_START_TIME", "1700000000")
    assert url() == (0, f"{PAGE}?var-job=77&from=1699999940000&to=now", "")
    assert values(url("--cluster", "alpha")[1])["var-cluster"] == "alpha"
    assert fake.queries == []
    assert values(url("78")[1])["var-job"] == "78"


def test_in_a_job_of_an_old_slurm_loki_tells_the_start(
    fake: FakeLoki, url: Url, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    assert url()[:2] == (0, f"{PAGE}?var-job=4711")
    Pushing(fake, job_id="4711")
    code, out, err = url()
    assert (code, values(out)["to"], err) == (0, "now", "")


def test_outside_of_a_job_it_must_be_named(url: Url) -> None:
    assert url() == (
        1,
        "",
        "logshipper: JOB: which job? Only inside a Slurm job it may be left out\n",
    )


# ---- the address


def test_every_character_is_escaped() -> None:
    odd = 'a&b=c?d#e/f g+h%i"<é\udcff>'
    address = Grafana(url=GRAFANA).job_page(odd, "x&y", 1, 2)
    assert address.isascii()
    assert not set(address.removeprefix(PAGE)[1:]) & set(' "<>#?/+')
    assert values(address)["var-job"] == odd.replace("\udcff", "?")


def test_completion_asks_no_network(fake: FakeLoki) -> None:
    from logshipper_observe.commands import completers

    assert completers.jobs_in_loki(prefix="", parsed_args=argparse.Namespace()) == ["last"]
    assert fake.queries == []

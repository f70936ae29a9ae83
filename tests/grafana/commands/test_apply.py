"""`logshipper-grafana apply`, against a fake of Grafana's interface."""

import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logshipper_grafana.parts import links
from logshipper_grafana.tool.cli import main
from logshipper_grafana.tool.content import (
    content,
    is_prometheus,
    wanted_dashboards,
    wanted_data_sources,
)
from logshipper_grafana.tool.render import text_of
from tests.grafana.tools import fake_grafana
from tests.grafana.tools.fake_grafana import ADMIN, EDITOR, PASSWORD, USER, VIEWER, FakeGrafana
from tests.tools.fakes.faulty_server import FaultyServer, Said
from tests.tools.fakes.tls_gateway import Authority
from tests.tools.sources import ROOT, SOURCES
from tests.tools.waiting import scaled

PAGES = sorted((links.JOBS, links.JOB, links.COMPARE, links.CLUSTER))
LOKI, PROMETHEUS = "http://loki.example.org:3100", "http://prometheus.example.org:9090"
ADDRESSES = ("--loki-url", LOKI, "--prometheus-url", PROMETHEUS)
Run = Callable[..., tuple[int, str, str]]


# where they answer differently; all other tests are of the oldest
VERSIONS = pytest.mark.parametrize("grafana", ["9.4.3", "11.6.0"], indirect=True)


@pytest.fixture
def grafana(request: pytest.FixtureRequest) -> Iterator[FakeGrafana]:
    with FakeGrafana(getattr(request, "param", "9.4.3")) as fake:
        yield fake


@pytest.fixture
def secret(tmp_path: Path) -> Callable[[str], str]:
    """A file with a secret, for its owner only."""

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
    """Exit code, stdout, stderr of an `apply`."""

    def called(*words: str, token: str = ADMIN, url: str = "") -> tuple[int, str, str]:
        code = main(["apply", "--url", url or grafana.url, "--token-file", secret(token), *words])
        output = capsys.readouterr()
        return code, output.out, output.err

    return called


def line_about(out: str, subject: str) -> str:
    """The line about one thing."""
    (line,) = (
        line for line in out.splitlines() if re.match(rf"\w+ +{re.escape(subject)}(:|$)", line)
    )
    return line


# ---- what is made, and again


@VERSIONS
def test_everything_is_made_and_the_second_time_nothing(grafana: FakeGrafana, run: Run) -> None:
    code, out, err = run(*ADDRESSES)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "8 added"
    assert grafana.folders == {"logshipper": "logshipper"}
    assert sorted(grafana.versions) == PAGES
    for uid, dashboard in wanted_dashboards().items():
        (version,) = grafana.versions[uid]
        assert content(version["dashboard"]) == content(dashboard)
        assert version["folder"] == "logshipper"
    source = grafana.sources["logshipper-loki"]
    assert (source["name"], source["type"], source["url"], source["access"]) == (
        "Loki",
        "loki",
        LOKI,
        "proxy",
    )
    (field,) = source["jsonData"]["derivedFields"]
    assert field["url"] == "/d/logshipper-job?var-job=${__value.raw}"
    assert grafana.sources["logshipper-prometheus"]["jsonData"]["httpMethod"] == "POST"
    values = grafana.sources["logshipper-loki-values"]
    assert (values["type"], values["url"]) == ("prometheus", f"{LOKI}/loki")
    before = len(grafana.changes())
    for words in (ADDRESSES, ()):
        code, out, _ = run(*words)
        assert (code, out.splitlines()[-2:]) == (0, ["8 unchanged", "nothing to change"])
    assert len(grafana.changes()) == before


def test_a_dry_run_changes_nothing_and_says_so_by_its_exit_code(
    grafana: FakeGrafana, run: Run
) -> None:
    code, out, _ = run("--dry-run", "--prune", *ADDRESSES)
    assert (code, out.splitlines()[-1]) == (3, "would be: 8 added")
    assert grafana.changes() == []
    assert run(*ADDRESSES)[0] == 0
    code, out, _ = run("--dry-run", *ADDRESSES)
    assert (code, out.splitlines()[-1]) == (0, "nothing to change")


def test_an_older_version_of_ours_is_replaced(grafana: FakeGrafana, run: Run) -> None:
    run(*ADDRESSES)
    (version,) = grafana.versions[links.JOB]
    version["dashboard"]["title"] = "Of the last release"
    version["message"] = "logshipper-grafana 0.0.9, content 0123456789abcdef"
    code, out, _ = run("--dry-run")
    assert code == 3
    assert f"--- dashboard {links.JOB} (Grafana)\n+++ dashboard {links.JOB} (code)\n" in out
    assert '- "title": "Of the last release",\n' in out
    assert len(grafana.versions[links.JOB]) == 1
    code, out, _ = run()
    assert (code, out.splitlines()[-1]) == (0, "1 changed, 7 unchanged")
    newest = grafana.versions[links.JOB][-1]["dashboard"]
    assert (newest["title"], newest["version"]) == (wanted_dashboards()[links.JOB]["title"], 2)


def test_a_grafana_that_converts_what_it_hands_out(secret: Callable[[str], str]) -> None:
    """Then what was said when it was saved tells that it is ours, and whole."""
    with FakeGrafana("12.1.0", converts=True) as grafana:
        words = ["apply", "--url", grafana.url, "--token-file", secret(ADMIN), *ADDRESSES]
        assert main(words) == 0
        before = len(grafana.changes())
        assert main(words) == 0
        assert len(grafana.changes()) == before


@VERSIONS
def test_what_was_imported_by_hand_is_taken_as_it_is(grafana: FakeGrafana, run: Run) -> None:
    run(*ADDRESSES)
    for versions in grafana.versions.values():
        versions[-1]["message"] = ""
    assert run()[1].splitlines()[-1] == "nothing to change"
    grafana.versions[links.JOB][-1]["dashboard"]["title"] = "Of another release"
    assert run()[0] == 1, "nobody knows whose the first version is"


# ---- what somebody changed


@VERSIONS
def test_a_dashboard_that_somebody_changed_needs_force(grafana: FakeGrafana, run: Run) -> None:
    run(*ADDRESSES)
    grafana.save_by_hand(links.JOB, description="mine")
    for words in (("--dry-run",), ()):
        code, out, _ = run(*words)
        assert code == 1
        assert "it was changed by ann, in version 2; --force" in line_about(
            out, f"dashboard {links.JOB}"
        )
        assert '- "description": "mine",' in out
        assert grafana.versions[links.JOB][-1]["dashboard"]["description"] == "mine"
    code, out, _ = run("--force", "--dry-run")
    assert (code, len(grafana.versions[links.JOB])) == (3, 2)
    code, out, _ = run("--force")
    assert (code, out.splitlines()[-1]) == (0, "1 changed, 7 unchanged")
    assert len(grafana.versions[links.JOB]) == 3
    assert run()[1].splitlines()[-1] == "nothing to change"


@pytest.mark.parametrize("grafana", ["13.0.1"], indirect=True)
def test_a_dashboard_in_the_new_editors_form_needs_force(grafana: FakeGrafana, run: Run) -> None:
    """Grafana hands out no classic form of it (406), and takes one."""
    run(*ADDRESSES)
    grafana.save_in_new_editor(links.CLUSTER)
    del grafana.versions[links.JOBS]
    for words in (("--dry-run",), ()):
        code, out, _ = run(*words)
        assert code == 1
        assert out.splitlines()[-1].endswith("1 added, 6 unchanged, 1 refused")
        line = line_about(out, f"dashboard {links.CLUSTER}")
        assert "somebody saved it in the new editor's form (v2)" in line
        assert "--force puts the code's in its place" in line
    assert len(grafana.versions[links.CLUSTER]) == 2
    code, out, _ = run("--force", "--dry-run")
    assert (code, len(grafana.versions[links.CLUSTER])) == (3, 2)
    code, out, _ = run("--force")
    assert (code, out.splitlines()[-1]) == (0, "1 changed, 7 unchanged")
    assert len(grafana.versions[links.CLUSTER]) == 3
    assert run()[1].splitlines()[-1] == "nothing to change"


def test_the_others_are_brought_up_to_date_all_the_same(grafana: FakeGrafana, run: Run) -> None:
    run(*ADDRESSES)
    grafana.save_by_hand(links.CLUSTER, description="mine")
    del grafana.versions[links.JOBS]
    code, out, _ = run()
    assert (code, out.splitlines()[-1]) == (1, "1 added, 6 unchanged, 1 refused")


@VERSIONS
def test_a_dashboard_that_is_saved_in_between(grafana: FakeGrafana, run: Run) -> None:
    run(*ADDRESSES)
    grafana.versions[links.JOB][-1]["message"] = (
        "logshipper-grafana 0.0.9, content 0123456789abcdef"
    )
    grafana.versions[links.JOB][-1]["dashboard"]["title"] = "Older"

    def meddle(method: str, path: str) -> None:
        if path == "/api/dashboards/db":
            grafana.save_by_hand(links.JOB, description="mine")

    grafana.meddle = meddle
    code, out, _ = run()
    assert code == 1
    assert "HTTP 412" in line_about(out, f"dashboard {links.JOB}")
    assert "run this again" in line_about(out, f"dashboard {links.JOB}")
    assert grafana.versions[links.JOB][-1]["dashboard"]["description"] == "mine"


def test_a_dashboard_that_lies_elsewhere_stays_there(grafana: FakeGrafana, run: Run) -> None:
    run(*ADDRESSES)
    grafana.folders["other"] = "Others"
    grafana.versions[links.JOB][-1]["folder"] = "other"
    code, out, _ = run()
    assert code == 0
    assert "it lies in the folder Others; --force moves it" in line_about(
        out, f"dashboard {links.JOB}"
    )
    assert run("--force")[0] == 0
    assert grafana.versions[links.JOB][-1]["folder"] == "logshipper"


@VERSIONS
def test_provisioned_dashboards_are_left_alone(grafana: FakeGrafana, run: Run) -> None:
    run(*ADDRESSES)
    grafana.provisioned = {links.JOB, links.JOBS}
    grafana.versions[links.JOB][-1]["dashboard"]["title"] = "Of a file"
    grafana.versions[links.JOB][-1]["message"] = ""
    code, out, _ = run("--force")
    assert code == 1
    assert "comes from a file on Grafana's machine" in line_about(out, f"dashboard {links.JOB}")
    assert line_about(out, f"dashboard {links.JOBS}").startswith("unchanged")


def test_versions_that_the_token_may_not_see(grafana: FakeGrafana, run: Run) -> None:
    """Nobody knows then who saved it: what differs needs force."""
    run(*ADDRESSES)
    grafana.versions[links.JOB][-1]["dashboard"]["title"] = "Older"
    denied = fake_grafana.Response(403, {"message": "no"})
    grafana.meddle = lambda method, path: denied if path.endswith("/versions") else None
    code, out, _ = run()
    assert (code, out.splitlines()[-1]) == (1, "7 unchanged, 1 refused")
    assert run("--force")[0] == 0


# ---- data sources


def test_what_somebody_set_in_a_data_source_stays(grafana: FakeGrafana, run: Run) -> None:
    run(*ADDRESSES)
    source = grafana.sources["logshipper-prometheus"]
    source["jsonData"] |= {"timeInterval": "60s", "manageAlerts": False}
    source["secureJsonFields"] = {"basicAuthPassword": True}
    code, out, _ = run()
    assert code == 0
    line = line_about(out, "data source logshipper-prometheus")
    assert line.startswith(
        "kept      data source logshipper-prometheus: set otherwise there: timeInterval 60s"
    )
    assert run("--prometheus-url", "http://other:9090")[0] == 0
    assert grafana.sources["logshipper-prometheus"]["url"] == "http://other:9090"
    assert grafana.sources["logshipper-prometheus"]["jsonData"]["timeInterval"] == "60s"
    assert run("--force")[0] == 0
    settings = grafana.sources["logshipper-prometheus"]["jsonData"]
    (template,) = filter(is_prometheus, wanted_data_sources())
    assert settings == template["jsonData"] | {"manageAlerts": False}
    (put,) = (request.document for request in grafana.requests[-20:] if request.method == "PUT")
    assert "secureJsonFields" not in put


def test_derived_fields_are_added_to_those_that_are_there(grafana: FakeGrafana, run: Run) -> None:
    trace = {"name": "trace", "matcherRegex": "trace=(.*)"}
    grafana.add_source(
        "logshipper-loki", "loki", LOKI, jsonData={"derivedFields": [trace], "maxLines": 100}
    )
    code, out, _ = run("--prometheus-url", PROMETHEUS, "--dry-run")
    assert code == 3
    assert "(code)" in out
    assert run("--prometheus-url", PROMETHEUS)[0] == 0
    settings = grafana.sources["logshipper-loki"]["jsonData"]
    assert [field["name"] for field in settings["derivedFields"]] == ["trace", "job"]
    assert settings["maxLines"] == 100
    assert line_about(run()[1], "data source logshipper-loki").startswith("kept")
    settings["derivedFields"][1]["url"] = "/d/mine"
    assert "derivedFields job, maxLines 100" in line_about(
        run()[1], "data source logshipper-loki"
    ).replace("maxLines 100, derivedFields job", "derivedFields job, maxLines 100")
    run("--force")
    settings = grafana.sources["logshipper-loki"]["jsonData"]
    assert [
        field["url"] if field["name"] == "job" else "" for field in settings["derivedFields"]
    ] == [
        "",
        "/d/logshipper-job?var-job=${__value.raw}",
    ]


def test_a_data_source_of_a_file(grafana: FakeGrafana, run: Run) -> None:
    run(*ADDRESSES)
    grafana.sources["logshipper-loki"]["readOnly"] = True
    assert run()[0] == 0, "as it is, it is right"
    code, out, _ = run("--loki-url", "http://other:3100")
    assert code == 1
    assert "comes from a file on Grafana's machine" in line_about(
        out, "data source logshipper-loki"
    )


def test_data_sources_without_an_address(grafana: FakeGrafana, run: Run) -> None:
    grafana.add_source("theirs", "loki", LOKI, name="Logs")
    code, out, _ = run()
    assert code == 1
    assert "the pages take another one of its type: Logs" in line_about(
        out, "data source logshipper-loki"
    )
    assert "give --prometheus-url URL" in line_about(out, "data source logshipper-prometheus")
    assert "--loki-url URL makes it" in line_about(out, "data source logshipper-loki-values")
    assert sorted(grafana.versions) == PAGES


def test_a_data_source_whose_name_is_taken_gets_another(grafana: FakeGrafana, run: Run) -> None:
    grafana.add_source("theirs", "loki", LOKI, name="Loki")
    assert run(*ADDRESSES)[0] == 0
    assert grafana.sources["logshipper-loki"]["name"] == "Loki (logshipper)"
    assert grafana.sources["theirs"]["name"] == "Loki"


def test_a_data_source_that_is_changed_in_between(grafana: FakeGrafana, run: Run) -> None:
    run(*ADDRESSES)

    def meddle(method: str, path: str) -> None:
        if method == "PUT":
            grafana.sources["logshipper-loki"]["version"] += 1

    grafana.meddle = meddle
    code, out, _ = run("--loki-url", "http://other:3100")
    assert code == 1
    assert "HTTP 409" in line_about(out, "data source logshipper-loki")
    assert "run this again" in line_about(out, "data source logshipper-loki")


@VERSIONS
def test_a_uid_that_belongs_to_something_else(grafana: FakeGrafana, run: Run) -> None:
    grafana.add_source("logshipper-loki", "elasticsearch", LOKI)
    code, out, _ = run(*ADDRESSES)
    assert code == 1
    assert "its type is elasticsearch" in line_about(out, "data source logshipper-loki")
    assert grafana.sources["logshipper-loki"]["type"] == "elasticsearch"


def test_an_editors_token_is_enough_where_data_sources_are_there(
    grafana: FakeGrafana, run: Run
) -> None:
    grafana.reads_for_all = False
    code, out, _ = run(token=EDITOR)
    assert code == 0
    assert "the token may not read data sources" in line_about(out, "data source logshipper-loki")
    assert sorted(grafana.versions) == PAGES
    grafana.reads_for_all = True
    code, out, _ = run(*ADDRESSES, token=EDITOR)
    assert code == 1
    assert "role Admin for data sources" in line_about(out, "data source logshipper-loki")


# ---- folders


@VERSIONS
@pytest.mark.parametrize("uid", ["x1", "logshipper"])
def test_a_folder_that_is_there_is_taken(grafana: FakeGrafana, run: Run, uid: str) -> None:
    grafana.folders[uid] = "logshipper"
    assert run(*ADDRESSES)[0] == 0
    assert list(grafana.folders) == [uid]
    assert grafana.versions[links.JOB][-1]["folder"] == uid


def test_another_folder_by_title_or_uid(grafana: FakeGrafana, run: Run) -> None:
    assert run(*ADDRESSES, "--folder", "Batch jobs")[0] == 0
    (uid,) = grafana.folders
    assert grafana.folders[uid] == "Batch jobs"
    assert run("--folder", "Batch jobs")[1].splitlines()[-1] == "nothing to change"
    assert run("--folder", uid)[1].splitlines()[-1] == "nothing to change"


def test_two_folders_of_one_title(run: Run, grafana: FakeGrafana) -> None:
    grafana.folders |= {"a": "Jobs here", "b": "Jobs here"}
    code, _, err = run("--folder", "Jobs here")
    assert (code, "give the uid of one, a, b" in err) == (1, True)
    assert run("--folder", "b", *ADDRESSES)[0] == 0


@pytest.mark.parametrize(("version", "code"), [("9.4.3", 409), ("11.6.0", 412)])
def test_a_folder_that_is_made_in_between(
    version: str, code: int, secret: Callable[[str], str]
) -> None:
    with FakeGrafana(version) as grafana:

        def meddle(method: str, path: str) -> None:
            if method == "POST" and path == "/api/folders":
                grafana.folders["logshipper"] = "logshipper"

        grafana.meddle = meddle
        words = [
            sys.executable,
            "-m",
            "logshipper_grafana",
            "apply",
            "--url",
            grafana.url,
            "--token-file",
            secret(ADMIN),
            *ADDRESSES,
        ]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=scaled(60))
    assert done.returncode == 1
    assert f"HTTP {code}" in done.stderr
    assert "a folder/dashboard with the same uid already exists" in done.stderr


def test_a_title_that_is_taken_in_the_folder(
    secret: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeGrafana("9.4.3") as grafana:
        grafana.folders["logshipper"] = "logshipper"
        grafana.add_dashboard("theirs", "logshipper")
        grafana.versions["theirs"][-1]["dashboard"]["title"] = wanted_dashboards()[links.JOB][
            "title"
        ]
        assert main(["apply", "--url", grafana.url, "--token-file", secret(ADMIN), *ADDRESSES]) == 1
    line = line_about(capsys.readouterr().out, f"dashboard {links.JOB}")
    assert "HTTP 412: A dashboard with the same name in the folder already exists" in line
    assert "rename the other one, or give another --folder" in line


# ---- pruning


@VERSIONS
def test_only_dashboards_of_ours_in_our_folder_are_pruned(grafana: FakeGrafana, run: Run) -> None:
    run(*ADDRESSES)
    grafana.folders["other"] = "Others"
    ours = "logshipper-grafana 0.0.9, content 0123456789abcdef"
    grafana.add_dashboard("logshipper-old", "logshipper", message=ours)
    grafana.add_dashboard("logshipper-changed", "logshipper", message="")
    grafana.add_dashboard("logshipper-elsewhere", "other", message=ours)
    grafana.add_dashboard("logshipper-general", "", message=ours)
    grafana.add_dashboard("logshipper-untagged", "logshipper", tags=(), message=ours)
    grafana.add_dashboard("copy-of-mine", "logshipper", message=ours)
    grafana.add_dashboard("logshipper-file", "logshipper", message=ours)
    grafana.provisioned = {"logshipper-file"}
    before = set(grafana.versions)
    assert run()[1].splitlines()[-1] == "nothing to change"
    code, out, _ = run("--prune", "--dry-run")
    assert code == 1, "something is refused"
    assert line_about(out, "dashboard logshipper-old").startswith("removed")
    assert set(grafana.versions) == before
    code, out, _ = run("--prune")
    assert (code, out.splitlines()[-1]) == (1, "1 removed, 8 unchanged, 2 refused")
    assert before - set(grafana.versions) == {"logshipper-old"}
    assert "somebody changed it: --force" in line_about(out, "dashboard logshipper-changed")
    assert "comes from a file" in line_about(out, "dashboard logshipper-file")
    run("--prune", "--force")
    assert before - set(grafana.versions) == {"logshipper-old", "logshipper-changed"}


@pytest.mark.parametrize("grafana", ["13.0.1"], indirect=True)
def test_a_dashboard_in_the_new_editors_form_is_pruned_by_force(
    grafana: FakeGrafana, run: Run
) -> None:
    run(*ADDRESSES)
    grafana.add_dashboard("logshipper-old", "logshipper")
    grafana.save_in_new_editor("logshipper-old")
    code, out, _ = run("--prune")
    assert (code, out.splitlines()[-1]) == (1, "8 unchanged, 1 refused")
    assert "new editor's form (v2), which can't be compared: --force removes it" in line_about(
        out, "dashboard logshipper-old"
    )
    code, out, _ = run("--prune", "--force", "--dry-run")
    assert (code, "logshipper-old" in grafana.versions) == (3, True)
    code, out, _ = run("--prune", "--force")
    assert (code, out.splitlines()[-1]) == (0, "1 removed, 8 unchanged")
    assert "logshipper-old" not in grafana.versions


# ---- who asks, and what goes wrong


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

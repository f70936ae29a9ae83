"""`logshipper-grafana apply`: dashboards and their folder, against a fake of Grafana's HTTP API."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from logshipper_grafana.parts import links
from logshipper_grafana.tool.cli import main
from logshipper_grafana.tool.content import content, wanted_dashboards
from tests.grafana.commands.conftest import ADDRESSES, LOKI, PAGES, VERSIONS, Run, line_about
from tests.grafana.tools import fake_grafana
from tests.grafana.tools.fake_grafana import ADMIN, FakeGrafana
from tests.tools.sources import ROOT
from tests.tools.waiting import scaled

# ---- creation and repetition


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
    """The message of the saved version then proves that the dashboard is ours and unchanged."""
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


# ---- users' changes


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
    """Grafana returns no classic form of this dashboard (406), but accepts one."""
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
    """Without versions the author is unknown, so a changed dashboard needs force."""
    run(*ADDRESSES)
    grafana.versions[links.JOB][-1]["dashboard"]["title"] = "Older"
    denied = fake_grafana.Response(403, {"message": "no"})
    grafana.meddle = lambda method, path: denied if path.endswith("/versions") else None
    code, out, _ = run()
    assert (code, out.splitlines()[-1]) == (1, "7 unchanged, 1 refused")
    assert run("--force")[0] == 0


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

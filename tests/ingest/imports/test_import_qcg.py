"""`import qcg`: files of a real QCG-PilotJob (made by tests/imports/make_qcg.py), complete, growing
and damaged."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logshipper.start.cli import main
from logshipper_ingest.cli import main as agent_main
from logshipper_ingest.imports.faults import MAX_REPORTS
from logshipper_ingest.imports.qcg import parse_allocation
from logshipper_ingest.imports.source_file import MAX_LINE_BYTES
from logshipper_ingest.imports.values import job_id_of, secs_of
from logshipper_ingest.model import imported_states as states
from logshipper_ingest.model.capture_id import JobKey
from logshipper_ingest.model.job import NAME
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.base.words import STATES, state_of
from logshipper_observe.model.overlay import Overlay
from tests.tools.captures.captured_runs import wait_until
from tests.tools.stores.import_tools import RECORDED, Import, contents, store, take
from tests.tools.stores.reading_store import SpooledCapture
from tests.tools.waiting import scaled

RUN = RECORDED / "qcg"
TZ = ("--timezone", "UTC")
IMPORTS = ("qcg", *TZ)
__all__ = ["store", "take"]  # fixtures


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a copy of the run, which tests may change."""
    return Path(shutil.copytree(RUN, tmp_path / ".qcgpjm-service-n1.1"))


def report(run: Path) -> dict[str, Any]:  # Any: JSON
    return {
        entry["name"]: entry
        for entry in map(json.loads, (run / "jobs.report").read_text().splitlines())
    }


def test_jobs_are_as_the_report_has_them(take: Import, store: Path) -> None:
    assert take(RUN)[:2] == (0, "30 entries: 6 new jobs, 0 known\n")
    jobs = contents(store)
    states = {
        name: (job["summary"].state, job["summary"].exit_code, job["summary"].signal)
        for name, job in jobs.items()
    }
    assert states == {
        "hello": ("COMPLETED", 0, 0), "sweep": ("FAILED", None, 0), "bad": ("FAILED", 1, 0),
        "never": ("CANCELLED", None, 0), "long": ("CANCELLED", None, 15), "wide": ("COMPLETED", 0, 0),
    }  # fmt: skip
    for name, entry in report(RUN).items():
        if ":" in name:
            continue
        state_names = [event["source_to"] for _, event in jobs[name]["events"]]
        assert state_names == [change["state"] for change in entry["history"]]
    wide = jobs["wide"]["summary"]
    assert (wide.nodes, wide.cores, wide.origin, wide.host) == (2, 2, "qcg", "node1")
    details = jobs["hello"]["details"]
    assert details["work_dir"] == "/scratch/run"
    assert details["allocation"] == report(RUN)["hello"]["runtime"]["allocation"]
    assert details["run_secs"] == secs_of(report(RUN)["hello"]["runtime"]["rtime"])


def test_iterations_are_children(take: Import, store: Path) -> None:
    take(RUN)
    sweep = contents(store)["sweep"]
    job = sweep["summary"]
    assert (job.children, job.children_finished, job.children_failed) == (6, 6, 1)
    assert [child.name for child in sweep["children"]] == [f"sweep:{number}" for number in range(6)]
    assert [child.exit_code for child in sweep["children"]] == [0, 0, 0, 0, 1, 0]
    assert sweep["children"][4].state == "FAILED"
    assert [change[0] for change in sweep["changes"]] == sorted(
        change[0] for change in sweep["changes"]
    )
    of_first = [change[5] for change in sweep["changes"] if change[1] == "sweep:0"]
    assert of_first == ["SCHEDULED", "EXECUTING", "SUCCEED"]
    assert job.started_ns == min(child.started_ns for child in sweep["children"])
    with LocalStore(str(store)) as local_store, local_store.open(job.job_id) as reader:
        newest = list(reader.child_changes(newest_first=True))
        assert newest == list(reader.child_changes())[::-1]
        middle = newest[9].time_ns
        later = list(reader.child_changes(begin_ns=middle))
        earlier = list(reader.child_changes(end_ns=middle))
        assert [*earlier, *later] == newest[::-1]


def test_again_adds_nothing(take: Import, store: Path) -> None:
    take(RUN)
    first = contents(store)
    assert take(RUN)[1] == "30 entries: 0 new jobs, 6 known\n"
    assert contents(store) == first


@pytest.mark.parametrize("percent", range(0, 100, 9))
def test_a_run_that_goes_on(
    take: Import, store: Path, run: Path, tmp_path: Path, percent: int
) -> None:
    """Files cut at any byte, even within a line, and a later import give the same as a single
    import."""
    for name in ("jobs.report", "track.states"):
        whole = (run / name).read_bytes()
        (run / name).write_bytes(whole[: len(whole) * percent // 100])
    code, _, errors = take(run)
    assert code == 0, errors
    for name in ("jobs.report", "track.states"):
        (run / name).write_bytes((RUN / name).read_bytes())
    take(run)
    grown = contents(store)
    shutil.rmtree(store)
    take(run)
    assert grown == contents(store)


def test_states_without_times_are_seen_until_the_report_comes(
    take: Import, store: Path, run: Path
) -> None:
    (run / "jobs.report").unlink()
    take(run)
    jobs = contents(store)
    assert jobs["bad"]["summary"].state == "FAILED"
    assert [event.get("seen") for _, event in jobs["bad"]["events"]] == [True]
    assert jobs["sweep"]["summary"].children_failed == 1
    assert jobs["long"]["summary"].ended_ns == (run / "track.states").stat().st_mtime_ns
    shutil.copy(RUN / "jobs.report", run)
    take(run)
    assert not any(event.get("seen") for _, event in contents(store)["bad"]["events"])


def test_only_submitted(take: Import, store: Path, run: Path) -> None:
    (run / "jobs.report").unlink()
    (run / "track.states").unlink()
    take(run)
    jobs = contents(store)
    assert {job["summary"].state for job in jobs.values()} == {"QUEUED"}
    assert (jobs["sweep"]["summary"].children, jobs["sweep"]["children"]) == (6, [])
    assert (jobs["wide"]["summary"].nodes, jobs["wide"]["summary"].ended_ns) == (2, None)


@pytest.fixture
def following(run: Path, store: Path) -> Iterator["subprocess.Popen[str]"]:
    (run / "final_status.json").unlink()
    (run / "jobs.report").unlink()
    command = [
        sys.executable,
        "-m",
        "logshipper",
        "import",
        "qcg",
        str(run),
        "--follow",
        *TZ,
        "--store",
        str(store),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_follow_until_the_manager_ends(
    following: "subprocess.Popen[str]", run: Path, store: Path
) -> None:
    wait_until(
        lambda: (store / "catalogue.db").exists() and len(contents(store)) == 6,
        "what is there is imported",
    )
    lines = (RUN / "jobs.report").read_text().splitlines(keepends=True)
    (run / "jobs.report").write_text("".join(lines[:3]) + lines[3][:50])
    wait_until(
        lambda: len(contents(store)["sweep"]["changes"]) >= 6,
        "two iterations' changes are imported",
    )
    (run / "jobs.report").write_text("".join(lines))
    shutil.copy(RUN / "final_status.json", run)
    out, _ = following.communicate(timeout=scaled(60))
    assert following.returncode == 0
    assert "6 new jobs" in out
    assert [child.exit_code for child in contents(store)["sweep"]["children"]] == [0, 0, 0, 0, 1, 0]


# ---- invalid input

GOOD = (RUN / "jobs.report").read_bytes()


def spoilt(line: bytes) -> bytes:
    """Return good lines with a bad one, the third."""
    lines = GOOD.splitlines(keepends=True)
    return b"".join([*lines[:2], line + b"\n", *lines[2:]])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"garbage", "isn't a JSON object"),
        (b'{"name": "x", "state": "SUC', "isn't a JSON object"),
        (b"[1, 2]", "isn't a JSON object"),
        (b"[" * 100_000, "isn't a JSON object"),
        (b'{"a": %s}' % (b"9" * 5000), "isn't a JSON object"),
        (b"\0" * 1000, "isn't a JSON object"),
        (b'{"version": 2}', "no entry of QCG-PilotJob 0.14"),
        (b'{"name": "x", "state": "PAUSED", "history": [], "runtime": {}}', "is no state of QCG-PilotJob 0.14"),
        (b'{"name": "x", "state": "FAILED", "history": [], "runtime": {}}', "its history does not end"),
        (b'{"name": "x", "state": "FAILED", "history": 5, "runtime": 7}', "its history does not end"),
        (b'{"name": 7.5, "state": "FAILED", "history": [], "runtime": {}}', "the job's name is missing"),
        (
            b'{"name": "x", "state": "FAILED", "history": [{"state": "FAILED", "date": "soon"}], "runtime": {}}',
            "which is no time",
        ),
        (
            b'{"name": "s:1", "state": "FAILED", "history": [{"state": "FAILED", "date": "9999-12-31T00:00:00"}]}',
            "too far ahead",
        ),
        (b'"' + b"x" * (MAX_LINE_BYTES + 1), "is longer than"),
    ],
)  # fmt: skip
def test_bad_lines_are_said_and_the_others_imported(
    take: Import, store: Path, run: Path, line: bytes, words: str
) -> None:
    (run / "jobs.report").write_bytes(spoilt(line))
    code, _, errors = take(run)
    assert code == 1
    assert f"{run}/jobs.report:3: " in errors
    assert words in errors
    assert "1 left out" in errors
    jobs = contents(store)
    assert {"hello", "sweep", "bad", "never", "long", "wide"} <= jobs.keys()
    assert jobs["sweep"]["summary"].children_finished == 6


def test_many_bad_lines_are_counted(take: Import, run: Path) -> None:
    (run / "jobs.report").write_bytes(GOOD + b"bad\n" * 500)
    _, _, errors = take(run)
    assert "500 left out" in errors
    assert len(errors.splitlines()) <= MAX_REPORTS + 3


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "latin-1"])
def test_other_encodings(take: Import, store: Path, run: Path, encoding: str) -> None:
    text = GOOD.decode().replace('"name": "hello"', '"name": "grüße"')
    (run / "jobs.report").write_bytes(text.encode(encoding))
    code, _, errors = take(run)
    assert code == 0
    assert ("read as Latin-1" in errors) is (encoding == "latin-1")
    assert contents(store)["grüße"]["summary"].state == "COMPLETED"


def test_line_ends_of_windows(take: Import, store: Path, run: Path) -> None:
    (run / "jobs.report").write_bytes(GOOD.replace(b"\n", b"\r\n"))
    assert take(run)[0] == 0
    assert contents(store)["sweep"]["summary"].children_failed == 1


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "\x1b[31mred\x1b[0m",
        "a\0b",
        "x" * 5000,
        "..",
        ".",
        "-rf",
        "\ud800",
        "a b/c",
        "é" * 300,
    ],
)
def test_hostile_names_stay_within_the_store(
    take: Import, store: Path, run: Path, name: str
) -> None:
    entry = json.loads(GOOD.splitlines()[0])
    (run / "jobs.report").write_text(json.dumps({**entry, "name": name}) + "\n")
    before = {path for path in store.parent.rglob("*") if store not in path.parents}
    code, _, errors = take(run)
    assert code == 0, errors
    assert {path for path in store.parent.rglob("*") if store not in path.parents} <= before | {
        store
    }
    with LocalStore(str(store)) as local_store:
        jobs = [job for job in local_store.jobs() if job.name not in report(RUN)]
        assert len(jobs) == 1
        assert NAME.fullmatch(jobs[0].job_id)
        assert "\x1b" not in jobs[0].name
        with local_store.open(jobs[0].job_id) as reader:
            assert reader.summary.state == "COMPLETED"


def test_what_is_no_file_is_refused(take: Import, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert take(fifo)[::2] == (1, f"logshipper: {fifo}: isn't a file\n")
    assert "no such file" in take(tmp_path / "none")[2]
    (tmp_path / "empty").mkdir()
    assert "no run of QCG-PilotJob" in take(tmp_path / "empty")[2]
    assert "isn't a file" in take("/dev/zero")[2]


def test_links_in_a_folder_are_not_followed(
    take: Import, store: Path, run: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(GOOD)
    (run / "jobs.report").unlink()
    (run / "jobs.report").symlink_to(secret)
    code, _, errors = take(run)
    assert (code, "jobs.report: is a link" in errors) == (1, True)
    assert contents(store)["hello"]["details"].get("run_secs") is None
    assert take(run / "jobs.report")[0] == 0  # since the user named it


def test_a_file_that_becomes_shorter_is_read_anew(
    following: "subprocess.Popen[str]", run: Path, store: Path
) -> None:
    wait_until(
        lambda: (store / "catalogue.db").exists() and len(contents(store)) == 6,
        "what is there is imported",
    )
    states = (run / "track.states").read_text()
    (run / "track.states").write_text(states.splitlines()[0].replace("hello", "again") + "\n")
    shutil.copy(RUN / "final_status.json", run)
    following.communicate(timeout=scaled(60))
    assert contents(store)["again"]["summary"].state == "COMPLETED"


# ---- the store


def test_a_removed_job_stays_removed(take: Import, store: Path) -> None:
    take(RUN)
    main(["rm", "-y", "hello", "--store", str(store)])
    code, out, errors = take(RUN)
    assert (code, out.splitlines()[-1]) == (0, "30 entries: 0 new jobs, 5 known")
    assert "1 job left out, removed from the store before" in errors
    assert "hello" not in contents(store)
    take(RUN, "--removed")
    assert "hello" in contents(store)


def test_a_copy_is_another_run_unless_it_is_named(
    take: Import, store: Path, run: Path, tmp_path: Path
) -> None:
    take(RUN, "--as", "mine")
    take(run, "--as", "mine")
    with LocalStore(str(store)) as local_store:
        assert len(local_store.jobs()) == 6
    take(run)
    with LocalStore(str(store)) as local_store:
        assert len(local_store.jobs()) == 12


def test_commands_know_them(take: Import, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    take(RUN)
    words = ("--store", str(store))
    assert main(["show", "sweep", *words]) == 0
    assert "6: 6 finished, 1 of them failed" in capsys.readouterr().out
    assert main(["ls", "--json", *words]) == 0
    jobs = {job["name"]: job for job in json.loads(capsys.readouterr().out)["jobs"]}
    assert jobs["sweep"]["children"] == {"total": 6, "finished": 6, "failed": 1}
    assert (jobs["sweep"]["origin"], jobs["sweep"]["heartbeat"]) == ("qcg", None)
    conditions = (
        "--filter",
        "origin=qcg",
        "--filter",
        "children_failed>0",
        "--columns",
        "name,children,heartbeat",
    )
    assert main(["ls", "--json", *conditions, *words]) == 0
    (only,) = json.loads(capsys.readouterr().out)["jobs"]
    assert only["columns"] == {"name": "sweep", "children": 6, "heartbeat": None}
    assert main(["wait", "sweep", "bad", *words]) == 0
    capsys.readouterr()
    assert main(["import", "qcg", str(RUN), *TZ, "--json", *words]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {name: document[name] for name in ("schema", "entries", "new", "known", "left_out")} == {
        "schema": "logshipper.import/1", "entries": 30, "new": 0, "known": 6, "left_out": 0,
    }  # fmt: skip
    assert main(["import", "qcg", str(RUN), "--timezone", "Mars/Base", *words]) == 2
    assert "isn't a time zone" in capsys.readouterr().err


def test_what_the_user_says_of_a_job_stays(take: Import, store: Path) -> None:
    take(RUN)
    main(["tag", "hello", "+mine", "--store", str(store)])
    take(RUN)
    with LocalStore(str(store)) as local_store:
        job_id = local_store.resolve("hello")
        assert Overlay.of_local(local_store).of(JobKey(job_id)).tags == {"mine": ""}


def test_parse_allocation() -> None:
    assert parse_allocation("n1[0:1:2],n2[7]") == {"n1": ["0", "1", "2"], "n2": ["7"]}
    assert parse_allocation("") == parse_allocation("n1[0") == parse_allocation("junk") == {}


def test_ids_are_unlike_where_names_are() -> None:
    assert job_id_of("balsam", ["123"]) == "balsam-123"
    assert job_id_of("xt", ["a/b"]) != job_id_of("xt", ["a b"])
    assert job_id_of("xt", ["ws", "run1"]) == "xt-ws-run1"


def test_states_of_other_systems_are_known_to_filters() -> None:
    for table in (states.QCG, states.BALSAM, states.XT):
        for name, state in table.items():
            assert state_of(name) == (name.upper() if name.upper() in STATES else state)


def test_nothing_is_left_beside_the_jobs(take: Import, store: Path) -> None:
    take(RUN)
    take(RUN)
    names = {path.name.partition("-")[0] for path in store.iterdir()}
    assert names <= {"catalogue.db", "jobs", "intake.lock", "values.db", "overlay.db"}
    assert {path.suffix for path in (store / "jobs").iterdir()} == {".db"}


def test_a_captured_job_is_never_written_over(store: Path, tmp_path: Path) -> None:
    """The imported job gets another id if a captured job has the same."""
    with SpooledCapture(store, "xt-ws1-run1.1") as captured:
        captured.lines("my own")
        captured.end()
    for _ in range(2):
        assert main(["import", "xt", str(RECORDED / "xt"), "--store", str(store)]) == 0
    with LocalStore(str(store)) as local_store:
        jobs = {job.job_id: job for job in local_store.jobs()}
        assert len(jobs) == 3
        assert jobs["xt-ws1-run1.1"].origin == ""
        assert [job.name for job in jobs.values() if job.origin] == ["run1.2", "run1.1"]


def test_one_that_never_ended_can_be_removed(take: Import, store: Path, run: Path) -> None:
    (run / "jobs.report").write_bytes(b"\n".join(GOOD.splitlines()[:3]) + b"\n")
    (run / "track.states").unlink()
    take(run)
    assert contents(store)["sweep"]["summary"].state == "RUNNING"
    assert main(["rm", "-y", "sweep", "--store", str(store)]) == 0


def test_a_secret_in_what_was_imported_is_purged(
    take: Import, store: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Purging also covers data of iterations and jobs besides their states."""
    entries = [json.loads(line) for line in GOOD.splitlines()[:2]]
    entries[0]["execution"]["args"] = ["s3cr3t-token"]
    entries[1]["messages"] = "failed with s3cr3t-token"
    (run / "jobs.report").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    take(run)
    for name in ("hello", "sweep"):
        with LocalStore(str(store)) as local_store:
            job_id = local_store.resolve(name)
        words = ["purge", "--store", str(store), "--job", job_id, "--grep", "s3cr3t-token", "--yes"]
        assert agent_main(words) == 0, capsys.readouterr()
        assert b"s3cr3t-token" not in (store / "jobs" / f"{job_id}.db").read_bytes()


def test_what_is_called_like_a_secret_is_masked(take: Import, store: Path, run: Path) -> None:
    """Masking covers arguments, environment and script of a job's execution."""
    entry = json.loads(GOOD.splitlines()[0])
    entry["execution"] |= {"args": ["-n", "1", "--apiToken", "s3cr3t"], "env": {"PGPASSWORD": "s3cr3t", "A": "1"},
                           "script": "export API_KEY=s3cr3t\nrun"}  # fmt: skip
    for name in ("jobs.report", "track.reqs"):
        (run / name).write_text(json.dumps(entry) + "\n")
        take(run)
        execution = contents(store)["hello"]["details"]["execution"]
        assert execution["args"] == ["-n", "1", "--apiToken", "***"]
        assert execution["env"] == {"PGPASSWORD": "***", "A": "1"}
        assert execution["script"] == "export API_KEY=***\nrun"
    assert not [
        path for path in store.rglob("*") if path.is_file() and b"s3cr3t" in path.read_bytes()
    ]

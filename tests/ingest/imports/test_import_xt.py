"""`import xt`: records of XT's own code (made by tests/imports/make_xt.py), complete, growing and
damaged."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from logshipper.start.cli import main
from logshipper_ingest.model.capture_id import JobKey
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.model.overlay import Overlay
from tests.tools.captures.captured_runs import wait_until
from tests.tools.stores.import_tools import RECORDED, Import, contents, store, take
from tests.tools.waiting import scaled

RUNS = RECORDED / "xt"
IMPORTS = ("xt",)
__all__ = ["store", "take"]  # fixtures


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return a copy of the runs, which tests may change."""
    return Path(shutil.copytree(RUNS, tmp_path / "runs"))


def log_of(run: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (RUNS / "ws1" / run / "run.log").read_text().splitlines()]


def test_runs_are_jobs(take: Import, store: Path) -> None:
    assert take(RUNS)[:2] == (0, "46 entries: 2 new jobs, 0 known\n")
    jobs = contents(store)
    first, second = (jobs[f"run1.{number}"]["summary"] for number in (1, 2))
    assert (first.job_id, first.state, first.exit_code) == ("xt-ws1-run1.1", "COMPLETED", 0)
    assert (second.job_id, second.state, second.exit_code) == ("xt-ws1-run1.2", "FAILED", 1)
    assert (first.user, first.host, first.origin, first.parent, first.iteration) == (
        "ann", "box1", "xt", "xt-ws1-run1", 1,
    )  # fmt: skip
    details = jobs["run1.1"]["details"]
    assert details["hparams"] == {"lr": 0.1, "optimizer": "adam"}
    assert details["command"] == ["python", "train.py", "--lr", "0.1"]
    assert (details["job_id"], details["node_index"], details["exper_name"]) == ("job7", 0, "mnist")


def test_metrics_and_hyperparameters_are_metadata(take: Import, store: Path) -> None:
    take(RUNS)
    data = [
        record["data"] for record in log_of("run1.1") if record["event"] in ("hparams", "metrics")
    ]
    documents = [
        {
            name: None if str(value) == "nan" else value
            for name, value in record.items()
            if name != "__step_name__"
        }
        for record in data
        if isinstance(record, dict)
    ]
    records = contents(store)["run1.1"]["records"]
    assert [json.loads(line, parse_constant=pytest.fail) for line in records] == documents
    with LocalStore(str(store)) as local_store, local_store.open("xt-ws1-run1.1") as reader:
        assert reader.x_axis().key == "epoch"
        assert reader.key_values()["train-loss"].last == "0.03333333333333333"


def test_states_events_and_the_console(take: Import, store: Path) -> None:
    take(RUNS)
    run = contents(store)["run1.2"]
    changes = [
        (event["source_to"], event["to"]) for _, event in run["events"] if event["event"] == "state"
    ]
    assert changes == [
        ("created", "QUEUED"),
        ("queued", "QUEUED"),
        ("started", "RUNNING"),
        ("error", "FAILED"),
    ]
    other_events = [event for _, event in run["events"] if event["event"] != "state"]
    assert [event["event"] for event in other_events] == ["cmd", "early_stopping", "notes"]
    assert other_events[1]["data"] == {"reason": "loss_is_nan"}
    assert run["lines"] == ["training with lr 0.01", "100%|###|", "done"]


def test_job_node_and_roll_up_are_shown_and_filtered_by(
    take: Import, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    take(RUNS)

    def ask(*words: str) -> str:
        assert main([*words, "--store", str(store)]) == 0
        return capsys.readouterr().out

    run = json.loads(ask("show", "run1.1", "--json"), parse_constant=pytest.fail)
    assert (run["details"]["job_id"], run["details"]["node_index"]) == ("job7", 0)
    assert run["metrics_rollup"] == {"epoch": 3, "test-acc": 0.6, "test-loss": None}, "as XT has it"
    assert run["tags"]["job"] == "job7"
    filters = ("--filter", "tags.node_index=0", "--tag", "job=job7", "--columns", "id,tags.job")
    listed = ask("ls", *filters).splitlines()[1:]
    of_node = {run: log_of(run)[0]["data"]["node_index"] for run in ("run1.1", "run1.2")}  # type: ignore[index]  # JSON
    assert [line.split() for line in listed] == [
        [f"xt-ws1-{run}", "job7"] for run in sorted(of_node, reverse=True) if of_node[run] == 0
    ]


def test_tags_and_notes_become_the_readers(take: Import, store: Path) -> None:
    take(RUNS)
    with LocalStore(str(store)) as local_store:
        overlay, place = Overlay.of_local(local_store), JobKey("xt-ws1-run1.1")
        marks = overlay.of(place)
        assert (marks.tags, marks.note) == (
            {"experiment": "mnist", "job": "job7", "node_index": "0"},
            "a note on run1.1",
        )
        overlay.annotate(place, "my own")
        take(RUNS)
        assert overlay.of(place).note == "my own"


def test_again_adds_nothing(take: Import, store: Path) -> None:
    take(RUNS)
    first = contents(store)
    assert take(RUNS)[1] == "46 entries: 0 new jobs, 2 known\n"
    assert take(RUNS / "all_runs.jsonl")[0] == 0
    assert contents(store) == first


@pytest.mark.parametrize("percent", range(0, 100, 11))
def test_a_run_that_goes_on(take: Import, store: Path, runs: Path, percent: int) -> None:
    """Files cut at any byte and a later import give the same as a single import. Console and
    records grow separately."""
    (runs / "all_runs.jsonl").unlink()
    files = [runs / "ws1" / "run1.1" / name for name in ("run.log", "output/console.txt")]
    for path in files:
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) * percent // 100])
    assert take(runs / "ws1")[0] == 0
    for path in files:
        path.write_bytes((RUNS / path.relative_to(runs)).read_bytes())
    take(runs / "ws1")
    grown = contents(store)
    shutil.rmtree(store)
    take(runs / "ws1")
    assert grown == contents(store)


@pytest.mark.parametrize("form", ["jsonl", "documents"])
def test_many_runs_in_a_file(take: Import, store: Path, tmp_path: Path, form: str) -> None:
    path = tmp_path / f"runs.{form}"
    documents = [
        {"run_name": run, "log": log_of(run)}
        if form == "jsonl"
        else {
            "_id": run,
            "ws": "ws1",
            "log_records": log_of(run),
            "tags": {"best": None, "set": "a"},
        }
        for run in ("run1.1", "run1.2")
    ]
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    assert take(path)[0] == 0
    of_files = contents(store)
    assert of_files["run1.1"]["summary"].state == "COMPLETED"
    if form == "documents":
        with LocalStore(str(store)) as local_store:
            tags = Overlay.of_local(local_store).of(JobKey("xt-ws1-run1.1")).tags
        assert tags == {
            "best": "",
            "set": "a",
            "experiment": "mnist",
            "job": "job7",
            "node_index": "0",
        }


def test_another_run_of_the_same_name_is_refused_unless_named(
    take: Import, store: Path, runs: Path
) -> None:
    take(RUNS / "ws1")
    path = runs / "ws1" / "run1.1" / "run.log"
    path.write_text(path.read_text().replace('"epoch": 3', '"epoch": 4').replace("2026-", "2025-"))
    code, _, errors = take(runs / "ws1" / "run1.1")
    assert code == 1
    assert "another run of this name was imported before" in errors
    assert take(runs / "ws1" / "run1.1", "--as", "ws2")[0] == 0
    with LocalStore(str(store)) as local_store:
        assert local_store.resolve("xt-ws2-run1.1") == "xt-ws2-run1.1"


def test_a_restart_is_a_further_attempt(take: Import, store: Path, runs: Path) -> None:
    path = runs / "ws1" / "run1.1" / "run.log"
    lines = path.read_text().splitlines()
    restarted = json.dumps({"time": "2027-01-01T00:00:00+00:00", "event": "restarted", "data": {}})
    path.write_text("\n".join([*lines[:-1], restarted]) + "\n")
    take(runs / "ws1" / "run1.1")
    job = contents(store)["run1.1"]["summary"]
    assert (job.state, job.attempts, job.ended_ns) == ("RUNNING", 2, None)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("garbage", "isn't a JSON object"),
        ('{"time": "soon", "event": "metrics", "data": {"a": 1}}', "which is no time"),
        (
            '{"time": "2026-01-01T00:00:00", "event": 7.5, "data": {}}',
            "the event's name is missing",
        ),
        (
            '{"time": "2026-01-01T00:00:00", "event": "ended", "data": {"status": "vanished"}}',
            "no status",
        ),
        ('{"time": "2026-01-01T00:00:00", "event": "ended", "data": [1]}', "the status is missing"),
        ('{"level": "info", "msg": "x"}', "is no record of XT's"),
    ],
)
def test_bad_records_are_said_and_the_others_imported(
    take: Import, store: Path, runs: Path, line: str, words: str
) -> None:
    path = runs / "ws1" / "run1.1" / "run.log"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:6], line, *lines[6:]]) + "\n")
    code, _, errors = take(runs / "ws1")
    assert code == 1
    assert f"{path}:7: " in errors
    assert words in errors
    run = contents(store)["run1.1"]
    assert run["summary"].state == "COMPLETED"
    assert len(run["records"]) == 5


def test_a_hostile_console(take: Import, store: Path, runs: Path, tmp_path: Path) -> None:
    """The import skips lines that a command drops, follows no links and removes escape
    sequences."""
    console = runs / "ws1" / "run1.1" / "output" / "console.txt"
    console.write_bytes(
        b'a\x1b]0;title\x07\x1b[31mred\n/LOGCOMMAND {"mode":"disabled"}\nsecret\n\xff\xfe\n'
    )
    second_console = runs / "ws1" / "run1.2" / "output" / "console.txt"
    second_console.unlink()
    (tmp_path / "passwd").write_text("secret\n")
    second_console.symlink_to(tmp_path / "passwd")
    code, _, errors = take(runs / "ws1")
    assert code == 1
    assert "console.txt: is a link" in errors
    jobs = contents(store)
    assert jobs["run1.1"]["lines"] == ["ared", '/LOGCOMMAND {"mode":"disabled"}']
    assert jobs["run1.2"]["lines"] == []
    os.truncate(console, 3)
    assert "its log differs from the imported one" in take(runs / "ws1")[2]


def test_a_console_of_windows(take: Import, store: Path, runs: Path) -> None:
    (runs / "ws1" / "run1.1" / "output" / "console.txt").write_bytes(
        "grüße\r\nzwei\r\n".encode("utf-16")
    )
    take(runs / "ws1")
    assert contents(store)["run1.1"]["lines"] == ["grüße", "zwei"]


def test_a_folder_without_runs_is_refused(take: Import, tmp_path: Path) -> None:
    code, _, errors = take(tmp_path)
    assert code == 1
    assert "no runs of XT" in errors


def test_follow_until_the_run_ends(store: Path, runs: Path) -> None:
    """Records and console are imported as they grow, even several at once."""
    (runs / "all_runs.jsonl").unlink()
    shutil.rmtree(runs / "ws1" / "run1.2")
    log, console = (
        runs / "ws1" / "run1.1" / "run.log",
        runs / "ws1" / "run1.1" / "output" / "console.txt",
    )
    lines, printed = log.read_text().splitlines(keepends=True), console.read_bytes()
    log.write_text("".join(lines[:5]))
    console.write_bytes(printed[:30])
    command = [
        sys.executable,
        "-m",
        "logshipper",
        "import",
        "xt",
        str(runs),
        "--follow",
        "--store",
        str(store),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            catalogue = store / "catalogue.db"
            wait_until(lambda: catalogue.exists() and contents(store), "what is there is imported")
            assert contents(store)["run1.1"]["summary"].state == "RUNNING"
            with log.open("a") as file:
                file.write("".join(lines[5:7]))
            wait_until(
                lambda: len(contents(store)["run1.1"]["records"]) == 3, "new records are imported"
            )
            console.write_bytes(printed)
            with log.open("a") as file:
                file.write("".join(lines[7:]))
            process.communicate(timeout=scaled(60))
        finally:
            process.kill()
    assert process.returncode == 0
    followed = contents(store)
    shutil.rmtree(store)
    assert main(["import", "xt", str(runs), "--store", str(store)]) == 0
    assert followed == contents(store)


def test_a_search_counts_its_runs(
    take: Import, store: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`show` and `info` of `run1` have the totals of run1.1, which succeeded, and run1.2, which
    failed."""
    run_data = {"ws": "ws1", "run_name": "run1"}
    record = {"time": "2026-01-01T00:00:00+00:00", "event": "created", "data": run_data}
    (runs / "ws1" / "run1").mkdir()
    (runs / "ws1" / "run1" / "run.log").write_text(json.dumps(record) + "\n")
    take(runs)
    for command in ("show", "info"):
        assert main([command, "run1", "--store", str(store), "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        totals = answer["children"] if command == "show" else answer["jobs"][0]["iterations"]
        assert totals == {"total": 2, "finished": 2, "failed": 1}
    assert main(["show", "run1", "--store", str(store)]) == 0
    assert "2: 2 finished, 1 of them failed" in capsys.readouterr().out


def test_what_is_called_like_a_secret_in_a_command_is_masked(
    take: Import, store: Path, tmp_path: Path
) -> None:
    """Masking also covers the event with the command, and commands that are one text."""
    for number, command in enumerate(
        (["train", "--dbpassword", "s3cr3t"], "train --dbpassword s3cr3t")
    ):
        data = {"cmd": command, "xt_cmd": "xt run train --dbpassword s3cr3t"}
        (tmp_path / f"run{number}").mkdir()
        line = {"time": "2026-11-22T12:57:43+00:00", "event": "cmd", "data": data}
        (tmp_path / f"run{number}" / "run.log").write_text(json.dumps(line) + "\n")
        take(tmp_path / f"run{number}")
        run = contents(store)[f"run{number}"]
        assert run["details"]["command"] in (
            ["train", "--dbpassword", "***"],
            "train --dbpassword ***",
        )
        (event,) = [event for _, event in run["events"] if event["event"] == "cmd"]
        assert event["data"]["xt_cmd"] == "xt run train --dbpassword ***"
    assert not [
        path for path in store.rglob("*") if path.is_file() and b"s3cr3t" in path.read_bytes()
    ]

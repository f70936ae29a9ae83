"""`logshipper export --tensorboard` and `--mlflow`: the readers of these projects find the job's
numbers, settings and console."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools.sources import ROOT, SOURCES
from tests.tools.stores.reading_store import SpooledCapture
from tests.tools.tools_of_others import needs_program_of_others, python_of
from tests.tools.waiting import scaled, wait_until

pytestmark = needs_program_of_others
Json = Any  # Any: JSON
READER = ROOT / "tests" / "tools" / "stores" / "tracker_reader.py"
TIMEOUT_SECS = 60
CONSOLE = [
    "begin",
    "50 % done",
    '{"epoch": 1, "loss": 0.5, "acc (top 1)": 0.25}',
    '{"epoch": 2, "loss": NaN, "acc (top 1)": 0.5}',
    '{"epoch": 3, "loss": 0.25, "acc (top 1)": 0.75}',
    "a warning",
]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def environment() -> dict[str, str]:
    """Return one in which logshipper finds the packages of the trackers."""
    python = python_of("trackers")
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.check_output([python, "-c", ask], text=True).strip()
    return os.environ | {"PYTHONPATH": os.pathsep.join([SOURCES, packages])}


def command(*words: str, store: Path) -> list[str]:
    return [sys.executable, "-m", "logshipper", "export", *words, "--store", str(store)]


def export(*words: str, store: Path, code: int = 0, with_trackers: bool = True) -> tuple[str, str]:
    """Run `logshipper export`; return stdout and stderr."""
    process = subprocess.run(
        command(*words, store=store),
        env=environment() if with_trackers else os.environ | {"PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=scaled(TIMEOUT_SECS),
    )
    assert process.returncode == code, process.stderr
    return process.stdout, process.stderr


def runs_in(tracker: str, folder: Path) -> Json:
    """Return the runs that the tracker's own reader finds."""
    words = [str(python_of("trackers")), "-I", str(READER), tracker, str(folder)]
    text = subprocess.check_output(words, text=True, timeout=scaled(TIMEOUT_SECS))
    return json.loads(text)


def job(store: Path, job_id: str = "k3f9x2") -> SpooledCapture:
    """Make a job with two keys over epochs, a gap and a number without an epoch."""
    with SpooledCapture(store, job_id, name="train.py") as capture:
        capture.event("context", command=["python", "train.py", "--lr", "0.1", "--model", "resnet"])
        capture.lines("begin", "50 % done")
        for epoch, loss in enumerate(("0.5", "NaN", "0.25"), 1):
            capture.metadata(f'{{"epoch": {epoch}, "loss": {loss}, "acc (top 1)": {epoch / 4}}}')
        capture.stderr("a warning")
        capture.end()
    return capture


def test_tensorboard_reads_numbers_settings_and_console(store: Path, tmp_path: Path) -> None:
    job(store)
    out, err = export("train.py", "--tensorboard", str(tmp_path / "runs"), store=store)
    assert (out, err) == (
        f"Wrote {tmp_path}/runs/train.py-k3f9x2: 6 values of 2 keys, step: epoch\n",
        "",
    )
    runs = runs_in("tensorboard", tmp_path / "runs")
    (run,) = runs.values()
    points = {tag: [point[:2] for point in values] for tag, values in run["values"].items()}
    assert points == {
        "loss": [[1, 0.5], [2, "nan"], [3, 0.25]],
        "acc__top_1_": [[1, 0.25], [2, 0.5], [3, 0.75]],
    }
    times = [point[2] for point in run["values"]["loss"]]
    assert times == sorted(times)
    assert len(set(times)) == 3
    (text,) = run["texts"].values()
    assert text == [[0, "\n".join(f"    {line}" for line in CONSOLE)]]
    assert run["config"]["lr"] == 0.1
    assert run["config"]["model"] == "resnet"
    assert run["config"]["command"] == "python train.py --lr 0.1 --model resnet"


def test_tasks_are_runs_within_the_job(store: Path, tmp_path: Path) -> None:
    for task in range(2):
        with SpooledCapture(store, "many", task=task, suffix=f"task{task}") as capture:
            capture.metadata({"step": 1, "loss": task}, {"step": 2, "loss": task + 0.5})
            capture.end()
    export("many", "--tensorboard", str(tmp_path / "runs"), store=store)
    runs = runs_in("tensorboard", tmp_path / "runs")
    losses = {
        name: [point[1] for point in run["values"]["loss"]]
        for name, run in runs.items()
        if run["values"]
    }
    assert losses == {"train.py-many/task-0": [0.0, 0.5], "train.py-many/task-1": [1.0, 1.5]}


def test_steps_of_fractions_are_scaled_and_said(store: Path, tmp_path: Path) -> None:
    with SpooledCapture(store, "halves") as capture:
        capture.metadata({"progress": 0.25, "loss": 2.0}, {"progress": 0.5, "loss": 1.0})
        capture.end()
    out, _ = export("halves", "--tensorboard", str(tmp_path / "runs"), store=store)
    assert out.endswith("step: progress: 0.5 is step 5,000\n")
    (run,) = runs_in("tensorboard", tmp_path / "runs").values()
    assert [point[0] for point in run["values"]["loss"]] == [2500, 5000]


def test_x_names_the_step(store: Path, tmp_path: Path) -> None:
    with SpooledCapture(store, "two") as capture:
        for number in range(3):
            capture.metadata({"epoch": number, "tokens": number * 100, "loss": number})
        capture.end()
    folder = str(tmp_path / "runs")
    export("two", "--tensorboard", folder, "--x", "tokens", store=store)
    (run,) = runs_in("tensorboard", tmp_path / "runs").values()
    assert [point[0] for point in run["values"]["loss"]] == [0, 100, 200]
    _, err = export("two", "--tensorboard", folder, "--x", "loos", "--force", store=store, code=1)
    assert "loos" in err
    assert "did you mean loss?" in err


def test_existing_runs_stay_without_force(store: Path, tmp_path: Path) -> None:
    job(store)
    folder = str(tmp_path / "runs")
    export("k3f9x2", "--tensorboard", folder, store=store)
    before = runs_in("tensorboard", tmp_path / "runs")
    _, err = export("k3f9x2", "--tensorboard", folder, store=store, code=1)
    assert "has event files already; --force replaces them" in err
    assert runs_in("tensorboard", tmp_path / "runs") == before
    export("k3f9x2", "--tensorboard", folder, "--force", store=store)
    assert runs_in("tensorboard", tmp_path / "runs") == before


def test_values_of_a_running_job_appear_before_its_end(store: Path, tmp_path: Path) -> None:
    """--follow writes each value once, whichever round finds it."""
    runs = tmp_path / "runs"
    with SpooledCapture(store, "running") as capture:
        for number in range(5):
            capture.metadata({"step": number, "loss": 1 / (number + 1)})
            capture.beat()
        process = subprocess.Popen(
            command("running", "--tensorboard", str(runs), "--follow", store=store),
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            wait_until(lambda: steps_in(runs) == [0, 1, 2, 3, 4], "the first five values")
            for number in range(5, 8):
                capture.metadata({"step": number, "loss": 1 / (number + 1), "late": 1.5 * number})
                capture.beat()
            wait_until(lambda: steps_in(runs) == [*range(8)], "three more")
            capture.end()
            out, _ = process.communicate(timeout=scaled(TIMEOUT_SECS))
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0
    assert "11 values of 2 keys" in out
    assert steps_in(runs) == [*range(8)]
    assert steps_in(runs, "late") == [5, 6, 7]


def steps_in(folder: Path, key: str = "loss") -> list[int]:
    values = [run["values"] for run in runs_in("tensorboard", folder).values()]
    return [point[0] for run in values for point in run.get(key, [])]


def test_mlflow_reads_numbers_settings_and_console(store: Path, tmp_path: Path) -> None:
    job(store)
    with SpooledCapture(store, "failed") as capture:
        capture.metadata({"step": 1, "loss": 1}, {"step": 2, "loss": 2})
        capture.end(exit_code=3)
    out, _ = export("k3f9x2", "failed", "--mlflow", str(tmp_path / "ml"), "--json", store=store)
    assert [(run["job_id"], run["values"]) for run in json.loads(out)["runs"]] == [
        ("k3f9x2", 6),
        ("failed", 2),
    ]
    runs = runs_in("mlflow", tmp_path / "ml")
    run = runs["k3f9x2"]
    points = {key: [point[:2] for point in values] for key, values in run["values"].items()}
    assert points == {
        "loss": [[1, 0.5], [2, "nan"], [3, 0.25]],
        "acc _top 1_": [[1, 0.25], [2, 0.5], [3, 0.75]],
    }
    assert (run["experiment"], run["name"], run["status"]) == ("logshipper", "train.py", "FINISHED")
    assert run["console"].splitlines() == CONSOLE
    assert run["config"]["lr"] == "0.1"
    assert runs["failed"]["status"] == "FAILED"
    began, ended = run["times"]
    assert began <= run["values"]["loss"][0][2] <= ended
    _, err = export("k3f9x2", "--mlflow", str(tmp_path / "ml"), store=store, code=1)
    assert "has k3f9x2 already" in err
    export("k3f9x2", "--mlflow", str(tmp_path / "ml"), "--force", store=store)
    assert runs_in("mlflow", tmp_path / "ml")["k3f9x2"]["values"].keys() == run["values"].keys()


def test_a_server_that_is_not_there_is_named(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    job(store)
    _, err = export("k3f9x2", "--mlflow", "http://127.0.0.1:9", store=store, code=1)
    assert err.startswith("logshipper: --mlflow: http://127.0.0.1:9: ")


@pytest.mark.parametrize(
    ("option", "package"), [("--tensorboard", "tensorboardX"), ("--mlflow", "mlflow-skinny")]
)
def test_a_missing_library_is_named(option: str, package: str, store: Path, tmp_path: Path) -> None:
    job(store)
    _, err = export("k3f9x2", option, str(tmp_path / "x"), store=store, code=1, with_trackers=False)
    assert err == (
        f"logshipper: {option} needs {package}, which is not installed: pip install {package}\n"
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--follow",), "--follow and --x are for --tensorboard and --mlflow"),
        (("--tensorboard", "x", "--what", "logs"), "--what, --format and --output are for files"),
        (("--tensorboard", "x", "--mlflow", "y"), "not allowed with argument"),
    ],
)
def test_options_that_do_not_fit(words: tuple[str, ...], reason: str, store: Path) -> None:
    _, err = export("k3f9x2", *words, store=store, code=2, with_trackers=False)
    assert reason in err

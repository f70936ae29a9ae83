"""The examples as a user runs them: training captured by the command line, and the demonstration
from end to end."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools.captures.captured_runs import wait_until
from tests.tools.sources import ROOT
from tests.tools.waiting import scaled

EXAMPLES = ROOT / "examples"
RUN_SECS = 100

for module in ("numpy", "tqdm"):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} isn't installed (requirements/demo.lock)", allow_module_level=True)


def call(*words: str, store: Path) -> str:
    """Run `logshipper WORDS` with a store of its own; return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "logshipper", *words],
        env={**os.environ, "LOGSHIPPER_STORE": str(store), "LOGSHIPPER_AGENT": "off"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=scaled(RUN_SECS),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a store with a captured short training run, and the run's stdout."""
    store = tmp_path_factory.mktemp("trained") / "store"
    train = [sys.executable, str(EXAMPLES / "train.py"), "--fast"]
    return store, call("run", "--name", "train", "--", *train, store=store)


def fake_token() -> str:
    (token,) = re.findall(r'^TOKEN = "([^"]+)"', (EXAMPLES / "train.py").read_text(), re.MULTILINE)
    return str(token)


def test_train_learns_something_without_logshipper() -> None:
    train = [sys.executable, str(EXAMPLES / "train.py"), "--fast", "--epochs", "30"]
    done = subprocess.run(train, capture_output=True, text=True, timeout=scaled(RUN_SECS))
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    losses = [record["loss"] for record in records if "loss" in record]
    assert len(losses) == 30
    assert losses[-1] < losses[0]
    assert len({frozenset(record) for record in records}) == 3, "records with different keys"


def test_token_is_printed_but_nowhere_in_the_store(trained: tuple[Path, str]) -> None:
    """R10, R11: the token is in the job's output, but not in the store's files and values, even
    unpacked."""
    store, printed = trained
    token = fake_token()
    assert token in printed
    call("logs", "train", store=store)  # ingests the spool
    from examples.demo import store_contents

    contents = list(store_contents(store))
    assert any(b"of the held-out points" in content for content in contents), (
        "what is logged can be found this way"
    )
    assert not any(token.encode() in content for content in contents)


def test_bars_are_one_line_and_warnings_are_collapsed(trained: tuple[Path, str]) -> None:
    """R29: nested bars leave only the outer one's last state. R30: equal lines of an epoch become
    the first line and a count."""
    store, _ = trained
    lines = call("logs", "train", "--stream", "both", store=store).splitlines()
    bars = [line for line in lines if re.search(r"\d+%\|", line)]
    assert len(bars) == 1, bars
    assert bars[0].startswith("epochs: 100%|")
    warnings = [line for line in lines if "DeprecationWarning" in line]
    assert len(warnings) < 287 / 3
    repeats = [int(times) for times in re.findall(r"repeated (\d+) times: ", "\n".join(lines))]
    # R11: right behind `enabled` on stdout, capture drops possibly older lines of stderr, including
    # bars
    dropped = json.loads(call("show", "train", "--json", store=store))["ledger"]["stderr"][
        "dropped"
    ]
    # of 12 batches in 24 epochs
    missing = 288 - sum(repeats) - (len(warnings) - len(repeats))
    assert 0 <= missing <= dropped
    for stream in ("stdout", "stderr"):
        assert "\n\n\n" not in call("logs", "train", "--stream", stream, store=store), "R31"


def test_metadata_has_every_record_with_its_numbers(trained: tuple[Path, str]) -> None:
    """R18, R19: lines as printed, with every digit. R25 (2): the X axis is the epoch."""
    store, printed = trained
    exact = [line for line in printed.splitlines() if line.startswith("{")]
    records = call("metadata", "train", "--format", "jsonl", store=store).splitlines()
    assert records == exact
    document = json.loads(call("show", "train", "--json", store=store))
    assert document["x_axis"]["key"] == "epoch"
    assert document["x_axis"]["rule"] == 2
    ledger = document["ledger"]["stdout"]
    assert ledger["read"] == sum(ledger[name] for name in ledger if name != "read")
    assert (ledger["commands"], ledger["dropped"], ledger["lost"]) == (2, 1, 0)


@pytest.mark.parametrize("to", ["file", "terminal"])
def test_demo_from_end_to_end(tmp_path: Path, to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGSHIPPER_AGENT", "off")  # it would outlive the test by some seconds
    pexpect = pytest.importorskip("pexpect")
    command = ["-m", "examples.demo", "--fast", "--out", str(tmp_path / "out")]
    if to == "file":
        with open(tmp_path / "said", "wb") as file:
            status = subprocess.run(
                [sys.executable, *command],
                cwd=EXAMPLES.parent,
                stdin=subprocess.DEVNULL,
                stdout=file,
                timeout=scaled(RUN_SECS),
            ).returncode
        text = (tmp_path / "said").read_text()
    else:
        output, status = pexpect.run(
            f"{sys.executable} {' '.join(command)}",
            cwd=str(EXAMPLES.parent),
            timeout=scaled(RUN_SECS),
            withexitstatus=True,
            dimensions=(40, 120),
        )
        text = output.decode()
    assert status == 0, text
    assert "MISSING" not in text
    for heading in (
        "What the terminal showed",
        "What was logged",
        "newest first",
        "The graph",
        "Where to go on",
    ):
        assert heading in text
    assert (tmp_path / "out" / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_demo_with_real_servers(lokis: None, prometheuses: None, tmp_path: Path) -> None:
    """KEEP=1 leaves the servers running and prints how to stop them; the next call fails instead of
    replacing them."""
    from tests.servers.places import SETTINGS

    command = [
        sys.executable,
        "-m",
        "examples.demo_servers",
        "--fast",
        "--out",
        str(tmp_path / "out"),
    ]
    environment = {**os.environ, **SETTINGS, "KEEP": "1"}
    options: dict[str, Any] = {
        "cwd": EXAMPLES.parent,
        "stdin": subprocess.DEVNULL,
        "capture_output": True,
    }
    done = subprocess.run(command, env=environment, timeout=scaled(RUN_SECS), text=True, **options)
    pids = [int(word) for word in (tmp_path / "out" / "pids").read_text().split()]
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        assert "MISSING" not in done.stdout
        for heading in (
            "The log (LogQL)",
            "The metadata (LogQL)",
            "Which X (PromQL)",
            "How far is it (PromQL, LogQL)",
        ):
            assert heading in done.stdout
        assert f"kill {pids[0]} {pids[1]} {pids[2]}" in done.stdout
        again = subprocess.run(
            command, env=environment, timeout=scaled(RUN_SECS), text=True, **options
        )
        assert again.returncode == 1
        assert "still up from before" in again.stderr
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
    wait_until(
        lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids), "all three have ended"
    )

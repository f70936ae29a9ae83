"""Names of iterations, `sim:1`, for each command with JOB; and `sim` and `sim:*`, which stand for
all of them.

A task of a job has such a name, too, if a command supports single tasks.
"""

import argparse
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import logshipper
import logshipper_observe.commands.pages.open
import logshipper_observe.commands.pages.url
from logshipper.start.cli import main
from logshipper_ingest.loki.store import LokiStore
from logshipper_observe.commands.cli import COMMANDS
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.fakes.loki_fake import FakeLoki
from tests.tools.stores.loki_pushing import Pushing
from tests.tools.stores.reading_store import SpooledCapture

ONE = "'{}' stands for 3 jobs; name one of them"  # the error of a command on one job
# by command: the line, and its output for `sim:1`, `sim` and `sim:*` (regular expressions); jobs
# are k0, k1 and k2
TABLE = {
    "ls": ("JOB", r"^k1 ", r"^k2 .*^k1 .*^k0 ", r"^k2 .*^k1 .*^k0 "),
    "show": ("JOB", r"\Asim:1  k1", ONE, ONE),
    "info": ("JOB", r"\Asim:1  k1", r"3 total, 3 finished, 1 failed", r"sim:2  k2.*sim:1  k1"),
    "status": ("JOB", r"\Ak1  FAILED  3  sim:1\n\Z", r"3 total, 3 finished, 1 failed", r"k2.*k1.*k0"),
    "logs": (
        "JOB", r"\Athis is 1\n(\{.*\}\n){2}\Z", r"==> sim:0 k0 <==.*==> sim:2 k2 <==",
        r"\A==> sim:2 k2 <==\nthis is 2\n",
    ),
    "grep": ("this JOB", r"\Asim:1 k1:1:this is 1\n", r"k2.*k1.*k0", r"k2.*k1.*k0"),
    "monitor": ("JOB", r"\Athis is 1\n\{.*ended: FAILED", ONE, ONE),
    "metadata": (
        "JOB --keys loss", r"\A_time .* loss\n\S+ +1 +2\n\S+ +1 +1\n\Z",
        r"==> sim:0 k0 <==.*==> sim:2 k2 <==", r"==> sim:2 k2 <==.*==> sim:0 k0 <==",
    ),
    "export": (
        "JOB --what logs --output OUT.csv", r"OUT.csv: 3 lines\n", r"OUT.csv: 9 lines of 3 jobs",
        r"OUT.csv: 9 lines of 3 jobs",
    ),
    "plot": ("JOB", r"\Asim:1  k1", r"sim:0, sim:1, sim:2", r"sim:2, sim:1, sim:0"),
    "open": ("JOB --no-browser", r"\Aserves job/k1\n\Z", ONE, ONE),
    "events": ("JOB", r"sim:1: exit code 3", r"==> sim:0.*==> sim:2", r"k2.*k1.*k0"),
    "allocations": ("JOB --history", r"^k1 ", r"^k2.*^k1.*^k0", r"^k2.*^k1.*^k0"),
    "analyze": (
        "throughput --to-state FAILED JOB",
        "became FAILED: 1",
        "became FAILED: 1",
        "became FAILED: 1",
    ),
    "wait": ("JOB", r"\Ak1  FAILED  3  sim:1\n\Z", r"\Ak0.*k1.*k2", r"\Ak2.*k1.*k0"),
    "diff": ("JOB other", r"k1 +other", ONE, ONE),
    "tag": ("JOB good", r"\Asim:1  k1\nTags +good", r"sim:0  k0.*sim:2  k2", r"sim:2  k2.*sim:0  k0"),
    "annotate": ("JOB well", r"\Asim:1  k1\n.*Note +well", ONE, ONE),
    "url": ("JOB", r"^https://grafana.invalid/.*var-job=k1", ONE, ONE),
    "rm": (
        "--yes JOB", r"\ARemoved sim:1 \(k1\)\n\Z", r"\A(Removed sim:\d \(k\d\)\n){3}\Z",
        r"\A(Removed sim:\d \(k\d\)\n){3}\Z",
    ),
}  # fmt: skip
NAMES = ("sim:1", "sim", "sim:*")
JOBS = {"k0", "k1", "k2", "other", "mpi"}
Ask = Callable[..., tuple[int, str]]


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Return a function that calls a command; it returns exit code and output.

    The store has three iterations, a job of two tasks, and one more.
    """
    began_ns = time.time_ns() - 600 * NS
    store = tmp_path / "store"
    for at, (job_id, name) in enumerate(
        {**{f"k{i}": f"sim:{i}" for i in range(3)}, "other": "o"}.items()
    ):
        with SpooledCapture(store, job_id, name=name, started_ns=began_ns + at * 10 * NS) as job:
            job.lines(f"this is {at}")
            job.metadata({"epoch": 1, "loss": at}, {"epoch": 2, "loss": 2 * at})
            job.end(3 if at == 1 else 0)
    for task in range(2):
        with SpooledCapture(
            store, "mpi", name="mpi", task=task, suffix=f"t{task}", started_ns=began_ns - 60 * NS
        ) as job:
            job.lines(f"task {task}")
            job.end(task)
    fake = FakeLoki()
    for at in range(3):
        Pushing(fake, job_id=f"k{at}", name=f"sim:{at}", began_ns=began_ns + at * NS).close(NS)
    monkeypatch.setattr(
        logshipper_observe.commands.pages.url, "_open_store", lambda *_, **__: LokiStore(fake)
    )
    site = tmp_path / "site.toml"
    site.write_text(
        '[loki]\nurl = "http://loki.invalid"\n[grafana]\nurl = "https://grafana.invalid"'
    )
    monkeypatch.setattr(
        logshipper_observe.commands.pages.open, "serve",
        lambda *_, view, **__: print(f"serves {view}") or 0,
    )  # fmt: skip
    monkeypatch.setenv("LOGSHIPPER_STORE", str(store))
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str]:
        code = main([*words, *(["--site", str(site)] if words[0] == "url" else [])])
        return code, "".join(capsys.readouterr())

    return call


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("command", TABLE)
def test_each_command(command: str, name: str, ask: Ask) -> None:
    line, *patterns = TABLE[command]
    code, text = ask(command, *(name if word == "JOB" else word for word in line.split()))
    pattern = patterns[NAMES.index(name)]
    if pattern == ONE:
        assert code == 1
        assert ONE.format(name) in text
    else:
        assert code == 0, text
        assert re.search(pattern, text, re.MULTILINE | re.DOTALL), text
    with logshipper.Store.default() as store:
        removed = {"sim:1": {"k1"}}.get(name, {"k0", "k1", "k2"}) if command == "rm" else set()
        assert {job.job_id for job in store.jobs()} == JOBS - removed


def test_suggestions_are_distinct(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    monkeypatch.setenv("LOGSHIPPER_STORE", str(store))
    for job_id, name in {"p1": "sweep", "p2": "sweep", "p3": "sweeper"}.items():
        with SpooledCapture(store, job_id, name=name) as job:
            job.end(0)
    assert main(["show", "sweep*"]) == 1
    suggestions = capsys.readouterr().err.partition("did you mean ")[2].rstrip("?\n")
    assert sorted(suggestions.split(" or ")) == ["p1", "p2", "sweeper"]


def test_the_table_has_each_command_that_takes_jobs() -> None:
    commands = set()
    for name, row in COMMANDS.items():
        parser = argparse.ArgumentParser()
        row.add_options(parser)
        options = list(parser._actions)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                options += [inner for sub in action.choices.values() for inner in sub._actions]
        if any(not o.option_strings and o.metavar in ("JOB", "A") for o in options):
            commands.add(name)
    assert commands == set(TABLE)


def test_without_yes_none_is_removed(ask: Ask) -> None:
    assert ask("rm", "sim")[0] == 2, "there is no terminal on which it could ask"
    with logshipper.Store.default() as store:
        assert {job.job_id for job in store.jobs()} == JOBS


@pytest.mark.parametrize(
    ("words", "pattern"),
    {
        ("logs", "mpi:1"): r"\Atask 1\n\Z",
        ("monitor", "mpi:0"): r"\Atask 0: task 0\n.*ended",
        ("info", "mpi:1"): r"\Ampi:1  mpi\n.*FAILED",
        ("status", "mpi:1"): r"mpi  FAILED  1  mpi:1",
    }.items(),
)
def test_a_task_is_named_as_an_iteration(words: tuple[str, ...], pattern: str, ask: Ask) -> None:
    code, text = ask(*words)
    assert code == 0, text
    assert re.search(pattern, text, re.DOTALL), text


@pytest.mark.parametrize(
    ("words", "error"),
    {
        ("logs", "nothing*"): "no job's id or name matches 'nothing*'",
        ("logs", "mpi:7"): "the job has no task 7; it has 0, 1",
        ("logs", "mpi:1", "--task", "0"): "mpi:1 is task 1 already",
        ("status", "mpi:7"): "no job has the id or name 'mpi:7'",
        ("rm", "--yes", "mpi:1"): "is a task or an iteration of mpi alone, `info`",
        ("show", "mpi:1"): "is a task or an iteration of mpi alone, `info`",
    }.items(),
)
def test_what_a_task_has_not(words: tuple[str, ...], error: str, ask: Ask) -> None:
    code, text = ask(*words)
    assert code in (1, 2)
    assert error in text
    with logshipper.Store.default() as store:
        assert {job.job_id for job in store.jobs()} == JOBS

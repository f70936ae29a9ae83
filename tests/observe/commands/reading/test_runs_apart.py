"""Runs of one script, distinguished by start context and first values of records, in `ls`, `show`
and `diff`."""

import json
from pathlib import Path

from tests.observe.commands.reading.test_reading_terminal import screen
from tests.tools.stores.reading_store import Ask, SpooledCapture, ask, store

__all__ = ["ask", "store"]  # fixtures


def sweep(store: Path, *learning_rates: float) -> None:
    """Make a run of train.py for each learning rate, with its start context."""
    for number, lr in enumerate(learning_rates):
        with SpooledCapture(store, f"lr{number}", name="train.py") as job:
            job.event(
                "context",
                "started",
                command=["python", "train.py", "--lr", str(lr), "--seed", "7"],
                cwd="/home/ann/work",
                git={"commit": "12" * 20, "branch": "main", "dirty": number > 0},
                python={"version": "3.12.4", "prefix": "/home/ann/env"},
            )
            for epoch in (1, 2):
                job.metadata({"epoch": epoch, "lr": lr / epoch, "seed": 7})
            job.end()


def test_diff_has_first_values(store: Path, ask: Ask) -> None:
    sweep(store, 0.4, 0.2)
    code, out, _ = ask("diff", "lr0", "lr1", "--changed", "--json")
    assert code == 0
    options = {option["option"]: option for option in json.loads(out)["options"]}
    assert sorted(options) == ["command", "first.lr", "git.dirty"]
    assert (options["first.lr"]["a"], options["first.lr"]["b"]) == (0.4, 0.2)
    code, out, _ = ask("diff", "lr0", "lr1", "--json")
    options = {option["option"]: option for option in json.loads(out)["options"]}
    assert not options["first.epoch"]["differs"]
    assert "first.seed" not in options, "it never changed: it has its own name"


def test_ls_says_what_differs(store: Path, ask: Ask) -> None:
    sweep(store, 0.4, 0.2)
    with SpooledCapture(store, "other", name="other.py") as job:
        job.event("context", "started", command=["python", "other.py", "--lr", "1"])
        job.end()
    code, out, _ = ask("ls", "--json")
    assert code == 0
    differs = {job["job_id"]: job["differs"] for job in json.loads(out)["jobs"]}
    assert differs == {
        "lr0": {"command": "python train.py --lr 0.4 --seed 7", "git.dirty": False},
        "lr1": {"command": "python train.py --lr 0.2 --seed 7", "git.dirty": True},
        "other": {},
    }
    _, out, _ = ask("ls")
    assert "0.4" not in out, "in a pipe the columns are as they were"


def test_a_terminal_has_it_in_a_few_words(store: Path) -> None:
    sweep(store, 0.4, 0.2)
    text = screen(store, "ls", columns=100)
    assert "--lr 0.4 " in text
    assert "--lr 0.2 with changes" in text


def test_show_says_how_it_was_started(store: Path, ask: Ask) -> None:
    sweep(store, 0.4, 0.2)
    _, out, _ = ask("show", "lr1")
    for line in (
        "Command   python train.py --lr 0.2 --seed 7",
        "Folder    /home/ann/work",
        "Git       121212121212 main, with changes",
        "Python    3.12.4 /home/ann/env",
    ):
        assert line in out.splitlines()
    _, out, _ = ask("show", "lr1", "--json")
    assert json.loads(out)["start"]["git.branch"] == "main"

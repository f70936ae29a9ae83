"""Differences between runs of one name in `ls`: differing options come first."""

import json

import pytest

from logshipper_observe.model.run_differences import difference_words, run_differences


def words_of(*commands: str, **others: str) -> list[str]:
    names = ["sweep"] * len(commands)
    options = [{"command": json.dumps(command), **others} for command in commands]
    return difference_words(run_differences(names, options), names)


@pytest.mark.parametrize(
    ("commands", "words"),
    {
        ("python train.py --lr 0.1", "python train.py --lr 0.2"): ["--lr 0.1", "--lr 0.2"],
        ("train --data /long/path --lr 0.1", "train --lr 0.2 --data /long/path", "./run.sh"): [
            "--lr 0.1", "--lr 0.2", "./run.sh",
        ],
        ("python train.py --lr 0.1", "python train.py --lr 0.2", "env X=1 python3 train.py --lr 0.4"): [
            "--lr 0.1", "--lr 0.2", "--lr 0.4 X=1 env python3",
        ],
        ("bash -c 'python train.py --lr 0.1 --seed 3'", "bash -c 'python train.py --lr 0.2 --seed 3'"): [
            "--lr 0.1", "--lr 0.2",
        ],
        ("a.py x --epochs 3 --seed 3", "a.py y --epochs 4 --seed 3"): ["--epochs 3 x", "--epochs 4 y"],
        ("t --set a --lr 1", "t --set b --lr 2", "t --set b --lr 3"): [
            "--lr 1 --set a", "--lr 2 --set b", "--lr 3 --set b",
        ],
        ("t --lr 1", "t --lr 1 --debug"): ["", "--debug"],
        ("t lr=1", "t lr=2"): ["lr=1", "lr=2"],
        ("t --in /data/of/this/cluster/a.csv", "t --in /data/of/this/cluster/b.csv"): [
            "--in …/this/cluster/a.csv", "--in …/this/cluster/b.csv",
        ],
        ("t --say 'it", "t --say 'at"): ["--say 'it", "--say 'at"],
    }.items(),
)  # fmt: skip
def test_words(commands: tuple[str, ...], words: list[str]) -> None:
    assert words_of(*commands) == words

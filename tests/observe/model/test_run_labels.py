"""Labels of compared jobs name their differences."""

from itertools import product

import pytest

from logshipper_observe.model.run_differences import run_labels


def labels(*options: dict[str, str], names: tuple[str, ...] = ()) -> list[str]:
    ids = [f"id{number}" for number in range(len(options))]
    return run_labels(names or ("train.py",) * len(options), ids, options)


def test_what_differs() -> None:
    runs = [
        {"lr": lr, "model": model, "batch": "64", "seed": seed}
        for lr, model, seed in product(("0.1", "0.3"), ("mlp", "vit"), ("1", "2"))
    ]
    assert labels(*runs)[0] == "lr=0.1, model=mlp, seed=1"
    assert len(set(labels(*runs))) == 8


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        # options that vary together appear once; options with a different value in every run come
        # last
        ([{"lr": "0.1", "batch": "32"}, {"lr": "0.2", "batch": "64"}], ["lr=0.1", "lr=0.2"]),
        (
            [{"seed": "1", "lr": "a"}, {"seed": "2", "lr": "a"}, {"seed": "3", "lr": "b"}],
            ["seed=1, lr=a", "seed=2, lr=a", "seed=3, lr=b"],
        ),
        ([{"lr": "0.1"}, {}], ["lr=0.1", "train.py"]),
        ([{"lr": "0.1"}, {"lr": "0.1"}], ["train.py id0", "train.py id1"]),
        ([{"lr": "0.1"}, {"lr": "0.1"}, {"lr": "0.2"}], ["lr=0.1 id0", "lr=0.1 id1", "lr=0.2"]),
        ([{"lr": "0.30000000000000004"}, {"lr": "1e-5"}], ["lr=0.3", "lr=1e-5"]),
        ([{"set": "x" * 30}, {"set": "y"}], [f"set={'x' * 24}…", "set=y"]),
        ([{"lr": "0.1"}], ["train.py"]),
    ],
)
def test_labels(options: list[dict[str, str]], wanted: list[str]) -> None:
    assert labels(*options) == wanted


def test_names_of_their_own_stay() -> None:
    assert labels({"lr": "1"}, {"lr": "2"}, names=("a", "b")) == ["a", "b"]
    assert labels({"lr": "1"}, {"lr": "2"}, {"lr": "2"}, names=("a", "a", "b")) == [
        "a, lr=1",
        "a, lr=2",
        "b, lr=2",
    ]

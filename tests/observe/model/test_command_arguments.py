"""The named options and arguments of a command line."""

import pytest

from logshipper_observe.model.command_arguments import MAX_ARGUMENTS, arguments_of


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("python train.py --lr 0.3 --model=vit", {"--lr": "0.3", "--model": "vit"}),
        ("train -m pkg optimizer.lr=1e-3 +seed=7", {"-m": "pkg", "optimizer.lr": "1e-3", "+seed": "7"}),
        ("train --amp --shift -0.5 --name 'a b'", {"--amp": "true", "--shift": "-0.5", "--name": "a b"}),
        ("train --lr 0.1 --lr 0.2", {"--lr": "0.2"}),
        ("train --last", {"--last": "true"}),
        ("train --multirun lr=0.3", {"--multirun": "true", "lr": "0.3"}),
        ("train --a -- --b", {"--a": "true", "--b": "true"}),
        ("sh -c 'x=1; y'", {"-c": "x=1; y"}),
        ("echo 'no end", {}),
        ("echo 3=4 =5 -", {}),
        ("", {}),
    ],
)  # fmt: skip
def test_arguments(command: str, arguments: dict[str, str]) -> None:
    assert arguments_of(command) == arguments


def test_there_is_a_limit() -> None:
    words = " ".join(f"--a{number}=1" for number in range(3 * MAX_ARGUMENTS))
    assert len(arguments_of(words)) == MAX_ARGUMENTS

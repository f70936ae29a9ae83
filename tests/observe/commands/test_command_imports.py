"""The command line imports only the module of the given command."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from logshipper.start.cli import build_parser
from logshipper_observe.commands.cli import COMMANDS
from tests.tools.captures.captured_runs import TIMEOUT_SECS
from tests.tools.sources import SOURCES

CODE = """
import sys
from logshipper.start.cli import main
try:
    main(sys.argv[1:])
finally:
    print(*sys.modules, file=sys.stderr)
"""


def command_modules(folder: Path, *words: str) -> set[str]:
    """Return the command modules imported after this command line."""
    process = subprocess.run(
        [sys.executable, "-c", CODE, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": SOURCES, "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECS,
    )
    modules = process.stderr.splitlines()[-1].split()
    places = {f"logshipper_observe.commands.{row.module}" for row in COMMANDS.values()}
    return {name.rpartition(".")[2] for name in places.intersection(modules)}


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--version"], ["no-such-command"], ["check"], ["run", "--help"], ["-x", "run"]],
    ids=" ".join,
)
def test_no_command_of_reading(tmp_path: Path, words: list[str]) -> None:
    assert command_modules(tmp_path, *words) == set()


def test_each_command_stands_once_in_the_help() -> None:
    rows = re.findall(r"^  ([a-z]+)  ", build_parser(()).format_help(), re.M)
    assert sorted(rows) == sorted(["run", "check", *COMMANDS])


@pytest.mark.parametrize(
    ("words", "modules"),
    [
        ("ls show", {"ls"}),
        ("show --help", {"show"}),
        ("--no-such-option wait ls", {"wait"}),
        ("import --help", {"importing"}),
        ("monitor --help", {"monitor", "logs"}),  # monitor is `logs --follow`
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_command(tmp_path: Path, words: str, modules: set[str]) -> None:
    assert command_modules(tmp_path, *words.split()) == modules


def test_an_option_without_its_command_is_looked_for_in_all(tmp_path: Path) -> None:
    all_modules = {row.module.rpartition(".")[2] for row in COMMANDS.values()}
    assert command_modules(tmp_path, "--json") == all_modules


def test_each_command_has_a_module_of_its_own() -> None:
    assert len({row.module for row in COMMANDS.values()}) == len(COMMANDS)

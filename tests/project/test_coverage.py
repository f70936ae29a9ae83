"""tests/coverage.md: all commands, options, functions, panels and tests in its rows exist, and each
row names some."""

import argparse
import json
import re
from functools import cache

import pytest

import logshipper
from logshipper.start.cli import build_parser
from logshipper_ingest.cli import build_parser as agent_parser
from tests.tools.sources import ROOT

PAGE = ROOT / "tests" / "coverage.md"
_CELLS = re.compile(r"^\| (.+) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
ROWS = [row for row in _CELLS.findall(PAGE.read_text()) if row[0] != "capability"]
DASHBOARDS = ("job", "jobs", "cluster", "compare")


def code_spans(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def ids(row: tuple[str, ...]) -> str:
    return row[0][:40]


@cache
def commands() -> dict[str, set[str]]:
    """Return the options of each command."""
    by_command = {}
    for program, parser in (("logshipper", build_parser()), ("logshipper-agent", agent_parser())):
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, command in action.choices.items():
                    by_command[f"{program} {name}"] = {
                        option
                        for argument in command._actions
                        for option in argument.option_strings
                    }
    return by_command


@cache
def titles(dashboard: str) -> set[str]:
    """Return the titles of panels and annotations."""
    document = json.loads(
        (ROOT / "grafana" / "dashboards" / f"logshipper-{dashboard}.json").read_text()
    )
    names = {
        panel["title"]
        for outer in document["panels"]
        for panel in (outer, *outer.get("panels", ()))
    }
    return names | {annotation["name"] for annotation in document["annotations"]["list"]}


@cache
def assets() -> str:
    return "".join(
        path.read_text()
        for path in (ROOT / "observe" / "logshipper_observe" / "page" / "assets").iterdir()
    )


@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_commands_and_functions_exist(row: tuple[str, ...]) -> None:
    cell = row[1]
    assert code_spans(cell) or "](" in cell
    for name in code_spans(cell):
        if name.startswith("logshipper."):
            member: object = logshipper
            for part in name.split(".")[1:]:
                member = getattr(member, part)
            assert callable(member), name
            continue
        program, command, *options = name.split()
        assert set(options) <= commands()[f"{program} {command}"], name


@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_panels_exist(row: tuple[str, ...]) -> None:
    assert code_spans(row[2]) or row[2] == "—"
    for name in code_spans(row[2]):
        page, _, title = name.partition(" / ")
        if page == "page":
            assert title in assets(), name
        else:
            assert page in DASHBOARDS, name
            assert title in titles(page), name


@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_tests_exist(row: tuple[str, ...]) -> None:
    assert code_spans(row[3])
    for name in code_spans(row[3]):
        file, _, function = name.partition("::")
        assert re.search(rf"^def {function}\(", (ROOT / file).read_text(), re.MULTILINE), name


def test_the_whole_page_is_read() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    assert len(ROWS) == len(lines) - 2 * PAGE.read_text().count("| capability |")
    assert len(ROWS) > 30

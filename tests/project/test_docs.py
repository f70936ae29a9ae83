"""Documentation and program agree: commands, options, examples, links, make's targets, locked
versions."""

import argparse
import importlib.metadata
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from logshipper import __version__
from logshipper.fault_points import NAMES
from logshipper.start.cli import build_parser
from logshipper_grafana.tool.cli import build_parser as grafana_parser
from logshipper_ingest.cli import build_parser as agent_parser
from tests.tools.sources import ROOT

PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
)
COMMANDS_PAGE = ROOT / "docs" / "commands.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SHELL_WORDS = ("&&", "||", "|", ";", ">", ">>", "<", "&")


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def parsers() -> dict[str, argparse.ArgumentParser]:
    return {
        "logshipper": build_parser(),
        "logshipper-agent": agent_parser(),
        "logshipper-grafana": grafana_parser(),
    }


def commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield every command, such as `logshipper logs`, with its own parser."""
    for program, parser in parsers().items():
        for name, command in subparsers(parser).items():
            yield f"{program} {name}", command


def options(parser: argparse.ArgumentParser) -> set[str]:
    names = {
        option
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    return names - {"--help"}


def table_rows() -> dict[str, str]:
    """Return the rows of the table of all commands, by the command's two words."""
    rows = re.findall(
        r"^\| `(logshipper(?:-agent|-grafana)? [a-z]+)[^`]*`.*$",
        COMMANDS_PAGE.read_text(),
        re.MULTILINE,
    )
    lines = COMMANDS_PAGE.read_text().splitlines()
    return {name: next(line for line in lines if line.startswith(f"| `{name}")) for name in rows}


def test_table_has_every_command_and_no_other() -> None:
    assert set(table_rows()) == {name for name, _ in commands()}


@pytest.mark.parametrize(
    ("name", "parser"), [pytest.param(*command, id=command[0]) for command in commands()]
)
def test_table_has_every_option_and_no_other(name: str, parser: argparse.ArgumentParser) -> None:
    row = table_rows().get(name, "")
    documented = set(re.findall(r"--[a-z][a-z-]*", row.replace("-- CMD", "")))
    assert documented == options(parser)


def test_options_in_text_exist() -> None:
    """A long option in a page's code belongs to one of our commands or to a program next to it."""
    own_options = {"--version", "--help"} | {
        option for _, parser in commands() for option in options(parser)
    }
    # options of other programs, and of tests.programs.record
    foreign = {
        "--strict",
        "--lr",
        "--require-hashes",
        "--upgrade",
        "--volumes",
        "--pty",
        "--shown",
        "--web",
        "--collector",
        "--hpc-job-mapping-dir",
        "--create",
        "--now",
    }
    foreign |= {"--dbpassword", "--api", "--auth", "--max-tokens"}  # options of captured commands
    for page in PAGES:
        text = FENCE.sub("", page.read_text())
        if page.name.startswith("coming-from-"):
            text = re.sub(r"^\| .+? \|", "", text, flags=re.MULTILINE)  # commands of other systems
        code = re.findall(r"`([^`\n]+)`", text)
        page_options = {
            option for span in code for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", span)
        }
        assert page_options <= own_options | foreign, page.name


def example_lines() -> Iterator[tuple[str, str]]:
    """Yield page and command line for each line of the pages' code blocks that calls one of our
    programs."""
    for page in PAGES:
        for language, text in FENCE.findall(page.read_text()):
            if language in ("", "sh", "console"):
                for raw_line in text.splitlines():
                    line = raw_line.strip().removeprefix("$ ")
                    if re.match(r"logshipper(-agent|-grafana)? [a-z-]", line):
                        yield page.name, line


@pytest.mark.parametrize(("page", "line"), list(example_lines()))
def test_examples_are_understood(page: str, line: str) -> None:
    words = shlex.split(re.split(r" {3,}|  #", line)[0], comments=True)
    programs = parsers()
    for command in split_on(words, SHELL_WORDS):
        if command and command[0] in programs:
            try:
                programs[command[0]].parse_args(command[1:])
            except SystemExit as error:
                if error.code:
                    pytest.fail(f"{page}: {line}")


def split_on(words: list[str], separators: tuple[str, ...]) -> Iterator[list[str]]:
    part: list[str] = []
    for word in words:
        if word in separators:
            yield part
            part = []
        else:
            part.append(word)
    yield part


def anchors(page: Path) -> set[str]:
    """Return the anchors of headings: lower case, hyphens for blanks, only letters, digits, `-` and
    `_`."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{page.name}: {link}"
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), f"{page.name}: {link}"


def test_every_page_is_linked() -> None:
    linked = {link.partition("#")[0] for page in PAGES for link in LINK.findall(page.read_text())}
    names = {Path(link).name for link in linked}
    assert {page.name for page in PAGES} - {"README.md"} <= names


def test_map_of_folders_names_what_is_there() -> None:
    section = re.split(r"^## ", (ROOT / "docs" / "architecture.md").read_text(), flags=re.MULTILINE)
    (rows,) = (part for part in section if part.startswith("Map of folders"))
    folder = ROOT
    for row in rows.splitlines():
        for name in re.findall(r"`([\w/.]+)`", row):
            if name.endswith("/"):
                folder = ROOT / name
                assert folder.is_dir(), name
            elif name.endswith(".py"):
                assert (folder / name).is_file(), f"{folder.name}/{name}"


def test_make_targets() -> None:
    """`make` in the pages, in make's own help and in the Makefile has the same targets."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    mentions = {name for page in PAGES for name in re.findall(r"`make ([a-z-]+)", page.read_text())}
    assert mentions <= targets
    assert targets - {"help"} <= mentions


def locked(name: str) -> dict[str, set[str]]:
    """Return versions by package; several if they differ by Python."""
    versions: dict[str, set[str]] = {}
    text = (ROOT / "requirements" / f"{name}.lock").read_text()
    for package, version in re.findall(r"^([a-z][\w.-]*)==(\S+)", text, re.MULTILINE):
        versions.setdefault(package, set()).add(version)
    return versions


def test_lock_files_fit_together_and_name_no_machine() -> None:
    dev = locked("dev")
    demo = locked("demo")
    assert demo.items() <= dev.items()
    assert not {"pytest", "mypy", "ruff", "hypothesis"} & demo.keys(), (
        "`make demo` installs no tools"
    )
    for name in ("demo", "dev", "runtime"):
        text = (ROOT / "requirements" / f"{name}.lock").read_text()
        assert text.splitlines()[1].strip("# ") == "make lock"
        assert not re.search(r"://|--index|--find-links|(?:^|\s)/\w", text, re.MULTILINE)


def test_the_lock_of_an_installation_has_what_it_needs_and_no_more() -> None:
    """The lock has the tested versions for every machine, because builds of packages use it
    unchanged."""
    runtime = locked("runtime")
    assert runtime.items() <= locked("dev").items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    closure: set[str] = set()
    extras = project["optional-dependencies"]
    pending = [*project["dependencies"], *extras["grafana"], *extras["otlp"], *extras["notify"]]
    while pending:
        requirement = Requirement(pending.pop())
        name = canonicalize_name(requirement.name)
        applies = requirement.marker is None or requirement.marker.evaluate(
            {"extra": "", "python_version": "3.11"}
        )
        if applies and name not in closure:
            closure.add(name)
            pending += importlib.metadata.requires(name) or []
    assert runtime.keys() == closure
    text = (ROOT / "requirements" / "runtime.lock").read_text()
    for entry in re.findall(r"^[a-z].*(?:\n    .*)*", text, re.MULTILINE):
        first, *hashes = entry.split("\n")
        assert re.fullmatch(r"\S+==\S+ \\", first), "no condition"
        assert hashes
        assert all("--hash=sha256:" in line for line in hashes)


def shipped_texts() -> Iterator[tuple[Path, str]]:
    """Yield all texts for users: pages, code, deployment files."""
    files = ("README.md", "CHANGELOG.md", "Makefile", "pyproject.toml", ".ci")
    folders = (
        "docs",
        "deploy",
        "logshipper",
        "ingest",
        "observe",
        "grafana",
        "examples",
        "benchmarks",
        "requirements",
    )
    for place in (ROOT / name for name in files + folders):
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            if path.is_file() and not {"build", "__pycache__"} & set(path.parts):
                try:
                    yield path.relative_to(ROOT), path.read_text()
                except UnicodeDecodeError:
                    pass  # a picture


FROM_INDEX = re.compile(
    r"logshipper\[|(?:pipx?|uv)\b[^\n`]*\binstall\b[^\n`]*[\s'\"]logshipper(?=[\s'\"`,;=<>~!)]|$)",
    re.MULTILINE,
)


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("pip install 'logshipper[plot]'", True), ("`pip install logshipper`", True),
        ("pip install -U logshipper==1", True), ("uv tool install logshipper", True),
        ("pip install dist/logshipper-*.whl", False), ("pip install WHEEL", False),
        ("/opt/logshipper/bin/pip install matplotlib", False), ("apt install ./logshipper_0.1.0_amd64.deb", False),
    ],
)  # fmt: skip
def test_what_would_come_from_an_index_is_found(text: str, *, is_found: bool) -> None:
    assert bool(FROM_INDEX.search(text)) is is_found


def test_no_text_has_logshipper_installed_from_an_index() -> None:
    """The package with this name on the index isn't ours."""
    texts = dict(shipped_texts())
    assert len(texts) > 400
    assert [str(path) for path, text in texts.items() if FROM_INDEX.search(text)] == []


def test_root_installs_what_was_tested_and_by_hash() -> None:
    page = (ROOT / "docs" / "agent.md").read_text()
    commands = re.findall(r"^ *(/opt/logshipper/bin/pip install .*)$", page, re.MULTILINE)
    assert [shlex.split(command)[2:] for command in commands] == [
        ["--only-binary", ":all:", "--require-hashes", "-r", "requirements/runtime.lock"],
        ["--no-index", "--no-deps", "dist/logshipper-*.whl"],
    ]
    for path, text in shipped_texts():
        if path.parts[0] == "deploy":
            for line in re.findall(r".*\bpip install\b.*", text):
                assert "--require-hashes" in line or "--no-deps" in line, path


def test_dependencies_are_documented_as_locked() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text()
    lines = [line.lower().replace("_", "-") for line in page.splitlines()]
    for package, versions in locked("dev").items():
        line = next(
            (
                line
                for line in lines
                if re.match(rf"(\| {re.escape(package)} \||.*\b{package} \()", line)
            ),
            "",
        )
        assert line, f"{package} isn't in docs/dependencies.md"
        for version in versions:
            assert version in line, f"{package} is locked at {version}"


def test_changelog_has_this_version_in_short_entries() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert f"## [{__version__}]" in text
    assert len(text.splitlines()) <= 60
    for entry in re.findall(r"^- (.*)$", text, re.MULTILINE):
        assert len(re.sub(r"\]\([^)]*\)", "]", entry).split()) <= 25, entry


def test_tests_that_guarantees_name_exist() -> None:
    """Each promise also names at least one test."""
    page = (ROOT / "docs" / "guarantees.md").read_text()
    tests = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page))
    assert len(tests) > 50
    for file, name in sorted(tests):
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), (
            f"{file}::{name}"
        )
    tables = page.split("| promise | limit | shown by |")[1:]
    rows = [row for table in tables for row in table.split("\n\n")[0].strip().splitlines()[1:]]
    assert [row for row in rows if "::test_" not in row.split(" | ")[-1]] == []


def test_guarantees_count_the_fault_points() -> None:
    match = re.search(
        r"(\d+) names, in `logshipper/fault_points.py`",
        (ROOT / "docs" / "guarantees.md").read_text(),
    )
    assert match is not None
    assert int(match[1]) == len(NAMES)

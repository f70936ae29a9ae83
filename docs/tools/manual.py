"""Man pages from argparse: `python -m docs.tools.manual FOLDER` writes a compressed page for each
program and each command, such as logshipper-run.1.gz. SOURCE_DATE_EPOCH sets their date."""

import argparse
import gzip
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from docs.tools.parsers import commands_of, parsers
from logshipper import __version__
from logshipper.start.cli import _GROUPS

_WIDTH = 78  # of source lines; mandoc's style limit is 80
_UNBROKEN = 10_000  # of argparse's lines, whatever the terminal has
_ESCAPES = str.maketrans(
    {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # argparse of Python 3.14, with FORCE_COLOR
_SECTIONS = {"examples": "EXAMPLES", "exit codes": "EXIT STATUS"}  # paragraphs of epilogs
_GROUP_TITLES = {"positional arguments": ".SH ARGUMENTS", "options": ".SH OPTIONS"}
_HEADING = re.compile(rf"({'|'.join(_SECTIONS)}):\s*")
_DOCUMENTATION = "/usr/share/doc/logshipper"  # of the packages


def pages(date: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the source of each page. date: as 2026-11-30."""
    programs = parsers()
    for parser in programs:
        others = [other.prog for other in programs if other is not parser]
        summary = (parser.description or "").rstrip(".")
        yield parser.prog, _page(parser, summary, others, date)
        commands = commands_of(parser)
        assert commands is not None
        for row in commands._get_subactions():
            command = commands.choices[row.dest]
            yield _name(command), _page(command, row.help or "", [parser.prog], date)


def _page(parser: argparse.ArgumentParser, summary: str, others: Iterable[str], date: str) -> str:
    name, formatter = _name(parser), parser._get_formatter()
    formatter._width = _UNBROKEN
    sections = _sections(parser.epilog or "")
    description = "\n\n".join(filter(None, (parser.description, sections.pop("", ""))))
    commands = commands_of(parser)
    lines = [
        f'.TH {_escape(name.upper())} 1 {date} "logshipper {__version__}" logshipper',
        ".nh", ".ad l", ".SH NAME", f"{_escape(name)} \\- {_escape(summary)}",
        ".SH SYNOPSIS", *_synopsis(parser, formatter),
        *_section("DESCRIPTION", _text(description)),
        *_section("COMMANDS", _command_rows(commands) if commands else ()),
    ]  # fmt: skip
    for group in parser._action_groups:
        actions = [
            action
            for action in group._group_actions
            if action is not commands and action.help != argparse.SUPPRESS
        ]
        if actions:
            title = group.title or ""
            lines.append(_GROUP_TITLES.get(title, f'.SS "{_escape(title)}"'))
            lines += _text(group.description or "")
            lines += [line for action in actions for line in _action(action, formatter)]
    for section in ("EXIT STATUS", "EXAMPLES"):
        lines += _section(section, _text(sections.get(section, "")))
    pages = ", ".join(f"\\fB{_escape(other)}\\fR(1)" for other in others)
    lines += [".SH SEE ALSO", f"{pages}, {_DOCUMENTATION}/docs/commands.md"]
    return "\n".join(lines) + "\n"


def _synopsis(parser: argparse.ArgumentParser, formatter: argparse.HelpFormatter) -> list[str]:
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, prefix="")
    usage = _COLOUR.sub("", formatter.format_help()).strip()
    arguments = _escape(usage.removeprefix(parser.prog).strip())
    unbroken = re.sub(r"\[[^][]*\]", lambda option: option[0].replace(" ", "\0"), arguments)
    lines = textwrap.wrap(unbroken, _WIDTH // 2, break_long_words=False, break_on_hyphens=False)
    return [
        ".HP",
        f"\\fB{_escape(parser.prog)}\\fR",
        *(line.replace("\0", r"\ ") for line in lines),
    ]


def _command_rows(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> Iterator[str]:
    """Yield the commands with their summaries, those of `logshipper` in the groups of its help."""
    rows = {row.dest: row for row in commands._get_subactions()}
    grouped = sorted(rows) == sorted(" ".join(_GROUPS.values()).split())
    for group, names in (_GROUPS if grouped else {"": " ".join(rows)}).items():
        if group:
            yield f'.SS "{group}"'
        for name in names.split():
            yield from (".TP", f"\\fB{_escape(_name(commands.choices[name]))}\\fR(1)")
            yield from _filled(rows[name].help or "")


def _action(action: argparse.Action, formatter: argparse.HelpFormatter) -> Iterator[str]:
    """Yield an argument or an option with its help."""
    options = ", ".join(f"\\fB{_escape(option)}\\fR" for option in action.option_strings)
    values = ""
    if action.nargs != 0:
        default = formatter._get_default_metavar_for_optional(action) if options else action.dest
        values = f"\\fI{_escape(formatter._format_args(action, default))}\\fR"
    yield from (".TP", f"{options} {values}".strip())
    yield from _filled(formatter._expand_help(action) if action.help else "")


def _sections(epilog: str) -> dict[str, str]:
    """Return the paragraphs of an epilog by section; other paragraphs by ""."""
    found: dict[str, str] = {}
    for paragraph in re.split(r"\n\s*\n", epilog.rstrip()):
        heading = _HEADING.match(paragraph)
        title = _SECTIONS[heading[1]] if heading else ""
        text = paragraph[heading.end(1) + 1 :].lstrip(" ").lstrip("\n") if heading else paragraph
        found[title] = f"{found[title]}\n\n{text}" if title in found else text
    return found


def _section(title: str, lines: Iterable[str]) -> list[str]:
    content = list(lines)
    return [f".SH {title}", *content] if content else []


def _text(text: str) -> Iterator[str]:
    """Yield paragraphs. Indented lines stay as they are."""
    blocks = [block for block in re.split(r"\n\s*\n", text) if block.strip()]
    for number, block in enumerate(blocks):
        if number:
            yield ".PP"
        for indented, lines in groupby(block.splitlines(), lambda line: line.startswith(" ")):
            if indented:
                literal = textwrap.dedent("\n".join(lines)).splitlines()
                yield from (
                    ".RS 4",
                    ".nf",
                    *(_guard(_escape(line)) for line in literal),
                    ".fi",
                    ".RE",
                )
            else:
                yield from _filled(" ".join(lines))


def _filled(text: str) -> Iterator[str]:
    for line in textwrap.wrap(
        _escape(text), _WIDTH, break_long_words=False, break_on_hyphens=False
    ):
        yield _guard(line)


def _guard(line: str) -> str:
    """Keep troff from reading a line as a request."""
    return f"\\&{line}" if line.startswith((".", "'")) else line


def _escape(text: str) -> str:
    return text.translate(_ESCAPES)


def _name(parser: argparse.ArgumentParser) -> str:
    return parser.prog.replace(" ", "-")


def write(folder: Path, date: str) -> None:
    """Write all pages into this folder, compressed, without the time of the build."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(date):
        (folder / f"{name}.1.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes the man pages of all commands.")
    parser.add_argument("folder", type=Path, help="such as usr/share/man/man1")
    folder: Path = parser.parse_args().folder
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not epoch.isdecimal():
        parser.error("SOURCE_DATE_EPOCH must hold the seconds since 1970: git log -1 --format=%ct")
    write(folder, f"{datetime.fromtimestamp(int(epoch), UTC):%Y-%m-%d}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

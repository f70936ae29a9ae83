"""What `logshipper-agent check` finds, and how it is shown."""

import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TextIO

from logshipper.safe_text import safe

Level = Literal["ok", "note", "wrong"]
_WIDTH = 100


class Finding(NamedTuple):
    """What a check says of one thing; its fields are keys of `--json`."""

    level: Level  # ok; note: works, with something to know; wrong: must be fixed
    about: str  # server, folder or option
    words: str  # what is so
    fix: str = ""  # what to do, "" where there is nothing


def print_findings(findings: Sequence[Finding], out: TextIO | None = None) -> None:
    """For people: what is wrong comes last, so that it is what a terminal still shows. out: None
    for stdout."""
    stream = sys.stdout if out is None else out
    ranks: tuple[Level, ...] = ("ok", "note", "wrong")
    for level in ranks:
        for finding in findings:
            if finding.level == level:
                print(safe(f"{level:5} {finding.about}: {finding.words}"), file=stream)
                for line in textwrap.wrap(safe(finding.fix), _WIDTH):
                    print(f"        {line}", file=stream)
    counts = {level: sum(finding.level == level for finding in findings) for level in ranks}
    print(f"{counts['ok']} ok, {counts['note']} to note, {counts['wrong']} wrong", file=stream)


def as_document(findings: Iterable[Finding]) -> dict[str, Any]:  # Any: JSON
    """For `--json`."""
    names = {"fix": "mend"}  # as the document has had it from its first version
    documents = [
        {names.get(name, name): value for name, value in finding._asdict().items()}
        for finding in findings
    ]
    return {
        "wrong": sum(finding["level"] == "wrong" for finding in documents),
        "findings": documents,
    }


def exit_code(findings: Iterable[Finding]) -> int:
    """1 where something is wrong."""
    return int(any(finding.level == "wrong" for finding in findings))

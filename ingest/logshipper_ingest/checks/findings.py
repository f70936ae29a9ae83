"""Findings of `logshipper-agent check` and their output."""

import textwrap
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from logshipper.safe_text import safe

Level = Literal["ok", "note", "wrong"]
_WIDTH = 100


class Finding(NamedTuple):
    """A result about one thing. Its fields are keys of `--json`."""

    level: Level  # ok; note: works, with a remark; wrong: must be fixed
    about: str  # server, folder or option
    words: str  # the finding
    fix: str = ""  # the remedy, "" for none


ok, note, wrong = partial(Finding, "ok"), partial(Finding, "note"), partial(Finding, "wrong")


def print_findings(findings: Sequence[Finding]) -> None:
    """Print findings for people. Problems come last, where a terminal shows them."""
    ranks: tuple[Level, ...] = ("ok", "note", "wrong")
    for level in ranks:
        for finding in findings:
            if finding.level == level:
                print(safe(f"{level:5} {finding.about}: {finding.words}"))
                for line in textwrap.wrap(safe(finding.fix), _WIDTH):
                    print(f"        {line}")
    counts = {level: sum(finding.level == level for finding in findings) for level in ranks}
    print(f"{counts['ok']} ok, {counts['note']} to note, {counts['wrong']} wrong")


def as_document(findings: Iterable[Finding]) -> dict[str, Any]:  # Any: JSON
    """Return the document for `--json`."""
    names = {"fix": "mend"}  # key of the document since its first version
    documents = [
        {names.get(name, name): value for name, value in finding._asdict().items()}
        for finding in findings
    ]
    wrong_count = sum(document["level"] == "wrong" for document in documents)
    return {"wrong": wrong_count, "findings": documents}


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 1 if anything is wrong."""
    return int(any(finding.level == "wrong" for finding in findings))

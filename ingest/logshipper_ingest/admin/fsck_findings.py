"""What `logshipper-agent fsck` finds, and how it is shown."""

import json
import sys
from collections.abc import Sequence
from typing import Literal, NamedTuple

from logshipper.safe_text import safe
from logshipper_ingest.console.text_table import plural

SCHEMA = "logshipper-agent.fsck/1"
EXIT_WRONG = 3
MAX_FINDINGS = 10_000  # that are kept: a hostile job may make any number

Level = Literal["note", "wrong"]


class Fault(NamedTuple):
    """Something that isn't as it should be in a spool, a database or the quarantine."""

    level: Level  # note: nothing is lost by it; or wrong
    path: str
    offset: int  # in bytes, -1 for the whole of it
    what: str  # what is so
    means: str  # for the lines
    does: str  # what the agent, or --repair, does about it
    fixed: bool = False  # by this call


class Examination(NamedTuple):
    """What was read, and the faults in it."""

    captures: int
    segment_bytes: int
    lines: int
    entries: int  # of the quarantine
    faults: list[Fault]
    left_out: int  # how many more faults there are


def show(examination: Examination, *, as_json: bool) -> int:
    """Prints it; returns the exit code."""
    faults = examination.faults
    wrong = sum(fault.level == "wrong" and not fault.fixed for fault in faults)
    if as_json:
        names = {"fixed": "mended"}  # as the document has had it from its first version
        fault_documents = [
            {names.get(name, name): value for name, value in fault._asdict().items()}
            for fault in faults
        ]
        document = {
            **examination._asdict(),
            "schema": SCHEMA,
            "wrong": wrong,
            "faults": fault_documents,
        }
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        sys.stdout.write(
            "".join(map(_fault_text, sorted(faults, key=lambda fault: fault.level == "wrong")))
        )
        _sum_up(examination, wrong)
    return EXIT_WRONG if wrong else 0


def _fault_text(fault: Fault) -> str:
    where = fault.path if fault.offset < 0 else f"{fault.path}: at byte {fault.offset}"
    done = "fixed: " if fault.fixed else ""
    return f"{fault.level:5} {safe(f'{where}: {fault.what}')}\n        {safe(f'{fault.means}; {done}{fault.does}')}\n"


def _sum_up(examination: Examination, wrong: int) -> None:
    faults: Sequence[Fault] = examination.faults
    fixed = sum(fault.fixed for fault in faults)
    if examination.left_out:
        sys.stdout.write(f"and {examination.left_out} more\n")
    sys.stdout.write(
        f"{plural(examination.captures, 'capture')}, {examination.segment_bytes:,} bytes of segments, "
        f"{plural(examination.lines, 'line')}, {plural(examination.entries, 'entry')} in quarantine: "
        f"{wrong} wrong, {len(faults) - wrong - fixed} to note, {fixed} fixed\n"
    )

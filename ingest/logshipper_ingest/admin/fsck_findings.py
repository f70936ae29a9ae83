"""Findings of `logshipper-agent fsck` and their output."""

import json
import sys
from typing import Literal, NamedTuple

from logshipper.safe_text import safe
from logshipper_ingest.console.text_table import plural

SCHEMA = "logshipper-agent.fsck/1"
EXIT_WRONG = 3
MAX_FINDINGS = 10_000  # stored ones: a hostile job may cause any number

Level = Literal["note", "wrong"]


class Fault(NamedTuple):
    """A fault in a spool, a database or the quarantine."""

    level: Level  # note: without loss; or wrong
    path: str
    offset: int  # in bytes, -1 for the whole file
    what: str  # the fault
    means: str  # effect on the lines
    does: str  # next step of the agent or of --repair
    fixed: bool = False  # by this call


class Examination(NamedTuple):
    """The examined amounts and their faults."""

    captures: int
    segment_bytes: int
    lines: int
    entries: int  # of the quarantine
    faults: list[Fault]
    left_out: int  # number of further faults


def show(examination: Examination, *, as_json: bool) -> int:
    """Print the examination and return the exit code."""
    faults = examination.faults
    wrong = sum(fault.level == "wrong" and not fault.fixed for fault in faults)
    if as_json:
        names = {"fixed": "mended"}  # key of the document since its first version
        fault_documents = [
            {names.get(name, name): value for name, value in fault._asdict().items()}
            for fault in faults
        ]
        facts = {"schema": SCHEMA, "wrong": wrong, "faults": fault_documents}
        sys.stdout.write(json.dumps({**examination._asdict(), **facts}, indent=2) + "\n")
    else:
        ordered = sorted(faults, key=lambda fault: fault.level == "wrong")
        for fault in ordered:
            where = fault.path if fault.offset < 0 else f"{fault.path}: at byte {fault.offset}"
            done = "fixed: " if fault.fixed else ""
            print(f"{fault.level:5} {safe(f'{where}: {fault.what}')}")
            print(f"        {safe(f'{fault.means}; {done}{fault.does}')}")
        _sum_up(examination, wrong)
    return EXIT_WRONG if wrong else 0


def _sum_up(examination: Examination, wrong: int) -> None:
    fixed = sum(fault.fixed for fault in examination.faults)
    if examination.left_out:
        print(f"and {examination.left_out} more")
    print(
        f"{plural(examination.captures, 'capture')}, {examination.segment_bytes:,} bytes of segments, "
        f"{plural(examination.lines, 'line')}, {plural(examination.entries, 'entry')} in quarantine: "
        f"{wrong} wrong, {len(examination.faults) - wrong - fixed} to note, {fixed} fixed"
    )

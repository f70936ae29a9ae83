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
    """level: note (nothing is lost by it) or wrong; path, offset: where, in bytes, -1 for the whole
    of it; what: is so; means: for the lines; does: what the agent, or --repair, does about it;
    fixed: by this call."""

    level: Level
    path: str
    offset: int
    what: str
    means: str
    does: str
    fixed: bool = False


class Examined(NamedTuple):
    """captures, segment_bytes, lines: that were read; entries: of the quarantine; faults: what was
    found; left_out: how many more there are."""

    captures: int
    segment_bytes: int
    lines: int
    entries: int
    faults: list[Fault]
    left_out: int


def show(examined: Examined, *, as_json: bool) -> int:
    """Prints it; returns the exit code."""
    faults = examined.faults
    wrong = sum(fault.level == "wrong" and not fault.fixed for fault in faults)
    if as_json:
        names = {"fixed": "mended"}  # as the document has had it from its first version
        shown = [
            {names.get(name, name): value for name, value in fault._asdict().items()}
            for fault in faults
        ]
        document = {**examined._asdict(), "schema": SCHEMA, "wrong": wrong, "faults": shown}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        sys.stdout.write(
            "".join(map(_shown, sorted(faults, key=lambda fault: fault.level == "wrong")))
        )
        _sum_up(examined, wrong)
    return EXIT_WRONG if wrong else 0


def _shown(fault: Fault) -> str:
    where = fault.path if fault.offset < 0 else f"{fault.path}: at byte {fault.offset}"
    done = "fixed: " if fault.fixed else ""
    return f"{fault.level:5} {safe(f'{where}: {fault.what}')}\n        {safe(f'{fault.means}; {done}{fault.does}')}\n"


def _sum_up(examined: Examined, wrong: int) -> None:
    faults: Sequence[Fault] = examined.faults
    fixed = sum(fault.fixed for fault in faults)
    if examined.left_out:
        sys.stdout.write(f"and {examined.left_out} more\n")
    sys.stdout.write(
        f"{plural(examined.captures, 'capture')}, {examined.segment_bytes:,} bytes of segments, "
        f"{plural(examined.lines, 'line')}, {plural(examined.entries, 'entry')} in quarantine: "
        f"{wrong} wrong, {len(faults) - wrong - fixed} to note, {fixed} fixed\n"
    )

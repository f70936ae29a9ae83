"""`logshipper status JOB...`: states, a line each; a name that isn't there is told, and the others
are answered."""

import argparse
import sys
from typing import TYPE_CHECKING

from logshipper.safe_text import safe
from logshipper_observe.base.words import exit_short
from logshipper_observe.commands.info import EXIT_UNKNOWN, found_of, print_found, totals_words

if TYPE_CHECKING:
    from logshipper_observe.model.job_info import JobInfo

SCHEMA = "logshipper.status/1"


def call(args: argparse.Namespace) -> int:
    found = found_of(args, children=False)
    if args.json:
        asked = [(name, info.job_id, info.name, info.status) for name, info in found.items()]
        fields = ("asked", "job_id", "name", "state")
        print_found(
            SCHEMA, args, [dict(zip(fields, values, strict=True)) for values in asked], found
        )
    else:
        for name, info in found.items():
            sys.stdout.write(_line(name, info) + "\n")
    return EXIT_UNKNOWN if found.unknown else 0


def _line(name: str, info: "JobInfo") -> str:
    words = (
        info.job_id or name,
        info.status,
        exit_short(info.exit_code, info.signal),
        info.name,
        totals_words(info),
    )
    return "  ".join(safe(word) for word in words if word)

"""`logshipper status JOB...`: states, a line each; unknown names are reported one by one, the
others answered."""

import argparse
import sys
from typing import TYPE_CHECKING

from logshipper.safe_text import safe
from logshipper_observe.base.words import exit_short
from logshipper_observe.commands.options import add_jobs, add_json, add_source, describe
from logshipper_observe.commands.reading.info import (
    EXIT_UNKNOWN,
    look_up,
    print_document,
    totals_words,
)

if TYPE_CHECKING:
    from logshipper_observe.model.job_info import JobInfo

SCHEMA = "logshipper.status/1"


def add_options(parser: argparse.ArgumentParser) -> None:
    describe(
        parser,
        "Prints of each of these jobs id, state, exit code or signal, and name. JOB: as for\n"
        "`info`. Unknown jobs are reported one by one, the others answered.",
        "examples:\n"
        "  logshipper status last\n"
        "  logshipper status a3-a9 train.py\n"
        "  logshipper status last --json\n"
        "  logshipper status 4711 4712 --from loki",
    )
    add_jobs(parser)
    add_json(parser)
    add_source(parser)


def call(args: argparse.Namespace) -> int:
    job_infos = look_up(args, children=False)
    if args.json:
        jobs = [
            {"asked": name, "job_id": info.job_id, "name": info.name, "state": info.status}
            for name, info in job_infos.items()
        ]
        print_document(SCHEMA, args, jobs, job_infos)
    else:
        for name, info in job_infos.items():
            sys.stdout.write(_line(name, info) + "\n")
    return EXIT_UNKNOWN if job_infos.unknown else 0


def _line(name: str, info: "JobInfo") -> str:
    words = (
        info.job_id or name,
        info.status,
        exit_short(info.exit_code, info.signal),
        info.name,
        totals_words(info),
    )
    return "  ".join(safe(word) for word in words if word)

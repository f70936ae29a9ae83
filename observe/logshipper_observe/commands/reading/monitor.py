"""`logshipper monitor JOB`: a job's state and its growing log, as in XT: `logs --follow` that
reports changes without a terminal, too."""

import argparse

from logshipper_observe.commands import options
from logshipper_observe.commands.reading import logs

_AS_LOGS_HAS_THEM = {
    "after": None, "attempt": "all", "color": "auto", "follow": True, "grep": None, "json": False, "times": False,
}  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    options.describe(
        parser,
        "Tells a job's state, prints its log from the begin, goes on while it runs, tells each\n"
        "change of its state (on standard error), and its end. Where several nodes print, +\n"
        "and - switch between them; ESC or Ctrl-C leaves, the job runs on.",
        "examples:\n"
        "  logshipper monitor last\n"
        "  logshipper monitor 4711 --from loki --for 10m\n"
        "  logshipper monitor train.py --tail 20 --task 0",
    )
    options.add_job(parser)
    parser.add_argument(
        "--for",
        dest="secs",
        type=options.seconds_number,
        metavar="SECS",
        help="leave after so long: 30, 10m",
    )
    options.add_lines(parser, "begin with the last N lines")
    options.add_source(parser)


def call(args: argparse.Namespace) -> int:
    of_logs = argparse.Namespace(**vars(args), jobs=[args.job], **_AS_LOGS_HAS_THEM)
    return logs.call(of_logs, announce=True)

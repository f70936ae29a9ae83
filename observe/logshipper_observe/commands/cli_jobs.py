"""Command lines of what reads a job: show, logs, monitor, metadata, export."""

import argparse
from typing import TYPE_CHECKING

from logshipper_observe.commands import completers
from logshipper_observe.commands.options import (
    JOB_HELP,
    Parser,
    add_command,
    add_job,
    add_json,
    add_raw_cells,
    add_source,
    completed,
    seconds_number,
    task_numbers,
    whole_number,
)

if TYPE_CHECKING:
    from logshipper_observe.commands.options import Subparsers
    from logshipper_observe.follow.log_place import LogPlace


def place(text: str) -> "LogPlace":
    """Where a log that was followed goes on."""
    from logshipper_observe.follow.log_place import LogPlace

    try:
        return LogPlace.parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} isn't a place; `logs --follow` prints one when it is left"
        ) from None


def attempt_number(text: str) -> str:
    return text if text == "all" else str(whole_number(text))


def add_show(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
        subparsers,
        "show",
        "show all that is known of a job",
        "Shows a job's state, times, account of lines, X axis and the rule that chose it,\nkeys, and events.",
        "examples:\n  logshipper show last\n  logshipper show train.py --json | jq .x_axis\n"
        "  logshipper show 4711 --from loki",
    )
    add_job(parser)
    add_json(parser)
    add_source(parser)


def add_logs(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
        subparsers,
        "logs",
        "print what a job printed",
        "Prints a job's output as its terminal showed it: both streams in order of time,\nbars in their final state.",
        "examples:\n"
        "  logshipper logs last --tail 20\n"
        "  logshipper logs train.py --follow\n"
        "  logshipper logs 4711 --follow --task 0,3 --for 10m\n"
        "  logshipper logs k3f9x2 --stream stderr --times --grep 'warn|error'\n"
        "  logshipper logs 4711 --from loki --follow",
    )
    add_job(parser)
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on while the job runs, until it has ended"
    )
    parser.add_argument(
        "--for",
        dest="secs",
        type=seconds_number,
        metavar="SECS",
        help="follow for so long only: 30, 10m",
    )
    parser.add_argument(
        "--after",
        type=place,
        metavar="PLACE",
        help="only what comes behind it; following says its PLACE",
    )
    parser.add_argument(
        "--task", type=task_numbers, metavar="N", help="only these tasks, joined by commas"
    )
    parser.add_argument(
        "--stream", choices=("stdout", "stderr", "both"), default="both", help="default: both"
    )
    parser.add_argument(
        "-n", "--tail", type=whole_number, metavar="N", help="only the last N lines (that match)"
    )
    parser.add_argument("-t", "--times", action="store_true", help="local time before each line")
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="colours, also those that the job's lines hold (default: auto, on a terminal)",
    )
    parser.add_argument(
        "--grep",
        metavar="RE",
        help="only lines in which this regular expression (Python's) matches",
    )
    parser.add_argument(
        "--attempt",
        type=attempt_number,
        default="all",
        metavar="N|all",
        help="of a restarted job (default: all)",
    )
    add_json(parser, "for programs: one JSON object a line, described in docs/reading.md")
    add_source(parser)


def add_monitor(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
        subparsers,
        "monitor",
        "watch a job: its state and its log as it grows",
        "Tells a job's state, prints its log from the begin, goes on while it runs, tells each\n"
        "change of its state (on standard error), and its end. Where several nodes print, +\n"
        "and - switch between them; ESC or Ctrl-C leaves, the job runs on.",
        "examples:\n"
        "  logshipper monitor last\n"
        "  logshipper monitor 4711 --from loki --for 10m\n"
        "  logshipper monitor train.py --tail 20 --task 0",
    )
    add_job(parser)
    parser.add_argument(
        "--for",
        dest="secs",
        type=seconds_number,
        metavar="SECS",
        help="leave after so long: 30, 10m",
    )
    parser.add_argument(
        "--task", type=task_numbers, metavar="N", help="only these tasks, joined by commas"
    )
    parser.add_argument(
        "--stream", choices=("stdout", "stderr", "both"), default="both", help="default: both"
    )
    parser.add_argument(
        "-n", "--tail", type=whole_number, metavar="N", help="begin with the last N lines"
    )
    add_source(parser)


def add_metadata(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
        subparsers,
        "metadata",
        "print a job's metadata: table, JSON lines or CSV",
        "Prints the lines of a job's stdout that are one JSON object. The table has the\n"
        "newest first; `jsonl` has the exact lines, and `csv` a column per key (nested\n"
        "ones as a.b), both in the order of printing.",
        "examples:\n"
        "  logshipper metadata last --limit 10\n"
        "  logshipper metadata last --keys epoch,loss\n"
        "  logshipper metadata train.py --format csv > train.csv\n"
        "  logshipper metadata last --summary\n"
        "  logshipper metadata train.py --by epoch\n"
        "  logshipper metadata 4711 --from loki --format jsonl",
    )
    add_job(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--format", choices=("table", "jsonl", "csv"), default="table", help="default: table"
    )
    add_json(
        how,
        "for programs: one JSON object a line with time and attempt, described in docs/reading.md",
    )
    completed(
        parser.add_argument("--keys", metavar="A,B", help="only these keys, in this order"),
        completers.keys,
    )
    parser.add_argument(
        "--limit",
        type=whole_number,
        metavar="N",
        help="only the newest N (default: all; a table on a terminal: 50)",
    )
    parser.add_argument("--all", action="store_true", help="all records")
    add_raw_cells(parser)
    parser.add_argument(
        "--attempt", type=whole_number, metavar="N", help="of a restarted job: only this attempt"
    )
    numbers = parser.add_mutually_exclusive_group()
    numbers.add_argument(
        "--summary", action="store_true", help="last, min, max, mean, std and count of each number"
    )
    numbers.add_argument(
        "--sets", action="store_true", help="a table of numbers for each set of keys in records"
    )
    completed(
        numbers.add_argument(
            "--by", metavar="KEY", help="a row of numbers for each value of this key, such as epoch"
        ),
        completers.keys,
    )
    add_source(parser)


def add_export(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
        subparsers,
        "export",
        "write jobs' metadata and logs to files: CSV, TSV, JSONL, Parquet",
        "Writes metadata and logs of one or several jobs: into one file, or with a folder as\n"
        "--output into a folder per job. Numbers keep every digit. A file appears when it is\n"
        "whole. A job that isn't there is told of, and the others are exported.",
        "examples:\n"
        "  logshipper export last\n"
        "  logshipper export train.py k3f9x2 --output runs.parquet\n"
        "  logshipper export 4711 4712 --from loki --what all --format tsv --output results/\n"
        "  logshipper export last --what logs --output train.log.csv --force",
    )
    completed(parser.add_argument("jobs", metavar="JOB", nargs="+", help=JOB_HELP), completers.jobs)
    parser.add_argument(
        "--what",
        choices=("metadata", "logs", "all"),
        help="the records, the lines, or both (default: metadata into a file, all into a folder)",
    )
    parser.add_argument(
        "--format",
        choices=("csv", "tsv", "jsonl", "parquet"),
        help="default: what FILE ends in, csv where it has no ending. Parquet needs pip install pyarrow",
    )
    parser.add_argument(
        "-o",
        "--output",
        default="./",
        metavar="FILE|FOLDER/",
        help="default: ./, that is JOB/metadata.csv and so on",
    )
    add_raw_cells(parser)
    parser.add_argument("--force", action="store_true", help="replace files that are there")
    add_json(parser)
    add_source(parser)

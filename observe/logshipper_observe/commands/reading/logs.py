"""`logshipper logs JOB`: a job's output as on its terminal; live while it runs."""

import argparse
import shlex
import sys
from typing import TYPE_CHECKING

from logshipper.errors import UsageError
from logshipper.safe_text import safe
from logshipper_ingest.console.text_table import plural
from logshipper_observe.base.output import Output
from logshipper_observe.base.running import say
from logshipper_observe.commands.options import (
    JOBS_HELP,
    LAST,
    add_color,
    add_flag,
    add_jobs,
    add_json,
    add_lines,
    add_source,
    describe,
    seconds_number,
    whole_number,
)
from logshipper_observe.commands.reading.log_reading import (
    Follower,
    LineSelection,
    Outage,
    pattern_of,
    say_ended,
    stdout_poll,
)
from logshipper_observe.commands.reading.several_jobs import Headings, answer_each
from logshipper_observe.follow.follow_keys import read_keys
from logshipper_observe.follow.log_place import LogPlace
from logshipper_observe.follow.log_writers import JsonWriter, TextWriter, Writer
from logshipper_observe.query.opening import known_jobs, open_job

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary


def place(text: str) -> LogPlace:
    """Parse the place where a followed log continues."""
    try:
        return LogPlace.parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} isn't a place; `logs --follow` prints one when it is left"
        ) from None


def attempt_number(text: str) -> str:
    return text if text == "all" else str(whole_number(text))


def add_options(parser: argparse.ArgumentParser) -> None:
    describe(
        parser,
        "Prints a job's output as its terminal showed it: both streams in order of time,\n"
        "bars in their final state; of several jobs, each under a heading.",
        "examples:\n"
        "  logshipper logs --tail 20\n"
        "  logshipper logs train.py --follow\n"
        "  logshipper logs 'train*' --tail 5\n"
        "  logshipper logs 4711 --follow --task 0,3 --for 10m\n"
        "  logshipper logs k3f9x2 --stream stderr --times --grep 'warn|error'\n"
        "  logshipper logs 4711 --from loki --follow",
    )
    add_jobs(parser, JOBS_HELP)
    add_flag(parser, "-f", "--follow", help="go on while the job runs, until it has ended")
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
        help="only lines after PLACE, which `--follow` prints",
    )
    add_lines(parser, "only the last N lines (that match)")
    add_flag(parser, "-t", "--times", help="local time before each line")
    add_color(parser, ", also those that the job's lines hold")
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
    add_json(parser, "for programs: one JSON object a line, described in docs/json.md")
    add_source(parser)


def call(args: argparse.Namespace, *, announce: bool | None = None) -> int:
    """Run the command. announce: whether to report changes of the job and its nodes on stderr;
    None: for a running job on a terminal."""
    if not args.follow and args.secs is not None:
        raise UsageError("--for", ["ends following: it needs --follow"])
    for option, value in (("--follow", args.follow), ("--after", args.after)):
        if value and len(args.jobs) > 1:
            raise UsageError(option, [f"is for one job, and {len(args.jobs)} are named"])
    args.job = (args.jobs or [LAST])[0]
    if args.follow or args.after:
        _print_one(args, announce=announce)
        return 0
    writer = _writer(args)

    def choose_task(_: "JobSummary", task: int) -> None:
        _choose_task(args, task)

    with known_jobs(args, args.jobs or [LAST], part=choose_task) as (store, job_ids, unknown):

        def answer(job_id: str, headings: Headings) -> None:
            lines = LineSelection(args)
            with store.open(job_id) as reader:
                lines.check(reader)
                job = reader.summary
                if isinstance(writer, JsonWriter):
                    writer.job_fields = headings.fields(job)
                else:
                    headings.print(job)
                lines.print(reader, writer)
            _say_lost(job, lines, headings)

        return answer_each(job_ids, unknown, answer)


def _writer(args: argparse.Namespace) -> Writer:
    if args.json:
        return JsonWriter()
    return TextWriter(Output(args.color), times=args.times, pattern=pattern_of(args.grep))


def _choose_task(args: argparse.Namespace, task: int) -> None:
    if args.task not in (None, (task,)):
        raise UsageError("--task", [f"{args.job} is task {task} already"])
    args.task = (task,)


def _say_lost(job: "JobSummary", lines: LineSelection, headings: Headings) -> None:
    if job.lost and lines.attempt is None:
        whose = f"{safe(job.name)} ({job.job_id})" if headings.is_several else "this job"
        say(f"{plural(job.lost, 'line')} of {whose} couldn't be logged: see `logshipper show`")


def _print_one(args: argparse.Namespace, *, announce: bool | None) -> None:
    """One job's lines, and those that come while it runs. announce: see `call`."""
    lines = LineSelection(args)
    writer = _writer(args)
    outage = Outage(writer, stdout_poll(), patient=args.follow)

    def choose_task(_: "JobSummary", task: int) -> None:
        _choose_task(args, task)  # also of the command that goes on
        lines.choose_task(task)

    with open_job(args, outage.through, part=choose_task) as (store, job_id):

        def look() -> "tuple[JobSummary, bool]":
            with store.open(job_id) as reader:
                lines.check(reader)
                if args.follow:
                    lines.nodes.learn(reader.captures)
                lines.print(reader, writer)
                return reader.summary, reader.is_over

        try:
            with read_keys(enabled=args.follow and not args.json) as keys:
                summary, is_over = outage.through(look)
                if args.follow and not is_over:
                    announces = sys.stderr.isatty() or announce is True
                    follower = Follower(store, job_id, lines, writer, outage, keys, announces)
                    summary, is_over = follower.follow(args.secs)
                elif announce:
                    say_ended(summary)
                if args.follow and not is_over:
                    _say_how_to_go_on(summary, lines, args)
        except KeyboardInterrupt:
            writer.clear()
            if args.follow and lines.summary is not None:
                _say_how_to_go_on(lines.summary, lines, args)
            raise
        _say_lost(summary, lines, Headings(1))


def _say_how_to_go_on(job: "JobSummary", lines: "LineSelection", args: argparse.Namespace) -> None:
    """The command that goes on behind the last line that was printed, and how to end the job."""
    options = []
    for option, value, usual in (
        ("--from", args.source, None), ("--store", args.store, None), ("--site", args.site, None),
        ("--loki-url", args.loki_url, None), ("--cluster", args.cluster, None), ("--stream", args.stream, "both"),
        ("--attempt", args.attempt, "all"), ("--grep", args.grep, None), ("--times", args.times, False),
        ("--json", args.json, False), ("--task", args.task and ",".join(map(str, args.task)), None),
        ("--after", str(lines.place), ""),
    ):  # fmt: skip
        if value not in (usual, None):
            options += [option] if value is True else [option, str(value)]
    words = shlex.join(["logshipper", "logs", job.job_id, "--follow", *options])
    say(f"the job runs on; this goes on from here: {words}")
    if job.job_id.isdecimal():
        say(f"to cancel it: scancel {job.job_id}")

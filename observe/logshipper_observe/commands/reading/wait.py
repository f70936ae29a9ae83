"""`logshipper wait JOB...`: until all, or any, of these jobs have ended; prints how they came
out."""

import argparse
import sys
import time
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from logshipper.errors import UnknownJob
from logshipper.safe_text import safe
from logshipper_ingest.console.text_table import plural
from logshipper_observe.api.job_ends import Waiting
from logshipper_observe.base.output import print_json
from logshipper_observe.base.running import say
from logshipper_observe.base.words import exit_short
from logshipper_observe.commands import options
from logshipper_observe.model.documents import job_document, unknown_documents
from logshipper_observe.query import opening

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary
    from logshipper_ingest.model.stores import JobStore

SCHEMA = "logshipper.wait/1"
EXIT_UNKNOWN, EXIT_TIMED_OUT, EXIT_NOT_COMPLETED = 1, 3, 4


def add_options(parser: argparse.ArgumentParser) -> None:
    options.describe(
        parser,
        "Waits until all of these jobs have ended, or any of them, and prints how. JOB:\n"
        "also ranges (a3-a9) and wildcards. Unknown jobs are reported, the others waited for.",
        "examples:\n"
        "  logshipper wait last && notify-send done\n"
        "  logshipper wait --any 'train*' --timeout 2h\n"
        "  logshipper wait --all a3-a9 --check --json\n"
        "  logshipper wait 4711 --from loki",
        "exit codes: 0 they have ended, 1 some are unknown (stderr says which),\n"
        "2 wrong usage, 3 the time was up, 4 with --check: one isn't COMPLETED, 130 Ctrl-C",
    )
    options.add_jobs(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--all", dest="any", action="store_false", help="until all have ended (default)"
    )
    which.add_argument("--any", dest="any", action="store_true", help="until one has ended")
    parser.add_argument(
        "--timeout",
        type=options.seconds_number,
        metavar="SECS",
        help="at most so long: seconds, or such as 30m, 2h",
    )
    options.add_flag(parser, "--check", help="exit code 4 if an ended job is not COMPLETED")
    options.add_json(parser)
    options.add_source(parser)
    parser.set_defaults(any=False)


def call(args: argparse.Namespace) -> int:
    with opening.open_store(args) as store:
        if store is None:
            raise opening.no_jobs_yet(args, args.jobs[0])
        for problem in opening.ingest(store):
            say(problem)
        ids, unknown = opening.resolve_several(store, args.jobs, args)
        for error in unknown:
            say(str(error))
        end_count = 1 if args.any else len(ids)
        job_ends = Waiting(store, ids, timeout_secs=args.timeout)
        if ids and sys.stderr.isatty():
            say(f"waiting for {'any of ' if args.any else ''}{plural(len(ids), 'job')}")
        ended = []
        for job in islice(job_ends.ended(), end_count):
            ended.append(job)
            if not args.json:
                _print_line(job)
        timed_out = len(ended) < min(end_count, len(ids))
        if args.json:
            _print_document(args, store, ended, job_ends.pending if timed_out else [], unknown)
    if unknown:
        return EXIT_UNKNOWN
    if timed_out:
        return EXIT_TIMED_OUT
    is_failed = any(job.state != "COMPLETED" for job in ended)
    return EXIT_NOT_COMPLETED if args.check and is_failed else 0


def _print_line(job: "JobSummary") -> None:
    sys.stdout.write(
        f"{job.job_id}  {job.state}  {exit_short(job.exit_code, job.signal)}  {safe(job.name)}\n"
    )
    sys.stdout.flush()


def _print_document(
    args: argparse.Namespace,
    store: "JobStore",
    ended: "Sequence[JobSummary]",
    waiting_ids: Sequence[str],
    unknown: Sequence[UnknownJob],
) -> None:
    overlay, now_ns = opening.overlay_of(store), time.time_ns()
    print_json(
        {
            "schema": SCHEMA,
            "store": opening.store_place(args),
            "timed_out": bool(waiting_ids),
            "ended": [job_document(job, now_ns, overlay.of(job.key)) for job in ended],
            "waiting": list(waiting_ids),
            "unknown": unknown_documents(unknown),
        }
    )

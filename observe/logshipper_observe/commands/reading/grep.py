"""`logshipper grep PATTERN [JOB...]`: searches the lines of many jobs."""

import argparse
import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from logshipper.errors import LogshipperError, UsageError
from logshipper_ingest.console.progress_bar import Bar
from logshipper_observe.base.running import say
from logshipper_observe.base.words import NS, count
from logshipper_observe.commands import completers, options
from logshipper_observe.commands.reading.grep_output import MatchPrinter
from logshipper_observe.model.documents import STREAMS
from logshipper_observe.query import opening
from logshipper_observe.query.listing import Listing, selection_of
from logshipper_observe.search.job_search import search_jobs
from logshipper_observe.search.line_search import LineSearch

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary

EXIT_FOUND, EXIT_NONE, EXIT_ERROR = 0, 1, 2


def add_options(parser: argparse.ArgumentParser) -> None:
    options.describe(
        parser,
        "Searches the lines of all jobs, newest first, or of selected ones, as `grep -r` searches\n"
        "files. PATTERN is a regular expression of RE2. JOB: ids, names, beginnings of ids,\n"
        "ranges (a3-a9), wildcards. A pipe gets `NAME ID:NUMBER:LINE`, a terminal headings.\n"
        "A repeat note matches like the line that it quotes, and -c counts each repeat.",
        "examples:\n"
        "  logshipper grep 'out of memory'\n"
        "  logshipper grep -i 'cuda|nccl' 'train*' --state failed\n"
        "  logshipper grep -C 3 Traceback last\n"
        "  logshipper grep -c -w nan --filter 'duration>1h'\n"
        "  logshipper grep -l -F '[rank 0] done' --since 2d\n"
        "  logshipper grep -o 'node[0-9]+' --stream stderr | sort | uniq -c\n"
        "  logshipper grep 'out of memory' --from loki --since 12h",
        "exit codes: 0 found, 1 found nothing, 2 an error (stderr says which), 130 Ctrl-C",
    )
    parser.add_argument("pattern", metavar="PATTERN", nargs="?", help="the sought lines")
    options.add_completed(
        parser, completers.jobs, "jobs", metavar="JOB", nargs="*", help="only these"
    )
    which = parser.add_argument_group("matching")
    options.add_list(
        which, "-e", metavar="PATTERN", help="a further pattern, or one that begins with -"
    )
    options.add_flag(which, "-F", "--fixed-strings", help="patterns are texts, not expressions")
    options.add_flag(which, "-i", "--ignore-case", help="upper and lower case are alike")
    options.add_flag(which, "-w", "--word-regexp", help="only whole words")
    options.add_flag(which, "-v", "--invert-match", help="the lines without a match")
    which.add_argument("--stream", choices=tuple(STREAMS), default="both", help="default: both")
    options.add_number(which, "-m", "--max-count", help="at most N lines of each job")
    form = parser.add_argument_group("output")
    options.add_number(form, "-A", "--after-context", help="also N lines behind each match")
    options.add_number(form, "-B", "--before-context", help="also N lines before each match")
    options.add_number(form, "-C", "--context", default=0, help="both")
    one = form.add_mutually_exclusive_group()
    options.add_flag(one, "-c", "--count", help="only the number of matches, of jobs with any")
    options.add_flag(one, "-l", "--files-with-matches", help="only the jobs with a match")
    options.add_flag(one, "-L", "--files-without-match", help="only the jobs without a match")
    options.add_flag(one, "-o", "--only-matching", help="only the matching parts, a line each")
    options.add_color(form)
    options.add_json(form, "one JSON object a line, described in docs/json.md")
    options.add_selection(parser)
    options.add_source(parser)


def call(args: argparse.Namespace) -> int:
    try:
        return _call(args)
    except LogshipperError as error:
        say(str(error))
        return EXIT_ERROR


def _call(args: argparse.Namespace) -> int:
    search = _search_of(args)
    query = selection_of(args)
    since_secs = args.since
    if not opening.is_from_loki(args):
        args.since = None  # Loki's own option
    faults: list[str] = []
    bar = Bar("Searching", count, " jobs")

    def report(fault: str) -> None:
        bar.clear()
        say(fault)
        faults.append(fault)

    with opening.open_store(args) as store:
        if store is None:
            opening.say_where_else(args)
            return EXIT_NONE
        for problem in opening.ingest(store, secs=opening.LIST_SECS):
            report(problem)
        listing = Listing(store, opening.overlay_of(store), query)
        jobs: Sequence[JobSummary] = listing.jobs
        if query.selects:
            jobs = [row.job for row in listing.rows()]
        if since_secs is not None:
            jobs = _newer(jobs, time.time_ns() - int(since_secs * NS))
        for error in listing.unknown:
            report(opening.unknown_words(error))
        printer = MatchPrinter(args, search, bar.clear)
        with closing(search_jobs(store, jobs, search, report)) as answers:
            for done, answer in enumerate(answers):
                bar(done, len(jobs))
                printer.print(answer)
        bar.clear()
    if faults:
        return EXIT_ERROR
    if not printer.is_found:
        opening.say_where_else(args)
    return EXIT_FOUND if printer.is_found else EXIT_NONE


def _newer(jobs: "Sequence[JobSummary]", begin_ns: int) -> "list[JobSummary]":
    return [job for job in jobs if job.ended_ns is None or job.ended_ns >= begin_ns]


def _search_of(args: argparse.Namespace) -> LineSearch:
    """Return the search. With -e, the first name is a job's. Raises UsageError."""
    patterns = args.e or []
    if patterns:
        args.jobs = [*([args.pattern] if args.pattern is not None else ()), *args.jobs]
    elif args.pattern is not None:
        patterns = [args.pattern]
    else:
        raise UsageError("PATTERN", ["is missing: give the sought text, such as 'out of memory'"])
    names_only = args.files_with_matches or args.files_without_match
    around = not (names_only or args.count or args.only_matching)
    before, after = (
        (args.context if number is None else number) if around else 0
        for number in (args.before_context, args.after_context)
    )
    return LineSearch(
        [line for pattern in patterns for line in pattern.split("\n")],
        fixed=args.fixed_strings,
        ignore_case=args.ignore_case,
        words=args.word_regexp,
        invert=args.invert_match,
        streams=STREAMS[args.stream],
        limit=1 if names_only else args.max_count,
        before=before,
        after=after,
    )

"""`logshipper ls`: the jobs of a store, newest first, filtered, sorted, and with columns of one's
own."""

import argparse
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from logshipper_observe.base.running import say
from logshipper_observe.commands import completers, options
from logshipper_observe.commands.reading.ls_answer import ListAnswer
from logshipper_observe.model.properties import field_of
from logshipper_observe.query import opening
from logshipper_observe.query.columns import parse_columns
from logshipper_observe.query.listing import JobQuery, Listing, selection_of

if TYPE_CHECKING:
    from logshipper.errors import UnknownJob

EXIT_UNKNOWN = 1
EXIT_UNREAD = 1


def add_options(parser: argparse.ArgumentParser) -> None:
    options.describe(
        parser,
        "Lists the jobs of the store, newest first. JOB: ids, names, beginnings of ids,\n"
        "ranges (a3-a9), wildcards. Conditions are on properties, tags (tags.NAME) and\n"
        "the last values of metadata, or KEY.min, KEY.max, KEY.count; all must hold.\n"
        "Operators: = == < <= > >= != <> :regex: :exists:; $none, $true, $false, $empty\n"
        "stand for nothing, a boolean, an empty text. In --columns `*` is any part of a key:\n"
        "hparams.* (those that never change), metrics.* (numbers that do), val/*, *.",
        "examples:\n"
        "  logshipper ls\n"
        "  logshipper ls --state failed,cancelled --all\n"
        "  logshipper ls --name 'train*' --limit 5\n"
        "  logshipper ls a3-a9 --filter 'loss<0.3' --filter 'duration>1h'\n"
        "  logshipper ls --tag baseline --tag dataset=cifar10 --sort loss\n"
        "  logshipper ls --columns id,name=Run,loss=Loss:.5f,tags.dataset\n"
        "  logshipper ls --columns id,loss.min,acc.max,'hparams.*' --sort loss.min\n"
        "  logshipper ls --by-state\n"
        "  logshipper ls --json | jq -r '.jobs[].job_id'\n"
        "  logshipper ls --from loki --since 2d --cluster alpha",
    )
    options.add_jobs(parser, "only these")
    options.add_number(parser, "--limit", default=10, help="at most N jobs (default: 10)")
    options.add_flag(parser, "--all", help="all jobs")
    options.add_selection(parser)
    options.add_completed(
        parser,
        completers.columns,
        "--columns",
        action="append",
        metavar="KEY=Title:FORMAT,...",
        help="these columns instead",
    )
    sort_help = "by a property, tag, key or KEY.min and the like, smallest first"
    options.add_completed(parser, completers.columns, "--sort", metavar="KEY", help=sort_help)
    options.add_flag(parser, "--reverse", help="the other way round")
    options.add_flag(parser, "--by-state", help="how many jobs there are in each state")
    options.add_json(parser)
    options.add_source(parser)


def call(args: argparse.Namespace) -> int:
    query = _job_query(args)
    columns = parse_columns(args.columns) if args.columns else []
    with opening.open_store(args) as store:
        if store is None:
            _tell_problems(args, [], [])
            ListAnswer(args, columns).print_empty(0, 0)
            return 0
        problems = opening.ingest(store, secs=opening.LIST_SECS)
        listing = Listing(store, opening.overlay_of(store), query)
        answer = ListAnswer(args, columns)
        with closing(listing.rows()) as rows:
            states = listing.states()
            if args.by_state:
                answer.states = states or Counter(row.job.state for row in rows)
                answer.matching = answer.states.total()
            else:
                answer.read(rows if args.all else islice(rows, args.limit))
                if not columns and not opening.is_from_loki(
                    args
                ):  # there, each job were a question
                    answer.compare(store)
                answer.matching = len(answer.rows)
                if (
                    opening.is_from_loki(args)
                    and query.is_costly
                    and not query.orders
                    and not args.json
                ):
                    # each further job is a question
                    answer.more = answer.matching == args.limit and not args.all
                elif states is not None:
                    answer.matching = states.total()
                else:
                    answer.matching += sum(1 for _ in rows)
        jobs, unknown = len(listing.jobs), listing.unknown
        lacking = answer.lacking(listing, query)
    _tell_problems(args, problems, unknown)
    for sentence in lacking:
        say(sentence)
    if problems and not jobs and not args.json:  # reported; the existence of jobs is unknown
        return EXIT_UNREAD
    answer.print(jobs, problems, unknown)
    return EXIT_UNKNOWN if unknown else 0


def _job_query(args: argparse.Namespace) -> JobQuery:
    sort = field_of(args.sort) if args.sort else None
    return replace(selection_of(args), sort=sort, reverse=args.reverse)


def _tell_problems(
    args: argparse.Namespace, problems: Sequence[str], unknown: "Sequence[UnknownJob]"
) -> None:
    for problem in problems:
        say(problem)
    for error in unknown:
        say(opening.unknown_words(error))
    opening.say_where_else(args)

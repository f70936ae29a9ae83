"""`logshipper ls`: the jobs of a store, newest first, filtered, sorted, and with columns of one's
own."""

import argparse
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

from logshipper_observe.base.running import say
from logshipper_observe.commands.ls_answer import Answer
from logshipper_observe.model.properties import (
    field_of,
)
from logshipper_observe.query.columns import (
    parse_columns,
)
from logshipper_observe.query.conditions import parse_condition, tag_condition
from logshipper_observe.query.listing import JobQuery, Listing
from logshipper_observe.query.opening import (
    LIST_SECS,
    ingest,
    is_from_loki,
    open_store,
    overlay_of,
    say_where_else,
    unknown_words,
)

if TYPE_CHECKING:
    from logshipper.errors import UnknownJob

EXIT_UNKNOWN = 1
EXIT_UNREAD = 1


def call(args: argparse.Namespace) -> int:
    asked = _asked(args)
    columns = parse_columns(args.columns) if args.columns else []
    with open_store(args) as store:
        if store is None:
            _tell_problems(args, [], [])
            Answer(args, columns).nothing(0, 0)
            return 0
        problems = ingest(store, secs=LIST_SECS)
        listing = Listing(store, overlay_of(store), asked)
        answer = Answer(args, columns)
        with closing(listing.rows()) as rows:
            if args.by_state:
                answer.states = Counter(row.job.state for row in rows)
                answer.matching = answer.states.total()
            else:
                answer.read(rows if args.all else islice(rows, args.limit))
                answer.matching = len(answer.rows)
                if is_from_loki(args) and asked.is_costly and not asked.orders and not args.json:
                    # each further job is a question
                    answer.more = answer.matching == args.limit and not args.all
                else:
                    answer.matching += sum(1 for _ in rows)
        jobs, unknown = len(listing.jobs), listing.unknown
        lacking = answer.lacking(listing, asked)
    _tell_problems(args, problems, unknown)
    for sentence in lacking:
        say(sentence)
    if (
        problems and not jobs and not args.json
    ):  # they were said, and nobody knows whether there are jobs
        return EXIT_UNREAD
    answer.print(jobs, problems, unknown)
    return EXIT_UNKNOWN if unknown else 0


def _asked(args: argparse.Namespace) -> JobQuery:
    conditions = [parse_condition(text) for text in args.filter or ()]
    conditions += [tag_condition(text) for text in args.tag or ()]
    return JobQuery(
        selectors=args.jobs,
        states=args.state or (),
        name=args.name or "",
        conditions=conditions,
        sort=field_of(args.sort) if args.sort else None,
        reverse=args.reverse,
    )


def _tell_problems(
    args: argparse.Namespace, problems: Sequence[str], unknown: "Sequence[UnknownJob]"
) -> None:
    for problem in problems:
        say(problem)
    for error in unknown:
        say(unknown_words(error))
    say_where_else(args)

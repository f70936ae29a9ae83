"""`logshipper allocations`: nodes that jobs have and had, newest first."""

import argparse
from datetime import datetime
from itertools import islice

from logshipper_observe.analytics.batch_jobs import NO_ALLOCATION, BatchJob
from logshipper_observe.api.store_api import Store
from logshipper_observe.base.output import Cell, Column, Output, Styled, print_json
from logshipper_observe.base.running import say
from logshipper_observe.base.words import STATE_STYLES, duration, local_with_zone, utc
from logshipper_observe.commands import completers
from logshipper_observe.commands.options import (
    add_json,
    add_source,
    completed,
    describe,
    state_names,
    whole_number,
)
from logshipper_observe.model.documents import Document
from logshipper_observe.query.opening import chosen_jobs, overlay_of, say_where_else, store_place

SCHEMA = "logshipper.allocations/1"
EXIT_UNKNOWN = 1
_COLUMNS = (
    Column("id", style="bold"),
    Column("state"),
    Column("nodes", right=True),
    Column("started"),
    Column("took", right=True),
    Column("user", flexible=True),
    Column("queue", flexible=True),
    Column("name", flexible=True, ellipsis=True),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    describe(
        parser,
        "Lists allocations, newest first: each run of a job on its nodes. JOB: ids, names,\n"
        "ranges (a3-a9), wildcards: of these jobs, or that they ran in.",
        "examples:\n"
        "  logshipper allocations\n"
        "  logshipper allocations --history --limit 50\n"
        "  logshipper allocations --state timeout --tag experiment=foo\n"
        "  logshipper allocations --history --json | jq '.allocations[].num_nodes'",
    )
    completed(
        parser.add_argument("jobs", metavar="JOB", nargs="*", default=[], help="only of these"),
        completers.jobs,
    )
    parser.add_argument("--history", action="store_true", help="include ended ones")
    state = parser.add_argument(
        "--state", type=state_names, metavar="STATE", help="only these, joined by commas"
    )
    completed(state, completers.states)
    parser.add_argument(
        "--tag", action="append", metavar="TAG|KEY=VALUE", help="only jobs with it; again for more"
    )
    parser.add_argument(
        "--limit", type=whole_number, default=50, metavar="N", help="at most N (default: 50)"
    )
    parser.add_argument("--all", action="store_true", help="all of them")
    add_json(parser)
    add_source(parser)


def call(args: argparse.Namespace) -> int:
    allocations: list[BatchJob] = []
    has_none = False
    with chosen_jobs(args) as (store, ids, errors):
        if errors and not ids:
            return EXIT_UNKNOWN
        unknown = [{"name": error.name, "reason": str(error)} for error in errors]
        if store is not None:
            tags = dict(text.partition("=")[::2] for text in args.tag or ())
            query = BatchJob.over(Store(store, overlay_of(store))).filter(
                job_id=ids, filter_tags=tags
            )
            has_none = not query
            states = args.state or ([] if args.history else ["running"])
            allocations = list(islice(query.filter(state=states), None if args.all else args.limit))
    say_where_else(args)
    if args.json:
        documents = [_document(allocation) for allocation in allocations]
        print_json(
            {
                "schema": SCHEMA,
                "store": store_place(args),
                "allocations": documents,
                "unknown": unknown,
            }
        )
    elif not allocations:
        say(
            NO_ALLOCATION
            if args.jobs and has_none
            else "no such allocations"
            if args.history or args.state
            else "no allocation runs; --history has those that did"
        )
    else:
        out = Output()
        out.table(_COLUMNS, [_row(allocation) for allocation in allocations])
    return EXIT_UNKNOWN if unknown else 0


def _row(allocation: BatchJob) -> list[Cell]:
    began, ended = allocation.start_time, allocation.end_time
    took = None if began is None or ended is None else (ended - began).total_seconds()
    name = f"{allocation.id}@{allocation.attempt}" if allocation.attempt > 1 else allocation.id
    return [
        name,
        Styled(allocation.state, STATE_STYLES.get(allocation.state, "")),
        "-" if allocation.num_nodes is None else str(allocation.num_nodes),
        "-" if allocation.start_time is None else local_with_zone(_ns(allocation.start_time)),
        "-" if took is None else duration(took),
        allocation.user,
        allocation.queue,
        allocation.name,
    ]


def _document(allocation: BatchJob) -> Document:
    return {
        "id": allocation.id,
        "scheduler_id": allocation.scheduler_id,
        "attempt": allocation.attempt,
        "state": allocation.state,
        "num_nodes": allocation.num_nodes,
        "start_time": None if allocation.start_time is None else utc(_ns(allocation.start_time)),
        "end_time": None if allocation.end_time is None else utc(_ns(allocation.end_time)),
        "name": allocation.name,
        "user": allocation.user,
        "project": allocation.project,
        "queue": allocation.queue,
        "cluster": allocation.cluster,
        "tags": dict(allocation.tags),
    }


def _ns(time: datetime) -> int:
    return round(time.timestamp() * 1e6) * 1000

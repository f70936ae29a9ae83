"""`logshipper allocations`: nodes that jobs have and had, newest first."""

import argparse
from datetime import datetime
from itertools import islice

from logshipper_observe.analytics.batch_jobs import NO_ALLOCATION, BatchJob
from logshipper_observe.api.store_api import Store
from logshipper_observe.base.output import Cell, Column, Output, print_json, state_cell
from logshipper_observe.base.running import say
from logshipper_observe.base.words import duration, local_with_zone, utc
from logshipper_observe.commands import options
from logshipper_observe.model.documents import Document, unknown_documents
from logshipper_observe.query.opening import chosen_jobs, overlay_of, say_where_else, store_place

SCHEMA = "logshipper.allocations/1"
_FIELDS = (
    "id", "scheduler_id", "attempt", "state", "num_nodes", "start_time", "end_time", "name", "user", "project",
    "queue", "cluster",
)  # fmt: skip
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
    options.describe(
        parser,
        "Lists allocations, newest first: each run of a job on its nodes. JOB: ids, names,\n"
        "ranges (a3-a9), wildcards: of these jobs, or that they ran in.",
        "examples:\n"
        "  logshipper allocations\n"
        "  logshipper allocations --history --limit 50\n"
        "  logshipper allocations --state timeout --tag experiment=foo\n"
        "  logshipper allocations --history --json | jq '.allocations[].num_nodes'",
    )
    options.add_jobs(parser, options.ONLY_HELP)
    options.add_flag(parser, "--history", help="include ended ones")
    options.add_states(parser, "only these, joined by commas")
    options.add_tag(parser)
    options.add_number(parser, "--limit", default=50, help="at most N (default: 50)")
    options.add_flag(parser, "--all", help="all of them")
    options.add_json(parser)
    options.add_source(parser)


def call(args: argparse.Namespace) -> int:
    allocations: list[BatchJob] = []
    has_none = False
    with chosen_jobs(args) as (store, ids, errors):
        if errors and not ids:
            return EXIT_UNKNOWN
        unknown = unknown_documents(errors)
        if store is not None:
            reading = Store(store, overlay_of(store))
            query = BatchJob.over(reading).filter(job_id=ids, filter_tags=options.tags_of(args))
            has_none = not query
            states = args.state or ([] if args.history else ["running"])
            allocations = list(islice(query.filter(state=states), None if args.all else args.limit))
    say_where_else(args)
    if args.json:
        documents = [_document(allocation) for allocation in allocations]
        head = {"schema": SCHEMA, "store": store_place(args)}
        print_json({**head, "allocations": documents, "unknown": unknown})
    elif not allocations:
        say(
            NO_ALLOCATION
            if args.jobs and has_none
            else "no such allocations"
            if args.history or args.state
            else "no allocation runs; --history has those that did"
        )
    else:
        Output().table(_COLUMNS, [_row(allocation) for allocation in allocations])
    return EXIT_UNKNOWN if unknown else 0


def _row(allocation: BatchJob) -> list[Cell]:
    began, ended = allocation.start_time, allocation.end_time
    took = None if began is None or ended is None else (ended - began).total_seconds()
    name = f"{allocation.id}@{allocation.attempt}" if allocation.attempt > 1 else allocation.id
    return [
        name,
        state_cell(allocation.state),
        "-" if allocation.num_nodes is None else str(allocation.num_nodes),
        "-" if began is None else local_with_zone(_ns(began)),
        "-" if took is None else duration(took),
        allocation.user,
        allocation.queue,
        allocation.name,
    ]


def _document(allocation: BatchJob) -> Document:
    times = {
        name: None if time is None else utc(_ns(time))
        for name, time in (("start_time", allocation.start_time), ("end_time", allocation.end_time))
    }
    document = {name: getattr(allocation, name) for name in _FIELDS}
    return {**document, **times, "tags": dict(allocation.tags)}


def _ns(time: datetime) -> int:
    return round(time.timestamp() * 1e6) * 1000

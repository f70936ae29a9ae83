"""`logshipper events`: changes of jobs' states, newest first."""

import argparse
from datetime import UTC, datetime
from itertools import islice

from observe.conditions import time_ns
from observe.documents import Document, moment
from observe.event_log import EventLog, EventQuery, StateEvent
from observe.opening import chosen_jobs, overlay_of, say_where_else, store_place
from observe.output import Cell, Column, Output, Styled, print_json
from observe.running import say
from observe.show import event_words
from observe.store_api import Store
from observe.words import NS, STATE_STYLES, local, local_with_zone

SCHEMA = "logshipper.events/1"
EXIT_UNKNOWN = 1
_COLUMNS = (Column("time"), Column("id", style="bold"), Column("from"), Column("to"), Column("name", flexible=True))


def call(args: argparse.Namespace) -> int:
    with chosen_jobs(args) as (store, ids, unknown):
        if store is None:
            _print(args, [], [])
            return 0
        if unknown and not ids:
            return EXIT_UNKNOWN
        found = list(islice(_query(args, Store(store, overlay_of(store)), ids), None if args.all else args.limit))
    say_where_else(args)
    _print(args, found, [{"name": error.name, "reason": str(error)} for error in unknown])
    return EXIT_UNKNOWN if unknown else 0


def _query(args: argparse.Namespace, store: Store, ids: list[str]) -> EventQuery:
    tags = dict(text.partition("=")[::2] for text in args.tag or ())
    query = EventLog(store).filter(
        job_id=ids,
        tags=tags,
        from_state=args.from_state,
        to_state=args.to_state,
        timestamp_before=_moment(args.before, "--before"),
        timestamp_after=_moment(args.after, "--after"),
        own=args.own,
    )
    return query.order_by("timestamp") if args.oldest_first else query


def _moment(text: str | None, option: str) -> datetime | None:
    return None if text is None else datetime.fromtimestamp(time_ns(option, text) / NS, UTC)


def _print(args: argparse.Namespace, events: list[StateEvent], unknown: list[Document]) -> None:
    if args.json:
        listed = [_document(event) for event in events]
        print_json({"schema": SCHEMA, "store": store_place(args), "events": listed, "unknown": unknown})
        return
    out = Output()
    if not events:
        say("no such events")
        return
    rows: list[list[Cell]] = []
    for event in events:
        time = local(event.time_ns, millis=True) if out.terminal else local_with_zone(event.time_ns)
        after: Cell = Styled(event.to_state, STATE_STYLES.get(event.to_state, ""))
        told = event.name if event.to_state else f"{event.name}: {event_words(dict(event.data))}"
        rows.append([time, event.job_id, event.from_state, after, told])
    out.table(_COLUMNS, rows)


def _document(event: StateEvent) -> Document:
    return {
        "id": event.id,
        "job_id": event.job_id,
        "name": event.name,
        "cluster": event.cluster,
        **moment("time", event.time_ns),
        "from_state": event.from_state,
        "to_state": event.to_state,
        "data": dict(event.data),
    }

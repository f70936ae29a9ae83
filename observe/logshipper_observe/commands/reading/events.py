"""`logshipper events`: changes of jobs' states and other events, newest first."""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any

from logshipper.errors import UsageError
from logshipper.safe_text import safe
from logshipper_observe.api.event_log import EventLog, EventQuery, StateEvent
from logshipper_observe.api.store_api import Store
from logshipper_observe.base import output
from logshipper_observe.base.running import say
from logshipper_observe.base.words import local, local_with_zone
from logshipper_observe.commands import completers, options
from logshipper_observe.commands.reading.several_jobs import Headings
from logshipper_observe.model.documents import Document, moment, unknown_documents
from logshipper_observe.model.job_events import words_of_event
from logshipper_observe.query import opening

SCHEMA = "logshipper.events/1"
EXIT_UNKNOWN = 1
KIND_CHARS = 40
FOLLOW_SECS, FOLLOW_LOKI_SECS = 1.0, 5.0  # between two looks
# how much later than newer ones an event may come while events are followed
_LATE = timedelta(seconds=120)
_COLUMNS = (
    output.Column("time"),
    output.Column("id", style="bold"),
    output.Column("event"),
    output.Column("from"),
    output.Column("to"),
    output.Column("name", flexible=True),
)
_NARROW = (*_COLUMNS[:3], output.Column("what", flexible=True))

KINDS = (
    "state", "user_event", "mode_changed", "heartbeat_lost", "heartbeat_found", "lines_lost", "lines_left_out",
    "segment_damaged", "not_captured", "job_ended", "values_masked",
    "notification_failed", "notifications_held_back",
)  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    options.describe(
        parser,
        "Lists what happened to jobs, newest first: changes of their states and modes, late\n"
        "heartbeats, lost lines, and what they told themselves. JOB: ids, names, ranges\n"
        "(a3-a9), wildcards; several are printed under headings. Several options must all\n"
        "hold.",
        "examples:\n"
        "  logshipper events\n"
        "  logshipper events last --kind user_event --data step=100\n"
        "  logshipper events --to-state failed --after 2026-05-01\n"
        "  logshipper events --from-state RESTART_READY --to-state running     restarts\n"
        "  logshipper events --scheduler-id 4711 --changes --json\n"
        "  logshipper events a3-a9 --oldest-first --tag experiment=foo\n"
        "  logshipper events last --follow",
    )
    options.add_jobs(parser, options.ONLY_HELP)
    options.add_list(
        parser,
        "--id",
        metavar="EVENT",
        help="this event (as --json has it, or as Balsam numbers it); again for more",
    )
    options.add_list(
        parser,
        "--scheduler-id",
        metavar="ID",
        help="of this job of the scheduler, and of jobs inside it",
    )
    options.add_list(
        parser, "--batch-job-id", metavar="ID", help="the same for Balsam's batch jobs"
    )
    for word in ("from", "to"):
        options.add_completed(
            parser,
            completers.states,
            f"--{word}-state",
            type=options.event_state,
            metavar="STATE",
            help=f"only changes {word} this state",
        )
    options.add_completed(
        parser,
        lambda **_: KINDS,
        "--kind",
        action="append",
        metavar="KIND",
        help="state, user_event, mode_changed, ...; again for more",
    )
    options.add_list(
        parser,
        "--data",
        metavar="KEY=VALUE|JSON",
        help="content of the event's data; repeat for more",
    )
    options.add_between(parser)
    options.add_tag(parser)
    options.add_flag(parser, "--changes", help="only changes of states")
    options.add_flag(parser, "--oldest-first", help="the other way round")
    options.add_number(
        parser,
        "--limit",
        default=50,
        help="at most N events (default: 50); under headings, of each job",
    )
    options.add_flag(parser, "--all", help="all events")
    options.add_flag(
        parser, "--follow", help="oldest first, then each new one, until the JOBs end, or Ctrl-C"
    )
    options.add_json(parser)
    options.add_source(parser)


def call(args: argparse.Namespace) -> int:
    with opening.chosen_jobs(args) as (store, ids, unknown):
        if unknown and not ids:
            return EXIT_UNKNOWN
        if store is None:
            _print(args, [], [])
            return 0
        reading = Store(store, opening.overlay_of(store))
        query = _query(args, reading, ids)
        if args.follow:
            opening.say_where_else(args)
            pause_secs = FOLLOW_LOKI_SECS if opening.is_from_loki(args) else FOLLOW_SECS
            _follow(args, reading, query, ids, pause_secs)
            return EXIT_UNKNOWN if unknown else 0
        is_several = len(ids) > 1 and not args.json
        headings = Headings(len(ids))
        for job_id in ids if is_several else ():
            headings.print(reading.job(job_id).summary)
            _print(args, _first(args, query.filter(job_id=job_id)), [])
        events = [] if is_several else _first(args, query)
        for problem in reading.problems:
            say(safe(problem))
    opening.say_where_else(args)
    if not is_several:
        _print(args, events, unknown_documents(unknown))
    return EXIT_UNKNOWN if unknown else 0


def _first(args: argparse.Namespace, query: EventQuery) -> list[StateEvent]:
    return list(islice(query, None if args.all else args.limit))


def _query(args: argparse.Namespace, store: Store, ids: list[str]) -> EventQuery:
    after, before = options.between_of(args)
    query = EventLog(store).filter(
        id=args.id or (),
        job_id=ids,
        scheduler_id=args.scheduler_id or (),
        batch_job_id=args.batch_job_id or (),
        tags=options.tags_of(args),
        data=parse_data(args.data or ()),
        kind=args.kind or (),
        from_state=args.from_state,
        to_state=args.to_state,
        timestamp_before=before,
        timestamp_after=after,
        own=not args.changes,
    )
    return query.order_by("timestamp") if args.oldest_first else query


def parse_data(texts: "list[str] | tuple[str, ...]") -> dict[str, Any]:  # Any: JSON
    """Parse `KEY=VALUE` and JSON objects to one object; other values are texts. Raises UsageError."""
    data: dict[str, Any] = {}
    for text in texts:
        if text.lstrip().startswith("{"):
            fields = _json(text)
            if not isinstance(fields, dict):
                raise UsageError("--data", [f"{text[:60]!r} isn't a JSON object"])
            data |= fields
            continue
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError("--data", [f"{text[:60]!r} is neither KEY=VALUE nor a JSON object"])
        parsed = _json(value)
        data[key] = value if parsed is None and value.strip() != "null" else parsed
    return data


def _json(text: str) -> Any:  # Any: JSON; None for other texts
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# ---- following


def _follow(
    args: argparse.Namespace, store: Store, query: EventQuery, ids: list[str], pause_secs: float
) -> None:
    """First the last ones, then each one when it comes, until the jobs have ended, or Ctrl-C."""
    after, before = options.between_of(args)
    events_by_id: dict[str, StateEvent] = {}  # not printed (again)
    newest_first = iter(query.order_by("-timestamp"))
    last = list(islice(newest_first, None if args.all else args.limit))
    horizon = _horizon(last)
    since = horizon - _LATE
    # else they would seem to have come late
    for event in takewhile(lambda event: event.timestamp >= since, newest_first):
        events_by_id[event.id] = event
    for event in _new(reversed(last), events_by_id):
        _print_line(args, event)
    sys.stdout.flush()
    goes_on = True
    while goes_on and (before is None or datetime.now(UTC) <= before):
        # one more look after the end
        goes_on = not ids or any(store.job(job_id).is_running for job_id in ids)
        if goes_on:
            time.sleep(pause_secs)
        since = horizon - _LATE
        begin = max(since, after) if after else since
        later = query.order_by("timestamp").filter(timestamp_after=begin)
        for event in _new(later, events_by_id):
            _print_line(args, event)
            horizon = max(horizon, _horizon([event]))
        sys.stdout.flush()
        recent = (event for event in events_by_id.values() if event.timestamp >= since)
        events_by_id = {event.id: event for event in recent}


def _horizon(events: list[StateEvent]) -> datetime:
    """Return the time up to which events are known: a fast clock hides no later events."""
    now = datetime.now(UTC)
    return min(max((event.timestamp for event in events), default=now), now)


def _new(
    events: "Iterator[StateEvent] | EventQuery", events_by_id: dict[str, StateEvent]
) -> Iterator[StateEvent]:
    for event in events:
        if event.id not in events_by_id:
            events_by_id[event.id] = event
            yield event


def _print_line(args: argparse.Namespace, event: StateEvent) -> None:
    if args.json:
        output.write_json(output.to_json({"schema": SCHEMA, **_document(event)}) + "\n")
        return
    out = output.Output()
    time_words, job, kind, before, after, description = _row(out, event)
    change = [before, " -> ", after, "  "] if event.to_state else []
    out.line(
        time_words, "  ", output.Styled(str(job), "bold"), "  ", kind, "  ", *change, description
    )


# ---- printing


def _print(args: argparse.Namespace, events: list[StateEvent], unknown: list[Document]) -> None:
    if args.json:
        head = {"schema": SCHEMA, "store": opening.store_place(args)}
        output.print_json(
            {**head, "events": [_document(event) for event in events], "unknown": unknown}
        )
        return
    out = output.Output()
    if not events:
        say("no such events; `logshipper events` without any option shows the newest of all")
        return
    rows = [_row(out, event) for event in events]
    if (
        out.terminal
        and sum(output.natural_widths(_COLUMNS, rows)) + 2 * (len(_COLUMNS) - 1) > out.columns
    ):
        out.table(_NARROW, list(map(_narrow_row, rows, events)))
    else:
        out.table(_COLUMNS, rows)


def _row(out: output.Output, event: StateEvent) -> list[output.Cell]:
    at = local(event.time_ns, millis=True) if out.terminal else local_with_zone(event.time_ns)
    kind = event.kind.replace("_", " ")  # untrusted, of any length
    kind_text = kind if len(kind) <= KIND_CHARS else f"{kind[: KIND_CHARS - 1]}…"
    after = output.state_cell(event.to_state)
    return [at, event.job_id, kind_text, event.from_state, after, _description(event)]


def _narrow_row(row: list[output.Cell], event: StateEvent) -> list[output.Cell]:
    """Return the row without its states, which the sentence repeats: it needs the room."""
    if not event.to_state:
        return [*row[:3], _description(event)]
    change = f"{event.from_state} -> {event.to_state}" if event.from_state else event.to_state
    words = ", ".join(filter(None, (change, words_of_event(event))))
    return [*row[:3], output.state_cell(event.to_state, f"{event.name}: {words}")]


def _description(event: StateEvent) -> str:
    words = words_of_event(event)
    return f"{event.name}: {words}" if words else event.name


def _document(event: StateEvent) -> Document:
    return {
        "id": event.id,
        "job_id": event.job_id,
        "name": event.name,
        "cluster": event.cluster,
        **moment("time", event.time_ns),
        "kind": event.kind,
        "from_state": event.from_state,
        "to_state": event.to_state,
        "message": event.message,
        "data": dict(event.data),
        "source_id": event.source_id,
        "source_data": dict(event.source_data),
    }

"""Events of a job's database in order of time, read by the page: of a job with millions of them
only ids are kept."""

import json
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from logshipper_ingest.model.job import EventsAsked, JobEvent
from logshipper_ingest.sqlite_file import damaged

_PAGE = 500
_MOST_NAMES = 20  # that the database looks for


def read_stored_events(
    fetch: Callable[..., list[tuple[Any, ...]]],
    path: str,
    attempts: Mapping[int, int],
    asked: EventsAsked,
) -> Iterator[JobEvent]:
    """fetch: a query's rows; attempts: of the captures that are looked at, by their numbers. Raises
    StoreError."""
    where, values = _where(asked)
    direction = "DESC" if asked.newest_first else "ASC"
    order = f"ORDER BY time_ns {direction}, id {direction}"
    ids_query = f"SELECT id FROM event{where} {order}"  # noqa: S608  constants
    ids = array("q", (its_id for (its_id,) in fetch(ids_query, *values)))
    for begin in range(0, len(ids), _PAGE):
        some = ", ".join(map(str, ids[begin : begin + _PAGE]))
        page_query = f"SELECT time_ns, capture, event FROM event WHERE id IN ({some}) {order}"  # noqa: S608  numbers
        for time_ns, capture, text in fetch(page_query):
            if capture in attempts:
                try:
                    event = JobEvent(time_ns, json.loads(text), attempts[capture], capture)
                except ValueError as error:
                    raise damaged(path, str(error)) from None
                if asked.has(event):
                    yield event


def _where(asked: EventsAsked) -> tuple[str, list[object]]:
    """What the database leaves out itself. Of names it only sees whether they stand anywhere in an
    event."""
    found: list[str] = []
    values: list[object] = []
    if asked.begin_ns:
        found.append("time_ns >= ?")
        values.append(asked.begin_ns)
    if asked.end_ns:
        found.append("time_ns < ?")
        values.append(asked.end_ns)
    if 0 < len(asked.names) <= _MOST_NAMES and all(name.isascii() for name in asked.names):
        found.append(f"({' OR '.join(['instr(event, ?)'] * len(asked.names))})")
        values += [json.dumps(name) for name in asked.names]
    return f" WHERE {' AND '.join(found)}" if found else "", values

"""Reads events of a job's database in order of time, in pages; keeps only ids in memory."""

import json
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from logshipper_ingest.model.job import JobEvent, JobEventFilter
from logshipper_ingest.sqlite_file import damaged

_PAGE = 500
_MOST_NAMES = 20  # names in a query


def read_stored_events(
    fetch: Callable[..., list[tuple[Any, ...]]],
    path: str,
    attempts: Mapping[int, int],
    event_filter: JobEventFilter,
) -> Iterator[JobEvent]:
    """Yield the selected events.

    fetch: runs a query; attempts: by the numbers of the selected captures. Raises StoreError.
    """
    where, values = _where(event_filter)
    direction = "DESC" if event_filter.newest_first else "ASC"
    order = f"ORDER BY time_ns {direction}, id {direction}"
    ids_query = f"SELECT id FROM event{where} {order}"  # noqa: S608  constants
    ids = array("q", (event_id for (event_id,) in fetch(ids_query, *values)))
    for begin in range(0, len(ids), _PAGE):
        page_ids = ", ".join(map(str, ids[begin : begin + _PAGE]))
        page_query = f"SELECT time_ns, capture, event FROM event WHERE id IN ({page_ids}) {order}"  # noqa: S608  numbers
        for time_ns, capture, text in fetch(page_query):
            if capture in attempts:
                try:
                    event = JobEvent(time_ns, json.loads(text), attempts[capture], capture)
                except ValueError as error:
                    raise damaged(path, str(error)) from None
                if event_filter.has(event):
                    yield event


def _where(event_filter: JobEventFilter) -> tuple[str, list[object]]:
    """Return the database's part of the filter. For names it tests only if the text occurs in an
    event."""
    conditions: list[str] = []
    values: list[object] = []
    if event_filter.begin_ns:
        conditions.append("time_ns >= ?")
        values.append(event_filter.begin_ns)
    if event_filter.end_ns:
        conditions.append("time_ns < ?")
        values.append(event_filter.end_ns)
    if 0 < len(event_filter.names) <= _MOST_NAMES and all(
        name.isascii() for name in event_filter.names
    ):
        conditions.append(f"({' OR '.join(['instr(event, ?)'] * len(event_filter.names))})")
        values += [json.dumps(name) for name in event_filter.names]
    return f" WHERE {' AND '.join(conditions)}" if conditions else "", values

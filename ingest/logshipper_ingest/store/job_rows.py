"""Reads a job's events and children from its database in pages: there may be a million."""

import json
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from logshipper_ingest.model.job import Child, ChildChange, JobEvent, JobEventFilter
from logshipper_ingest.sqlite_file import damaged

OWN_DETAILS = "import"  # the importer's own data among a job's details
NO_END_NS = (1 << 63) - 1  # later than any row
_EVENTS = 500  # of a page
_CHILDREN = 1000  # likewise
_MOST_NAMES = 20  # names in a query
_CHILD_QUERY = """
SELECT ifnull(iteration, 0), id, name, iteration, state, source_state, exit_code, signal, started_ns, ended_ns, nodes,
    cores, details
FROM child WHERE (ifnull(iteration, 0), id) > (?, ?) ORDER BY ifnull(iteration, 0), id LIMIT ?"""
_CHANGE_QUERY = """
SELECT time_ns, child_change.id, name, from_state, to_state, source_from, source_to
FROM child_change JOIN child ON child.id = child
WHERE (time_ns, child_change.id) {0} (?, ?) AND time_ns {2} ? ORDER BY time_ns {1}, child_change.id {1} LIMIT ?"""

Row: TypeAlias = tuple[Any, ...]  # Any: columns, as the schema has them
Fetch: TypeAlias = Callable[..., list[Row]]  # runs a query


def pages(fetch: Fetch, query: str, after: Row, *values: object, size: int) -> Iterator[list[Row]]:
    """Yield a query's rows in pages of a size.

    query: its first two columns are the order of its rows, and its parameters are the two values
    that a page follows, then values and the size.
    """
    while page := fetch(query, *after, *values, size):
        yield page
        if len(page) < size:
            return
        after = page[-1][:2]


def time_range(*, newest_first: bool, begin_ns: int, end_ns: int) -> tuple[Row, int, Row]:
    """Return the place before the first row, the time that ends the query, and its operators."""
    end_ns = end_ns or NO_END_NS
    if newest_first:
        return (end_ns, -1), begin_ns, ("<", "DESC", ">=")
    return (begin_ns, -1), end_ns, (">", "ASC", "<")


def read_stored_events(
    fetch: Fetch, path: str, attempts: Mapping[int, int], event_filter: JobEventFilter
) -> Iterator[JobEvent]:
    """Yield the selected events in order; keeps only ids in memory.

    attempts: by the numbers of the selected captures. Raises StoreError.
    """
    where, values = _where(event_filter)
    direction = "DESC" if event_filter.newest_first else "ASC"
    order = f"ORDER BY time_ns {direction}, id {direction}"
    ids_query = f"SELECT id FROM event{where} {order}"  # noqa: S608  constants
    ids = array("q", (event_id for (event_id,) in fetch(ids_query, *values)))
    for begin in range(0, len(ids), _EVENTS):
        page_ids = ", ".join(map(str, ids[begin : begin + _EVENTS]))
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
    names = event_filter.names
    if 0 < len(names) <= _MOST_NAMES and all(map(str.isascii, names)):
        conditions.append(f"({' OR '.join(['instr(event, ?)'] * len(names))})")
        values += map(json.dumps, names)
    return f" WHERE {' AND '.join(conditions)}" if conditions else "", values


def read_children(fetch: Fetch, path: str) -> Iterator[Child]:
    """Yield children in order of their iterations. path: names the database in errors."""
    if has_children(fetch):
        for page in pages(fetch, _CHILD_QUERY, (-NO_END_NS, 0), size=_CHILDREN):
            try:
                yield from (Child._make((*row[2:-1], json.loads(row[-1] or "{}"))) for row in page)
            except ValueError as error:
                raise damaged(path, str(error)) from None


def read_child_changes(
    fetch: Fetch, *, newest_first: bool, begin_ns: int, end_ns: int
) -> Iterator[ChildChange]:
    """Yield changes in order of time, or newest first. begin_ns, end_ns: as for all readers."""
    after, last_ns, operators = time_range(
        newest_first=newest_first, begin_ns=begin_ns, end_ns=end_ns
    )
    if has_children(fetch):
        query = _CHANGE_QUERY.format(*operators)
        for page in pages(fetch, query, after, last_ns, size=_CHILDREN):
            yield from (ChildChange(row[0], *row[2:]) for row in page)


def has_children(fetch: Fetch) -> bool:
    return bool(fetch("SELECT 1 FROM sqlite_master WHERE name = 'child'"))

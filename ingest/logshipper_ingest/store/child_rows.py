"""Reads a job's children from its database in pages: there may be a million."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from logshipper_ingest.model.job import Child, ChildChange
from logshipper_ingest.sqlite_file import damaged

OWN_DETAILS = "import"  # the importer's own data among a job's details
_PAGE = 1000
_NO_END_NS = (1 << 63) - 1  # later than any change
_CHILDREN = """
SELECT ifnull(iteration, 0), id, name, iteration, state, source_state, exit_code, signal, started_ns, ended_ns, nodes,
    cores, details
FROM child WHERE (ifnull(iteration, 0), id) > (?, ?) ORDER BY ifnull(iteration, 0), id LIMIT ?"""
_CHANGES = """
SELECT time_ns, child_change.id, name, from_state, to_state, source_from, source_to
FROM child_change JOIN child ON child.id = child
WHERE (time_ns, child_change.id) {0} (?, ?) AND time_ns {2} ? ORDER BY time_ns {1}, child_change.id {1} LIMIT ?"""
_OLDEST_FIRST = _CHANGES.format(">", "ASC", "<")
_NEWEST_FIRST = _CHANGES.format("<", "DESC", ">=")

Fetch = Callable[..., list[tuple[Any, ...]]]  # Any: columns, as the schema has them


def read_children(fetch: Fetch, path: str) -> Iterator[Child]:
    """Yield children in order of their iterations.

    fetch: queries the database; path: names it in errors.
    """
    last = (-_NO_END_NS, 0)
    while has_children(fetch):
        page = fetch(_CHILDREN, *last, _PAGE)
        try:
            yield from (Child._make((*row[2:-1], json.loads(row[-1] or "{}"))) for row in page)
        except ValueError as error:
            raise damaged(path, str(error)) from None
        if len(page) < _PAGE:
            return
        last = page[-1][:2]


def read_child_changes(
    fetch: Fetch, *, newest_first: bool, begin_ns: int, end_ns: int
) -> Iterator[ChildChange]:
    """Yield changes in order of time, or newest first. begin_ns, end_ns: as for all readers."""
    end_ns = end_ns or _NO_END_NS
    query = _NEWEST_FIRST if newest_first else _OLDEST_FIRST
    after, last_ns = ((end_ns, -1), begin_ns) if newest_first else ((begin_ns, -1), end_ns)
    while has_children(fetch):
        page = fetch(query, *after, last_ns, _PAGE)
        yield from (ChildChange(row[0], *row[2:]) for row in page)
        if len(page) < _PAGE:
            return
        after = page[-1][:2]


def has_children(fetch: Fetch) -> bool:
    return bool(fetch("SELECT 1 FROM sqlite_master WHERE name = 'child'"))

"""`api/jobs/ID/records`: pages of a job's metadata as a table; `.../records.csv` and
`.../records.jsonl`: all of it."""

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from logshipper_ingest.model.metadata_keys import is_auto, names_of, parse_record
from logshipper_observe.formats.csv_rows import records_as_csv
from logshipper_observe.model.job_facts import record_hints
from logshipper_observe.model.records import Path, display_text, flat
from logshipper_observe.page.api.request import PageAnswer, Request, tagged_answer

if TYPE_CHECKING:
    from logshipper_ingest.model.job import MetadataRecord

MOST_ROWS = 500
DEFAULT_ROWS = 100
MOST_SEARCHED = 50_000  # records that one answer searches; the page requests the next answer
VALUE_CHARS = 1000  # of a value in the table; the exact line is longer
LINE_CHARS = 1 << 16
NEWEST, OLDEST = "newest", "oldest"


def records(request: Request) -> PageAnswer:
    """Return a page of records, newest first, or oldest first with `order=oldest`.

    Parameters: `from` and `skip` continue at the last answer's `next`; `limit` is the number of
    rows; `search` selects records by their text, in any case. The answer's `hints` are about lines
    that nearly are records.
    """
    order = request.choice("order", NEWEST, OLDEST)
    from_ns, skip = request.number("from", 0), request.number("skip", 0)
    limit = request.number("limit", DEFAULT_ROWS, 1, MOST_ROWS)
    needle = request.params.get("search", "").casefold()
    with request.store.job(request.parts[0]) as reader:
        keys = reader.keys()
        if order == NEWEST:
            candidates = reader.records(newest_first=True, end_ns=from_ns and from_ns + 1)
        else:
            candidates = reader.records(begin_ns=from_ns)
        place_ns, place_skip = from_ns, 0  # the last time, and the number of its records so far
        rows: list[MetadataRecord] = []
        search_count = 0
        next_place = None
        for record in candidates:
            if record.time_ns != place_ns:
                place_ns, place_skip = record.time_ns, 0
            if record.time_ns != from_ns or place_skip >= skip:
                if len(rows) == limit or search_count == MOST_SEARCHED:
                    next_place = {"from": str(place_ns), "skip": place_skip}
                    break
                search_count += 1
                if not needle or needle in _searchable(record.line):
                    rows.append(record)
            place_skip += 1
        document = {
            **_table(rows, [key.path for key in keys]),
            "total": reader.summary.records,
            "is_over": reader.is_over,
            "searched": search_count,
            "hints": record_hints(reader),
            "next": next_place,
        }
        return tagged_answer(request, document, document)


def _searchable(line: str) -> str:
    """Return a record's text without JSON escapes."""
    if "\\" in line:
        value = parse_record(line.encode("utf-8", "surrogatepass"))
        if value is not None:
            line = json.dumps(value, ensure_ascii=False, default=str)
    return line.casefold()


def _table(records: "list[MetadataRecord]", key_paths: list[Path]) -> dict[str, Any]:  # Any: JSON
    """Return columns and rows. Values are texts, since numbers keep every printed digit."""
    flats = [flat(record.keyed_line) for record in records]
    paths = dict.fromkeys(path for values in flats for path in values)
    names = names_of(dict.fromkeys([*key_paths, *paths]))
    rows = []
    for record, values in zip(records, flats, strict=True):
        cells = [
            _short(display_text(values[path]), VALUE_CHARS) if path in values else None
            for path in paths
        ]
        rows.append({"time_ns": str(record.time_ns), "attempt": record.attempt, "capture": record.capture,
                     "origin": record.origin, "line": _short(record.line, LINE_CHARS), "cells": cells})  # fmt: skip
    return {
        "columns": [
            {"path": path, "name": names[path], "is_auto": is_auto(path)} for path in paths
        ],
        "rows": rows,
    }


def _short(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]}… ({len(text):,} characters)"


def as_csv(request: Request) -> PageAnswer:
    """Return all records, with a column per key, as `logshipper metadata --format csv` does."""
    return _file(request, "csv", "text/csv; charset=utf-8", records_as_csv)


def as_jsonl(request: Request) -> PageAnswer:
    """Return the exact lines in the order of printing."""

    def lines(all_records: _Records) -> Iterator[str]:
        return (f"{record.line}\n" for record in all_records())

    return _file(request, "jsonl", "application/jsonl", lines)


_Records = Callable[[], "Iterator[MetadataRecord]"]


def _file(
    request: Request,
    suffix: str,
    content_type: str,
    lines: Callable[[_Records], Iterator[str]],  # may read the records twice
) -> PageAnswer:
    with request.store.job(request.parts[0]) as reader:
        job_id = reader.summary.job_id
        count = reader.summary.records

    def body() -> Iterator[str]:
        with request.store.job(request.parts[0]) as reader:
            # both passes over a running job must see the same records
            limit = count if not reader.is_over else None
            yield from lines(lambda: islice(reader.records(), limit))

    return PageAnswer(body(), content_type, file_name=f"{job_id}-metadata.{suffix}")

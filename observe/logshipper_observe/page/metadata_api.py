"""`api/jobs/ID/records`, a page of a job's metadata as a table; `.../records.csv`,
`.../records.jsonl`: all of it."""

import json
from collections.abc import Callable, Iterator
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any

from logshipper_ingest.model.metadata_keys import names_of, parse_record
from logshipper_observe.formats.csv_rows import records_as_csv
from logshipper_observe.model.record_hints import record_hints
from logshipper_observe.model.records import Path, display_text, flat
from logshipper_observe.page.answers import Ask, PageAnswer, RequestRefusal, tagged_answer
from logshipper_observe.page.downloads import pieces

if TYPE_CHECKING:
    from logshipper_ingest.model.job import MetadataRecord

MOST_ROWS = 500
DEFAULT_ROWS = 100
MOST_SEARCHED = 50_000  # records that one answer looks at; the page asks for more
VALUE_CHARS = 1000  # of a value in the table; the exact line has all of it
LINE_CHARS = 1 << 16
NEWEST, OLDEST = "newest", "oldest"


def records(ask: Ask) -> PageAnswer:
    """Records newest first, or with `order=oldest` the other way. from, skip: where the last
    answer's `next` said; limit: how many; search: only those whose text has it, in any case. hints:
    lines that nearly are records."""
    order = ask.words.get("order") or NEWEST
    if order not in (NEWEST, OLDEST):
        raise RequestRefusal(
            HTTPStatus.BAD_REQUEST, f"order: {order[:40]!r} is neither {NEWEST} nor {OLDEST}"
        )
    from_ns, skip = ask.number("from", 0), ask.number("skip", 0)
    limit = ask.number("limit", DEFAULT_ROWS, 1, MOST_ROWS)
    needle = ask.words.get("search", "").casefold()
    with ask.store.job(ask.parts[0]) as reader:
        keys = reader.keys()
        if order == NEWEST:
            candidates = reader.records(newest_first=True, end_ns=from_ns and from_ns + 1)
        else:
            candidates = reader.records(begin_ns=from_ns)
        place = _Place(from_ns, 0)
        rows: list[MetadataRecord] = []
        search_count = 0
        more = False
        for record in candidates:
            before = place.skip
            place.move(record.time_ns)
            if record.time_ns == from_ns and before < skip:
                continue
            if len(rows) == limit or search_count == MOST_SEARCHED:
                more = True
                place.skip -= 1
                break
            search_count += 1
            if not needle or needle in _searchable(record.line):
                rows.append(record)
        document = {
            **_table(rows, [key.path for key in keys]),
            "total": reader.summary.records,
            "is_over": reader.is_over,
            "searched": search_count,
            "hints": record_hints(reader),
            "next": {"from": str(place.time_ns), "skip": place.skip} if more else None,
        }
        return tagged_answer(ask, document, document)


class _Place:
    """How many records of the last one's time were met."""

    def __init__(self, time_ns: int, skip: int) -> None:
        self.time_ns = time_ns
        self.skip = skip

    def move(self, time_ns: int) -> None:
        if time_ns != self.time_ns:
            self.time_ns, self.skip = time_ns, 0
        self.skip += 1


def _searchable(line: str) -> str:
    """A record's text as people see it: without escapes."""
    if "\\" in line:
        value = parse_record(line.encode("utf-8", "surrogatepass"))
        if value is not None:
            line = json.dumps(value, ensure_ascii=False, default=str)
    return line.casefold()


def _table(records: "list[MetadataRecord]", key_paths: list[Path]) -> dict[str, Any]:  # Any: JSON
    """Columns and rows. Values are texts: numbers as they were printed, to the digit."""
    flats = [flat(record.line) for record in records]
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
    return {"columns": [{"path": path, "name": names[path]} for path in paths], "rows": rows}


def _short(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]}… ({len(text):,} characters)"


def as_csv(ask: Ask) -> PageAnswer:
    """All records, a column per key, as `logshipper metadata --format csv` writes them."""
    return _file(ask, "csv", "text/csv; charset=utf-8", records_as_csv)


def as_jsonl(ask: Ask) -> PageAnswer:
    """The exact lines, in the order of printing."""
    return _file(
        ask,
        "jsonl",
        "application/jsonl",
        lambda all_of: (f"{record.line}\n" for record in all_of()),
    )


_Records = Callable[[], "Iterator[MetadataRecord]"]


def _file(
    ask: Ask, suffix: str, content_type: str, lines: Callable[[_Records], Iterator[str]]
) -> PageAnswer:
    with ask.store.job(ask.parts[0]) as reader:
        job_id = reader.summary.job_id
        count = reader.summary.records

    def body() -> Iterator[bytes]:
        with ask.store.job(ask.parts[0]) as reader:
            # both passes over a running job see the same records
            limit = count if not reader.is_over else None
            yield from pieces(lines(lambda: islice(reader.records(), limit)))

    return PageAnswer(body(), content_type, file_name=f"{job_id}-metadata.{suffix}")

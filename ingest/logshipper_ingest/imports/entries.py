"""Entries of a file: JSON objects (one per line, in an array, or in a page of a server's answer),
or rows of CSV.

The parser splits an array while it reads, because it may be as long as a disk. After a broken
element it continues with the next one.
"""

import csv
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from logshipper_ingest.imports.faults import Faults
from logshipper_ingest.imports.plain_json import MAX_DEPTH, TooDeep, parse_any, parse_object, plain
from logshipper_ingest.imports.source_file import MAX_LINE_BYTES, SourceFile, SourceLine, Unreadable
from logshipper_ingest.model.job import Json

# The text is untrusted: possessive, and no two repetitions that match the same blanks, so the time
# is linear.
_PAGE_HEAD = re.compile(
    r'\s*+\{(?:\s*+"(?:count|next|previous)"\s*+:[^\[\]{},]*+,)*+\s*+"results"\s*+:\s*+\['
)
_NEXT = re.compile(r"\}\s*+,\s*+(?=\{)|\n[^\S\n]*+(?=\{)")  # possible begin of an element
_LOOKED_AT = 50  # lines, for one that shows the form of a file
_DECODER = json.JSONDecoder()


class ImportEntry(NamedTuple):
    """line: its first line in the file."""

    line: int
    value: Json


def read_lines(file: SourceFile, faults: Faults, *, last: bool) -> Iterator[ImportEntry]:
    """Yield objects, one per line, that came since the last call. An unreadable file is a fault."""
    try:
        for line in file.lines(last=last):
            yield from _entry(file.path, line, parse_object(_decoded(line.text)), faults)
    except Unreadable as error:
        faults.leave_out_file(file.path, error.words)


def read_any(file: SourceFile, faults: Faults) -> Iterator[ImportEntry]:
    """Yield objects of a whole file in any of these forms, or as printed Python dicts, one per
    line."""
    head = file.head().lstrip()
    is_page = head[:1] == b"[" or _PAGE_HEAD.match(head[:1000].decode("latin-1")) is not None
    # any of these may be broken
    begin = [
        line for line in head.split(b"\n", _LOOKED_AT)[:_LOOKED_AT] if line.lstrip()[:1] == b"{"
    ]
    if not is_page and any(_object(line) is not None for line in begin):
        for line in file.lines(last=True):
            yield from _entry(file.path, line, _object(line.text), faults)
    elif head[:1] in (b"{", b"["):
        yield from _elements(file, faults)
    elif head:
        yield from _rows(file.path, file.lines(last=True), faults)


def _entry(
    path: str, line: SourceLine, value: Json | None, faults: Faults
) -> Iterator[ImportEntry]:
    if value is not None:
        yield ImportEntry(line.number, value)
    elif line.ended:
        faults.leave_out(path, line.number, "isn't a JSON object")
    else:
        words = (
            "is incomplete: still growing, or truncated; the import takes it once it is complete"
        )
        faults.remark(path, line.number, words)


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _object(text: bytes) -> Json | None:
    """Parse an object as JSON, or as a printed Python dict."""
    value = parse_any(_decoded(text))
    return value if isinstance(value, dict) else None


# ---- an array


def _elements(file: SourceFile, faults: Faults) -> Iterator[ImportEntry]:
    """The objects of an array, of a page's results, or one behind the other."""
    text, at, line = "", 0, 1
    past_head = False
    for more in file.texts():
        text, at = text[at:] + more, 0
        if not past_head:
            head = _PAGE_HEAD.match(text)
            past_head, at = True, head.end() if head else 0
        while (begin := text.find("{", at)) >= 0:
            line += text.count("\n", at, begin)
            at = begin
            try:
                value, end = _DECODER.raw_decode(text, at)
            except (ValueError, RecursionError) as error:
                match = _NEXT.search(text, getattr(error, "pos", at))
                if match is None and len(text) - at <= MAX_LINE_BYTES:
                    break  # the rest of it is still to be read
                faults.leave_out(file.path, line, "isn't a JSON object")
                end = match.end() if match else len(text)
            else:
                try:
                    yield ImportEntry(line, plain(text[at:end], value))
                except TooDeep:
                    faults.leave_out(file.path, line, f"is nested more than {MAX_DEPTH} deep")
            line += text.count("\n", at, end)
            at = end
        else:
            line += text.count("\n", at)
            at = len(text)
    if at < len(text):
        faults.leave_out(file.path, line, "the last element is cut short, or broken")


# ---- CSV


def _rows(path: str, lines: Iterator[SourceLine], faults: Faults) -> Iterator[ImportEntry]:
    """Yield rows by the names of the header; parses JSON and printed dicts in fields."""
    number = 0

    def texts() -> Iterator[str]:
        nonlocal number
        for line in lines:
            number = line.number
            yield line.text.decode("utf-8", "replace") + "\n"

    csv.field_size_limit(MAX_LINE_BYTES)
    rows = csv.reader(texts())
    header = [name.strip() for name in next(rows, [])]
    if len(header) < 2 or len(set(header)) != len(header):
        faults.leave_out(path, 1, "is neither JSON nor CSV with a header")
        return
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            faults.leave_out(path, number, f"isn't CSV: {error}")
            continue
        if row is None:
            return
        if len(row) != len(header):
            faults.leave_out(path, number, f"has {len(row)} fields, the header {len(header)}")
            continue
        yield ImportEntry(number, dict(zip(header, map(_field, row), strict=True)))


def _field(text: str) -> object:
    if text[:1] in ("{", "["):
        value = parse_any(text)
        return text if value is None else value
    return text

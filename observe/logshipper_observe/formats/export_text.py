"""Exported rows as CSV, TSV and JSONL: numbers are the text that the job printed, to the last
digit."""

import tempfile
from collections.abc import Iterable
from typing import TYPE_CHECKING, BinaryIO

import orjson

from logshipper.errors import LogshipperError
from logshipper_observe.base.words import uncoloured, utc
from logshipper_observe.formats import export_rows
from logshipper_observe.formats.csv_rows import CsvRows, own_titles, titles_of
from logshipper_observe.model.documents import line_document, record_document
from logshipper_observe.model.records import Path, cell, flat, record_fields

if TYPE_CHECKING:
    from logshipper_ingest.model.job import LogLine
    from logshipper_ingest.model.stores import Reader

_ROWS = 1024  # written at a time
_ROW_END = b"\xff\n"  # invalid UTF-8, so it occurs in no cell


class JsonlWriter(export_rows.RowWriter):
    """Writes one document per row: those of `logs --json` and `metadata --json`, with job and
    capture."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def records(
        self, sources: export_rows.Sources, reader: "Reader", progress: export_rows.Progress
    ) -> None:
        for block in export_rows.record_blocks(reader.records(), _ROWS):
            documents = []
            for record in block:
                source = sources.of(record.capture, record.attempt)
                head = orjson.dumps(record_document(record) | _source_document(source)).decode()
                documents.append(f"{head[:-1]},{record_fields(record.line)}}}\n")
            self._file.write("".join(documents).encode("utf-8", "backslashreplace"))
            progress(len(block))

    def lines(
        self,
        sources: export_rows.Sources,
        lines: "Iterable[LogLine]",
        progress: export_rows.Progress,
    ) -> None:
        for block in export_rows.line_blocks(lines, _ROWS):
            for line in block:
                source = sources.of(line.capture, line.attempt)
                document = line_document(line) | _source_document(source)
                self._file.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
            progress(len(block))


def _source_document(source: export_rows.ExportedCapture) -> dict[str, object]:
    return {"job_id": source.job_id, "step": source.step, "task": source.task, "host": source.host}


class CsvWriter(export_rows.RowWriter):
    """Writes CSV, or TSV with a tab as delimiter.

    A record may bring a new key, and so a new column. Rows of records wait in an unnamed file until
    all columns are known, each with the columns known at its time.
    """

    def __init__(self, file: BinaryIO, delimiter: str = ",", *, raw: bool = False) -> None:
        self._file = file
        self._delimiter = delimiter
        self._rows = CsvRows(delimiter, raw=raw)
        self._paths: dict[Path, int] = {}
        self._spill: BinaryIO | None = None
        # rows from which on the number of columns grows
        self._wider_from: list[tuple[int, int]] = []
        self._count = 0  # of records
        self._has_header = False  # with lines

    def records(
        self, sources: export_rows.Sources, reader: "Reader", progress: export_rows.Progress
    ) -> None:
        spill = self._spill = self._spill or tempfile.TemporaryFile()  # noqa: SIM115  closed by finish
        for block in export_rows.record_blocks(reader.records(), _ROWS):
            rows = []
            for record in block:
                values = flat(record.keyed_line)
                self._learn(values)
                row = [""] * len(self._paths)
                for path, value in values.items():
                    row[self._paths[path]] = cell(value)
                source = sources.of(record.capture, record.attempt)
                own_cells = _own_cells(source, record.time_ns)
                rows.append(self._rows.row([*own_cells, record.origin, *row]))
            end = _ROW_END.decode("utf-8", "surrogateescape")
            spill.write((end.join(rows) + end).encode("utf-8", "surrogateescape"))
            progress(len(block))

    def _learn(self, values: Iterable[Path]) -> None:
        former_count = len(self._paths)
        for path in values:
            self._paths.setdefault(path, len(self._paths))
        if len(self._paths) > export_rows.MAX_COLUMNS:
            raise LogshipperError(
                f"more than {export_rows.MAX_COLUMNS:,} keys are too many for a table; --format jsonl has them"
            )
        if len(self._paths) > former_count or not self._wider_from:
            self._wider_from.append((self._count, len(self._paths)))
        self._count += 1

    def lines(
        self,
        sources: export_rows.Sources,
        lines: "Iterable[LogLine]",
        progress: export_rows.Progress,
    ) -> None:
        if not self._has_header:
            self._has_header = True
            self._put(self._rows.row([*export_rows.SOURCE_TITLES, *export_rows.LINE_TITLES]))
        for block in export_rows.line_blocks(lines, _ROWS):
            rows = []
            for line in block:
                document = line_document(line)
                text = uncoloured(line.text)
                extra = [str(line.attrs.get(name, "")) for name in ("repeat", "part")]
                cells = [str(document["stream"]), str(document["kind"]), text, *extra]
                own_cells = _own_cells(sources.of(line.capture, line.attempt), line.time_ns)
                rows.append(self._rows.row([*own_cells, *cells]))
            self._put("\n".join(rows))
            progress(len(block))

    def _put(self, text: str) -> None:
        self._file.write((text + "\n").encode("utf-8", "backslashreplace"))

    def finish(self) -> None:
        if self._spill is None:
            return
        titles = titles_of(self._paths)
        source_titles = own_titles(titles, [f"_{title}" for title in export_rows.RECORD_TITLES])
        self._put(self._rows.row([*source_titles, *titles]))
        self._spill.seek(0)
        starts = iter([*self._wider_from[1:], (self._count, 0)])
        columns = self._wider_from[0][1] if self._wider_from else 0
        following, wider = next(starts)
        row = 0
        for piece in self._spill:
            if not piece.endswith(_ROW_END):
                self._file.write(piece)
                continue
            if row == following:
                columns = wider
                following, wider = next(starts)
            padding = self._delimiter.encode() * (len(self._paths) - columns)
            self._file.write(piece[: -len(_ROW_END)] + padding + b"\n")
            row += 1

    def close(self) -> None:
        if self._spill is not None:
            self._spill.close()


def _own_cells(source: export_rows.ExportedCapture, time_ns: int) -> tuple[str, ...]:
    attempt, task = str(source.attempt), str(source.task)
    return source.job_id, utc(time_ns), attempt, source.step, task, source.host

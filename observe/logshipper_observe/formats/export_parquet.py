"""Exports rows as Parquet: a column per key, of the narrowest type that holds all its values
exactly. Needs pyarrow.

Only the last row completes columns and types. So blocks of rows wait in an unnamed file as Arrow
streams, one for each run of blocks with the same columns; then they become row groups. Memory holds
a few blocks, for any length of a job.
"""

import json
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from itertools import repeat
from typing import TYPE_CHECKING, Any, BinaryIO

from logshipper.errors import LogshipperError
from logshipper_observe.base.words import uncoloured
from logshipper_observe.formats import export_rows
from logshipper_observe.formats.csv_rows import own_titles, titles_of
from logshipper_observe.model.documents import STREAM_NAMES

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from logshipper_observe.formats.record_columns import (
        EXACT_INTEGER,
        NUMBER_TEXT,
        Array,
        ColumnMaker,
        Columns,
        common_type,
        largest_integer,
    )
except ImportError:
    raise LogshipperError(
        "Parquet needs pyarrow, which is not installed: pip install pyarrow"
    ) from None

if TYPE_CHECKING:
    from logshipper_ingest.model.job import LogLine, RecordBlock
    from logshipper_ingest.model.stores import Reader
    from logshipper_observe.model.records import Path

GROUP_ROWS = 4 * export_rows.BLOCK_ROWS
_AT_WORK = 2  # blocks being parsed while the next one is read
_DECIMAL_DIGITS = 76  # of the widest decimals
_TIME = pa.timestamp("ns", "UTC")
_OWN_TYPES = (pa.string(), _TIME, pa.int32(), pa.string(), pa.int32(), pa.string(), pa.string())
_LINE_TYPES = (pa.string(), pa.string(), pa.string(), pa.int64(), pa.string())


class ParquetWriter(export_rows.RowWriter):
    """One Parquet file, of metadata or of lines."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._spill = _Spill()
        self._sources: dict[export_rows.ExportedCapture, int] = {}
        self._titles: Sequence[str] | None = None

    def records(
        self, sources: export_rows.Sources, reader: "Reader", progress: export_rows.Progress
    ) -> None:
        maker = ColumnMaker()
        at_work: deque[tuple[RecordBlock, Future[Columns]]] = deque()

        def keep() -> None:
            block, future = at_work.popleft()
            numbers = self._numbers(sources, block.captures, block.attempts, block.origins)
            self._spill.add(block.times, numbers, future.result())
            progress(len(block.times))

        # Arrow and SQLite let go of the interpreter's lock
        with ThreadPoolExecutor(_AT_WORK) as pool:
            for block in reader.record_blocks(export_rows.BLOCK_ROWS):
                if len(at_work) >= _AT_WORK:
                    keep()
                at_work.append((block, pool.submit(maker.columns, block.text, len(block.times))))
            while at_work:
                keep()

    def lines(
        self,
        sources: export_rows.Sources,
        lines: "Iterable[LogLine]",
        progress: export_rows.Progress,
    ) -> None:
        self._titles = export_rows.LINE_TITLES
        for block in export_rows.line_blocks(lines):
            columns = (
                [STREAM_NAMES[line.stream] for line in block],
                [line.kind.name.lower() for line in block],
                [uncoloured(line.text) for line in block],
                [line.attrs.get("repeat") for line in block],
                [line.attrs.get("part") and str(line.attrs["part"]) for line in block],
            )
            arrays: Columns = {
                (title,): pa.array(values, kind)
                for title, values, kind in zip(
                    export_rows.LINE_TITLES, columns, _LINE_TYPES, strict=True
                )
            }
            attempts = {line.capture: line.attempt for line in block}
            numbers = self._numbers(sources, [line.capture for line in block], attempts)
            self._spill.add([line.time_ns for line in block], numbers, arrays)
            progress(len(block))

    def _numbers(
        self,
        sources: export_rows.Sources,
        captures: Sequence[int],
        attempts: Mapping[int, int],
        origins: Sequence[str] = (),
    ) -> list[int]:
        """The numbers of the rows' sources. origins: of records."""
        places = list(zip(captures, origins or repeat(""), strict=False))
        numbers = {}
        for capture, origin in set(places):
            source = replace(sources.of(capture, attempts[capture]), origin=origin)
            numbers[capture, origin] = self._sources.setdefault(source, len(self._sources))
        return list(map(numbers.__getitem__, places))

    def finish(self) -> None:
        kinds = self._kinds()
        if self._titles is None:
            titles = titles_of(kinds)
            source_titles = own_titles(titles, [f"_{title}" for title in export_rows.RECORD_TITLES])
        else:
            titles, source_titles = list(self._titles), list(export_rows.SOURCE_TITLES)
        fields = [
            *zip(source_titles, _OWN_TYPES, strict=False),
            *zip(titles, kinds.values(), strict=True),
        ]
        with pq.ParquetWriter(self._file, pa.schema(fields)) as writer:
            tables: list[Any] = []
            for times, numbers, columns in self._spill.blocks():
                values = [
                    _cast(columns.get(path), kind, len(times)) for path, kind in kinds.items()
                ]
                tables.append(
                    pa.table([*self._source_columns(times, numbers), *values], schema=writer.schema)
                )
                if sum(table.num_rows for table in tables) >= GROUP_ROWS:
                    writer.write_table(pa.concat_tables(tables), row_group_size=2 * GROUP_ROWS)
                    tables.clear()
            if tables:
                writer.write_table(pa.concat_tables(tables), row_group_size=2 * GROUP_ROWS)

    def close(self) -> None:
        self._spill.close()

    def _kinds(self) -> "dict[Path, Any]":
        if self._titles is not None:
            return {(title,): kind for title, kind in zip(self._titles, _LINE_TYPES, strict=True)}
        kinds = {
            path: _kind(types, self._spill.largest.get(path, 0))
            for path, types in self._spill.kinds.items()
        }
        unsure = [path for path, kind in kinds.items() if kind is None]
        return kinds | self._spill.decimals(unsure) if unsure else kinds

    def _source_columns(self, times: Array, numbers: Array) -> list[Array]:
        titles = export_rows.RECORD_TITLES if self._titles is None else export_rows.SOURCE_TITLES
        return [
            times.cast(kind)
            if title == "time"
            else pa.array([getattr(source, title) for source in self._sources], kind).take(numbers)
            for title, kind in zip(titles, _OWN_TYPES, strict=False)
        ]


def _kind(types: set[Any], largest: int) -> Any | None:  # Any: Arrow's types
    """Return the type of a column from its blocks' types; None if a decimal may hold it."""
    kind = common_type(types)
    if kind in (None, NUMBER_TEXT):
        return None if types <= {pa.int64(), pa.float64(), NUMBER_TEXT} else pa.string()
    return None if len(types) > 1 and largest > EXACT_INTEGER else kind


def _cast(array: Array | None, kind: Any, rows: int) -> Array:
    """The values of a column as the type that it has in the whole file."""
    if array is None or array.null_count == len(array):
        return pa.nulls(rows, kind)
    if array.type == kind:
        return array
    if pa.types.is_decimal(kind) or array.type == pa.float64():
        as_kind: Callable[[str], object] = Decimal if pa.types.is_decimal(kind) else str
        values = array.to_pylist()
        return pa.array([None if v is None else as_kind(_text(v)) for v in values], kind)
    return array.cast(kind)


def _text(value: float | int | str) -> str:
    """The number's text: of a double the shortest that gives it back, or NaN, Infinity."""
    return json.dumps(value) if isinstance(value, float) else str(value)


class _Spill:
    """Blocks of columns in a file without a name. kinds: the types that each column had; largest:
    its largest integer by amount."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed with the spill
        self._writer: Any = None  # Arrow's
        self._paths: list[Path] = []
        self._streams: list[tuple[int, list[Path]]] = []  # begin and columns of each
        self.kinds: dict[Path, set[Any]] = {}
        self.largest: dict[Path, int] = {}

    def close(self) -> None:
        self._file.close()

    def add(self, times: Sequence[int], numbers: list[int], columns: Columns) -> None:
        for path, array in columns.items():
            types = self.kinds.setdefault(path, set())
            if array.null_count < len(array):
                types.add(array.type)
                self.largest[path] = max(self.largest.get(path, 0), largest_integer(array))
        if len(self.kinds) > export_rows.MAX_COLUMNS:
            raise LogshipperError(
                f"more than {export_rows.MAX_COLUMNS:,} keys are too many for a table; --format jsonl has them"
            )
        source_columns = [pa.array(times, pa.int64()), pa.array(numbers, pa.int32())]
        names = [str(number) for number in range(len(source_columns) + len(columns))]
        batch = pa.record_batch([*source_columns, *columns.values()], names=names)
        paths = list(columns)
        if self._writer is None or (self._paths, self._schema) != (paths, batch.schema):
            self._begin(paths, batch.schema)
        self._writer.write_batch(batch)

    def _begin(self, paths: "list[Path]", schema: Any) -> None:  # Any: Arrow's
        self._end()
        self._paths, self._schema = paths, schema
        self._streams.append((self._file.tell(), paths))
        self._writer = pa.ipc.new_stream(self._file, schema)

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def blocks(self) -> Iterator[tuple[Array, Array, Columns]]:
        """Times, numbers of sources and columns of each block, in order."""
        self._end()
        for begin, paths in self._streams:
            self._file.seek(begin)
            with pa.ipc.open_stream(self._file) as stream:
                for batch in stream:
                    times, numbers, *columns = batch.columns
                    yield times, numbers, dict(zip(paths, columns, strict=True))

    def decimals(self, paths: "Sequence[Path]") -> "dict[Path, Any]":
        """Return for each column the decimal type that holds all its values, or text."""
        sizes: dict[Path, tuple[int, int] | None] = dict.fromkeys(paths, (1, 0))
        for _, _, columns in self.blocks():
            for path in columns.keys() & sizes.keys():
                for value in pc.drop_null(columns[path]).to_pylist() if sizes[path] else ():
                    known, size = sizes[path], _digits(_text(value))
                    if known is None or size is None:
                        sizes[path] = None
                        break
                    sizes[path] = max(known[0], size[0]), max(known[1], size[1])
        return {path: _decimal(*size) if size else pa.string() for path, size in sizes.items()}


def _digits(text: str) -> tuple[int, int] | None:
    """Digits before and behind the point; None of a number that no decimal holds."""
    _, digits, exponent = Decimal(text).as_tuple()
    if not isinstance(exponent, int) or max(abs(exponent), len(digits)) > _DECIMAL_DIGITS:
        return None
    return max(len(digits) + exponent, 1), max(-exponent, 0)


def _decimal(whole: int, fraction: int) -> Any:  # Any: Arrow's
    digits = whole + fraction
    if digits > _DECIMAL_DIGITS:
        return pa.string()
    return pa.decimal128(digits, fraction) if digits <= 38 else pa.decimal256(digits, fraction)

"""Imports runs that other tools recorded, as numbers over time: a file or folder becomes a job with
its records. Also: CSV files.

A later import skips runs whose files are unchanged, and otherwise adds the records behind the
imported ones.
"""

import json
import math
import os
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from logshipper.classify.series.numbers import JSON_NUMBER
from logshipper_ingest.imports.entries import read_any
from logshipper_ingest.imports.file_jobs import FileJobs
from logshipper_ingest.imports.output_names import as_id
from logshipper_ingest.imports.source_file import SourceFile
from logshipper_ingest.imports.values import MAX_TIME_NS, BadValue, time_of
from logshipper_ingest.model import imported
from logshipper_ingest.model.job import RUNNING, UNKNOWN

MAX_PIECE = 10_000  # records of a run that are ingested at once
_TIME_COLUMNS = ("time", "timestamp", "datetime", "date", "wall_time", "wall time", "_timestamp")


class TrackedSource(FileJobs):
    """A run in one or several files."""

    def _main_of(self, path: str) -> str:
        return path

    def _jobs_of(
        self, main: str, files: list[SourceFile], position_of: imported.PositionLookup
    ) -> Iterator[imported.ImportedJob]:
        """A run in pieces of its records; the last one has all else."""
        base, folder = os.path.basename(main), os.path.basename(os.path.dirname(main))
        base = base.rpartition(".")[0] or base
        ids = [as_id("-".join(filter(None, (self._name, base)))), as_id(f"{folder}-{base}")]
        job = imported.ImportedJob(f"{self.ORIGIN}:{main}", ids, self._name or base, self.ORIGIN)
        job.details = {"path": main}
        position = position_of(job)
        signature = [[file.size, file.changed_ns] for file in files]
        if position.get("signature") == signature:
            job.is_unchanged = True
            yield job
            return
        changed_ns = max(file.changed_ns for file in files)
        paths = sorted(file.path for file in files)
        times: list[int] = []  # the first, and the last

        def records() -> Iterator[imported.ImportedRecord]:
            for record in self._read(paths, job, changed_ns):
                times[min(len(times), 1) :] = [record.time_ns]
                yield record

        count = int(position.get("records", 0))
        new_records = islice(records(), count, None)
        while batch := list(islice(new_records, MAX_PIECE)):
            count += len(batch)
            yield replace(job, records=batch, position={"records": count})
        state = UNKNOWN if job.exit_code is None else "FAILED" if job.exit_code else "COMPLETED"
        begin_ns, end_ns = (times[0], times[-1]) if times else (changed_ns, changed_ns)
        job.changes = [
            imported.ImportedChange(begin_ns, RUNNING),
            imported.ImportedChange(max(begin_ns, end_ns), state, inexact=state == UNKNOWN),
        ]
        job.is_whole_history = True
        job.log = self._log(paths)
        job.position = {"records": count, "signature": signature}
        yield job

    @abstractmethod
    def _read(
        self, paths: list[str], job: imported.ImportedJob, changed_ns: int
    ) -> Iterator[imported.ImportedRecord]:
        """Yield all records, and set facts of the job. Raises Unreadable."""

    def _log(self, paths: list[str]) -> Iterator[imported.LogPiece]:
        """Yield the console from its begin."""
        return iter(())


class CsvSource(TrackedSource):
    """CSV with a header. A column of times gives the records' times."""

    ORIGIN = "csv"
    FILES = "*.csv"

    def _read(
        self, paths: list[str], job: imported.ImportedJob, changed_ns: int
    ) -> Iterator[imported.ImportedRecord]:
        time_column: str | None = None
        for number, entry in enumerate(read_any(SourceFile(paths[0], self._faults), self._faults)):
            if not number:
                columns = (name for name in entry.value if name.lower() in _TIME_COLUMNS)
                time_column = next(
                    (name for name in columns if self._time(entry.value[name])), None
                )
            row = dict(entry.value)
            time_ns = self._time(row.pop(time_column)) if time_column is not None else changed_ns
            cells = (
                f"{json.dumps(name)}: {json_cell(cell)}" for name, cell in row.items() if cell != ""
            )
            if time_ns:
                yield imported.ImportedRecord(time_ns, f"{{{', '.join(cells)}}}".encode())
            else:
                self._faults.leave_out(paths[0], entry.line, f"has no time in {time_column}")

    def _time(self, cell: object) -> int:
        """Of a date, or of seconds or milliseconds since 1970; 0 for other numbers and texts."""
        try:
            number = float(str(cell))
        except ValueError:
            try:
                return time_of(cell, "the time", self._zone)
            except BadValue:
                return 0
        for factor in (10**9, 10**6):
            if 10**18 <= number * factor < MAX_TIME_NS:
                return int(number * factor)
        return 0


def json_cell(cell: object) -> str:
    """JSON of a cell: numbers keep their digits; null for NaN and infinity."""
    if not isinstance(cell, str):
        return json.dumps(cell)
    if JSON_NUMBER.fullmatch(cell):
        return cell
    try:
        return json_number(float(cell))
    except ValueError:
        return json.dumps(cell)


def json_number(value: float) -> str:
    return repr(value) if math.isfinite(value) else "null"

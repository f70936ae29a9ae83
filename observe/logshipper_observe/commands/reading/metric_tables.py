"""`metadata --summary`, `--sets`, `--by KEY`: the numbers of a job's metadata, summed up, by sets
of keys, merged."""

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from logshipper.safe_text import safe
from logshipper_observe.api.store_api import Store
from logshipper_observe.api.tables import ATTEMPT, TASK, TIME, Columns
from logshipper_observe.base.output import Cell, Column, Output, print_json, write_data
from logshipper_observe.base.running import say
from logshipper_observe.base.words import NS, local, number, utc
from logshipper_observe.formats.csv_rows import CsvRows
from logshipper_observe.query.opening import overlay_of

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import JobStore
    from logshipper_observe.api.job_api import Job

SUMMARY_SCHEMA = "logshipper.metadata-summary/1"
SETS_SCHEMA = "logshipper.metadata-sets/1"
_SUMMARY = ("last", "min", "max", "mean", "std", "count")


def call(store: "JobStore", job_id: str, args: argparse.Namespace) -> None:
    """Print the requested table. Raises UnknownKey."""
    job = Store(store, overlay_of(store)).job(job_id)
    keys = [args.keys] if args.keys else []
    if not any(key.numbers for key in job.keys()):  # noqa: SIM118  not a dict's
        say(f"{safe(job.name)} has printed no numbers as metadata")
    elif args.summary:
        _print_summary(job, job.metrics(*keys, attempt=args.attempt), args)
    else:
        sets = (
            [job.metrics(*keys, attempt=args.attempt, by=args.by)]
            if args.by
            else job.metric_sets(attempt=args.attempt)
        )
        tables = [_newest(_only(columns, keys, args.by), args) for columns in sets]
        _print_sets(job, tables, args)


def _newest(columns: Columns, args: argparse.Namespace) -> Columns:
    """The last rows of a table, as many as --limit takes."""
    limit = None if args.all else args.limit
    if limit is None or len(columns[TIME]) <= limit:
        return columns
    first = len(columns[TIME]) - limit
    return Columns((name, column[first:]) for name, column in columns.items())


def _only(columns: Columns, keys: Sequence[str], by: str | None) -> Columns:
    """Return the requested columns with values in these rows."""
    if by:
        names = {
            name for name, column in columns.items() if any(value is not None for value in column)
        }
    elif keys:
        names = {TIME, ATTEMPT, TASK}.union(*({text, *text.split(",")} for text in keys))
    else:
        return columns
    return Columns((name, column) for name, column in columns.items() if name in names)


def _print_summary(job: "Job", metrics: Columns, args: argparse.Namespace) -> None:
    rollups = {
        key: rollup for key, rollup in job.rollup(attempt=args.attempt).items() if key in metrics
    }
    rows = [[key, *attrgetter(*_SUMMARY)(rollup)] for key, rollup in rollups.items()]
    if args.json:
        keys = [dict(zip(("key", *_SUMMARY), _finite(row), strict=True)) for row in rows]
        print_json({"schema": SUMMARY_SCHEMA, **_heading(job), "keys": keys})
    elif args.format == "csv":
        _write_csv(["key", *_SUMMARY], rows, raw=args.raw_cells)
    else:
        columns = [Column("key"), *(Column(name, right=True) for name in _SUMMARY)]
        Output().table(columns, [[str(row[0]), *map(number, row[1:])] for row in rows])


def _print_sets(job: "Job", sets: list[Columns], args: argparse.Namespace) -> None:
    tables = [columns for columns in sets if len(columns) > 3]
    if args.json:
        documents = [
            {
                "keys": list(columns)[3:],
                "columns": {name: _finite(column) for name, column in columns.items()},
            }
            for columns in tables
        ]
        print_json({"schema": SETS_SCHEMA, **_heading(job), "sets": documents})
        return
    out = Output()
    for at, columns in enumerate(tables):
        if at:
            out.line()
        names = [
            name for name in columns if name not in (ATTEMPT, TASK) or len(set(columns[name])) > 1
        ]
        brief = out.terminal and args.format != "csv"
        rows = zip(*(_texts(name, columns[name], brief=brief) for name in names), strict=True)
        if args.format == "csv":
            _write_csv(names, rows, raw=args.raw_cells)
        else:
            titles = [Column(name, right=name != TIME, flexible=True) for name in names]
            out.table(titles, [list[Cell](row) for row in rows])


def _heading(job: "Job") -> dict[str, object]:
    return {"job_id": job.job_id, "name": job.name, "state": job.state}


def _texts(name: str, column: Iterable[int | float | None], *, brief: bool) -> list[str]:
    """brief: for a terminal; else exact."""
    if name == TIME:
        times_ns = [round((secs or 0) * NS) for secs in column]
        return [
            local(time_ns, millis=True) if brief else f"{utc(time_ns)[:-4]}Z"
            for time_ns in times_ns
        ]  # of floats
    return [
        "" if value is None else number(value) if brief else _csv_cell(value) for value in column
    ]


def _finite(values: Iterable[object]) -> list[object]:
    """JSON has no NaN."""
    return [
        None if isinstance(value, float) and not math.isfinite(value) else value for value in values
    ]


def _write_csv(titles: Sequence[str], rows: Iterable[Sequence[object]], *, raw: bool) -> None:
    lines = CsvRows(raw=raw)
    write_data(lines.row(titles) + "\n")
    for row in rows:
        write_data(lines.row([_csv_cell(value) for value in row]) + "\n")


def _csv_cell(value: object) -> str:
    return "" if value is None else json.dumps(value) if isinstance(value, float) else str(value)

"""The output of `logshipper ls`: a table of jobs, counts by state, or a document."""

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING

from logshipper.errors import StoreError, UnknownJob
from logshipper_ingest.console.text_table import plural
from logshipper_ingest.model.metadata_keys import AUTO_MARK
from logshipper_observe.base import output
from logshipper_observe.base.running import say
from logshipper_observe.base.words import (
    STATES,
    count,
    duration,
    exit_short,
    listed,
    local_with_zone,
    when,
)
from logshipper_observe.model import documents
from logshipper_observe.model.job_context import context_options
from logshipper_observe.model.properties import MISSING, JobRow, PropertyKind, without_alias
from logshipper_observe.model.records import valid_json
from logshipper_observe.model.run_differences import difference_words, run_differences
from logshipper_observe.query.columns import ColumnSpec, cell_of, expand, is_wildcard
from logshipper_observe.query.listing import JobQuery, Listing
from logshipper_observe.query.opening import begin_with, is_from_loki, store_place

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import JobStore

SCHEMA = "logshipper.ls/1"
_NAME_MIN = 12  # columns
_COMPARED_JOBS = 50  # jobs with a comparison of their starts: each opens a file
_DIFFERS_CHARS = 40
_HINT_JOBS = 20  # jobs whose keys are compared with a mistyped one
_COLUMNS = (
    output.Column("id", style="bold"),
    output.Column("state"),
    output.Column("exit", right=True),
    output.Column("started"),
    output.Column("took", right=True),
    output.Column("lines", right=True),
    output.Column("records", right=True),
    output.Column("lost", right=True),
    output.Column("tags", style="cyan", flexible=True, ellipsis=True),
    output.Column("differs", flexible=True, ellipsis=True),
    output.Column("name", flexible=True, ellipsis=True),
)


class ListAnswer:
    """The answer of `ls`."""

    def __init__(self, args: argparse.Namespace, columns: Sequence[ColumnSpec]) -> None:
        self.out = output.Output()
        self.rows: list[JobRow] = []  # the jobs that are shown
        self.cells: list[list[str]] = []  # of --columns, for each row
        self.matching = 0  # jobs in all, shown or not
        self.more = False  # there may be more
        self.states: Counter[str] = Counter()  # jobs in each state, with --by-state
        self._args = args
        self._columns = columns
        self._differences: list[dict[str, str]] = []  # of the first rows, JSON texts by option
        self._unmatched: list[str] = []  # wildcards, if all of them match no key

    def read(self, rows: Iterable[JobRow]) -> None:
        """While the store is open."""
        terminal = self.out.terminal
        self.rows = list(rows)
        column_patterns, self._columns = self._columns, expand(self._columns, self.rows)
        wildcards = [column.field.name for column in column_patterns if is_wildcard(column.field)]
        if len(self._columns) == len(column_patterns) - len(wildcards):
            self._unmatched = wildcards
        self.cells = [
            [cell_of(column, row, terminal=terminal) for column in self._columns]
            for row in self.rows
        ]

    def compare(self, store: "JobStore") -> None:
        """Compare the jobs' starts, for the column of differences. Needs the open store."""
        rows = self.rows[:_COMPARED_JOBS]
        names = [row.job.name for row in rows]
        several = {name for name in names if names.count(name) > 1}
        options = [_start_of(store, row) if row.job.name in several else {} for row in rows]
        self._differences = run_differences(names, options)

    def lacking(self, listing: Listing, query: JobQuery) -> list[str]:
        """Name the requested keys that no job has, a sentence each. Needs the open store."""
        fields = [column.field for column in self._columns]
        fields += [query.sort] if query.sort else []
        fields += [] if self.matching else [condition.field for condition in query.conditions]
        names = dict.fromkeys(field.name for field in fields if field.exists is False)
        sentences = [
            f"none of these jobs has a key {name!r}" for name in self._unmatched if self.rows
        ]
        if not names:
            return sentences
        from difflib import get_close_matches

        near = self.rows[:_HINT_JOBS]
        if not near and not is_from_loki(self._args):
            near = [listing.row(job) for job in listing.jobs[:_HINT_JOBS]]
        known_keys = sorted({key for row in near for key in row.keys})
        for name in names:
            close = get_close_matches(without_alias(name), known_keys, 3)
            hint = f"; did you mean {', '.join(close)}?" if close else ""
            sentences.append(f"none of these jobs has the key {name!r}{hint}")
        return sentences

    def print(self, jobs: int, problems: Sequence[str], unknown: "Sequence[UnknownJob]") -> None:
        if self._args.json:
            self._print_document(problems, unknown)
        elif self._args.by_state:
            self._print_states()
        elif not self.rows:
            self.print_empty(jobs, self.matching)
        else:
            self._print_table()
            if len(self.rows) < self.matching:
                noun = "job" if self._args.sort or self._args.reverse else "older job"
                left_out = plural(self.matching - len(self.rows), noun)
                self._tell(f"{left_out} left out: --all shows them")
            elif self.more:
                self._tell("no more were looked for: --all shows all that match")

    def print_empty(self, jobs: int, matching: int) -> None:
        """Says why no job is shown; for programs, an empty list."""
        args = self._args
        if args.json:
            self._print_document([], [])
        elif matching:
            self._tell(f"{plural(matching, 'job')}, none of them shown: --limit is {args.limit}")
        elif jobs:
            self._tell(f"no job matches, of {plural(jobs, 'job')} in all")
        elif is_from_loki(args):
            of = f" of cluster {args.cluster}" if args.cluster else ""
            place = f"{of} in {store_place(args)}"
            self._tell(f"no jobs{place} in this time range; --since 30d looks further back")
        else:
            self._tell(f"no jobs in {store_place(args)} yet; begin with: {begin_with(args)}")

    def _tell(self, sentence: str) -> None:
        """Print a sentence below a terminal's table; else on stderr, so that a pipe holds jobs
        only."""
        if self.out.terminal:
            self.out.note(sentence[0].upper() + sentence[1:])
        else:
            say(sentence)

    def _print_states(self) -> None:
        ordered = [state for state in STATES if self.states[state]]
        ordered += sorted(state for state in self.states if state not in STATES)
        rows: list[list[output.Cell]] = [
            [output.state_cell(state), str(self.states[state])] for state in ordered
        ]
        self.out.table((output.Column("state"), output.Column("jobs", right=True)), rows)

    def _print_table(self) -> None:
        if self._columns:
            self._print_own_table()
            return
        names = [row.job.name for row in self.rows[: len(self._differences)]]
        words = [*difference_words(self._differences, names), *repeat("", len(self.rows))]
        rows = [
            _row(row, self.out.terminal, differs)
            for row, differs in zip(self.rows, words, strict=False)
        ]
        if self.out.terminal:
            columns = self._fitting(rows)
        else:  # the others may hold blanks
            columns = [column for column in _COLUMNS if column.title not in ("tags", "differs")]
        self.out.table(columns, [[row[column.title] for column in columns] for row in rows])

    def _fitting(self, rows: list[dict[str, output.Cell]]) -> list[output.Column]:
        """Return a terminal's columns. Its room is for telling values: no column of zeros, and
        names before counts."""
        empty = {title for title in ("tags", "differs") if not any(row[title] for row in rows)}
        if not any(row.job.lost for row in self.rows):
            empty.add("lost")
        columns = [column for column in _COLUMNS if column.title not in empty]
        cells = [list(row.values()) for row in rows]
        widths = dict(zip(_COLUMNS, output.natural_widths(_COLUMNS, cells), strict=True))
        for title in ("records", "took", "lines", "tags", "started", "differs"):
            if sum(widths[column] + 2 for column in columns[:-1]) + _NAME_MIN > self.out.columns:
                columns = [column for column in columns if column.title != title]
        return columns

    def _print_own_table(self) -> None:
        numbers = [_is_right(column, self.rows) for column in self._columns]
        columns = [
            output.Column(
                column.title + AUTO_MARK * column.field.is_auto, right=number, flexible=not number
            )
            for column, number in zip(self._columns, numbers, strict=True)
        ]
        rows: list[list[output.Cell]] = [
            self._own_row(row, cells) for row, cells in zip(self.rows, self.cells, strict=True)
        ]
        column_count = len(columns)
        if self.out.terminal:
            column_count = output.fitting(
                columns, output.natural_widths(columns, rows), self.out.columns
            )
        self.out.table(columns[:column_count], [row[:column_count] for row in rows])
        if column_count < len(columns):
            titles = [column.title for column in columns[column_count:]]
            left_out = f"{plural(len(titles), 'column')} left out"
            self._tell(f"{left_out}, the terminal is too narrow: {listed(titles)}")

    def _own_row(self, row: JobRow, cells: list[str]) -> list[output.Cell]:
        return [
            output.state_cell(row.job.state, cell)
            if column.field.kind is PropertyKind.STATE
            else cell
            for column, cell in zip(self._columns, cells, strict=True)
        ]

    def _print_document(self, problems: Sequence[str], unknown: "Sequence[UnknownJob]") -> None:
        document: documents.Document = {
            "schema": SCHEMA,
            "store": store_place(self._args),
            "jobs": [self._job_document(at, row) for at, row in enumerate(self.rows)],
            "matching": self.matching,
            "problems": list(problems),
            "unknown": documents.unknown_documents(unknown),
        }
        if self._args.by_state:
            document["by_state"] = dict(self.states)
        output.print_json(document)

    def _job_document(self, at: int, row: JobRow) -> documents.Document:
        document = documents.job_document(row.job, row.now_ns, row.marks)
        if at < len(self._differences):
            differences = self._differences[at]
            document["differs"] = {name: output.Raw(text) for name, text in differences.items()}
        if self._columns:
            document["columns"] = {column.field.name: _raw(column, row) for column in self._columns}
        return document


def _raw(column: ColumnSpec, row: JobRow) -> object:
    """Return a column's exact value for programs; null without one."""
    if column.field.kind is PropertyKind.KEY:
        text = column.field.raw(row)
        return None if text is None else output.Raw(valid_json(text))
    value = column.field.get(row)
    return None if value is MISSING else value


def _is_right(column: ColumnSpec, rows: Sequence[JobRow]) -> bool:
    values = [value for row in rows if (value := column.field.get(row)) is not MISSING]
    return (
        column.field.kind is not PropertyKind.TIME
        and bool(values)
        and not any(isinstance(value, str) for value in values)
    )


def _start_of(store: "JobStore", row: JobRow) -> dict[str, str]:
    try:
        with store.open(row.job.job_id) as reader:
            return context_options(reader)
    except (StoreError, UnknownJob):
        return {}  # the list shows the catalogue's data


def _row(row: JobRow, terminal: bool, differs: str) -> dict[str, output.Cell]:
    """Return the cells by the titles of _COLUMNS."""
    job, now_ns = row.job, row.now_ns
    exit_cell: output.Cell = exit_short(job.exit_code, job.signal)
    if exit_cell not in ("0", "-"):
        exit_cell = output.Styled(str(exit_cell), "red")
    number = count if terminal else str
    cells: tuple[output.Cell, ...] = (
        job.job_id,
        output.state_cell(job.state),
        exit_cell,
        when(job.started_ns, now_ns) if terminal else local_with_zone(job.started_ns),
        duration(documents.duration_secs(job, now_ns)),
        number(job.lines),
        number(job.records),
        output.Styled(number(job.lost), "bold red" if job.lost else "dim"),
        ("* " if row.marks.starred else "") + " ".join(row.marks.tag_words()),
        differs if len(differs) <= _DIFFERS_CHARS else f"{differs[: _DIFFERS_CHARS - 1]}…",
        job.name,
    )
    return {column.title: cell for column, cell in zip(_COLUMNS, cells, strict=True)}

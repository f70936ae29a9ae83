"""The output of `logshipper ls`: a table of jobs, counts by state, or a document."""

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from logshipper.errors import StoreError, UnknownJob
from logshipper_ingest.console.text_table import plural
from logshipper_observe.base.output import (
    Cell,
    Column,
    Output,
    Raw,
    Styled,
    fitting,
    natural_widths,
    print_json,
)
from logshipper_observe.base.running import say
from logshipper_observe.base.words import (
    STATE_STYLES,
    STATES,
    count,
    duration,
    exit_short,
    local_with_zone,
    when,
)
from logshipper_observe.model.documents import Document, duration_secs, job_document
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
    Column("id", style="bold"),
    Column("state"),
    Column("exit", right=True),
    Column("started"),
    Column("took", right=True),
    Column("lines", right=True),
    Column("records", right=True),
    Column("lost", right=True),
    Column("tags", style="cyan", flexible=True, ellipsis=True),
    Column("differs", flexible=True, ellipsis=True),
    Column("name", flexible=True, ellipsis=True),
)


class ListAnswer:
    """The answer of `ls`."""

    def __init__(self, args: argparse.Namespace, columns: Sequence[ColumnSpec]) -> None:
        self.out = Output()
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
        self._unmatched = [
            column.field.name for column in column_patterns if is_wildcard(column.field)
        ]
        if len(self._columns) > len(column_patterns) - len(self._unmatched):
            self._unmatched = []
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
                left_out = plural(
                    self.matching - len(self.rows), "older job" if not self._is_sorted() else "job"
                )
                self._tell(f"{left_out} left out: --all shows them")
            elif self.more:
                self._tell("no more were looked for: --all shows all that match")

    def _is_sorted(self) -> bool:
        return bool(self._args.sort or self._args.reverse)

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
            place = f"{_of_cluster(args)} in {store_place(args)}"
            self._tell(f"no jobs{place} in this time range; --since 30d looks further back")
        else:
            self._tell(f"no jobs in {store_place(args)} yet; begin with: {begin_with(args)}")

    def _tell(self, sentence: str) -> None:
        """Print a sentence below a terminal's table; else on stderr, so that a pipe holds jobs
        only."""
        if self.out.terminal:
            self.out.line(Styled(sentence[0].upper() + sentence[1:], "dim"))
        else:
            say(sentence)

    def _print_states(self) -> None:
        ordered = [state for state in STATES if self.states[state]]
        ordered += sorted(state for state in self.states if state not in STATES)
        rows: list[list[Cell]] = [
            [Styled(state, STATE_STYLES.get(state, "")), str(self.states[state])]
            for state in ordered
        ]
        self.out.table((Column("state"), Column("jobs", right=True)), rows)

    def _print_table(self) -> None:
        if self._columns:
            self._print_own_table()
            return
        names = [row.job.name for row in self.rows[: len(self._differences)]]
        words = difference_words(self._differences, names)
        words += [""] * (len(self.rows) - len(words))
        rows = [
            _row(row, self.out.terminal, differs)
            for row, differs in zip(self.rows, words, strict=True)
        ]
        if not self.out.terminal:
            indexes = [
                at for at, column in enumerate(_COLUMNS) if column.title not in ("tags", "differs")
            ]  # may hold blanks
            self.out.table(
                [_COLUMNS[at] for at in indexes], [[row[at] for at in indexes] for row in rows]
            )
            return
        # a terminal's room is for telling values: no column of zeros, and names before counts
        has_values = {
            "lost": any(row.job.lost for row in self.rows),
            "tags": any(row[-3] for row in rows),
            "differs": any(row[-2] for row in rows),
        }
        indexes = [at for at, column in enumerate(_COLUMNS) if has_values.get(column.title, True)]
        widths = natural_widths(_COLUMNS, rows)
        for title in ("records", "took", "lines", "tags", "started", "differs"):
            if sum(widths[at] + 2 for at in indexes[:-1]) + _NAME_MIN > self.out.columns:
                indexes = [at for at in indexes if _COLUMNS[at].title != title]
        self.out.table(
            [_COLUMNS[at] for at in indexes], [[row[at] for at in indexes] for row in rows]
        )

    def _print_own_table(self) -> None:
        numbers = [_is_right(column, self.rows) for column in self._columns]
        columns = [
            Column(column.title, right=number, flexible=not number)
            for column, number in zip(self._columns, numbers, strict=True)
        ]
        rows: list[list[Cell]] = [
            self._own_row(row, cells) for row, cells in zip(self.rows, self.cells, strict=True)
        ]
        column_count = len(columns)
        if self.out.terminal:
            column_count = fitting(columns, natural_widths(columns, rows), self.out.columns)
        self.out.table(columns[:column_count], [row[:column_count] for row in rows])
        if column_count < len(columns):
            names = ", ".join(column.title for column in columns[column_count:][:8]) + (
                ", ..." if len(columns) > column_count + 8 else ""
            )
            self._tell(
                f"{plural(len(columns) - column_count, 'column')} left out, the terminal is too narrow: {names}"
            )

    def _own_row(self, row: JobRow, cells: list[str]) -> list[Cell]:
        styled: list[Cell] = []
        for column, cell in zip(self._columns, cells, strict=True):
            is_state = column.field.kind is PropertyKind.STATE
            styled.append(Styled(cell, STATE_STYLES.get(row.job.state, "")) if is_state else cell)
        return styled

    def _print_document(self, problems: Sequence[str], unknown: "Sequence[UnknownJob]") -> None:
        document: Document = {
            "schema": SCHEMA,
            "store": store_place(self._args),
            "jobs": [self._job_document(at, row) for at, row in enumerate(self.rows)],
            "matching": self.matching,
            "problems": list(problems),
            "unknown": [{"name": error.name, "reason": str(error)} for error in unknown],
        }
        if self._args.by_state:
            document["by_state"] = dict(self.states)
        print_json(document)

    def _job_document(self, at: int, row: JobRow) -> Document:
        document = job_document(row.job, row.now_ns, row.marks)
        if at < len(self._differences):
            differences = self._differences[at]
            document["differs"] = {name: Raw(text) for name, text in differences.items()}
        if self._columns:
            document["columns"] = {column.field.name: _raw(column, row) for column in self._columns}
        return document


def _of_cluster(args: argparse.Namespace) -> str:
    return f" of cluster {args.cluster}" if args.cluster else ""


def _raw(column: ColumnSpec, row: JobRow) -> object:
    """Return a column's exact value for programs; null without one."""
    if column.field.kind is PropertyKind.KEY:
        text = column.field.raw(row)
        return None if text is None else Raw(valid_json(text))
    value = column.field.get(row)
    return None if value is MISSING else value


def _is_right(column: ColumnSpec, rows: Sequence[JobRow]) -> bool:
    """Return whether a column holds numbers only."""
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


def _row(row: JobRow, terminal: bool, differs: str) -> list[Cell]:
    job, now_ns = row.job, row.now_ns
    exit_cell: Cell = exit_short(job.exit_code, job.signal)
    if exit_cell not in ("0", "-"):
        exit_cell = Styled(str(exit_cell), "red")
    return [
        job.job_id,
        Styled(job.state, STATE_STYLES.get(job.state, "")),
        exit_cell,
        when(job.started_ns, now_ns) if terminal else local_with_zone(job.started_ns),
        duration(duration_secs(job, now_ns)),
        count(job.lines) if terminal else str(job.lines),
        count(job.records) if terminal else str(job.records),
        Styled(count(job.lost) if terminal else str(job.lost), "bold red" if job.lost else "dim"),
        ("* " if row.marks.starred else "") + " ".join(row.marks.tag_words()),
        differs if len(differs) <= _DIFFERS_CHARS else f"{differs[: _DIFFERS_CHARS - 1]}…",
        job.name,
    ]

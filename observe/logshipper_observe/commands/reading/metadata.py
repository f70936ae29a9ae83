"""`logshipper metadata JOB`: its metadata records as a table, as the exact lines, as CSV, or for
programs."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import orjson

from logshipper.classify.metadata import GAPS
from logshipper.config import AUTO, JSON, MAX_PATTERNS, METADATA_KINDS
from logshipper.errors import LogshipperError
from logshipper.safe_text import safe
from logshipper_ingest.console.text_table import plural
from logshipper_ingest.model.metadata_keys import is_auto, names_of, printed_path
from logshipper_observe.base import output
from logshipper_observe.base.running import say
from logshipper_observe.base.words import FOUND, listed, local, utc
from logshipper_observe.commands import completers, options
from logshipper_observe.commands.reading import metadata_trial
from logshipper_observe.commands.reading.several_jobs import Headings, answer_each
from logshipper_observe.formats.csv_rows import own_titles, records_as_csv, titles_of
from logshipper_observe.model.documents import Document, record_document
from logshipper_observe.model.job_facts import record_hints
from logshipper_observe.model.line_trial import metadata_hint
from logshipper_observe.model.records import (
    Path,
    at_path,
    display_text,
    flat,
    is_number,
    rebuilt,
    record_fields,
    split,
    table_text,
)
from logshipper_observe.query.asked import UnknownKey, pick_keys
from logshipper_observe.query.opening import check_attempt, known_jobs

if TYPE_CHECKING:
    from logshipper_ingest.model.job import MetadataRecord
    from logshipper_ingest.model.stores import JobStore, Reader

TERMINAL_LIMIT = 50  # records of a table on a terminal, unless asked otherwise
_WIDE_CELL = 36  # columns that a value gets on a terminal before it is folded
_NARROW_CELL = 12
_ORIGIN_WIDE = 9  # usually


def add_options(parser: argparse.ArgumentParser) -> None:
    options.describe(
        parser,
        "Prints the lines of a job's stdout that are one JSON object, and those that\n"
        "~/.logoptin asks for. The table has the newest first; `jsonl` has the exact\n"
        "lines, and `csv` a column per key (nested ones as a.b), both in the order of\n"
        "printing. Several jobs are printed under headings. `--try` shows what it would\n"
        "be of a file.",
        "examples:\n"
        "  logshipper metadata --limit 10\n"
        "  logshipper metadata last --keys epoch,loss\n"
        "  logshipper metadata train.py --format csv > train.csv\n"
        "  logshipper metadata last --summary\n"
        "  logshipper metadata 'train*' --limit 3\n"
        "  logshipper metadata train.py --by epoch\n"
        "  logshipper metadata last --reread\n"
        "  logshipper metadata 4711 --from loki --format jsonl\n"
        "  logshipper metadata --try slurm-4711.out",
    )
    options.add_jobs(parser, options.JOBS_HELP)
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--format", choices=("table", "jsonl", "csv"), default="table", help="default: table"
    )
    options.add_json(
        form,
        "for programs: one JSON object a line with time and attempt, described in docs/json.md",
    )
    keys_help = "only these keys, in this order"
    options.add_completed(parser, completers.keys, "--keys", metavar="A,B", help=keys_help)
    options.add_number(
        parser, "--limit", help="only the newest N (default: all; a table on a terminal: 50)"
    )
    options.add_flag(parser, "--all", help="all records")
    options.add_reread(parser)
    options.add_raw_cells(parser)
    options.add_attempt(parser)
    numbers = parser.add_mutually_exclusive_group()
    options.add_flag(
        numbers, "--summary", help="last, min, max, mean, std and count of each number"
    )
    options.add_flag(numbers, "--sets", help="a table of numbers for each set of keys in records")
    by_help = "a row of numbers for each value of this key, such as epoch"
    options.add_completed(numbers, completers.keys, "--by", metavar="KEY", help=by_help)
    trial = parser.add_argument_group("trying on a file")
    trial.add_argument(
        "--try",
        dest="trial",
        metavar="FILE",
        help="no job: show the metadata in this output, and the line for ~/.logoptin; `-` is standard input",
    )
    trial.add_argument(
        "--kinds",
        type=metadata_trial.kinds,
        metavar="A,B",
        help="with --try: only json, dict or pairs (default: all)",
    )
    trial.add_argument(
        "--pattern",
        type=metadata_trial.pattern,
        action="append",
        default=[],
        metavar="RE",
        help="with --try: a pattern of your own, such as 'loss is (?P<loss>[0-9.]+)'; may be repeated",
    )
    options.add_source(parser)
    parser.set_defaults(refuse=parser.error)


def call(args: argparse.Namespace) -> int:
    if args.trial is not None:
        return _try(args)
    if args.kinds or args.pattern:
        args.refuse("--kinds and --pattern are for --try FILE")
    with known_jobs(args, args.jobs or [options.LAST]) as (store, job_ids, unknown):
        if len(job_ids) > 1 and args.format != "table":
            raise LogshipperError(
                f"--format {args.format} has room for one job, and these are {len(job_ids)}: "
                "--json names the job of each record, `logshipper export` writes files of several"
            )
        return answer_each(job_ids, unknown, partial(_print_job, args, store))


def _print_job(
    args: argparse.Namespace, store: "JobStore", job_id: str, headings: Headings
) -> None:
    with store.open(job_id) as reader:
        check_attempt({capture.attempt for capture in reader.captures}, args.attempt)
        if not args.json:
            headings.print(reader.summary)
        if args.summary or args.sets or args.by:
            from logshipper_observe.commands.reading import metric_tables

            metric_tables.call(store, job_id, args)
            return
        selection = _Selection(reader, args)
        if args.json:
            _print_documents(selection, headings.fields(reader.summary))
        elif args.format == "jsonl":
            _print_jsonl(selection)
        elif args.format == "csv":
            _print_csv(selection, raw=args.raw_cells)
        else:
            _print_table(selection, args)


def _print_jsonl(selection: "_Selection") -> None:
    for record in selection.oldest_first():
        output.write_json(f"{selection.line_of(record)}\n")


def _print_csv(selection: "_Selection", *, raw: bool) -> None:
    for line in records_as_csv(selection.oldest_first, selection.paths, raw=raw):
        output.write_data(line)


def _try(args: argparse.Namespace) -> int:
    if args.jobs or args.reread:
        args.refuse("--try looks at a file, not at a job: leave out JOB and --reread")
    if args.format != "table" or args.keys or args.summary or args.sets or args.by:
        args.refuse("--try has a table or --json, and no other form or choice of keys")
    if len(args.pattern) > MAX_PATTERNS:
        args.refuse(f"--pattern: {len(args.pattern)} patterns; {MAX_PATTERNS} is the limit")
    kinds = args.kinds or METADATA_KINDS
    limit = args.limit
    if limit is None and not args.all and output.Output().terminal:
        limit = TERMINAL_LIMIT
    return metadata_trial.call(args.trial, kinds, args.pattern, limit, as_json=args.json)


class _Selection:
    """The records and keys that a command asks for."""

    def __init__(self, reader: "Reader", args: argparse.Namespace) -> None:
        self.reader = reader
        self.attempt: int | None = args.attempt
        self.limit: int | None = None if args.all else args.limit
        newest = next(reader.records(newest_first=True), None)
        # later records were in no first pass
        self._until_ns = newest.time_ns if newest else 0
        self.paths = _pick(reader, args.keys) if args.keys else None

    def newest_first(self, limit: int | None) -> "Iterator[MetadataRecord]":
        records = self.reader.records(attempt=self.attempt, newest_first=True)
        return islice(filter(self._is_selected, records), limit)

    def oldest_first(self) -> "Iterator[MetadataRecord]":
        """Return records in order of printing; with a limit, the newest ones."""
        if self.limit is not None:
            return reversed(list(self.newest_first(self.limit)))
        return filter(self._is_selected, self.reader.records(attempt=self.attempt))

    def _is_selected(self, record: "MetadataRecord") -> bool:
        if record.time_ns > self._until_ns:
            return False
        return self.paths is None or bool(self.values_of(record))

    def values_of(self, record: "MetadataRecord") -> dict[Path, str]:
        """The asked values of a record; without --keys, those at the top."""
        if self.paths is None and record.origin == AUTO:
            return flat(record.keyed_line)
        if self.paths is None:
            return {(key,): value for key, value in split(record.line).items()}
        values = ((path, at_path(record.keyed_line, path)) for path in self.paths)
        return {path: value for path, value in values if value is not None}

    def line_of(self, record: "MetadataRecord") -> str:
        """A record's line; with --keys, one with these only."""
        if self.paths is None:
            return record.line
        values = {printed_path(path): value for path, value in self.values_of(record).items()}
        names = names_of(values)
        return rebuilt({names[path]: value for path, value in values.items()})


def _pick(reader: "Reader", names: str) -> list[Path]:
    """The paths of --keys: keys at the top and those that graphs know. Raises UnknownKey."""
    key_stats = reader.keys()
    paths = dict.fromkeys(path for key in key_stats for path in (key.path, _top(key.path)))
    try:
        return pick_keys([names], list(paths))
    except UnknownKey:
        for record in reader.records():  # the store's own list of keys has a cap
            for path in flat(record.keyed_line):
                paths |= {path: None, _top(path): None}
        return pick_keys([names], list(paths))


def _top(path: Path) -> Path:
    return path[:2] if is_auto(path) else path[:1]


def _print_documents(selection: _Selection, job_fields: Document) -> None:
    for record in selection.oldest_first():
        head = orjson.dumps(record_document(record) | job_fields).decode()
        fields = record_fields(selection.line_of(record))  # numbers keep every digit
        output.write_json(f"{head[:-1]},{fields}}}\n")


@dataclass(slots=True)
class _Table:
    """Columns of a table, in the order of their keys' first appearance."""

    is_auto: bool  # for the records of series, or for all others
    paths: dict[Path, int] = field(default_factory=dict)  # to the column's number
    widths: list[int] = field(default_factory=list)
    numeric: list[bool] = field(default_factory=list)
    records: int = 0
    has_origins: bool = False  # some record was not printed as JSON

    def has(self, record: "MetadataRecord") -> bool:
        return (record.origin == AUTO) is self.is_auto

    @property
    def titles(self) -> list[str]:
        return titles_of(map(printed_path, self.paths))

    def add(self, values: dict[Path, str]) -> None:
        for path, value in values.items():
            at = self.paths.get(path)
            if at is None:
                at = self.paths[path] = len(self.paths)
                self.widths.append(output.cells_wide(".".join(printed_path(path))))
                self.numeric.append(True)
            wide = output.cells_wide(safe(display_text(value)))
            self.widths[at] = max(self.widths[at], wide)
            if not is_number(value) and value not in ("null", *GAPS):
                self.numeric[at] = False


def _print_table(selection: _Selection, args: argparse.Namespace) -> None:
    out = output.Output()
    reader = selection.reader
    hints = [safe(hint) for hint in record_hints(reader)]
    # a count may lag behind
    if not reader.summary.records and next(reader.records(newest_first=True), None) is None:
        nothing = "has printed no metadata: that is, no line that is one JSON object"
        say(f"{safe(reader.summary.name)} {nothing}")
        trial = metadata_hint(reader)
        for hint in [*([trial.words] if trial else []), *hints]:
            say(hint)
        return
    if out.terminal and not args.all and args.limit is None:
        selection.limit = TERMINAL_LIMIT
    tables = _Table(is_auto=False), _Table(is_auto=True)
    for path in selection.paths or ():
        tables[is_auto(path)].add({path: "null"})
    for record in selection.oldest_first():
        table = tables[record.origin == AUTO]
        table.add(selection.values_of(record))
        table.has_origins |= record.origin != JSON
        table.records += 1
    record_count = sum(table.records for table in tables)
    for table in [table for table in tables if table.records] or tables[:1]:
        if table.is_auto:
            out.line(output.Styled(FOUND, "bold"))
        if not out.terminal or record_count > 2_000:
            _print_plain(out, selection, table)
        else:
            _print_rich(out, selection, table)
    for hint in hints:
        if out.terminal:
            out.note(hint, "yellow")
        else:
            say(hint)
    if out.terminal and selection.limit == record_count < reader.summary.records:
        total = plural(reader.summary.records, "record")
        out.note(f"The newest {record_count:,} of {total}: --all shows every one")


def _print_plain(out: output.Output, selection: _Selection, table: _Table) -> None:
    titles = table.titles
    extra_titles = ("_time", "_attempt", *(("_origin",) if table.has_origins else ()))
    columns = [output.Column(title) for title in own_titles(titles, extra_titles)]
    columns += [
        output.Column(title, right=numeric)
        for title, numeric in zip(titles, table.numeric, strict=True)
    ]
    widths = [len(utc(0)), len("_attempt"), *([_ORIGIN_WIDE] if table.has_origins else [])]
    widths += [min(width, 48) for width in table.widths]
    output.widen(widths, [column.title for column in columns])

    def rows() -> Iterator[list[output.Cell]]:
        for record in filter(table.has, selection.newest_first(selection.limit)):
            values = selection.values_of(record)
            cells = [display_text(values[path]) if path in values else "" for path in table.paths]
            origin = [record.origin] if table.has_origins else []
            yield [utc(record.time_ns), str(record.attempt), *origin, *cells]

    out.plain_table(columns, rows(), widths)


def _print_rich(out: output.Output, selection: _Selection, table: _Table) -> None:
    records = list(filter(table.has, selection.newest_first(selection.limit)))
    titles = table.titles
    has_origins = table.has_origins and not table.is_auto
    several = len({capture.attempt for capture in selection.reader.captures}) > 1
    stamps = _stamps([record.time_ns for record in records])
    room = out.columns - max(map(len, stamps), default=0) - 3 - (10 if several else 0)
    room -= _ORIGIN_WIDE if has_origins else 0
    x_path = selection.reader.x_axis().path
    x_at = table.paths.get(x_path)
    indexes = _fitting(table.widths, room, x_at)
    columns = [output.Column("printed at", style="dim")]
    columns += [output.Column("attempt", right=True, style="dim")] if several else []
    columns += [output.Column("made of", style="dim")] if has_origins else []
    columns += [output.Column(titles[at], right=table.numeric[at], flexible=True) for at in indexes]
    paths = list(table.paths)
    rows: list[list[output.Cell]] = []
    for record, stamp in zip(records, stamps, strict=True):
        values = selection.values_of(record)
        row: list[output.Cell] = [stamp, *([str(record.attempt)] if several else [])]
        row += [record.origin] if has_origins else []
        row += [table_text(values[paths[at]]) if paths[at] in values else "" for at in indexes]
        rows.append(row)
    out.table(columns, rows)
    names = titles_of(table.paths)
    left_out = [name for at, name in enumerate(names) if at not in indexes]
    if left_out:
        _say_left_out(out, left_out)


def _say_left_out(out: output.Output, titles: list[str]) -> None:
    keys = plural(len(titles), "key")
    out.line(
        output.Styled(f"{keys} left out, the terminal is too narrow: ", "yellow"),
        listed(titles),
        output.Styled(
            f"  (--keys {','.join(titles[:2])} shows these, --format csv has all)", "dim"
        ),
    )


def _stamps(times_ns: list[int]) -> list[str]:
    """Return local times, without a common date."""
    stamps = [local(time_ns, millis=True) for time_ns in times_ns]
    same_day = len({stamp[:10] for stamp in stamps}) == 1
    return [stamp[11:] for stamp in stamps] if same_day else stamps


def _fitting(widths: list[int], room: int, always: int | None) -> list[int]:
    """Return the columns that fit a terminal, in order; at least one. Wide ones fold before any is
    dropped.

    always: a column that is never dropped (X).
    """
    indexes: list[int] = [] if always is None else [always]
    if always is not None:
        room -= min(widths[always], _WIDE_CELL) + 2
    for at, width in enumerate(widths):
        column_width = min(width, _WIDE_CELL) + 2
        if at == always:
            continue
        if column_width <= room:
            room -= column_width
            indexes.append(at)
        elif not indexes or (room >= _NARROW_CELL + 2 and width > _NARROW_CELL):
            indexes.append(at)
            break
    return sorted(indexes)

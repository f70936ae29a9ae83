"""`logshipper metadata --try FILE`: the metadata that an existing output would give."""

import argparse
import json
from collections.abc import Iterator, Sequence

from logshipper.config import JSON, METADATA_KINDS, MetadataPattern
from logshipper.metadata_pattern import problem_of
from logshipper.process.terminal import BATCH_COLUMNS, BATCH_ROWS
from logshipper.render.final_lines import Block
from logshipper.render.renderer import Renderer
from logshipper_ingest.console.text_table import plural
from logshipper_observe.base.output import Cell, Column, Output, Styled, write_json
from logshipper_observe.commands.reading.render import MOMENT, STEP_BYTES, Source, open_source
from logshipper_observe.model.line_trial import LineTrial, TrialRecord
from logshipper_observe.model.own_key_rules import own_key_rules

SCHEMA = "logshipper.metadata-trial/1"
TERMINAL_LIMIT = 50
MAX_ROWS = 10_000  # of the table; --json has all
_COLUMNS = (Column("line", right=True), Column("origin"), Column("record", flexible=True))

_SHAPE_COLUMNS = (
    Column("shape", flexible=True),
    Column("kind"),
    Column("lines", right=True),
    Column("example", flexible=True),
)


def kinds(text: str) -> tuple[str, ...]:
    """Parse `dict,pairs`; JSON lines always count."""
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    unknown = [word for word in words if word not in METADATA_KINDS]
    if unknown or not words:
        raise argparse.ArgumentTypeError(
            f"{', '.join(unknown) or text!r} is no kind of metadata; there are {', '.join(METADATA_KINDS)}"
        )
    return tuple(dict.fromkeys((JSON, *words)))


def pattern(text: str) -> str:
    problem = problem_of(text)
    if problem:
        raise argparse.ArgumentTypeError(f"{text!r} {problem}")
    return text


def call(
    file: str,
    kind_names: Sequence[str],
    patterns: Sequence[str],
    limit: int | None,
    *,
    as_json: bool,
) -> int:
    """Print the records. limit: rows of the table, None for no limit. Raises LogshipperError for an
    unreadable file, and for a refused ~/.logoptin."""
    own_patterns = [
        MetadataPattern(f"pattern{number}", text) for number, text in enumerate(patterns, 1)
    ]
    trial = LineTrial((*kind_names, *own_patterns), own_key_rules())
    with open_source(file) as source:
        records = _records(source, trial)
        if as_json:
            _print_documents(records, trial)
        else:
            _print_table(records, trial, limit)
    return 0


def _records(source: Source, trial: LineTrial) -> Iterator[TrialRecord]:
    """Yield records of the lines on a terminal; bars count with their last states."""
    for block in _blocks(source):
        if block.part or block.note:  # a part of a line that is too long
            trial.lines += block.text.count(b"\n")
        else:
            yield from trial.take(block.text)
    yield from trial.finish()


def _blocks(source: Source) -> Iterator[Block]:
    renderer = Renderer(BATCH_COLUMNS, BATCH_ROWS)
    while data := source.read():
        for begin in range(0, len(data), STEP_BYTES):
            piece = data[begin : begin + STEP_BYTES]
            at = 0
            while at < len(piece):
                rendering = renderer.feed(piece, MOMENT, at)
                at = rendering.consumed
                yield from rendering.blocks
                if rendering.command:
                    yield from renderer.keep_command()
    rendering = renderer.end_line(MOMENT)
    yield from rendering.blocks
    if rendering.command:
        yield from renderer.keep_command()
    yield from renderer.flush()


def _print_documents(records: Iterator[TrialRecord], trial: LineTrial) -> None:
    schema = json.dumps(SCHEMA)
    for record in records:
        head = f'{{"schema":{schema},"line":{record.line},"origin":"{record.origin}"'
        write_json(f'{head},"record":{record.record}}}\n')  # numbers keep every digit
    summary = {
        "schema": SCHEMA,
        "lines": trial.lines,
        "counts": dict(trial.counts.most_common()),
        "switched_off": trial.switched_off,
        "logoptin": trial.logoptin(),
        "shapes": [shape._asdict() for shape in trial.list_shapes()],
    }
    write_json(json.dumps(summary, separators=(",", ":")) + "\n")


def _print_table(records: Iterator[TrialRecord], trial: LineTrial, limit: int | None) -> None:
    out = Output()
    max_rows = MAX_ROWS if limit is None else min(limit, MAX_ROWS)
    rows: list[list[Cell]] = []
    for record in records:
        if len(rows) < max_rows:
            rows.append([str(record.line), record.origin, record.record])
    if rows:
        out.table(_COLUMNS, rows)
    total = trial.counts.total()
    if len(rows) < total:
        out.note(f"The first {len(rows):,} of {total:,} records: --json has all")
    for name in trial.switched_off:
        out.note(f"{name} took too long and was switched off", "yellow")
    if not total:
        out.line(f"None of {plural(trial.lines, 'line')} would be a record.")
        return
    counts = ", ".join(f"{origin} {count:,}" for origin, count in trial.counts.most_common())
    out.line(f"{plural(total, 'record')} of {plural(trial.lines, 'line')}: {counts}")
    out.line("In ~/.logoptin: ", Styled(trial.logoptin(), "bold"))
    if shapes := trial.list_shapes():
        out.heading("Series", plural(len(trial.keys), "key"))
        out.table(
            _SHAPE_COLUMNS,
            [[shape.name, shape.kind, f"{shape.lines:,}", shape.example] for shape in shapes],
        )

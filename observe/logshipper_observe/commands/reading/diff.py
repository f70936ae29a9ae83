"""`logshipper diff A B`: two jobs' options, side by side."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from logshipper.errors import UnknownJob
from logshipper_ingest.console.text_table import plural
from logshipper_observe.base.output import Cell, Column, Output, Raw, Styled, print_json
from logshipper_observe.base.running import say
from logshipper_observe.commands import completers
from logshipper_observe.commands.options import (
    JOB_HELP,
    add_completed,
    add_flag,
    add_json,
    add_source,
    describe,
)
from logshipper_observe.model.documents import Document, job_heading
from logshipper_observe.model.job_context import option_text
from logshipper_observe.model.options import differences, options_of
from logshipper_observe.model.records import valid_json
from logshipper_observe.query import opening

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import JobStore

SCHEMA = "logshipper.diff/1"
EXIT_UNKNOWN = 1


def add_options(parser: argparse.ArgumentParser) -> None:
    describe(
        parser,
        "Compares two jobs' options, in alphabetical order: what the store knows of how\n"
        "they were run, what their first records said and never changed, the first values\n"
        "of what did (first.KEY), and tags.\n"
        "Different ones are marked with `!`.",
        "examples:\n  logshipper diff k3f9x2 last\n  logshipper diff a3 a4 --changed\n"
        "  logshipper diff 4711 4712 --from loki --json",
    )
    for name in ("a", "b"):
        add_completed(parser, completers.jobs, name, metavar=name.upper(), help=JOB_HELP)
    add_flag(parser, "--changed", help="differences only")
    add_json(parser)
    add_source(parser)


def call(args: argparse.Namespace) -> int:
    with opening.open_store(args) as store:
        if store is None:
            raise opening.no_jobs_yet(args, args.a)
        for problem in opening.ingest(store):
            say(problem)
        ids = []
        for name in (args.a, args.b):
            try:
                ids.append(opening.resolve_one(store, name, args))
            except UnknownJob as error:
                say(str(error))
        if len(ids) < 2:
            return EXIT_UNKNOWN
        jobs = [_of_job(store, job_id) for job_id in ids]
    headings, options = [heading for heading, _ in jobs], [of_job for _, of_job in jobs]
    rows = {
        name: changed
        for name, changed in differences(*options).items()
        if changed or not args.changed
    }
    if args.json:
        a, b = options
        documents = [
            {"option": name, "differs": changed, "a": _raw(a, name), "b": _raw(b, name)}
            for name, changed in rows.items()
        ]
        sides = {"a": headings[0], "b": headings[1]}
        print_json(
            {"schema": SCHEMA, "store": opening.store_place(args), **sides, "options": documents}
        )
    else:
        _print_table(rows, ids, options)
    return 0


def _of_job(store: "JobStore", job_id: str) -> tuple[Document, dict[str, str]]:
    with store.open(job_id) as reader:
        marks = opening.overlay_of(store).of(reader.summary.key)
        return job_heading(reader), options_of(reader, marks)


def _raw(options: dict[str, str], name: str) -> Raw | None:
    return Raw(valid_json(options[name])) if name in options else None


def _print_table(rows: dict[str, bool], ids: list[str], options: Sequence[dict[str, str]]) -> None:
    if not rows:
        say("nothing differs")
        return
    out = Output()
    columns = (Column(""), Column("option"), *(Column(job_id, flexible=True) for job_id in ids))
    table: list[list[Cell]] = []
    for name, changed in rows.items():
        style = "bold yellow" if changed else "dim"
        texts = [job_options.get(name) for job_options in options]
        cells = ["" if text is None else option_text(name, text, brief=True) for text in texts]
        if changed and len(set(cells)) == 1:  # they differ in a later digit
            cells = ["" if text is None else option_text(name, text) for text in texts]
        table.append([Styled(text, style) for text in ("!" if changed else "=", name, *cells)])
    out.table(columns, table)
    if out.terminal:
        differ = sum(rows.values())
        verb = "differs" if differ == 1 else "differ"
        out.note(f"{differ} of {plural(len(rows), 'option')} {verb}")

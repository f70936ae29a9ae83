"""The output of `tag` and `annotate`: a job's tags, note and star, and for Loki, who sees them."""

import argparse
from typing import TYPE_CHECKING

from logshipper_observe.base.output import Cell, Output, print_json
from logshipper_observe.base.running import say
from logshipper_observe.model.documents import job_heading, moment
from logshipper_observe.model.overlay import Marks
from logshipper_observe.query.opening import is_from_loki, store_place

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import Reader

SCHEMA = "logshipper.marks/1"


def print_marks(args: argparse.Namespace, reader: "Reader", marks: Marks, *, changed: bool) -> None:
    if changed and is_from_loki(args):
        say("kept for you alone: Loki stays unchanged, and others do not see it")
    if args.json:
        document = {
            "schema": SCHEMA,
            "store": store_place(args),
            **job_heading(reader),
            "cluster": reader.summary.cluster,
            "tags": dict(marks.tags),
            "note": marks.note,
            "starred": marks.starred,
            **moment("changed", marks.changed_ns or None),
        }
        print_json(document)
        return
    out = Output()
    out.job_line(reader.summary.name, reader.summary.job_id)
    notes = marks.note.splitlines() or ["-"]
    rows: list[tuple[str, list[Cell]]] = [("Tags", [", ".join(marks.tag_words()) or "-"])]
    rows += [("Note" if not at else "", [line]) for at, line in enumerate(notes)]
    rows.append(("Starred", ["yes" if marks.starred else "no"]))
    out.fields(rows)

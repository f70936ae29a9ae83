"""`logshipper export JOB...`: metadata and logs of jobs as files (CSV, TSV, JSONL or Parquet), or as
runs of TensorBoard and MLflow."""

import argparse
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from logshipper.errors import LogshipperError, UsageError
from logshipper.safe_text import safe
from logshipper_ingest.console.progress_bar import Bar
from logshipper_ingest.console.text_table import plural
from logshipper_observe.base.new_file import check_new, ending_of, new_file
from logshipper_observe.base.output import Output, print_json
from logshipper_observe.base.running import say
from logshipper_observe.base.words import count
from logshipper_observe.commands import completers, options
from logshipper_observe.formats.export_rows import LOGS, METADATA, RowWriter, Sources
from logshipper_observe.formats.export_text import CsvWriter, JsonlWriter
from logshipper_observe.model.documents import STREAMS
from logshipper_observe.query.opening import known_jobs

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import JobStore, Reader

SCHEMA = "logshipper.export/1"
CSV, TSV, JSONL, PARQUET = "csv", "tsv", "jsonl", "parquet"
FORMATS = (CSV, TSV, JSONL, PARQUET)
KINDS = (METADATA, LOGS)
FOLDER = "./"
_NOUNS = {METADATA: "record", LOGS: "line"}
_EXIT_FAILED = 1


@dataclass(slots=True)
class _Target:
    """A file to write. kind: METADATA or LOGS; job_ids: of its rows; rows, size: as written."""

    path: str
    kind: str
    job_ids: tuple[str, ...]
    rows: int = 0
    size: int = 0


def add_options(parser: argparse.ArgumentParser) -> None:
    options.describe(
        parser,
        "Writes metadata and logs of one or several jobs: into one file, or with a folder as\n"
        "--output into a folder per job. Numbers keep every digit. A file appears when it is\n"
        "whole. A job that isn't there is reported, and the others are exported.",
        "examples:\n"
        "  logshipper export last\n"
        "  logshipper export train.py k3f9x2 --output runs.parquet\n"
        "  logshipper export 4711 4712 --from loki --what all --format tsv --output results/\n"
        "  logshipper export last --what logs --output train.log.csv --force\n"
        "  logshipper export train.py --tensorboard runs/ --follow\n"
        "  logshipper export 4711 4712 --from loki --mlflow mlruns/",
    )
    options.add_jobs(parser)
    parser.add_argument(
        "--what",
        choices=(*KINDS, "all"),
        help="the records, the lines, or both (default: metadata into a file, all into a folder)",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="default: what FILE ends in, csv where it has no ending. Parquet needs pip install pyarrow",
    )
    parser.add_argument(
        "-o",
        "--output",
        default=FOLDER,
        metavar="FILE|FOLDER/",
        help="default: ./, that is JOB/metadata.csv and so on",
    )
    options.add_raw_cells(parser)
    trackers = parser.add_argument_group("other trackers").add_mutually_exclusive_group()
    trackers.add_argument(
        "--tensorboard",
        metavar="DIR",
        help="write event files into a folder per job: numbers, settings and console; needs tensorboardX",
    )
    trackers.add_argument(
        "--mlflow",
        metavar="URI",
        help="write a run per job into this MLflow server, folder or database; needs mlflow-skinny",
    )
    options.add_completed(
        parser, completers.keys, "--x", metavar="KEY", help="the step (default: X of graphs)"
    )
    options.add_flag(
        parser, "--follow", help="with a tracker: write values as jobs print them, until their ends"
    )
    options.add_flag(parser, "--force", help="replace existing files or runs")
    options.add_json(parser)
    options.add_source(parser)
    parser.set_defaults(refuse=parser.error)


def call(args: argparse.Namespace) -> int:
    if args.tensorboard is not None or args.mlflow is not None:
        return _export_runs(args)
    if args.follow or args.x is not None:
        args.refuse("--follow and --x are for --tensorboard and --mlflow")
    form = _format(args)
    open_writer = _writers(form, raw=args.raw_cells)
    into_folder = _is_folder(args.output)
    kinds = _kinds(args, into_folder)
    with known_jobs(args, args.jobs) as (store, job_ids, unknown):
        problems = [str(error) for error in unknown]
        for problem in problems:
            say(problem)
        files = []
        for target in _targets(args, form, kinds, job_ids, into_folder):
            try:
                _write(store, target, open_writer, force=args.force)
            except LogshipperError as error:
                problems.append(str(error))
                say(safe(str(error)))
                continue
            files.append(target)
            if not args.json:
                _tell(target)
    if args.json:
        print_json(_document(form, files, problems))
    return _EXIT_FAILED if problems else 0


def _export_runs(args: argparse.Namespace) -> int:
    if args.what is not None or args.format is not None or args.output != FOLDER:
        args.refuse(
            "--what, --format and --output are for files, not for --tensorboard and --mlflow"
        )
    from logshipper_observe.commands.reading import export_runs

    runs = []
    with known_jobs(args, args.jobs) as (store, job_ids, unknown):
        problems = [str(error) for error in unknown]
        for outcome in export_runs.call(args, store, job_ids):
            if isinstance(outcome, str):
                problems.append(outcome)
            else:
                runs.append(outcome)
    for problem in problems:
        say(safe(problem))
    if args.json:
        print_json({"schema": SCHEMA, "runs": runs, "problems": problems})
    return _EXIT_FAILED if problems else 0


def _format(args: argparse.Namespace) -> str:
    """Return the format by --format, or the file's ending, or CSV. Raises UsageError for an unknown
    ending."""
    if args.format is not None:
        return str(args.format)
    ending = ending_of(args.output)
    if not ending or os.path.isdir(args.output):
        return CSV
    if ending not in FORMATS:
        endings = ", ".join(f".{form}" for form in FORMATS)
        raise UsageError(
            "--output", [f"{args.output} ends in none of {endings}: --format says what it is"]
        )
    return ending


def _writers(form: str, *, raw: bool) -> Callable[[BinaryIO], RowWriter]:
    if form == PARQUET:
        # late: it needs pyarrow, which is optional
        from logshipper_observe.formats.export_parquet import ParquetWriter

        return ParquetWriter
    if form == JSONL:
        return JsonlWriter
    return lambda file: CsvWriter(file, "\t" if form == TSV else ",", raw=raw)


def _is_folder(output: str) -> bool:
    return output.endswith(("/", "/.", "/..")) or output in (".", "..") or os.path.isdir(output)


def _kinds(args: argparse.Namespace, into_folder: bool) -> tuple[str, ...]:
    if args.output == "-":
        raise LogshipperError(
            "--output: export writes files; `logshipper metadata --format csv` and `logshipper logs` print to a pipe"
        )
    if into_folder:
        return KINDS if args.what in (None, "all") else (args.what,)
    if args.what == "all":
        raise LogshipperError(
            f"--output: a file holds metadata or logs; {args.output}/ is a folder for both, --what chooses one"
        )
    return (args.what or METADATA,)


def _targets(
    args: argparse.Namespace,
    form: str,
    kinds: tuple[str, ...],
    job_ids: list[str],
    into_folder: bool,
) -> list[_Target]:
    if not into_folder:
        return [_Target(args.output, kinds[0], tuple(job_ids))] if job_ids else []
    return [
        _Target(os.path.join(args.output, job_id, f"{kind}.{form}"), kind, (job_id,))
        for job_id in job_ids
        for kind in kinds
    ]


def _write(
    store: "JobStore", target: _Target, open_writer: Callable[[BinaryIO], RowWriter], *, force: bool
) -> None:
    check_new(target.path, force=force)  # before the first question to a server
    with new_file(target.path, force=force) as file:
        with closing(open_writer(file)) as writer:
            for job_id in target.job_ids:
                with store.open(job_id) as reader:
                    target.rows += _write_job(reader, target.kind, writer)
            writer.finish()
        target.size = file.tell()


def _write_job(reader: "Reader", kind: str, writer: RowWriter) -> int:
    summary = reader.summary
    bar = Bar(f"{kind.capitalize()} of {safe(summary.name)}", count, f" {_NOUNS[kind]}s")
    rows, total = 0, summary.records if kind == METADATA else summary.lines

    def progress(more: int) -> None:
        nonlocal rows
        rows += more
        bar(rows, max(total, rows))

    try:
        if kind == METADATA:
            writer.records(Sources(reader), reader, progress)
        else:
            writer.lines(Sources(reader), reader.lines(streams=STREAMS["both"]), progress)
    finally:
        bar.clear()
    return rows


def _tell(file: _Target) -> None:
    of = f" of {len(file.job_ids)} jobs" if len(file.job_ids) > 1 else ""
    Output().line(f"Wrote {file.path}: {plural(file.rows, _NOUNS[file.kind])}{of}")


def _document(form: str, files: list[_Target], problems: list[str]) -> dict[str, object]:
    documents = [
        {
            "path": file.path,
            "what": file.kind,
            "format": form,
            "job_ids": list(file.job_ids),
            "rows": file.rows,
            "bytes": file.size,
        }
        for file in files
    ]
    return {"schema": SCHEMA, "files": documents, "problems": problems}

"""`logshipper import`: jobs of other systems into the local store."""

import argparse
import importlib
import sys
import time
import zoneinfo
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from datetime import UTC, tzinfo
from functools import partial

from logshipper import optin
from logshipper.config import Config, parse
from logshipper.errors import ConfigError, UsageError
from logshipper.safe_text import safe
from logshipper_ingest.console.progress_bar import Bar
from logshipper_ingest.console.text_table import plural
from logshipper_ingest.imports.faults import Faults
from logshipper_ingest.imports.output_files import FilesSource
from logshipper_ingest.imports.output_names import name_pattern
from logshipper_ingest.imports.taking import ImportSource, Taking
from logshipper_ingest.imports.workers import Workers, working
from logshipper_ingest.model.capture_id import JobKey
from logshipper_ingest.model.imported import ImportedJob
from logshipper_ingest.store.due_marks import DueMarks
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.base.output import Cell, Column, Output, print_json
from logshipper_observe.base.running import say
from logshipper_observe.base.words import local, size, utc
from logshipper_observe.commands.options import add_flag, add_json, add_store, describe
from logshipper_observe.model.overlay import MAX_NOTE_CHARS, MAX_TAGS, Marks, Overlay, parse_change
from logshipper_observe.query.opening import ingest, overlay_of, store_folder

SCHEMA = "logshipper.import/1"
SCHEMA_JOB = "logshipper.import-job/1"  # with --dry-run
EXIT_LEFT_OUT = 1
POLL_SECS = 1.0

# by system: module and class
_SOURCES = {
    "files": ("output_files", "FilesSource"),
    "csv": ("tracked", "CsvSource"),
    "tensorboard": ("tensorboard", "TensorboardSource"),
    "wandb": ("wandb", "WandbSource"),
    "qcg": ("qcg", "QcgSource"),
    "balsam": ("balsam", "BalsamSource"),
    "xt": ("xt", "XtSource"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    describe(
        parser,
        "Makes old output searchable: output files become jobs of the local store, rendered,\n"
        "classified and plotted like captured ones. Other systems' jobs keep their states, times,\n"
        "nodes, tags, metadata and logs. Importing again adds only new content. The command\n"
        "reports unreadable files and lines, and imports all else.\n"
        "\n"
        "  files        output files, such as Slurm's: files, folders, patterns\n"
        "  csv          tables with a header: each row is a record\n"
        "  tensorboard  folders with event files: scalars, texts, hyperparameters\n"
        "  wandb        folders with runs (run-*.wandb): history, configuration, console\n"
        "  qcg          a manager's folder .qcgpjm-service-NAME, a folder of them, or its\n"
        "               files jobs.report, track.states and track.reqs\n"
        "  balsam       a site's folder data/ (job.out), and exports of events, jobs and\n"
        "               batch jobs as JSON, JSON lines or CSV\n"
        "  xt           runs' folders and logs: run.log, all_runs.jsonl",
        "examples:\n"
        "  logshipper import files 'slurm-*.out' run.log logs/\n"
        "  logshipper import files --dry-run logs/     names, ids, times and states only\n"
        "  logshipper import files --name-pattern '%x_%j.txt' logs/\n"
        "  logshipper import csv results.csv\n"
        "  logshipper import tensorboard tb/\n"
        "  logshipper import wandb wandb/\n"
        "  logshipper import qcg .                     all runs in this folder\n"
        "  logshipper import qcg .qcgpjm-service-n1.8303 --follow     while it runs\n"
        "  logshipper import balsam site/data events.json jobs.jsonl batchjobs.csv\n"
        "  logshipper import xt runs/\n"
        "  logshipper import qcg copy/ --as sweep1     a copy of a run, as sweep1",
        "exit codes: 0 done, 1 something was unreadable (stderr names it; all else is imported),\n"
        "2 wrong usage, 130 Ctrl-C",
    )
    parser.add_argument(
        "system", metavar="SYSTEM", choices=tuple(_SOURCES), help=f"one of {', '.join(_SOURCES)}"
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", help="folders and files")
    add_flag(
        parser,
        "-f",
        "--follow",
        help="go on while they grow, until the jobs' system has ended, or Ctrl-C",
    )
    add_flag(parser, "--dry-run", help="files: print the jobs, and import nothing")
    add_flag(parser, "--sacct", help="files: take names, times and states from Slurm's accounting")
    parser.add_argument(
        "--name-pattern",
        metavar="PATTERN",
        help="files: their names, as for `sbatch --output`, such as %%x_%%A_%%a.log",
    )
    parser.add_argument(
        "--as", dest="run_name", metavar="NAME", default="", help="what the run, site or workspace is called; the same "
        "name again: the same one, wherever its files are (default: the folder)"
    )  # fmt: skip
    parser.add_argument(
        "--timezone", metavar="ZONE", help="of times without one, such as Europe/Berlin (default: this machine's; "
        "balsam: UTC)"
    )  # fmt: skip
    add_flag(parser, "--removed", help="also jobs that were removed with `logshipper rm`")
    add_json(parser)
    add_store(parser)
    parser.set_defaults(refuse=parser.error)


def call(args: argparse.Namespace) -> int:
    if args.system != "files" and (args.dry_run or args.sacct or args.name_pattern):
        args.refuse("--dry-run, --sacct and --name-pattern are for `import files`")
    faults = Faults(lambda sentence: say(safe(sentence)))
    source = _source(args, faults)
    if args.dry_run and isinstance(source, FilesSource):
        _print_jobs(source.jobs_since(lambda _: {}), as_json=args.json)
        return EXIT_LEFT_OUT if faults.left_out else 0
    with ExitStack() as until:
        workers = until.enter_context(working()) if args.system == "files" else None
        _import(args, source, faults, workers)
    return EXIT_LEFT_OUT if faults.left_out else 0


def _import(
    args: argparse.Namespace, source: ImportSource, faults: Faults, workers: Workers | None
) -> None:
    bar = Bar("Importing", size)
    with closing(LocalStore(store_folder(args), create=True)) as store:
        for problem in ingest(store):  # first, so that no import takes a captured job's id
            say(safe(problem))
        marks = _Marking(overlay_of(store), faults)
        taking = Taking(
            store,
            source,
            faults,
            again=args.removed,
            mark=marks.mark,
            progress=bar,
            workers=workers,
        )
        try:
            if args.follow:
                _follow(taking, source)
            else:
                taking.run()
        except KeyboardInterrupt:
            if args.follow and args.system == "files":
                taking.run()  # with the lines that waited for more
            raise
        finally:
            bar.clear()
            _tell(args, taking, faults)


def _source(args: argparse.Namespace, faults: Faults) -> ImportSource:
    zone = _zone(args.timezone)
    options: dict[str, object] = {"zone": zone, "name": args.run_name}
    if args.system == "balsam":
        options["zone"] = zone or UTC
    elif args.system == "files":
        options |= {"config": _own_config(), "asks_slurm": args.sacct, "follows": args.follow}
        options["pattern"] = args.name_pattern and name_pattern(args.name_pattern)
    module, name = _SOURCES[args.system]
    make: Callable[..., ImportSource] = getattr(
        importlib.import_module(f"logshipper_ingest.imports.{module}"), name
    )
    return make(args.paths, faults, **options)


def _own_config() -> Config:
    """The user's, for the same classes of lines as in captured runs. Raises ConfigError."""
    state, content = optin.read(optin.path())
    return parse(content, "~/.logoptin") if state == optin.PRESENT else Config()


def _zone(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    try:
        return zoneinfo.ZoneInfo(name)
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):
        raise UsageError(
            "--timezone", [f"{name!r} isn't a time zone; it looks like Europe/Berlin or UTC"]
        ) from None


def _follow(taking: Taking, source: ImportSource) -> None:
    while True:
        is_over = source.is_over()  # checked first: earlier text is read afterwards
        start = time.monotonic()
        taking.run(last=is_over)
        if is_over:
            return
        # at most half of a CPU: each pass reads a long console again
        time.sleep(max(POLL_SECS, time.monotonic() - start))


def _print_jobs(jobs: Iterator[ImportedJob], *, as_json: bool) -> None:
    """Print the jobs that an import would find."""
    rows: list[list[Cell]] = []
    for job in jobs:
        begin, end = job.begun_ns, next((change.time_ns for change in job.changes[1:]), None)
        state = job.changes[-1].to
        if as_json:
            document = {"id": job.ids[0], "name": job.name, "state": state, "reason": job.reason}
            times = {"started": utc(begin), "ended": None if end is None else utc(end)}
            print_json({"schema": SCHEMA_JOB, **document, **times, "path": job.details["path"]})
        rows.append([job.ids[0], job.name, state, local(begin), "" if end is None else local(end)])
    if not as_json:
        columns = [Column(name) for name in ("id", "name", "state", "started", "ended")]
        Output().table(columns, rows)


def _tell(args: argparse.Namespace, taking: Taking, faults: Faults) -> None:
    counts = taking.counts
    if args.json:
        fault_fields = {"left_out": faults.left_out, "remarks": faults.remarks}
        print_json(
            {"schema": SCHEMA, "store": store_folder(args), **asdict(counts), **fault_fields}
        )
        return
    jobs = f"{plural(counts.new, 'new job')}, {counts.known:,} known"
    more = [plural(counts.allocations, "allocation")] if counts.allocations else []
    entries = f"{plural(counts.entries, 'entry')}: " if counts.entries else ""
    print(", ".join([entries + jobs, *more]))
    if counts.new and sys.stdout.isatty():
        say("next: `logshipper ls`, `logshipper grep TEXT`, `logshipper plot JOB`")
    if counts.removed:
        say(
            f"{plural(counts.removed, 'job')} left out, removed from the store before: --removed takes them again"
        )
    if faults.left_out:
        say(f"{faults.left_out:,} left out that couldn't be read, see above")


class _Marking:
    """Brings tags and notes of imported jobs to the reader's own, and reports invalid tags."""

    def __init__(self, overlay: Overlay, faults: Faults) -> None:
        self._overlay = overlay
        self._faults = faults

    def mark(self, jobs: Sequence[DueMarks]) -> None:
        changes = [(JobKey(job.job_id), partial(self._marked, job)) for job in jobs]
        self._overlay.change_all(changes)

    def _marked(self, job: DueMarks, marks: Marks) -> Marks:
        tags = dict(marks.tags)
        for name, value in job.tags.items():
            try:
                tag_change = parse_change(f"+{name}={value}")
                if tag_change.name not in tags and len(tags) >= MAX_TAGS:
                    raise ConfigError("tags", [f"a job has at most {MAX_TAGS}"])
            except ConfigError as error:
                self._faults.remark(job.job_id, 0, f"the tag {name!r} is left out: {error}")
            else:
                tags[tag_change.name] = tag_change.value or ""
        note = marks.note if job.note is None else job.note[:MAX_NOTE_CHARS]
        return replace(marks, tags=tags, note=note)

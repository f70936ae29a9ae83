"""`logshipper ls`: the jobs of a store, newest first."""

import argparse
import fnmatch
import time
from typing import TYPE_CHECKING

from observe.documents import duration_secs, job_document
from observe.opening import (
    LIST_SECS,
    begin_with,
    is_from_loki,
    opened,
    overlay_of,
    say_where_else,
    store_place,
    take_in,
)
from observe.output import Cell, Column, Output, Styled, natural_widths, print_json
from observe.overlay import NO_MARKS, Marks, Place
from observe.running import say
from observe.words import STATE_STYLES, count, duration, exit_short, local_with_zone, plural, when

if TYPE_CHECKING:
    from ingest.job import JobSummary

SCHEMA = "logshipper.ls/1"
_NAME_MIN = 12  # columns

_COLUMNS = (
    Column("id", style="bold"),
    Column("state"),
    Column("exit", right=True),
    Column("started"),
    Column("took", right=True),
    Column("lines", right=True),
    Column("records", right=True),
    Column("lost", right=True),
    Column("tags", style="cyan", flexible=True, cut=True),
    Column("name", flexible=True, cut=True),
)


def call(args: argparse.Namespace) -> int:
    now_ns = time.time_ns()
    jobs: list[JobSummary] = []
    problems: list[str] = []
    marks: dict[Place, Marks] = {}
    with opened(args) as store:
        if store is not None:
            problems = take_in(store, secs=LIST_SECS)
            jobs = store.jobs()
            marks = overlay_of(store).all()
    matching = [job for job in jobs if _matches(job, args)]
    shown = matching if args.all else matching[: args.limit]
    for problem in problems:
        say(problem)
    say_where_else(args)
    if args.json:
        _print_document(args, matching, shown, marks, problems, now_ns)
        return 0
    out = Output()
    if not shown:
        _tell(out, _nothing(args, len(jobs), len(matching)))
        return 0
    _print_table(out, shown, marks, now_ns)
    if len(shown) < len(matching):
        _tell(out, f"{plural(len(matching) - len(shown), 'older job')} left out: --all shows them")
    return 0


def _matches(job: "JobSummary", args: argparse.Namespace) -> bool:
    if args.state and job.state not in args.state:
        return False
    if not args.name:
        return True
    wanted = args.name.lower()
    pattern = wanted if any(mark in wanted for mark in "*?[") else f"*{wanted}*"
    return fnmatch.fnmatchcase(job.name.lower(), pattern)


def _nothing(args: argparse.Namespace, jobs: int, matching: int) -> str:
    if matching:
        return f"{plural(matching, 'job')}, none of them shown: --limit is {args.limit}"
    if jobs:
        return f"no job matches, of {plural(jobs, 'job')} in all"
    if is_from_loki(args):
        return f"no jobs in {store_place(args)} in the time that is looked at; --since 30d looks further back"
    return f"no jobs in {store_place(args)} yet; begin with: {begin_with(args)}"


def _tell(out: Output, sentence: str) -> None:
    """On a terminal below the table; otherwise on stderr, so that a pipe holds jobs only."""
    if out.terminal:
        out.line(Styled(sentence[0].upper() + sentence[1:], "dim"))
    else:
        say(sentence)


def _print_table(out: Output, jobs: "list[JobSummary]", marks: dict[Place, Marks], now_ns: int) -> None:
    rows = [_row(job, marks.get(Place(job.job_id, job.cluster), NO_MARKS), now_ns, out.terminal) for job in jobs]
    if not out.terminal:
        kept = [at for at, column in enumerate(_COLUMNS) if column.title != "tags"]  # may hold blanks
        out.table([_COLUMNS[at] for at in kept], [[row[at] for at in kept] for row in rows])
        return
    # on a terminal, room is for what tells something: no column of zeros, and names before counts
    used = {"lost": any(job.lost for job in jobs), "tags": any(marks)}
    kept = [at for at, column in enumerate(_COLUMNS) if used.get(column.title, True)]
    widths = natural_widths(_COLUMNS, rows)
    for title in ("records", "took", "lines"):
        if sum(widths[at] + 2 for at in kept[:-1]) + _NAME_MIN > out.columns:
            kept = [at for at in kept if _COLUMNS[at].title != title]
    out.table([_COLUMNS[at] for at in kept], [[row[at] for at in kept] for row in rows])


def _row(job: "JobSummary", marks: Marks, now_ns: int, terminal: bool) -> list[Cell]:
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
        ("* " if marks.starred else "") + " ".join(marks.tag_words()),
        job.name,
    ]


def _print_document(
    args: argparse.Namespace,
    matching: "list[JobSummary]",
    shown: "list[JobSummary]",
    marks: dict[Place, Marks],
    problems: list[str],
    now_ns: int,
) -> None:
    print_json(
        {
            "schema": SCHEMA,
            "store": store_place(args),
            "jobs": [job_document(job, now_ns, marks.get(Place(job.job_id, job.cluster))) for job in shown],
            "matching": len(matching),
            "problems": problems,
        }
    )

"""`logshipper rm JOB`: removes jobs and all that was logged of them."""

import argparse
import sys
from typing import TYPE_CHECKING

from logshipper.safe_text import safe
from logshipper_ingest.console.text_table import plural
from logshipper_observe.base.output import Output
from logshipper_observe.base.running import say
from logshipper_observe.base.words import NOT_IN_LOKI, local, size
from logshipper_observe.commands.options import (
    add_flag,
    add_jobs,
    add_store,
    change_words,
    describe,
)
from logshipper_observe.query import opening

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary

EXIT_DECLINED = EXIT_UNKNOWN = 1
EXIT_USAGE = 2
EXIT_LEFT = 3
_AT_ONCE = 100  # the store rewrites its catalogue once for them

_LOKI_OPTIONS = ("--from", "--site", "--loki-url", "--prometheus-url", "--cluster", "--since")


def add_options(parser: argparse.ArgumentParser) -> None:
    describe(
        parser,
        "Removes jobs and all that was logged of them from the local store, for good.\nA running job is left alone.",
        "examples:\n  logshipper rm k3f9x2\n  logshipper rm --yes k3f9x2 train.py",
    )
    add_jobs(parser)
    add_flag(parser, "-y", "--yes", help="do not ask (required without a terminal)")
    add_store(parser)
    parser.set_defaults(source=None)
    _refuse_loki(parser)


def _refuse_loki(parser: argparse.ArgumentParser) -> None:
    """Answer options for reading from Loki with an explanation."""

    def refusing(words: list[str]) -> list[str]:
        options = words[: words.index("--")] if "--" in words else words
        if any(word.partition("=")[0] in _LOKI_OPTIONS for word in options):
            parser.error(NOT_IN_LOKI)
        return words

    change_words(parser, refusing)


def call(args: argparse.Namespace) -> int:
    if opening.is_from_loki(args):  # the site's default: --from itself is refused
        say(NOT_IN_LOKI)
    with opening.open_local(args) as store:
        if store is None:
            raise opening.no_jobs_yet(args, args.jobs[0])
        for problem in opening.ingest_for(store, args.jobs):
            say(problem)
        if "last" in args.jobs:
            opening.say_where_else(args)
        # resolves all of them before the first removal
        ids, unknown = opening.resolve_several(store, args.jobs, args)
        for error in unknown:
            say(str(error))
        if unknown:
            if ids:
                say("nothing was removed")
            return EXIT_UNKNOWN
        summaries = {job.job_id: job for job in store.jobs()}
        if not args.yes:
            if sys.stdin is None or not sys.stdin.isatty():
                say("rm asks only on a terminal; give --yes to remove without being asked")
                return EXIT_USAGE
            if not _agreed([summaries[job_id] for job_id in ids]):
                say("nothing was removed")
                return EXIT_DECLINED
        out = Output()
        leftovers: dict[str, None] = {}
        for at in range(0, len(ids), _AT_ONCE):
            some = ids[at : at + _AT_ONCE]
            leftovers |= dict.fromkeys(store.remove(*some))
            for job_id in some:
                out.line(f"Removed {summaries[job_id].name} ({job_id})")
        for path in leftovers:
            say(f"{path}: was moved aside as damaged, and has something of it: remove it, too")
    return EXIT_LEFT if leftovers else 0


def _agreed(jobs: "list[JobSummary]") -> bool:
    sys.stdout.flush()
    for job in jobs:
        sys.stderr.write(
            f"{safe(job.name)} ({job.job_id}), {job.state}, started {local(job.started_ns)}: "
            f"{plural(job.lines, 'line')}, {plural(job.records, 'metadata record')}, {size(job.bytes_logged)}\n"
        )
    sys.stderr.write(f"Remove {'it' if len(jobs) == 1 else 'them'} for good? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")

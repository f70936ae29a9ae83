"""`logshipper plot JOB...`: graphs of metadata, in the terminal, as PNG or SVG."""

import argparse
from typing import TYPE_CHECKING

from logshipper.errors import UsageError
from logshipper_observe.base.new_file import check_ending
from logshipper_observe.base.running import say
from logshipper_observe.commands.plot_graphs import plot_one, plot_several
from logshipper_observe.graphs.curves import NONE, RAW, Treatment
from logshipper_observe.graphs.plot_runs import PlotQuery, is_plain
from logshipper_observe.graphs.series import (
    GraphRequest,
)
from logshipper_observe.query.opening import known_jobs

if TYPE_CHECKING:
    pass


def call(args: argparse.Namespace) -> int:
    _check(args)
    request = GraphRequest(args.x, args.y or (), args.attempt)
    how = Treatment(args.smooth, args.aggregate, args.error_bars, args.shade)
    wanted = PlotQuery(request, args.x_rule or "", args.group_by, args.break_on, how, args.title or "", args.max_traces,
                    args.max_runs, args.facet or ())  # fmt: skip
    with known_jobs(args, args.jobs) as (store, job_ids, unknown):
        if not job_ids:
            for error in unknown[1:]:
                say(str(error))
            raise unknown[0]
        for error in unknown:
            say(str(error))
        if len(job_ids) == 1 and is_plain(wanted) and not args.layout:
            with store.open(job_ids[0]) as reader:
                plot_one(reader, request, args)
        else:
            plot_several(store, job_ids, wanted, args)
    return 1 if unknown else 0


def _check(args: argparse.Namespace) -> None:
    """Raises UsageError for options that say nothing together."""
    for form, path in (("png", args.png), ("svg", args.svg)):
        if path:
            check_ending(f"--{form}", path, form)
    if args.x is not None and args.x_rule:
        raise UsageError("--x", ["names the X, and --x-rule has it chosen: give one of them"])
    if args.error_bars != NONE and args.aggregate == NONE:
        raise UsageError(
            "--error-bars", ["shows how runs of a group differ: it needs --aggregate, such as mean"]
        )
    if args.shade not in (NONE, RAW) and args.aggregate == NONE:
        raise UsageError(
            f"--shade {args.shade}",
            ["shows how runs of a group differ: it needs --aggregate, such as mean"],
        )
    if args.shade == RAW and args.aggregate == NONE and not args.smooth:
        raise UsageError(
            "--shade raw",
            ["shows what was smoothed or put together: it needs --smooth or --aggregate"],
        )

"""`logshipper plot JOB...`: graphs of metadata, in the terminal, as PNG or SVG."""

import argparse

from logshipper.errors import UsageError
from logshipper_observe.commands import completers, options
from logshipper_observe.commands.analysis.plot_graphs import plot_one, plot_several
from logshipper_observe.commands.reading.several_jobs import report_unknown
from logshipper_observe.graphs.curves import NONE, RAW, Treatment
from logshipper_observe.graphs.plot_runs import PlotQuery, is_plain
from logshipper_observe.graphs.series import GraphRequest
from logshipper_observe.query.opening import known_jobs


def weight(text: str) -> float:
    """Parse the weight of `--smooth`: from 0 to below 1."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a weight from 0 to below 1")
    return number


def breaks(text: str) -> tuple[str, ...]:
    parts = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if any(part not in ("run", "group", "col") for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} isn't of run, group and col, joined by commas")
    return parts


def layout(text: str) -> tuple[int, int]:
    """Rows and columns of `2x3`; 0 where `x3` or `4x` leaves one open."""
    rows, by, columns = text.partition("x")
    parts = [part or "0" for part in (rows, columns)]
    if (
        not by
        or not (rows or columns)
        or any(not part.isdecimal() or not 0 <= int(part[:4]) <= 100 for part in parts)
    ):
        raise argparse.ArgumentTypeError(
            f"{text!r} isn't a layout; it looks like 2x3, x3 or 4x, rows and columns"
        )
    grid = int(parts[0]), int(parts[1])
    if (rows and not grid[0]) or (columns and not grid[1]):
        raise argparse.ArgumentTypeError(f"{text!r} has room for nothing")
    return grid


def add_options(parser: argparse.ArgumentParser) -> None:
    options.describe(
        parser,
        "Draws the numbers of the metadata of one or several jobs over the X that a rule\n"
        "chose, and says which rule it was. Each run is a curve; runs can be put together\n"
        "in groups.",
        "examples:\n"
        "  logshipper plot\n"
        "  logshipper plot train.py --y loss --y val_loss\n"
        "  logshipper plot train.py --x time --png train.png\n"
        "  logshipper plot a7 a8 --y loss --group-by experiment --aggregate mean\n"
        "  logshipper plot a7 a8 --smooth 0.9 --shade raw --layout x3 --png runs.png\n"
        "  logshipper plot a3-a9 --y loss --facet job.host\n"
        "  logshipper plot last --reread\n"
        "  logshipper plot 4711 --from loki --loki-url http://loki.example.org:3100",
    )
    options.add_jobs(parser, options.LAST_HELP)
    x_help = "this X instead; `time` is when a record was printed"
    options.add_completed(parser, completers.keys, "--x", metavar="KEY", help=x_help)
    parser.add_argument(
        "--x-rule",
        choices=("xt",),
        help="another rule: the first of epoch, step, iter, epochs, steps, iters, index that all jobs have",
    )
    y_help = "this Y; again, or A,B, for more (default: all numbers)"
    options.add_completed(
        parser, completers.keys, "--y", action="append", metavar="KEY", help=y_help
    )
    _add_curves(parser)
    form = parser.add_mutually_exclusive_group()
    options.add_picture(form)
    options.add_json(form, "for programs: the points as JSON, described in docs/json.md")
    options.add_attempt(parser)
    options.add_reread(parser)
    options.add_source(parser)


def _add_curves(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("curves of several runs")
    options.add_completed(
        group,
        completers.facets,
        "--group-by",
        default="run",
        metavar="run|node|job|experiment|OPTION",
        help="which runs belong together: by a tag of the measurements or the job, or another option (as `diff` names "
        "them); experiment: by the tag, else the job that they are parts of, else the name "
        "(default: run, each by itself)",
    )
    group.add_argument(
        "--aggregate",
        choices=("none", "mean", "min", "max", "std", "var", "sem"),
        default="none",
        help="one curve for each group: this, of its runs' values at each X (default: none, a curve for each run)",
    )
    spreads = ("none", "std", "var", "sem")
    group.add_argument(
        "--error-bars", choices=spreads, default="none", help="how far a group's runs differ"
    )
    group.add_argument(
        "--shade",
        choices=("none", "min-max", "std", "var", "sem", "raw"),
        default="none",
        help="likewise, as a band; raw: the curves as they were, faintly",
    )
    group.add_argument(
        "--smooth",
        type=weight,
        default=0.0,
        metavar="W",
        help="s = W*previous + (1-W)*value, for each run (0 to 1)",
    )
    options.add_flag(
        group,
        "--debias",
        help="with --smooth: the first value weighs no more than others, sum(W^k*value) / sum(W^k)",
    )
    group.add_argument(
        "--break-on",
        type=breaks,
        default=("col",),
        metavar="run|group|col",
        help="values with separate graphs, several joined by commas (default: col, each key)",
    )
    options.add_completed(
        group,
        completers.facets,
        "--facet",
        type=lambda text: [part.strip() for part in text.split(",") if part.strip()],
        action="extend",
        metavar="OPTION|auto",
        help="a graph for each value of this option, as `diff` names them; auto: of those that differ",
    )
    group.add_argument(
        "--layout", type=layout, metavar="2x3|x3|4x", help="rows and columns of graphs"
    )
    group.add_argument(
        "--title",
        metavar="TEXT",
        help="of each graph; $run, $group, $col and $facet stand for its own",
    )
    options.add_number(group, "--max-traces", default=64, help="curves in all (default: 64)")
    options.add_number(group, "--max-runs", default=1024, help="runs (default: 1024)")


def call(args: argparse.Namespace) -> int:
    _check(args)
    request = GraphRequest(args.x, args.y or (), args.attempt)
    treatment = Treatment(args.smooth, args.aggregate, args.error_bars, args.shade, args.debias)
    query = PlotQuery(
        request,
        args.x_rule or "",
        args.group_by,
        args.break_on,
        treatment,
        args.title or "",
        args.max_traces,
        args.max_runs,
        args.facet or (),
    )
    with known_jobs(args, args.jobs or [options.LAST]) as (store, job_ids, unknown):
        report_unknown(job_ids, unknown)
        if len(job_ids) == 1 and is_plain(query) and not args.layout:
            with store.open(job_ids[0]) as reader:
                plot_one(reader, request, args)
        else:
            plot_several(store, job_ids, query, args)
    return 1 if unknown else 0


def _check(args: argparse.Namespace) -> None:
    """Raises UsageError for options that say nothing together."""
    options.check_files(args, "png", "svg")
    if args.x is not None and args.x_rule:
        raise UsageError("--x", ["names the X, and --x-rule has it chosen: give one of them"])
    if args.debias and not args.smooth:
        raise UsageError("--debias", ["is a way of smoothing: it needs --smooth, such as 0.9"])
    if args.aggregate != NONE:
        return
    words = "shows how runs of a group differ: it needs --aggregate, such as mean"
    if args.error_bars != NONE:
        raise UsageError("--error-bars", [words])
    if args.shade not in (NONE, RAW):
        raise UsageError(f"--shade {args.shade}", [words])
    if args.shade == RAW and not args.smooth:
        words = "shows the source of smoothed or combined curves: it needs --smooth or --aggregate"
        raise UsageError("--shade raw", [words])

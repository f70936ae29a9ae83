"""The reading commands' place in the command line. Light: each command is imported when it is called."""

import argparse
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ingest.time_span import time_span
from logshipper.terminal import BATCH_COLUMNS, BATCH_ROWS
from observe import completers
from observe.completion import HOW_TO, SHELLS
from observe.running import guarded
from observe.words import STATES

Parser = TypeVar("Parser", bound=argparse.ArgumentParser)
if TYPE_CHECKING:
    from observe.log_place import Place

    Subparsers: TypeAlias = argparse._SubParsersAction[Parser]

_EXIT_CODES = "exit codes: 0 done, 1 not done (stderr says why), 2 wrong usage, 130 Ctrl-C"
_LOKI_OPTIONS = ("--from", "--site", "--loki-url", "--prometheus-url", "--cluster", "--since")
_NOT_IN_LOKI = (
    "only jobs of the local store are removed; what is in Loki goes when its retention ends, or by `logshipper-agent "
    "purge`, which its admins can call"
)
_JOB_HELP = "its id, its name (the newest job of that name), the beginning of an id, or `last`"


def add_commands(subparsers: "Subparsers[Parser]") -> None:
    """Registers ls, show, logs, metadata, export, plot, url, rm, render and completion; each sets `call`: Namespace to
    exit code."""
    _add_ls(subparsers)
    _add_show(subparsers)
    _add_logs(subparsers)
    _add_metadata(subparsers)
    _add_export(subparsers)
    _add_plot(subparsers)
    _add_url(subparsers)
    _add_rm(subparsers)
    _add_render(subparsers)
    _add_completion(subparsers)


def _add(subparsers: "Subparsers[Parser]", name: str, summary: str, description: str, examples: str) -> Parser:
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=description,
        epilog=f"{examples.rstrip()}\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module = f"observe.{name}"

    def call(args: argparse.Namespace) -> int:
        code = importlib.import_module(module).call(args)
        return int(code)

    parser.set_defaults(call=guarded(call))
    return parser


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", metavar="DIR", help="the store's folder (default: $LOGSHIPPER_STORE, else the user's own)"
    )


def _add_source(parser: argparse.ArgumentParser) -> None:
    """Where jobs are read: the local store, or a site's Loki."""
    _add_store(parser)
    group = parser.add_argument_group("reading from Loki")
    group.add_argument(
        "--from",
        dest="source",
        choices=("local", "loki"),
        help="where jobs are read: the local store (default), or Loki, where a node's agent brings its runs",
    )
    _add_loki(group)


def _add_loki(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--site",
        metavar="FILE",
        help="says where Loki and Prometheus are (default: $LOGSHIPPER_SITE, the user's, /etc/logshipper/site.toml)",
    )
    group.add_argument("--loki-url", metavar="URL", help="another Loki (default: $LOGSHIPPER_LOKI_URL)")
    group.add_argument("--prometheus-url", metavar="URL", help="likewise (default: $LOGSHIPPER_PROMETHEUS_URL)")
    group.add_argument("--cluster", metavar="NAME", help="only jobs of this cluster")
    group.add_argument(
        "--since",
        type=time_span,
        metavar="TIME",
        help="how far back jobs are looked for, such as 12h, 30d (default: 7d)",
    )


def _add_job(parser: argparse.ArgumentParser) -> None:
    _completed(parser.add_argument("job", metavar="JOB", help=_JOB_HELP), completers.jobs)


def _completed(action: argparse.Action, completer: object) -> None:
    """argcomplete looks for this attribute."""
    action.completer = completer  # type: ignore[attr-defined]  # its own protocol


def _add_json(
    parser: argparse._ActionsContainer, what: str = "for programs: JSON, described in docs/reading.md"
) -> None:
    parser.add_argument("--json", action="store_true", help=what)


def whole_number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} isn't a whole number")
    return int(text[:18])


def columns_number(text: str) -> int:
    from logshipper.screen import MAX_COLUMNS  # late: its tables of characters cost 10 ms

    return _within(text, 2, MAX_COLUMNS)


def rows_number(text: str) -> int:
    from logshipper.screen import MAX_ROWS  # likewise

    return _within(text, 1, MAX_ROWS)


def _within(text: str, least: int, most: int) -> int:
    number = whole_number(text)
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(f"{text!r} isn't from {least} to {most}")
    return number


def screen_size(text: str) -> tuple[int, int]:
    """Columns and rows of `80x25`."""
    columns, by, rows = text.partition("x")
    if not by:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a size; it looks like 80x25, columns and rows")
    return columns_number(columns), rows_number(rows)


def weight(text: str) -> float:
    """Of `--smooth`: from 0 to below 1."""
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
    if not by or not (rows or columns) or any(not part.isdecimal() or not 0 <= int(part[:4]) <= 100 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} isn't a layout; it looks like 2x3, x3 or 4x, rows and columns")
    found = int(parts[0]), int(parts[1])
    if (rows and not found[0]) or (columns and not found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} has room for nothing")
    return found


def state_names(text: str) -> list[str]:
    states = [state.strip().upper() for state in text.split(",") if state.strip()]
    unknown = [state for state in states if state not in STATES]
    if unknown or not states:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown) or text!r} isn't a state; there are {', '.join(STATES)}")
    return states


def seconds(text: str) -> float:
    """A number of seconds, or a span of time."""
    return time_span(f"{text}s" if text.replace(".", "", 1).isdecimal() else text)


def task_numbers(text: str) -> tuple[int, ...]:
    return tuple(whole_number(number.strip()) for number in text.split(","))


def place(text: str) -> "Place":
    """Where a log that was followed goes on."""
    from observe.log_place import Place

    try:
        return Place.parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} isn't a place; `logs --follow` prints one when it is left"
        ) from None


def attempt_number(text: str) -> str:
    return text if text == "all" else str(whole_number(text))


def _add_ls(subparsers: "Subparsers[Parser]") -> None:
    parser = _add(
        subparsers,
        "ls",
        "list jobs, newest first",
        "Lists the jobs of the store, newest first.",
        "examples:\n"
        "  logshipper ls\n"
        "  logshipper ls --state failed,cancelled --all\n"
        "  logshipper ls --name 'train*' --limit 5\n"
        "  logshipper ls --json | jq -r '.jobs[].job_id'\n"
        "  logshipper ls --from loki --since 2d --cluster alpha",
    )
    parser.add_argument("--limit", type=whole_number, default=20, metavar="N", help="at most N jobs (default: 20)")
    parser.add_argument("--all", action="store_true", help="all jobs")
    action = parser.add_argument(
        "--state", type=state_names, metavar="STATE", help=f"only these, joined by commas: {', '.join(STATES)}"
    )
    _completed(action, lambda **_: [state.lower() for state in STATES])
    parser.add_argument("--name", metavar="PATTERN", help="only names that contain PATTERN, or match it (`*`, `?`)")
    _add_json(parser)
    _add_source(parser)


def _add_show(subparsers: "Subparsers[Parser]") -> None:
    parser = _add(
        subparsers,
        "show",
        "show all that is known of a job",
        "Shows a job's state, times, account of lines, X axis and the rule that chose it,\nkeys, and events.",
        "examples:\n  logshipper show last\n  logshipper show train.py --json | jq .x_axis\n"
        "  logshipper show 4711 --from loki",
    )
    _add_job(parser)
    _add_json(parser)
    _add_source(parser)


def _add_logs(subparsers: "Subparsers[Parser]") -> None:
    parser = _add(
        subparsers,
        "logs",
        "print what a job printed",
        "Prints a job's output as its terminal showed it: both streams in order of time,\nbars in their final state.",
        "examples:\n"
        "  logshipper logs last --tail 20\n"
        "  logshipper logs train.py --follow\n"
        "  logshipper logs 4711 --follow --task 0,3 --for 10m\n"
        "  logshipper logs k3f9x2 --stream stderr --times --grep 'warn|error'\n"
        "  logshipper logs 4711 --from loki --follow",
    )
    _add_job(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="go on while the job runs, until it has ended")
    parser.add_argument("--for", dest="secs", type=seconds, metavar="SECS", help="follow for so long only: 30, 10m")
    parser.add_argument(
        "--after", type=place, metavar="PLACE", help="only what comes behind it; following says its PLACE"
    )
    parser.add_argument("--task", type=task_numbers, metavar="N", help="only these tasks, joined by commas")
    parser.add_argument("--stream", choices=("stdout", "stderr", "both"), default="both", help="default: both")
    parser.add_argument("-n", "--tail", type=whole_number, metavar="N", help="only the last N lines (that match)")
    parser.add_argument("-t", "--times", action="store_true", help="local time before each line")
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="colours, also those that the job's lines hold (default: auto, on a terminal)",
    )
    parser.add_argument("--grep", metavar="RE", help="only lines in which this regular expression (Python's) matches")
    parser.add_argument(
        "--attempt", type=attempt_number, default="all", metavar="N|all", help="of a restarted job (default: all)"
    )
    _add_json(parser, "for programs: one JSON object a line, described in docs/reading.md")
    _add_source(parser)


def _add_metadata(subparsers: "Subparsers[Parser]") -> None:
    parser = _add(
        subparsers,
        "metadata",
        "print a job's metadata: table, JSON lines or CSV",
        "Prints the lines of a job's stdout that are one JSON object. The table has the\n"
        "newest first; `jsonl` has the exact lines, and `csv` a column per key (nested\n"
        "ones as a.b), both in the order of printing.",
        "examples:\n"
        "  logshipper metadata last --limit 10\n"
        "  logshipper metadata last --keys epoch,loss\n"
        "  logshipper metadata train.py --format csv > train.csv\n"
        "  logshipper metadata 4711 --from loki --format jsonl",
    )
    _add_job(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--format", choices=("table", "jsonl", "csv"), default="table", help="default: table")
    _add_json(how, "for programs: one JSON object a line with time and attempt, described in docs/reading.md")
    _completed(
        parser.add_argument("--keys", metavar="A,B", help="only these keys, in this order"),
        completers.keys,
    )
    parser.add_argument(
        "--limit", type=whole_number, metavar="N", help="only the newest N (default: all; a table on a terminal: 50)"
    )
    parser.add_argument("--all", action="store_true", help="all records")
    parser.add_argument("--attempt", type=whole_number, metavar="N", help="of a restarted job: only this attempt")
    _add_source(parser)


def _add_export(subparsers: "Subparsers[Parser]") -> None:
    parser = _add(
        subparsers,
        "export",
        "write jobs' metadata and logs to files: CSV, TSV, JSONL, Parquet",
        "Writes metadata and logs of one or several jobs: into one file, or with a folder as\n"
        "--output into a folder per job. Numbers keep every digit. A file appears when it is\n"
        "whole. A job that isn't there is told of, and the others are exported.",
        "examples:\n"
        "  logshipper export last\n"
        "  logshipper export train.py k3f9x2 --output runs.parquet\n"
        "  logshipper export 4711 4712 --from loki --what all --format tsv --output results/\n"
        "  logshipper export last --what logs --output train.log.csv --force",
    )
    _completed(parser.add_argument("jobs", metavar="JOB", nargs="+", help=_JOB_HELP), completers.jobs)
    parser.add_argument(
        "--what",
        choices=("metadata", "logs", "all"),
        help="the records, the lines, or both (default: metadata into a file, all into a folder)",
    )
    parser.add_argument(
        "--format",
        choices=("csv", "tsv", "jsonl", "parquet"),
        help="default: what FILE ends in, else csv. Parquet needs pip install 'logshipper[parquet]'",
    )
    parser.add_argument(
        "-o", "--output", default="./", metavar="FILE|FOLDER/", help="default: ./, that is JOB/metadata.csv and so on"
    )
    parser.add_argument("--force", action="store_true", help="replace files that are there")
    _add_json(parser)
    _add_source(parser)


def _add_plot(subparsers: "Subparsers[Parser]") -> None:
    parser = _add(
        subparsers,
        "plot",
        "draw jobs' metadata, in the terminal, as PNG or SVG",
        "Draws the numbers of the metadata of one or several jobs over the X that a rule\n"
        "chose, and says which rule it was. Each run is a curve; runs can be put together\n"
        "in groups.",
        "examples:\n"
        "  logshipper plot last\n"
        "  logshipper plot train.py --y loss --y val_loss\n"
        "  logshipper plot train.py --x time --png train.png\n"
        "  logshipper plot a7 a8 --y loss --group-by experiment --aggregate mean\n"
        "  logshipper plot a7 a8 --smooth 0.9 --shade raw --layout x3 --png runs.png\n"
        "  logshipper plot 4711 --from loki --loki-url http://loki.example.org:3100",
    )
    _completed(parser.add_argument("jobs", metavar="JOB", nargs="+", help=_JOB_HELP), completers.jobs)
    _completed(
        parser.add_argument("--x", metavar="KEY", help="this X instead; `time` is when a record was printed"),
        completers.keys,
    )
    parser.add_argument(
        "--x-rule",
        choices=("xt",),
        help="another rule: the first of epoch, step, iter, epochs, steps, iters, index that all jobs have",
    )
    _completed(
        parser.add_argument(
            "--y",
            action="append",
            metavar="KEY",
            help="this Y; again, or A,B, for more (default: all numbers)",
        ),
        completers.keys,
    )
    _add_curves(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--png", metavar="FILE", help="write a picture instead; `-` is standard output")
    how.add_argument("--svg", metavar="FILE", help="likewise, as SVG")
    _add_json(how, "for programs: the points as JSON, described in docs/reading.md")
    parser.add_argument("--attempt", type=whole_number, metavar="N", help="of a restarted job: only this attempt")
    _add_source(parser)


def _add_curves(parser: argparse.ArgumentParser) -> None:
    """How curves are treated, put together and laid out; names are those of XT's plot."""
    group = parser.add_argument_group("curves of several runs")
    group.add_argument(
        "--group-by",
        choices=("run", "node", "job", "experiment"),
        default="run",
        help="which runs belong together; an experiment is what jobs of one name are (default: run, each by itself)",
    )
    group.add_argument(
        "--aggregate",
        choices=("none", "mean", "min", "max", "std", "var", "sem"),
        default="none",
        help="one curve for each group: this, of its runs' values at each X (default: none, a curve for each run)",
    )
    spreads = ("none", "std", "var", "sem")
    group.add_argument("--error-bars", choices=spreads, default="none", help="how far a group's runs differ")
    group.add_argument(
        "--shade",
        choices=("none", "min-max", "std", "var", "sem", "raw"),
        default="none",
        help="likewise, as a band; raw: the curves as they were, faintly",
    )
    group.add_argument(
        "--smooth", type=weight, default=0.0, metavar="W", help="s = W*previous + (1-W)*value, for each run (0 to 1)"
    )
    group.add_argument(
        "--break-on",
        type=breaks,
        default=("col",),
        metavar="run|group|col",
        help="what gets a graph of its own, several joined by commas (default: col, each key)",
    )
    group.add_argument("--layout", type=layout, metavar="2x3|x3|4x", help="rows and columns of graphs")
    group.add_argument("--title", metavar="TEXT", help="of each graph; $run, $group and $col stand for its own")
    group.add_argument("--max-traces", type=whole_number, default=64, metavar="N", help="curves in all (default: 64)")
    group.add_argument("--max-runs", type=whole_number, default=1024, metavar="N", help="runs (default: 1024)")


def _add_url(subparsers: "Subparsers[Parser]") -> None:
    parser = _add(
        subparsers,
        "url",
        "print the address of a job's page in Grafana",
        "Prints the address of a job's page in Grafana, with the job's own range of time where\n"
        "Loki knows it. In a Slurm job, JOB may be left out: it is the job itself.\n"
        "The site file says where Grafana is: its table [grafana] has `url`.",
        "examples:\n"
        "  logshipper url 4711\n"
        "  logshipper url last --cluster alpha\n"
        "  logshipper url train.py --since 30d\n"
        '  xdg-open "$(logshipper url 4711)"\n'
        "  logshipper url            in a job's script: the job's own page",
    )
    _completed(parser.add_argument("job", metavar="JOB", nargs="?", help=_JOB_HELP), completers.jobs_in_loki)
    _add_loki(parser.add_argument_group("asking Loki"))
    parser.set_defaults(source="loki", store=None)


def _add_rm(subparsers: "Subparsers[Parser]") -> None:
    parser = _add(
        subparsers,
        "rm",
        "remove jobs",
        "Removes jobs and all that was logged of them from the local store, for good.\nA running job is left alone.",
        "examples:\n  logshipper rm k3f9x2\n  logshipper rm --yes k3f9x2 train.py",
    )
    _completed(parser.add_argument("jobs", metavar="JOB", nargs="+", help=_JOB_HELP), completers.jobs)
    parser.add_argument("-y", "--yes", action="store_true", help="don't ask (needed where there is no terminal)")
    _add_store(parser)
    parser.set_defaults(source=None)
    _refuse_loki(parser)


def _refuse_loki(parser: argparse.ArgumentParser) -> None:
    """Answers options of reading from Loki with more than that they aren't there."""
    parse = parser.parse_known_args

    def refusing(
        args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        words = list(args or ())
        options = words[: words.index("--")] if "--" in words else words
        if any(word.partition("=")[0] in _LOKI_OPTIONS for word in options):
            parser.error(_NOT_IN_LOKI)
        return parse(args, namespace)

    parser.parse_known_args = refusing  # type: ignore[assignment,method-assign]  # argparse's own type is overloaded


def _add_render(subparsers: "Subparsers[Parser]") -> None:
    parser = _add(
        subparsers,
        "render",
        "render raw output as a terminal would show it",
        "Prints the lines that `logshipper run` would log of a command that prints FILE: a\n"
        "typescript of script(1), a Slurm output file, anything with control characters.\n"
        "Of a progress bar the last state, repeats counted, /LOGCOMMAND lines obeyed.\n"
        "Standard input is rendered live.",
        "examples:\n"
        "  logshipper render slurm-4711.out | less\n"
        "  logshipper render --colors keep slurm-4711.out | less -R\n"
        "  tail -f slurm-4711.out | logshipper render\n"
        "  logshipper render --columns 80 --rows 24 typescript > session.txt\n"
        "  logshipper render --screen 80x25 typescript     what was on the screen at the end",
    )
    parser.add_argument("file", metavar="FILE", nargs="?", help="`-`, and the default, is standard input")
    parser.add_argument(
        "--columns",
        type=columns_number,
        metavar="N",
        help=f"the terminal's width (default: {BATCH_COLUMNS})",
    )
    parser.add_argument("--rows", type=rows_number, metavar="N", help=f"the terminal's height (default: {BATCH_ROWS})")
    parser.add_argument(
        "--stream-type",
        choices=("pty", "pipe"),
        default="pty",
        help="what FILE's bytes were printed to; both are rendered alike (default: pty)",
    )
    parser.add_argument("--no-collapse", action="store_true", help="print all repeated and blank lines")
    parser.add_argument(
        "--colors", choices=("strip", "keep"), default="strip", help="as in ~/.logoptin (default: strip)"
    )
    parser.add_argument(
        "--screen", type=screen_size, metavar="COLUMNSxROWS", help="print what a terminal of that size shows at the end"
    )
    parser.set_defaults(refuse=parser.error)


def _add_completion(subparsers: "Subparsers[Parser]") -> None:
    parser = _add(
        subparsers,
        "completion",
        "print the shell's completion script",
        "Prints the script that makes a shell complete commands, options, jobs and keys.",
        HOW_TO,
    )
    parser.add_argument("shell", choices=SHELLS)

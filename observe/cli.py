"""The reading commands' place in the command line. Light: each command is imported when it is called."""

import argparse
import importlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ingest.time_span import time_span
from logshipper.terminal import BATCH_COLUMNS, BATCH_ROWS
from observe import completers
from observe.completion import HOW_TO, SHELLS
from observe.running import guarded
from observe.words import NOT_IN_LOKI, STATES, state_of

Parser = TypeVar("Parser", bound=argparse.ArgumentParser)
if TYPE_CHECKING:
    from observe.log_place import Place

    Subparsers: TypeAlias = argparse._SubParsersAction[Parser]

_EXIT_CODES = "exit codes: 0 done, 1 not done (stderr says why), 2 wrong usage, 130 Ctrl-C"
_LOKI_OPTIONS = ("--from", "--site", "--loki-url", "--prometheus-url", "--cluster", "--since")
MAX_WAIT_SECS = 3650 * 86_400
_JOB_HELP = "its id, its name (the newest job of that name), the beginning of an id, or `last`"


def add_commands(subparsers: "Subparsers[Parser]") -> None:
    """Registers all reading commands; each sets `call`: Namespace to exit code."""
    _add_ls(subparsers)
    _add_show(subparsers)
    _add_logs(subparsers)
    _add_metadata(subparsers)
    _add_export(subparsers)
    _add_plot(subparsers)
    _add_open(subparsers)
    _add_serve(subparsers)
    _add_events(subparsers)
    _add_wait(subparsers)
    _add_diff(subparsers)
    _add_tag(subparsers)
    _add_annotate(subparsers)
    _add_url(subparsers)
    _add_rm(subparsers)
    _add_render(subparsers)
    _add_completion(subparsers)


def _add(
    subparsers: "Subparsers[Parser]",
    name: str,
    summary: str,
    description: str,
    examples: str,
    exit_codes: str = _EXIT_CODES,
) -> Parser:
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=description,
        epilog=f"{examples.rstrip()}\n\n{exit_codes}",
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
        help="where jobs are read: the local store, or Loki, where a node's agent brings its runs (default: local, "
        "unless the site file says otherwise)",
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


def seconds_number(text: str) -> float:
    """Of `90`, `0.5`, `30m`, `2h`."""
    try:
        secs = float(text)
    except ValueError:
        return time_span(text)
    if not 0 <= secs <= MAX_WAIT_SECS:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a number of seconds from 0 to {MAX_WAIT_SECS}")
    return secs


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


def port_number(text: str) -> int:
    return _within(text, 0, 65_535)


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
    states = [state_of(state) for state in text.split(",") if state.strip()]
    unknown = [state for state in states if state not in STATES]
    if unknown or not states:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown) or text!r} isn't a state; there are {', '.join(STATES)}")
    return states


def event_state(text: str) -> str:
    (state,) = ["QUEUED"] if text.upper() == "QUEUED" else state_names(text.replace(",", " "))
    return state


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
        "list jobs: filtered, sorted, with columns of one's own",
        "Lists the jobs of the store, newest first. JOB: ids, names, beginnings of ids,\n"
        "ranges (a3-a9), wildcards. Conditions are on properties, tags (tags.NAME) and\n"
        "the last values of metadata; all must hold. Operators: = == < <= > >= != <>\n"
        ":regex: :exists:; $none, $true, $false, $empty stand for nothing, a boolean, an\n"
        "empty text.",
        "examples:\n"
        "  logshipper ls\n"
        "  logshipper ls --state failed,cancelled --all\n"
        "  logshipper ls --name 'train*' --limit 5\n"
        "  logshipper ls a3-a9 --filter 'loss<0.3' --filter 'duration>1h'\n"
        "  logshipper ls --tag baseline --tag dataset=cifar10 --sort loss\n"
        "  logshipper ls --columns id,name=Run,loss=Loss:.5f,tags.dataset\n"
        "  logshipper ls --by-state\n"
        "  logshipper ls --json | jq -r '.jobs[].job_id'\n"
        "  logshipper ls --from loki --since 2d --cluster alpha",
    )
    _completed(parser.add_argument("jobs", metavar="JOB", nargs="*", help="only these"), completers.jobs)
    parser.add_argument("--limit", type=whole_number, default=10, metavar="N", help="at most N jobs (default: 10)")
    parser.add_argument("--all", action="store_true", help="all jobs")
    action = parser.add_argument(
        "--state", type=state_names, metavar="STATE", help=f"only these, joined by commas: {', '.join(STATES)}"
    )
    _completed(action, lambda **_: [state.lower() for state in STATES])
    parser.add_argument("--name", metavar="PATTERN", help="only names that contain PATTERN, or match it (`*`, `?`)")
    parser.add_argument(
        "--filter", action="append", metavar="CONDITION", help="such as 'loss<0.3'; again for more, all must hold"
    )
    parser.add_argument(
        "--tag", action="append", metavar="TAG|KEY=VALUE", help="only jobs that have it; again for more"
    )
    parser.add_argument("--columns", action="append", metavar="KEY=Title:FORMAT,...", help="these columns instead")
    sort = parser.add_argument("--sort", metavar="KEY", help="by a property, tag or key, smallest first")
    _completed(sort, completers.properties)
    parser.add_argument("--reverse", action="store_true", help="the other way round")
    parser.add_argument("--by-state", action="store_true", help="how many jobs there are in each state")
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
    parser.add_argument(
        "--for", dest="secs", type=seconds_number, metavar="SECS", help="follow for so long only: 30, 10m"
    )
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


def _add_open(subparsers: "Subparsers[Parser]") -> None:
    parser = _add(
        subparsers,
        "open",
        "open a job's page in the browser",
        "Serves a page of your jobs to your own browser, and opens it: at JOB, or at the list\n"
        "of all. The link is printed; it is for you alone. Ctrl-C ends the page.",
        "examples:\n"
        "  logshipper open last\n"
        "  logshipper open\n"
        "  logshipper open train.py --no-browser\n"
        "  logshipper open 4711 --from loki",
    )
    _completed(parser.add_argument("job", metavar="JOB", nargs="?", help=_JOB_HELP), completers.jobs)
    parser.add_argument("--no-browser", action="store_true", help="only print the link")
    _add_port(parser)
    _add_source(parser)


def _add_serve(subparsers: "Subparsers[Parser]") -> None:
    parser = _add(
        subparsers,
        "serve",
        "serve a page of your jobs",
        "Serves a page of your jobs on this machine, to whoever has the link that is printed,\nuntil Ctrl-C.",
        "examples:\n"
        "  logshipper serve\n"
        "  logshipper serve --port 8090\n"
        "  ssh -N -L 8090:127.0.0.1:8090 login.example.org     on your own machine, for a page served there\n"
        "  logshipper serve --from loki --since 2d",
    )
    _add_port(parser)
    _add_source(parser)


def _add_port(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=port_number, default=0, metavar="N", help="of 127.0.0.1, where the page is (default: a free one)"
    )


def _add_events(subparsers: "Subparsers[Parser]") -> None:
    parser = _add(
        subparsers,
        "events",
        "list changes of jobs' states",
        "Lists when jobs began, ended and were begun anew, newest first. JOB: ids, names,\nranges (a3-a9), wildcards.",
        "examples:\n"
        "  logshipper events\n"
        "  logshipper events --to-state failed --after 2026-05-01\n"
        "  logshipper events --from-state RESTART_READY --to-state running     restarts\n"
        "  logshipper events a3-a9 --own --oldest-first --json",
    )
    _completed(parser.add_argument("jobs", metavar="JOB", nargs="*", help="only of these"), completers.jobs)
    parser.add_argument("--from-state", type=event_state, metavar="STATE", help="only changes from this state")
    parser.add_argument("--to-state", type=event_state, metavar="STATE", help="only changes to this state")
    parser.add_argument("--after", metavar="TIME", help="not before this time, such as 2026-05-01T09:30")
    parser.add_argument("--before", metavar="TIME", help="not after this time")
    parser.add_argument("--tag", action="append", metavar="TAG|KEY=VALUE", help="only jobs with it; again for more")
    parser.add_argument(
        "--own", action="store_true", help="also what jobs themselves told: changes of mode and the like"
    )
    parser.add_argument("--oldest-first", action="store_true", help="the other way round")
    parser.add_argument("--limit", type=whole_number, default=50, metavar="N", help="at most N events (default: 50)")
    parser.add_argument("--all", action="store_true", help="all events")
    _add_json(parser)
    _add_source(parser)


def _add_wait(subparsers: "Subparsers[Parser]") -> None:
    parser = _add(
        subparsers,
        "wait",
        "wait until jobs have ended",
        "Waits until all of these jobs have ended, or any of them, and prints how. JOB:\n"
        "also ranges (a3-a9) and wildcards. Unknown jobs are told, the others waited for.",
        "examples:\n"
        "  logshipper wait last && notify-send done\n"
        "  logshipper wait --any 'train*' --timeout 2h\n"
        "  logshipper wait --all a3-a9 --check --json\n"
        "  logshipper wait 4711 --from loki",
        "exit codes: 0 they have ended, 1 some are unknown (stderr says which),\n"
        "2 wrong usage, 3 the time was up, 4 with --check: one isn't COMPLETED, 130 Ctrl-C",
    )
    _completed(parser.add_argument("jobs", metavar="JOB", nargs="+", help=_JOB_HELP), completers.jobs)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", dest="any", action="store_false", help="until all have ended (default)")
    which.add_argument("--any", dest="any", action="store_true", help="until one has ended")
    parser.add_argument(
        "--timeout", type=seconds_number, metavar="SECS", help="at most so long: seconds, or such as 30m, 2h"
    )
    parser.add_argument("--check", action="store_true", help="exit code 4 where one that ended isn't COMPLETED")
    _add_json(parser)
    _add_source(parser)
    parser.set_defaults(any=False)


def _add_diff(subparsers: "Subparsers[Parser]") -> None:
    parser = _add(
        subparsers,
        "diff",
        "compare two jobs' configuration",
        "Compares two jobs' options, in alphabetical order: what the store knows of how\n"
        "they were run, what their first records said and never changed, and tags.\n"
        "Different ones are marked with `!`.",
        "examples:\n  logshipper diff k3f9x2 last\n  logshipper diff a3 a4 --changed\n"
        "  logshipper diff 4711 4712 --from loki --json",
    )
    for name in ("a", "b"):
        _completed(parser.add_argument(name, metavar=name.upper(), help=_JOB_HELP), completers.jobs)
    parser.add_argument("--changed", action="store_true", help="only what differs")
    _add_json(parser)
    _add_source(parser)


def _add_tag(subparsers: "Subparsers[Parser]") -> None:
    parser = _add(
        subparsers,
        "tag",
        "tag a job, or show its tags",
        "Tags a job: words (+TAG) or KEY=VALUE; -TAG takes one away. The last word\n"
        "counts. Tags are your own: kept on the reading side, beside your store or in\n"
        "your data folder.",
        "examples:\n"
        "  logshipper tag last +baseline\n"
        "  logshipper tag k3f9x2 dataset=cifar10 -draft\n"
        "  logshipper tag k3f9x2                 its tags\n"
        "  logshipper tag 4711 +keep --from loki",
    )
    _add_job(parser)
    parser.add_argument("changes", metavar="+TAG|-TAG|KEY=VALUE", nargs="*", help="in this order; none: shows them")
    _add_json(parser)
    _add_source(parser)
    _take_minus_tags(parser)


def _take_minus_tags(parser: argparse.ArgumentParser) -> None:
    """`-TAG` isn't an option: with a blank before it, argparse lets it through."""
    parse = parser.parse_known_args

    def with_tags(
        args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        words = [f" {word}" if re.match("-[^-]", word) and word != "-h" else word for word in args or ()]
        return parse(words, namespace)

    parser.parse_known_args = with_tags  # type: ignore[assignment,method-assign]  # argparse's own type is overloaded


def _add_annotate(subparsers: "Subparsers[Parser]") -> None:
    parser = _add(
        subparsers,
        "annotate",
        "write a note on a job, or star it",
        "Writes a note on a job, in the place of the last one, or stars it. Notes and stars\n"
        "are your own: kept on the reading side, beside your store or in your data folder.",
        "examples:\n"
        "  logshipper annotate last 'diverged after epoch 3: lr too high'\n"
        "  logshipper annotate k3f9x2 --star\n"
        "  logshipper annotate k3f9x2 ''         takes the note away\n"
        "  logshipper annotate k3f9x2            shows it",
    )
    _add_job(parser)
    parser.add_argument("text", metavar="TEXT", nargs="?", help="the note; '' takes it away")
    star = parser.add_mutually_exclusive_group()
    star.add_argument("--star", action="store_const", const=True, default=None, help="star the job")
    star.add_argument("--no-star", dest="star", action="store_const", const=False, help="take the star away")
    _add_json(parser)
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
            parser.error(NOT_IN_LOKI)
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

"""Options that reading commands share, and the kinds of values that options have."""

import argparse
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from logshipper.errors import LogshipperError
from logshipper_ingest.console.time_span import time_span
from logshipper_observe.base.words import NS, STATE_ALIASES, STATES, state_of
from logshipper_observe.commands import completers

_EXIT_CODES = "exit codes: 0 done, 1 not done (stderr says why), 2 wrong usage, 130 Ctrl-C"
MAX_WAIT_SECS = 3650 * 86_400
JOB_HELP = "its id, its name (the newest job of that name), the beginning of an id, or `last`"
LAST = "last"
ONLY_HELP = "only of these"
LAST_HELP = f"{JOB_HELP} (default: last)"
JOBS_HELP = (
    "ids, names (the newest job of a name), beginnings of ids, ranges (a3-a9), wildcards "
    "(default: last)"
)


def describe(
    parser: argparse.ArgumentParser, description: str, examples: str, exit_codes: str = _EXIT_CODES
) -> None:
    """Set the command's --help besides its options."""
    parser.description = description
    parser.epilog = f"{examples.rstrip()}\n\n{exit_codes}"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        metavar="DIR",
        help="the store's folder (default: $LOGSHIPPER_STORE, else the user's own)",
    )


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add options for the place of jobs: the local store, or a site's Loki."""
    add_store(parser)
    group = parser.add_argument_group("reading from Loki")
    group.add_argument(
        "--from",
        dest="source",
        choices=("local", "loki"),
        help="where jobs are read: the local store, or Loki, where a node's agent brings its runs (default: local, "
        "unless the site file says otherwise)",
    )
    add_loki(group)


def add_loki(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--site",
        metavar="FILE",
        help="says where Loki and Prometheus are (default: $LOGSHIPPER_SITE, the user's, /etc/logshipper/site.toml)",
    )
    group.add_argument(
        "--loki-url", metavar="URL", help="another Loki (default: $LOGSHIPPER_LOKI_URL)"
    )
    group.add_argument(
        "--prometheus-url", metavar="URL", help="likewise (default: $LOGSHIPPER_PROMETHEUS_URL)"
    )
    group.add_argument("--cluster", metavar="NAME", help="only jobs of this cluster")
    group.add_argument(
        "--since",
        type=time_span,
        metavar="TIME",
        help="how far back jobs are looked for, such as 12h, 30d (default: 7d)",
    )


def add_completed(
    parser: argparse._ActionsContainer, completer: object, *names: str, **options: Any
) -> None:  # Any: as add_argument has them
    """Add an argument that a shell completes."""
    action = parser.add_argument(*names, **options)
    action.completer = completer  # type: ignore[attr-defined]  # argcomplete's protocol


def add_flag(parser: argparse._ActionsContainer, *names: str, help: str) -> None:
    parser.add_argument(*names, action="store_true", help=help)


def add_number(
    parser: argparse._ActionsContainer, *names: str, help: str, default: int | None = None
) -> None:
    parser.add_argument(*names, type=whole_number, default=default, metavar="N", help=help)


def add_list(parser: argparse._ActionsContainer, name: str, *, metavar: str, help: str) -> None:
    """Add an option that may be repeated."""
    parser.add_argument(name, action="append", metavar=metavar, help=help)


def add_job(parser: argparse.ArgumentParser, help_text: str = JOB_HELP, **options: Any) -> None:
    """Add an argument for one job. options: as add_argument has them."""
    add_completed(parser, completers.jobs, "job", metavar="JOB", help=help_text, **options)


def add_jobs(parser: argparse.ArgumentParser, help_text: str = "") -> None:
    """Add an argument for jobs. help_text: of commands with a meaning without any job."""
    options: dict[str, Any] = {"nargs": "*", "default": []} if help_text else {"nargs": "+"}
    text = help_text or JOB_HELP
    add_completed(parser, completers.jobs, "jobs", metavar="JOB", help=text, **options)


def add_states(parser: argparse.ArgumentParser, help_text: str) -> None:
    options = {"type": state_names, "metavar": "STATE", "help": help_text}
    add_completed(parser, completers.states, "--state", **options)


def add_tag(
    parser: argparse.ArgumentParser, help_text: str = "only jobs with it; again for more"
) -> None:
    add_list(parser, "--tag", metavar="TAG|KEY=VALUE", help=help_text)


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add options for a selection of jobs, besides names (query/listing.py)."""
    add_states(parser, f"only these, joined by commas: {', '.join(STATES)}")
    parser.add_argument(
        "--name", metavar="PATTERN", help="only names that contain PATTERN, or match it (`*`, `?`)"
    )
    add_list(
        parser,
        "--filter",
        metavar="CONDITION",
        help="such as 'loss<0.3'; again for more, all must hold",
    )
    add_tag(parser, "only jobs that have it; again for more")


def tags_of(args: argparse.Namespace) -> dict[str, str]:
    """Return the tags of --tag; "" for any value."""
    return dict(text.partition("=")[::2] for text in args.tag or ())


def add_between(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--after", metavar="TIME", help="not before this time, such as 2026-05-01T09:30"
    )
    parser.add_argument("--before", metavar="TIME", help="not after this time")


def between_of(args: argparse.Namespace) -> tuple[datetime | None, datetime | None]:
    """Return the times of --after and --before. Raises UsageError."""
    from logshipper_observe.query.conditions import time_ns  # late: few commands need it

    after, before = (
        None if text is None else datetime.fromtimestamp(time_ns(option, text) / NS, UTC)
        for option, text in (("--after", args.after), ("--before", args.before))
    )
    return after, before


def add_picture(form: argparse._ActionsContainer) -> None:
    form.add_argument(
        "--png", metavar="FILE", help="write a picture instead; `-` is standard output"
    )
    form.add_argument("--svg", metavar="FILE", help="the same as SVG")


def picture_of(args: argparse.Namespace) -> tuple[str, str]:
    """Return the path and the format of a picture. Raises LogshipperError for a terminal."""
    path, form = (args.png, "png") if args.png else (args.svg, "svg")
    if path == "-" and sys.stdout.isatty():
        raise LogshipperError(f"--{form}: a terminal cannot show a picture; give a file's name")
    return path, form


def check_files(args: argparse.Namespace, *forms: str) -> None:
    """Raise UsageError for a file of another format than its option's, such as `--png FILE`."""
    from logshipper_observe.base.new_file import check_ending  # late, likewise

    for form in forms:
        if path := getattr(args, form):
            check_ending(f"--{form}", path, form)


def add_attempt(parser: argparse.ArgumentParser) -> None:
    add_number(parser, "--attempt", help="of a restarted job: only this attempt")


def add_reread(parser: argparse._ActionsContainer) -> None:
    add_flag(
        parser,
        "--reread",
        help="look for series in the job's stored lines (docs/series.md), for this command only",
    )


def add_lines(parser: argparse.ArgumentParser, tail_help: str) -> None:
    """Add options for the lines of a log."""
    parser.add_argument(
        "--task", type=task_numbers, metavar="N", help="only these tasks, joined by commas"
    )
    parser.add_argument(
        "--stream", choices=("stdout", "stderr", "both"), default="both", help="default: both"
    )
    add_number(parser, "-n", "--tail", help=tail_help)


def change_words(parser: argparse.ArgumentParser, change: Callable[[list[str]], list[str]]) -> None:
    """Let change replace the words of a command before the parser sees them."""
    parse = parser.parse_known_args

    def changed(
        args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        return parse(change(list(args or ())), namespace)

    parser.parse_known_args = changed  # type: ignore[assignment,method-assign]  # argparse's own type is overloaded


def add_json(
    parser: argparse._ActionsContainer,
    help_text: str = "for programs: JSON, described in docs/json.md",
) -> None:
    parser.add_argument("--json", action="store_true", help=help_text)


def add_color(parser: argparse._ActionsContainer, help_text: str = "") -> None:
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help=f"colours{help_text} (default: auto, on a terminal)",
    )


def add_raw_cells(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--raw-cells",
        action="store_true",
        help="CSV, TSV: leave cells that begin with = + - @ and are no numbers as they are (default: a ' before them, "
        "so that no spreadsheet calculates them)",
    )


def whole_number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} isn't a whole number")
    return int(text[:18])


def within(least: int, greatest: int) -> Callable[[str], int]:
    """Return a kind of whole numbers."""

    def parse(text: str) -> int:
        number = whole_number(text)
        if not least <= number <= greatest:
            raise argparse.ArgumentTypeError(f"{text!r} isn't from {least} to {greatest}")
        return number

    return parse


def seconds_number(text: str) -> float:
    """Parse `90`, `0.5`, `30m`, `2h`."""
    try:
        secs = float(text)
    except ValueError:
        return time_span(text)
    if not 0 <= secs <= MAX_WAIT_SECS:
        raise argparse.ArgumentTypeError(
            f"{text!r} isn't a number of seconds from 0 to {MAX_WAIT_SECS}"
        )
    return secs


def state_names(text: str) -> list[str]:
    states = [state_of(state) for state in text.split(",") if state.strip()]
    unknown = [state for state in states if state not in STATES]
    if unknown or not states:
        raise argparse.ArgumentTypeError(
            f"{', '.join(unknown) or text!r} isn't a state; there are {', '.join(STATES)}"
        )
    return states


def event_state(text: str) -> str:
    """Parse a state by its own name: other systems' states stay apart from those here."""
    if state_of(text) not in STATES:
        words = ", ".join((*STATES, *STATE_ALIASES))
        raise argparse.ArgumentTypeError(f"{text!r} isn't a state; there are {words}")
    return text.strip().upper()


def task_numbers(text: str) -> tuple[int, ...]:
    return tuple(whole_number(number.strip()) for number in text.split(","))

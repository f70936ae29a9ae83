"""Options that reading commands share, and the kinds of values that options have."""

import argparse

from logshipper_ingest.console.time_span import time_span
from logshipper_observe.base.words import STATE_ALIASES, STATES, state_of
from logshipper_observe.commands import completers

_EXIT_CODES = "exit codes: 0 done, 1 not done (stderr says why), 2 wrong usage, 130 Ctrl-C"
MAX_WAIT_SECS = 3650 * 86_400
JOB_HELP = "its id, its name (the newest job of that name), the beginning of an id, or `last`"
LAST = "last"
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


def add_job(parser: argparse.ArgumentParser) -> None:
    completed(parser.add_argument("job", metavar="JOB", help=JOB_HELP), completers.jobs)


def add_job_or_last(parser: argparse.ArgumentParser) -> None:
    """Add a job argument for commands that change nothing; the newest job by default."""
    completed(
        parser.add_argument("job", metavar="JOB", nargs="?", default=LAST, help=LAST_HELP),
        completers.jobs,
    )


def add_jobs_or_last(parser: argparse.ArgumentParser) -> None:
    """Add such an argument for commands that answer on several jobs under headings."""
    completed(
        parser.add_argument("jobs", metavar="JOB", nargs="*", default=[], help=JOBS_HELP),
        completers.jobs,
    )


def completed(action: argparse.Action, completer: object) -> None:
    """argcomplete looks for this attribute."""
    action.completer = completer  # type: ignore[attr-defined]  # its own protocol


def add_json(
    parser: argparse._ActionsContainer,
    help_text: str = "for programs: JSON, described in docs/reading.md",
) -> None:
    parser.add_argument("--json", action="store_true", help=help_text)


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


def within(text: str, least: int, greatest: int) -> int:
    number = whole_number(text)
    if not least <= number <= greatest:
        raise argparse.ArgumentTypeError(f"{text!r} isn't from {least} to {greatest}")
    return number


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

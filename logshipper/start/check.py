"""`logshipper check`: explains your ~/.logoptin."""

import argparse
import json
import os
import sys
from typing import Any

from logshipper import config, optin
from logshipper.errors import ConfigError
from logshipper.filesystem import network_type
from logshipper.safe_text import safe
from logshipper.spool import captures

_MEANS = {
    "enabled": "all output of your jobs is logged",
    "metadata": "only metadata is logged, of standard output; all else is left out",
    "disabled": "nothing is logged until the job prints a /LOGCOMMAND that says so",
}
_KINDS = {
    config.JSON: "lines that are one JSON object",
    config.DICT: "Python dicts (their numbers)",
    config.PAIRS: "key=value and key: value lines, and what known programs print",
}
WARNING = (
    "Whoever may open the dashboard (or read the store) may read what is logged: "
    "print no passwords, tokens or other secrets while logging is enabled."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = "Says what your ~/.logoptin means, or what is wrong with it."
    parser.epilog = (
        "exit codes: 0 it is well (or you have none), 1 it is refused\n\nexamples:\n  logshipper check\n"
        "  logshipper check draft.yaml\n  logshipper check --json\n"
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "file", nargs="?", help="another file than ~/.logoptin, which must be there"
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def call(arguments: argparse.Namespace) -> int:
    return check(arguments.file, as_json=arguments.json)


def check(file: str | None, *, as_json: bool) -> int:
    """Explain file (default: ~/.logoptin); return the exit code: 1 for a refused one."""
    path = file or optin.path()
    state, content = optin.look(path)
    if file and state == optin.ABSENT:
        raise ConfigError(
            file, ["there is no such file; without a name, `logshipper check` looks at ~/.logoptin"]
        )
    problems: list[str] = []
    settings = config.Config()
    if state == optin.PRESENT:
        try:
            settings = config.parse(content, path)
        except ConfigError as error:
            problems = list(error.problems)
    elif state == optin.REFUSED:
        problems = [content.decode("utf-8", "replace")]
    is_refused = bool(problems)
    if is_refused:
        settings = settings._replace(mode="disabled")
    if as_json:
        report = {
            "schema": 1,
            "file": path,
            "state": "refused" if is_refused else state,
            "problems": problems,
        }
        opted_in = state in (optin.PRESENT, optin.REFUSED)
        report |= {"opted_in": opted_in, "config": _document(settings) if opted_in else None}
        report |= {"store": captures.store_root()}
        print(json.dumps(report, indent=2))
    else:
        _print(path, state, settings, problems)
    return int(is_refused)


def _document(settings: config.Config) -> dict[str, Any]:  # Any: JSON
    kinds = [kind if isinstance(kind, str) else kind._asdict() for kind in settings.metadata]
    return {**settings._asdict(), "metadata": kinds}


def _print(path: str, state: str, settings: config.Config, problems: list[str]) -> None:
    file_name = safe(path.replace(os.path.expanduser("~") + "/", "~/", 1))
    if state == optin.ABSENT:
        print(
            f"{file_name} doesn't exist: you have not opted in, and your cluster jobs aren't captured."
        )
        print("To opt in: touch ~/.logoptin")
        print("`logshipper run -- CMD` captures CMD all the same: running it is opting in.")
    elif state == optin.UNKNOWN:
        print(
            f"{file_name} couldn't be looked at within {optin.LOOK_SECS:g} s (does the home folder hang?):"
        )
        print("jobs that start now aren't touched.")
    elif problems:
        print(
            f"{file_name} is refused; your jobs run untouched, and nothing is logged until a /LOGCOMMAND says so:"
        )
        for problem in problems:
            print(f"  - {safe(problem)}")
    else:
        print(f"{file_name} is well: you have opted in.")
        print(f"  mode: {settings.mode:<9} {_MEANS[settings.mode]}")
        commands_text = "are obeyed" if settings.commands else "are ordinary output"
        lines = 'lines such as /LOGCOMMAND {"mode":"metadata"}'
        print(f"  commands: {'on' if settings.commands else 'off':<5} {lines} {commands_text}")
        output_kind = "a terminal" if settings.tty else "pipes"
        print(
            f"  tty: {'on' if settings.tty else 'off':<10} your jobs' output goes to {output_kind}"
        )
        ranks_text = "each rank by itself, too" if settings.per_task else "with their batch script"
        print(
            f"  per_task: {'on' if settings.per_task else 'off':<5} steps in a Slurm job are captured {ranks_text}"
        )
        colours_text = (
            "stay in the log" if settings.colors == "keep" else "are taken out of the log"
        )
        print(f"  colors: {settings.colors:<7} colours and bold text {colours_text}")
        print(f"  snapshots: {_interval(settings.snapshots):<4} {_snapshots(settings.snapshots)}")
        print(f"  context: {_CONTEXT[settings.context]}")
        print(f"  metadata: {_kinds(settings)}")
        mask_text = "become *** in the log" if settings.mask else "stay readable in the log"
        print(
            f"  mask: {'on' if settings.mask else 'off':<9} tokens and keys that your jobs print {mask_text}"
        )
    root = captures.store_root()
    network = network_type(root)
    print(f"Jobs that you run by `logshipper run` are kept in {safe(root)}")
    if network:
        print(
            f"  ({network} file system: their spool is {safe(captures.spool_root(root, network))}, on this host)"
        )
    sys.stdout.write(f"\n{WARNING}\n")


_CONTEXT = {
    True: "on     how your jobs were started is recorded: keep secrets off the command line",
    False: "off    how your jobs were started isn't recorded",
    None: "unset  of a `logshipper run` by hand, command line, folder, git commit and Python are recorded",
}


def _kinds(settings: config.Config) -> str:
    words = [
        _KINDS[kind] if isinstance(kind, str) else f"lines with your pattern `{kind.name}`"
        for kind in settings.metadata
    ]
    return f"of standard output: {'; '.join(words)}"


def _interval(secs: float) -> str:
    """Return an interval in the file's notation."""
    for unit, size in (("h", 3600), ("m", 60)):
        if secs and not secs % size:
            return f"{secs / size:g}{unit}"
    return f"{secs:g}s" if secs else "off"


def _snapshots(secs: float) -> str:
    if not secs:
        return "of a running bar, the log gets the last state"
    return f"what a running bar shows is logged every {_interval(secs)}, where it has changed"

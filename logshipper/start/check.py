"""`logshipper check`: explains your ~/.logoptin."""

import argparse
import json
import os
import sys
from typing import Any

from logshipper import config, optin
from logshipper.errors import ConfigError, os_words
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
    config.AUTO: "numbers that recur between the same words: tables, bars, log lines of any program",
    config.PAIRS: "key=value and key: value lines, and what known programs print",
}
_NEWS = {
    "end": "the end of a job",
    "failure": "a job that fails",
    "limit": "an approaching time limit",
    "nan": "NaN in a record",
}
_CONTEXT = {
    True: "how your jobs were started is recorded: keep secrets off the command line",
    False: "how your jobs were started isn't recorded",
    None: "of a `logshipper run` by hand, command line, folder, git commit and Python are recorded",
}
WARNING = (
    "Whoever may open the dashboard (or read the store) may read what is logged: "
    "print no passwords, tokens or other secrets while logging is enabled."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = "Says what your ~/.logoptin means, or what is wrong with it."
    parser.epilog = (
        "exit codes: 0 it is well (or you have none), 1 it is refused, or a target of `notify` is faulty\n\n"
        "examples:\n  logshipper check\n  logshipper check draft.yaml\n  logshipper check --json\n"
        "  logshipper check --notify        a test message to the targets of `notify`\n"
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "file", nargs="?", help="another file than ~/.logoptin, which must be there"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument(
        "--notify",
        action="store_true",
        help="send a test message to the file's targets of `notify`",
    )


def call(arguments: argparse.Namespace) -> int:
    """Explain file (default: ~/.logoptin); return the exit code: 1 for a refused one."""
    file: str | None = arguments.file
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
    faults = _try_targets(settings.notify, sends=arguments.notify)
    if arguments.notify and settings.notify is None and not problems:
        raise ConfigError(path, ["has no `notify`: write a line such as `notify: desktop`"])
    if arguments.json:
        opted_in = state in (optin.PRESENT, optin.REFUSED)
        report = {
            "schema": 1,
            "file": path,
            "state": "refused" if is_refused else state,
            "problems": problems,
            "opted_in": opted_in,
            "config": _document(settings) if opted_in else None,
            "notify_problems": faults,
            "store": captures.store_root(),
        }
        print(json.dumps(report, indent=2))
    else:
        _print(path, state, settings, problems)
        for fault in faults:
            print(f"notify: {safe(fault)}", file=sys.stderr)
        if arguments.notify and settings.notify and not faults:
            print("The test message was sent.")
    return int(is_refused or bool(faults))


def _try_targets(notify: config.Notify | None, *, sends: bool) -> list[str]:
    """Check the targets, or send them a test message; return a sentence for each problem."""
    if notify is None:
        return []
    from logshipper.notify import orders

    try:
        return orders.test(notify.to) if sends else orders.check(notify.to, os.getcwd())
    except OSError as error:  # TimeoutError, too
        return [os_words(error)]


def _document(settings: config.Config) -> dict[str, Any]:  # Any: JSON
    kinds = settings.metadata and [
        kind if isinstance(kind, str) else kind._asdict() for kind in settings.metadata
    ]
    document = {**settings._asdict(), "metadata": kinds, "rename": dict(settings.rename)}
    if settings.notify is not None:
        document["notify"] = {**settings.notify._asdict(), "to": _labels(settings.notify)}
    return document


def _labels(notify: config.Notify) -> list[str]:
    """Return the names of targets without their secrets."""
    from logshipper.notify.orders import label

    return [label(target) for target in notify.to]


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
        for head, meaning in _meanings(settings):
            print(f"  {head:<15} {meaning}".rstrip())
    root = captures.store_root()
    network = network_type(root)
    print(f"Jobs that you run by `logshipper run` are kept in {safe(root)}")
    if network:
        print(
            f"  ({network} file system: their spool is {safe(captures.spool_root(root, network))}, on this host)"
        )
    sys.stdout.write(f"\n{WARNING}\n")


def _meanings(settings: config.Config) -> list[tuple[str, str]]:
    """Return the file's settings, and their meanings."""
    output = "a terminal" if settings.tty else "pipes"
    ranks = "each rank by itself, too" if settings.per_task else "with their batch script"
    colours = "stay in the log" if settings.colors == "keep" else "are taken out of the log"
    interval = _interval(settings.snapshots)
    snapshots = (
        f"what a running bar shows is logged every {interval}, where it has changed"
        if settings.snapshots
        else "of a running bar, the log gets the last state"
    )
    kinds = [
        _KINDS[kind] if isinstance(kind, str) else f"lines with your pattern `{kind.name}`"
        for kind in settings.metadata or (config.JSON,)
    ]
    if settings.metadata is None:
        kinds.append(f"of a `logshipper run` by hand also {_KINDS[config.AUTO]}")
    obeyed = "are obeyed" if settings.commands else "are ordinary output"
    masked = "become *** in the log" if settings.mask else "stay readable in the log"
    return [
        (f"mode: {settings.mode}", _MEANS[settings.mode]),
        (
            f"commands: {_switch(settings.commands)}",
            f'lines such as /LOGCOMMAND {{"mode":"metadata"}} {obeyed}',
        ),
        (f"tty: {_switch(settings.tty)}", f"your jobs' output goes to {output}"),
        (f"per_task: {_switch(settings.per_task)}", f"steps in a Slurm job are captured {ranks}"),
        (f"colors: {settings.colors}", f"colours and bold text {colours}"),
        (f"snapshots: {interval}", snapshots),
        (f"context: {_switch(settings.context)}", _CONTEXT[settings.context]),
        (f"metadata: of standard output: {'; '.join(kinds)}", ""),
        *_corrections(settings),
        (f"mask: {_switch(settings.mask)}", f"tokens and keys that your jobs print {masked}"),
        *_messages(settings.notify),
    ]


def _messages(notify: config.Notify | None) -> list[tuple[str, str]]:
    """Return the setting of messages, and its meaning, without the targets' secrets."""
    if notify is None:
        return []
    targets = ", ".join(f"`{safe(label)}`" for label in _labels(notify))
    means = {**_NEWS, "silence": f"no output for {_interval(notify.silence)}"}
    news = "; ".join(means[kind] for kind in notify.on)
    return [(f"notify: messages go to {targets}", ""), (f"        about {news}", "")]


def _corrections(settings: config.Config) -> list[tuple[str, str]]:
    """Return the corrections of series, and their meanings."""
    ignored = ", ".join(f"`{safe(name)}`" for name in settings.ignore)
    renamed = ", ".join(f"`{safe(name)}` to `{safe(new)}`" for name, new in settings.rename)
    corrections = []
    if ignored:
        corrections.append((f"ignore: series have no key {ignored}", ""))
    if renamed:
        corrections.append((f"rename: series rename {renamed}", ""))
    new_names = [new for _, new in settings.rename]
    for new in dict.fromkeys(new_names):
        if new_names.count(new) > 1:
            keeps = "in one record the first key gets it, and the others keep their names"
            corrections.append((f"        several keys become `{safe(new)}`: {keeps}", ""))
    if corrections and config.AUTO not in (settings.metadata or (config.AUTO,)):
        corrections.append(("        without effect: `metadata` lacks `auto`", ""))
    return corrections


def _switch(setting: bool | None) -> str:
    return "unset" if setting is None else "on" if setting else "off"


def _interval(secs: float) -> str:
    """Return an interval in the file's notation."""
    for unit, size in (("h", 3600), ("m", 60)):
        if secs and not secs % size:
            return f"{secs / size:g}{unit}"
    return f"{secs:g}s" if secs else "off"

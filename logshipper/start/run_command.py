"""`logshipper run`: its words, and CMD's fate after errors. It precedes many short commands, so it
imports argparse for options only."""

from logshipper import optin
from logshipper.errors import CaptureError, ConfigError
from logshipper.start.run_arguments import USAGE_CODE, RunArguments

_VALUE_OPTIONS = ("--name", "--job-id", "--mode", "--store", "--telegraf-port", "--notify")


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Options of `run`, and CMD with its arguments: these follow `--`, or begin at the first word
    that is no option."""
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return words[:at], words[at + 1 :]
        if not word.startswith("-") or word == "-":
            break
        at += 2 if word in _VALUE_OPTIONS else 1
    return words[:at], words[at:]


def main(words: list[str], logoptin: tuple[str, bytes] | None = None) -> int:
    """Run CMD; return its exit code. words: behind `run`; logoptin: result of `optin.look`, None
    before its call."""
    options, command = _split(words)
    arguments = RunArguments()
    if options == ["--if-opted-in"]:
        arguments.if_opted_in = True
    elif options or not command:
        from logshipper.start.run_options import parse_run

        try:
            parse_run(options, arguments)
        except SystemExit as end:
            if end.code != USAGE_CODE or "--if-opted-in" not in options:
                raise
            # the parser has printed the fault: a mistake in a hook costs no job
            return optin.run_untouched(command)
    if not command:
        optin.say(
            "logshipper run: no command; it stands after `--`, as in `logshipper run -- CMD ARG...`"
        )
        optin.say("try `logshipper run --help`")
        return USAGE_CODE
    logoptin = logoptin or optin.look(optin.path())
    if arguments.if_opted_in and logoptin[0] in (optin.ABSENT, optin.UNKNOWN):
        return optin.run_untouched(command)
    try:
        from logshipper.start.preparation import prepare

        run_options = prepare(arguments, command, logoptin)
    except KeyboardInterrupt:  # during the wait for the node's agent
        return 130
    except Exception as error:
        if isinstance(error, CaptureError | ConfigError) and not arguments.if_opted_in:
            return _refuse(error)
        # nothing that is wrong with us may keep a job from running, nor may a mistake in a
        # cluster's hook
        optin.say(f"logshipper: nothing of this run is logged: {type(error).__name__}: {error}")
        return optin.run_untouched(command)
    if run_options is None:
        return optin.run_untouched(command)
    from logshipper.process.run import run

    try:
        return run(run_options)
    except CaptureError as error:
        return _refuse(error)


def _refuse(error: CaptureError | ConfigError) -> int:
    optin.say(f"logshipper: {error}")
    return error.exit_code if isinstance(error, CaptureError) else USAGE_CODE

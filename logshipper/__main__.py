"""The `logshipper` command. `run --if-opted-in` stands before every job: it is dealt with before other imports."""

import sys

from logshipper import coerced_locale


def main() -> int:
    """Runs the command line; returns the exit code."""
    words = sys.argv[1:]
    if words[:1] == ["run"]:
        coerced_locale.undo()
    if words[:1] == ["run"] and "--" in words:
        options = words[: words.index("--")]
        if "--if-opted-in" in options and "-h" not in options and "--help" not in options:
            from logshipper import optin

            looked = optin.look(optin.path())
            if looked[0] in (optin.ABSENT, optin.UNKNOWN):
                return optin.run_untouched(words[words.index("--") + 1 :])
            from logshipper.cli import run_opted_in

            return run_opted_in(looked)
    from logshipper.cli import main as cli_main

    return cli_main()


if __name__ == "__main__":
    sys.exit(main())

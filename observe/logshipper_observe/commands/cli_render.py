"""Command lines of render and completion."""

import argparse
from typing import TYPE_CHECKING

from logshipper.process.terminal import BATCH_COLUMNS, BATCH_ROWS
from logshipper_observe.commands.completion import HOW_TO, SHELLS
from logshipper_observe.commands.options import Parser, add_command, within

if TYPE_CHECKING:
    from logshipper_observe.commands.options import Subparsers


def columns_number(text: str) -> int:
    from logshipper.render.screen import MAX_COLUMNS  # late: its tables of characters cost 10 ms

    return within(text, 2, MAX_COLUMNS)


def rows_number(text: str) -> int:
    from logshipper.render.screen import MAX_ROWS  # likewise

    return within(text, 1, MAX_ROWS)


def screen_size(text: str) -> tuple[int, int]:
    """Columns and rows of `80x25`."""
    columns, by, rows = text.partition("x")
    if not by:
        raise argparse.ArgumentTypeError(
            f"{text!r} isn't a size; it looks like 80x25, columns and rows"
        )
    return columns_number(columns), rows_number(rows)


def add_render(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
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
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="`-`, and the default, is standard input"
    )
    parser.add_argument(
        "--columns",
        type=columns_number,
        metavar="N",
        help=f"the terminal's width (default: {BATCH_COLUMNS})",
    )
    parser.add_argument(
        "--rows",
        type=rows_number,
        metavar="N",
        help=f"the terminal's height (default: {BATCH_ROWS})",
    )
    parser.add_argument(
        "--stream-type",
        choices=("pty", "pipe"),
        default="pty",
        help="what FILE's bytes were printed to; both are rendered alike (default: pty)",
    )
    parser.add_argument(
        "--no-collapse", action="store_true", help="print all repeated and blank lines"
    )
    parser.add_argument(
        "--colors",
        choices=("strip", "keep"),
        default="strip",
        help="as in ~/.logoptin (default: strip)",
    )
    parser.add_argument(
        "--screen",
        type=screen_size,
        metavar="COLUMNSxROWS",
        help="print what a terminal of that size shows at the end",
    )
    parser.set_defaults(refuse=parser.error)


def add_completion(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
        subparsers,
        "completion",
        "print the shell's completion script",
        "Prints the script that makes a shell complete commands, options, jobs and keys.",
        HOW_TO,
    )
    parser.add_argument("shell", choices=SHELLS)

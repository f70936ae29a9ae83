"""`logshipper serve`: the page of a store, until Ctrl-C."""

import argparse

from logshipper_observe.commands.options import add_source, describe, within
from logshipper_observe.page.command import serve


def add_options(parser: argparse.ArgumentParser) -> None:
    describe(
        parser,
        "Serves a page of your jobs on this machine, to whoever has the link that is printed,\nuntil Ctrl-C.",
        "examples:\n"
        "  logshipper serve\n"
        "  logshipper serve --port 8090\n"
        "  ssh -N -L 8090:127.0.0.1:8090 login.example.org     on your own machine, for a page served there\n"
        "  logshipper serve --from loki --since 2d",
    )
    add_port(parser)
    add_source(parser)


def add_port(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        type=within(0, 65_535),
        default=0,
        metavar="N",
        help="of the page on 127.0.0.1, with the same link for a week (default: a free one)",
    )


def call(args: argparse.Namespace) -> int:
    return serve(args, port=args.port)

"""Command lines of open, serve and url: pages in a browser."""

import argparse
from typing import TYPE_CHECKING

from logshipper_observe.commands import completers
from logshipper_observe.commands.options import (
    JOB_HELP,
    Parser,
    add_command,
    add_loki,
    add_source,
    completed,
    within,
)

if TYPE_CHECKING:
    from logshipper_observe.commands.options import Subparsers


def port_number(text: str) -> int:
    return within(text, 0, 65_535)


def add_open(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
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
    completed(parser.add_argument("job", metavar="JOB", nargs="?", help=JOB_HELP), completers.jobs)
    parser.add_argument("--no-browser", action="store_true", help="only print the link")
    _add_port(parser)
    add_source(parser)


def add_serve(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
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
    add_source(parser)


def _add_port(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        type=port_number,
        default=0,
        metavar="N",
        help="of 127.0.0.1, where the page is (default: a free one)",
    )


def add_url(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
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
    completed(
        parser.add_argument("job", metavar="JOB", nargs="?", help=JOB_HELP), completers.jobs_in_loki
    )
    add_loki(parser.add_argument_group("asking Loki"))
    parser.set_defaults(source="loki", store=None)

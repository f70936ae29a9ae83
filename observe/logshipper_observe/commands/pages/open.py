"""`logshipper open [JOB]`: a job's page, or that of all jobs, in the browser."""

import argparse

from logshipper_observe.commands.options import add_flag, add_job, add_source, describe
from logshipper_observe.commands.pages.serve import add_port
from logshipper_observe.page.command import serve
from logshipper_observe.query.opening import open_job


def add_options(parser: argparse.ArgumentParser) -> None:
    describe(
        parser,
        "Serves a page of your jobs to your own browser, and opens it: at JOB, or at the list\n"
        "of all. The link is printed; it is for you alone. Ctrl-C ends the page.",
        "examples:\n"
        "  logshipper open last\n"
        "  logshipper open\n"
        "  logshipper open train.py --no-browser\n"
        "  logshipper open 4711 --from loki",
    )
    add_job(parser, nargs="?")
    add_flag(parser, "--no-browser", help="only print the link")
    add_port(parser)
    add_source(parser)


def call(args: argparse.Namespace) -> int:
    view = ""
    if args.job is not None:
        with open_job(args) as (_, job_id):
            view = f"job/{job_id}"
    return serve(args, port=args.port, view=view, browser=not args.no_browser)

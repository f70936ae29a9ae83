"""`logshipper open [JOB]`: a job's page, or that of all jobs, in the browser."""

import argparse

from logshipper_observe.page.command import serve
from logshipper_observe.query.opening import open_job


def call(args: argparse.Namespace) -> int:
    view = ""
    if args.job is not None:
        with open_job(args) as (_, job_id):
            view = f"job/{job_id}"
    return serve(args, port=args.port, view=view, browser=not args.no_browser)

"""Command line of import."""

from typing import TYPE_CHECKING

from logshipper_observe.commands.options import Parser, add_command, add_json, add_store

if TYPE_CHECKING:
    from logshipper_observe.commands.options import Subparsers

SYSTEMS = ("qcg", "balsam", "xt")


def add_import(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
        subparsers,
        "import",
        "ingest jobs of QCG-PilotJob, Balsam or XT",
        "Takes what another system wrote of its jobs into the local store: jobs with their\n"
        "states, times, nodes, tags, metadata and logs. Importing again adds what is new.\n"
        "What can't be read is said, with file and line, and all else is imported.\n"
        "\n"
        "  qcg     a manager's folder .qcgpjm-service-NAME, a folder of them, or its files\n"
        "          jobs.report, track.states and track.reqs\n"
        "  balsam  a site's folder data/ (job.out), and exports of events, jobs and batch\n"
        "          jobs as JSON, JSON lines or CSV\n"
        "  xt      runs' folders and logs: run.log, all_runs.jsonl",
        "examples:\n"
        "  logshipper import qcg .                     all runs that are here\n"
        "  logshipper import qcg .qcgpjm-service-n1.8303 --follow     while it runs\n"
        "  logshipper import balsam site/data events.json jobs.jsonl batchjobs.csv\n"
        "  logshipper import xt runs/\n"
        "  logshipper import qcg copy/ --as sweep1     a copy of a run that was imported as sweep1",
        "exit codes: 0 done, 1 something couldn't be read (stderr says what; all else is imported),\n"
        "2 wrong usage, 130 Ctrl-C",
        module="importing",
    )
    parser.add_argument(
        "system", metavar="SYSTEM", choices=SYSTEMS, help=f"one of {', '.join(SYSTEMS)}"
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", help="folders and files")
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="go on while they grow, until the jobs' system has ended, or Ctrl-C",
    )
    parser.add_argument(
        "--as", dest="run_name", metavar="NAME", default="", help="what the run, site or workspace is called; the same "
        "name again: the same one, wherever its files are (default: the folder)"
    )  # fmt: skip
    parser.add_argument(
        "--timezone", metavar="ZONE", help="of times without one, such as Europe/Berlin (default: this machine's; "
        "balsam: UTC)"
    )  # fmt: skip
    parser.add_argument(
        "--removed", action="store_true", help="also jobs that were removed with `logshipper rm`"
    )
    add_json(parser)
    add_store(parser)

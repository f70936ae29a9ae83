"""Command lines of what is computed of many jobs: analyze, allocations."""

from typing import TYPE_CHECKING

from logshipper_observe.commands import completers
from logshipper_observe.commands.options import (
    Parser,
    add_command,
    add_json,
    add_raw_cells,
    add_source,
    completed,
    event_state,
    state_names,
    whole_number,
)

if TYPE_CHECKING:
    from logshipper_observe.commands.options import Subparsers

REPORTS = ("throughput", "utilization", "nodes", "overheads", "gantt")


def add_analyze(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
        subparsers,
        "analyze",
        "throughput, utilization, nodes, overheads and gantt of many jobs",
        "Draws how many jobs had ended (throughput), how many nodes ran jobs (utilization),\n"
        "how many there were for them (nodes), each over time; what launching jobs cost, how\n"
        "long they ran, and how busy nodes and cores were (overheads); or which of them each\n"
        "core or node had when, and when none (gantt). Of the jobs of the store only: others\n"
        "aren't known. JOB: ids, names, ranges (a3-a9), wildcards.",
        "examples:\n"
        "  logshipper analyze throughput\n"
        "  logshipper analyze throughput --to-state failed --after 2026-05-01\n"
        "  logshipper analyze utilization --png utilization.png\n"
        "  logshipper analyze utilization 'train*' --no-node-weighting --csv running.csv\n"
        "  logshipper analyze nodes --tag experiment=foo\n"
        "  logshipper analyze overheads a3-a9 --json\n"
        "  logshipper analyze gantt --by node --svg gantt.svg\n"
        "  logshipper analyze throughput --from loki --since 30d\n"
        "  logshipper analyze utilization --all-jobs --from loki",
    )
    parser.add_argument(
        "report", choices=REPORTS, metavar="REPORT", help=f"one of {', '.join(REPORTS)}"
    )
    completed(
        parser.add_argument("jobs", metavar="JOB", nargs="*", default=[], help="only of these"),
        completers.jobs,
    )
    to_state = parser.add_argument(
        "--to-state",
        type=event_state,
        metavar="STATE",
        help="throughput: count changes to this state (default: JOB_FINISHED, that is COMPLETED)",
    )
    from_state = parser.add_argument(
        "--from-state",
        type=event_state,
        metavar="STATE",
        help="throughput: only changes from this state",
    )
    for action in (to_state, from_state):
        completed(action, completers.states)
    parser.add_argument(
        "--after", metavar="TIME", help="not before this time, such as 2026-05-01T09:30"
    )
    parser.add_argument("--before", metavar="TIME", help="not after this time")
    parser.add_argument(
        "--tag", action="append", metavar="TAG|KEY=VALUE", help="only jobs with it; again for more"
    )
    parser.add_argument(
        "--no-node-weighting",
        dest="node_weighting",
        action="store_false",
        help="utilization: count running jobs, not their nodes",
    )
    parser.add_argument(
        "--by",
        choices=("core", "node"),
        default="core",
        help="gantt: a row for each core (default), or node",
    )
    parser.add_argument(
        "--all-jobs",
        action="store_true",
        help="throughput, utilization: by hour, of all jobs that Slurm ended",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--png", metavar="FILE", help="write a picture instead; `-` is standard output"
    )
    how.add_argument("--svg", metavar="FILE", help="likewise, as SVG")
    how.add_argument("--csv", metavar="FILE", help="likewise, the points as CSV")
    add_raw_cells(parser)
    add_json(how, "for programs: the points as JSON, described in docs/analytics.md")
    add_source(parser)


def add_allocations(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
        subparsers,
        "allocations",
        "list the nodes that jobs have and had",
        "Lists allocations, newest first: each run of a job on its nodes. JOB: ids, names,\nranges (a3-a9), wildcards.",
        "examples:\n"
        "  logshipper allocations\n"
        "  logshipper allocations --history --limit 50\n"
        "  logshipper allocations --state timeout --tag experiment=foo\n"
        "  logshipper allocations --history --json | jq '.allocations[].num_nodes'",
    )
    completed(
        parser.add_argument("jobs", metavar="JOB", nargs="*", default=[], help="only of these"),
        completers.jobs,
    )
    parser.add_argument("--history", action="store_true", help="also those that are over")
    state = parser.add_argument(
        "--state", type=state_names, metavar="STATE", help="only these, joined by commas"
    )
    completed(state, completers.states)
    parser.add_argument(
        "--tag", action="append", metavar="TAG|KEY=VALUE", help="only jobs with it; again for more"
    )
    parser.add_argument(
        "--limit", type=whole_number, default=50, metavar="N", help="at most N (default: 50)"
    )
    parser.add_argument("--all", action="store_true", help="all of them")
    add_json(parser)
    add_source(parser)

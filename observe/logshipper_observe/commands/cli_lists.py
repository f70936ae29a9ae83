"""Command lines of what is about many jobs: ls, info, status, events, wait."""

from typing import TYPE_CHECKING

from logshipper_observe.base.words import STATES
from logshipper_observe.commands import completers
from logshipper_observe.commands.options import (
    JOB_HELP,
    Parser,
    add_command,
    add_json,
    add_source,
    completed,
    event_state,
    seconds_number,
    state_names,
    whole_number,
)

if TYPE_CHECKING:
    from logshipper_observe.commands.options import Subparsers

KINDS = (
    "state", "user_event", "mode_changed", "heartbeat_lost", "heartbeat_found", "lines_lost", "lines_left_out",
    "segment_damaged", "job_ended",
)  # fmt: skip


def add_ls(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
        subparsers,
        "ls",
        "list jobs: filtered, sorted, with columns of one's own",
        "Lists the jobs of the store, newest first. JOB: ids, names, beginnings of ids,\n"
        "ranges (a3-a9), wildcards. Conditions are on properties, tags (tags.NAME) and\n"
        "the last values of metadata, or KEY.min, KEY.max, KEY.count; all must hold.\n"
        "Operators: = == < <= > >= != <> :regex: :exists:; $none, $true, $false, $empty\n"
        "stand for nothing, a boolean, an empty text. In --columns `*` is any part of a key:\n"
        "hparams.* (those that never change), metrics.* (numbers that do), val/*, *.",
        "examples:\n"
        "  logshipper ls\n"
        "  logshipper ls --state failed,cancelled --all\n"
        "  logshipper ls --name 'train*' --limit 5\n"
        "  logshipper ls a3-a9 --filter 'loss<0.3' --filter 'duration>1h'\n"
        "  logshipper ls --tag baseline --tag dataset=cifar10 --sort loss\n"
        "  logshipper ls --columns id,name=Run,loss=Loss:.5f,tags.dataset\n"
        "  logshipper ls --columns id,loss.min,acc.max,'hparams.*' --sort loss.min\n"
        "  logshipper ls --by-state\n"
        "  logshipper ls --json | jq -r '.jobs[].job_id'\n"
        "  logshipper ls --from loki --since 2d --cluster alpha",
    )
    completed(
        parser.add_argument("jobs", metavar="JOB", nargs="*", default=[], help="only these"),
        completers.jobs,
    )
    parser.add_argument(
        "--limit", type=whole_number, default=10, metavar="N", help="at most N jobs (default: 10)"
    )
    parser.add_argument("--all", action="store_true", help="all jobs")
    action = parser.add_argument(
        "--state",
        type=state_names,
        metavar="STATE",
        help=f"only these, joined by commas: {', '.join(STATES)}",
    )
    completed(action, completers.states)
    parser.add_argument(
        "--name", metavar="PATTERN", help="only names that contain PATTERN, or match it (`*`, `?`)"
    )
    parser.add_argument(
        "--filter",
        action="append",
        metavar="CONDITION",
        help="such as 'loss<0.3'; again for more, all must hold",
    )
    parser.add_argument(
        "--tag",
        action="append",
        metavar="TAG|KEY=VALUE",
        help="only jobs that have it; again for more",
    )
    columns = parser.add_argument(
        "--columns", action="append", metavar="KEY=Title:FORMAT,...", help="these columns instead"
    )
    sort = parser.add_argument(
        "--sort",
        metavar="KEY",
        help="by a property, tag, key or KEY.min and the like, smallest first",
    )
    for action in (columns, sort):
        completed(action, completers.columns)
    parser.add_argument("--reverse", action="store_true", help="the other way round")
    parser.add_argument(
        "--by-state", action="store_true", help="how many jobs there are in each state"
    )
    add_json(parser)
    add_source(parser)


def add_events(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
        subparsers,
        "events",
        "list jobs' events: states, modes, late heartbeats, losses, their own",
        "Lists what happened to jobs, newest first: changes of their states and modes, late\n"
        "heartbeats, lost lines, and what they told themselves. JOB: ids, names, ranges\n"
        "(a3-a9), wildcards. Several options must all hold.",
        "examples:\n"
        "  logshipper events\n"
        "  logshipper events last --kind user_event --data step=100\n"
        "  logshipper events --to-state failed --after 2026-05-01\n"
        "  logshipper events --from-state RESTART_READY --to-state running     restarts\n"
        "  logshipper events --scheduler-id 4711 --changes --json\n"
        "  logshipper events a3-a9 --oldest-first --tag experiment=foo\n"
        "  logshipper events last --follow",
    )
    completed(
        parser.add_argument("jobs", metavar="JOB", nargs="*", default=[], help="only of these"),
        completers.jobs,
    )
    parser.add_argument(
        "--id",
        action="append",
        metavar="EVENT",
        help="this event (as --json has it); again for more",
    )
    parser.add_argument(
        "--scheduler-id",
        action="append",
        metavar="ID",
        help="of jobs that are, or ran in, this job of the scheduler",
    )
    parser.add_argument(
        "--batch-job-id", action="append", metavar="ID", help="likewise, of Balsam's batch jobs"
    )
    for option, words in (("--from-state", "from"), ("--to-state", "to")):
        action = parser.add_argument(
            option, type=event_state, metavar="STATE", help=f"only changes {words} this state"
        )
        completed(action, completers.states)
    action = parser.add_argument(
        "--kind",
        action="append",
        metavar="KIND",
        help="state, user_event, mode_changed, ...; again for more",
    )
    completed(action, lambda **_: KINDS)
    parser.add_argument(
        "--data",
        action="append",
        metavar="KEY=VALUE|JSON",
        help="what the event's data has; again for more",
    )
    parser.add_argument(
        "--after", metavar="TIME", help="not before this time, such as 2026-05-01T09:30"
    )
    parser.add_argument("--before", metavar="TIME", help="not after this time")
    parser.add_argument(
        "--tag", action="append", metavar="TAG|KEY=VALUE", help="only jobs with it; again for more"
    )
    parser.add_argument("--changes", action="store_true", help="only changes of states")
    parser.add_argument("--oldest-first", action="store_true", help="the other way round")
    parser.add_argument(
        "--limit", type=whole_number, default=50, metavar="N", help="at most N events (default: 50)"
    )
    parser.add_argument("--all", action="store_true", help="all events")
    parser.add_argument(
        "--follow",
        action="store_true",
        help="oldest first, then each when it comes; until the JOBs end, or Ctrl-C",
    )
    add_json(parser)
    add_source(parser)


def add_info(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
        subparsers,
        "info",
        "tell jobs' nodes, cores, folder, run time, history, and their tasks",
        "Tells of each of these jobs its state, nodes, cores, working directory, run time, exit\n"
        "code, the history of its states, and of its tasks or iterations how many there are,\n"
        "have finished and failed. JOB: also NAME for jobs NAME:0, NAME:1, ...; ranges (a3-a9)\n"
        "and wildcards. Unknown jobs are told one by one, the others answered.",
        "examples:\n"
        "  logshipper info last\n"
        "  logshipper info train.py a3-a9\n"
        "  logshipper info last --primary val_loss\n"
        "  logshipper info last --json | jq '.jobs[].iterations'\n"
        "  logshipper info 4711 --from loki",
    )
    completed(parser.add_argument("jobs", metavar="JOB", nargs="+", help=JOB_HELP), completers.jobs)
    primary = parser.add_argument(
        "--primary", metavar="KEY", help="also the best value of this metric: its least"
    )
    completed(primary, completers.keys)
    parser.add_argument("--maximize", action="store_true", help="the greatest is the best")
    add_json(parser)
    add_source(parser)


def add_status(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
        subparsers,
        "status",
        "print jobs' states, a line each",
        "Prints of each of these jobs id, state, exit code or signal, and name. JOB: as for\n"
        "`info`. Unknown jobs are told one by one, the others answered.",
        "examples:\n"
        "  logshipper status last\n"
        "  logshipper status a3-a9 train.py\n"
        "  logshipper status last --json\n"
        "  logshipper status 4711 4712 --from loki",
    )
    completed(parser.add_argument("jobs", metavar="JOB", nargs="+", help=JOB_HELP), completers.jobs)
    add_json(parser)
    add_source(parser)


def add_wait(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
        subparsers,
        "wait",
        "wait until jobs have ended",
        "Waits until all of these jobs have ended, or any of them, and prints how. JOB:\n"
        "also ranges (a3-a9) and wildcards. Unknown jobs are told, the others waited for.",
        "examples:\n"
        "  logshipper wait last && notify-send done\n"
        "  logshipper wait --any 'train*' --timeout 2h\n"
        "  logshipper wait --all a3-a9 --check --json\n"
        "  logshipper wait 4711 --from loki",
        "exit codes: 0 they have ended, 1 some are unknown (stderr says which),\n"
        "2 wrong usage, 3 the time was up, 4 with --check: one isn't COMPLETED, 130 Ctrl-C",
    )
    completed(parser.add_argument("jobs", metavar="JOB", nargs="+", help=JOB_HELP), completers.jobs)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--all", dest="any", action="store_false", help="until all have ended (default)"
    )
    which.add_argument("--any", dest="any", action="store_true", help="until one has ended")
    parser.add_argument(
        "--timeout",
        type=seconds_number,
        metavar="SECS",
        help="at most so long: seconds, or such as 30m, 2h",
    )
    parser.add_argument(
        "--check", action="store_true", help="exit code 4 where one that ended isn't COMPLETED"
    )
    add_json(parser)
    add_source(parser)
    parser.set_defaults(any=False)

"""`logshipper-agent prepare`: creates a task's directory in the node's spool, for a scheduler's
hooks."""

import argparse
import json
import pwd
import sys

from logshipper.errors import ConfigError, LogshipperError
from logshipper.safe_text import safe_lines
from logshipper_ingest.agent.node_spool import NodeIdentity, prepare_capture
from logshipper_ingest.config.agent_config import AgentConfig

EXAMPLES = """examples:
  logshipper-agent prepare --job-id 4711 --user ann --step 0 --task 3 --name train.py
  logshipper-agent prepare --config /etc/logshipper/agent.toml --job-id 4711 --user ann --json
  logshipper-agent prepare --job-id 4711 --user ann --uid 20001 --gid 20001    not in the node's user database
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add all options except `--config`."""
    parser.add_argument("--job-id", required=True, metavar="ID", help="the scheduler's job id")
    parser.add_argument(
        "--user", required=True, metavar="USER", help="the job's user: a name, or a uid"
    )
    parser.add_argument(
        "--uid", type=int, help="the user's id (default: from the node's user database)"
    )
    parser.add_argument(
        "--gid", type=int, help="group of the segments (default: the user's primary group)"
    )
    parser.add_argument(
        "--attempt", type=int, default=1, metavar="N", help="1 (default), 2 after a requeue, ..."
    )
    parser.add_argument("--step", default="", metavar="S", help="the job's step (default: none)")
    parser.add_argument(
        "--task",
        type=int,
        default=0,
        metavar="N",
        help="the task's number in the step (default: 0)",
    )
    parser.add_argument("--name", default="", metavar="X", help="the job's name (default: its id)")
    parser.add_argument("--account", default="", metavar="A", help="account charged for the job")
    parser.add_argument("--partition", default="", metavar="P", help="the job's partition")
    parser.add_argument("--array-job-id", default="", metavar="ID", help="id of the job's array")
    parser.add_argument("--array-task-id", default="", metavar="N", help="its number in the array")
    parser.add_argument(
        "--json", action="store_true", help="print all facts for programs instead of the path"
    )


def call(options: argparse.Namespace, config: AgentConfig) -> int:
    """Create the directory and print its path. Return the exit code: 0, or 1 with a line on
    standard error."""
    agent = config.agent
    try:
        identity = _identity(options)
        path = prepare_capture(agent, identity)
    except LogshipperError as error:
        sys.stderr.write(safe_lines(f"logshipper-agent prepare: {error}\n"))
        return 1
    if options.json:
        facts = {"path": path, "cluster": agent.cluster, "host": agent.host, **identity._asdict()}
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        sys.stdout.write(safe_lines(path + "\n"))
    return 0


def _identity(options: argparse.Namespace) -> NodeIdentity:
    user, uid, gid = _account(options.user, options.uid, options.gid)
    fields = {name: value for name, value in vars(options).items() if name in NodeIdentity._fields}
    name = options.name or options.job_id
    return NodeIdentity(**{**fields, "user": user, "uid": uid, "gid": gid, "name": name})


def _account(user: str, uid: int | None, gid: int | None) -> tuple[str, int, int]:
    """Return name, uid and gid of a user. Raises ConfigError for an unknown user."""
    if uid is not None and gid is not None:
        return user, uid, gid
    try:
        if uid is not None:
            entry = pwd.getpwuid(uid)
        elif user.isascii() and user.isdigit():
            entry = pwd.getpwuid(int(user))
            user = entry.pw_name
        else:
            entry = pwd.getpwnam(user)
    except (KeyError, ValueError, OverflowError):
        words = f"{user!r} is unknown on this node; add --uid and --gid"
        raise ConfigError("--user", [words]) from None
    return user, entry.pw_uid, entry.pw_gid if gid is None else gid

"""`logshipper-agent`: the node agent, and work on a spool; connects options with their functions."""

import argparse
import json
import sys
from collections.abc import Sequence

from logshipper import __version__
from logshipper.background import JOB_END_NICE, yield_to_jobs
from logshipper.safe_text import safe_lines
from logshipper.spool.captures import store_root
from logshipper_ingest.admin import admin_commands
from logshipper_ingest.agent import prepare, user_agent
from logshipper_ingest.config import agent_config
from logshipper_ingest.console.console_script import run_command
from logshipper_ingest.console.service_log import write_error, write_line

NOT_SET_UP = 78  # EX_CONFIG of sysexits.h: systemd does not restart the unit
_EXAMPLES = """examples:
  logshipper-agent validate --config /etc/logshipper/agent.toml    is it right? all that isn't, at once
  logshipper-agent check --config /etc/logshipper/agent.toml       does it fit Loki, Prometheus and this node?
  logshipper-agent run --config /etc/logshipper/agent.toml         serves all jobs of this node
  logshipper-agent status --config /etc/logshipper/agent.toml      what is spooled, shipped, refused, per job
  logshipper-agent status                                          as root the same, else of your own store
  logshipper-agent replay                                          sends what Loki refused once more
"""
_RUN_EXAMPLES = """With --config: the node agent. It serves the captures of all users of this node as they appear, until
SIGTERM. Without: your own agent, which takes your spool into your store; `logshipper run` starts one by itself.

examples:
  logshipper-agent run --config /etc/logshipper/agent.toml
  logshipper-agent run                          ends 10 s after the last capture
  logshipper-agent run --idle-secs 3600         for a service that is started again when it ends
"""
_STATUS_EXAMPLES = """With --config: of the node agent. Root needn't name /etc/logshipper/agent.toml where it is
there, and neither --store nor $LOGSHIPPER_STORE names a store. Else: of your own store.

examples:
  logshipper-agent status --config /etc/logshipper/agent.toml
  logshipper-agent status --config /etc/logshipper/agent.toml --json | jq '.jobs[] | select(.lag_secs > 60)'
  logshipper-agent status --store /scratch/logs --json
"""
_VALIDATE_EXAMPLES = """exit codes: 0 it is right, 1 it isn't (each fault on a line of its own)

examples:
  logshipper-agent validate --config /etc/logshipper/agent.toml && systemctl restart logshipper-agent
"""
_CHECK_EXAMPLES = """It pushes one entry to Loki (kind="event", event "checked") and reads it back.

exit codes: 0 all is well, 1 something is wrong

examples:
  logshipper-agent check --config /etc/logshipper/agent.toml
  logshipper-agent check --config /etc/logshipper/agent.toml --json | jq -r '.findings[] | select(.level == "wrong")'
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The console script. Returns the exit code: 0, 1 for an error, 2 for wrong usage
    (argparse)."""
    return run_command(build_parser(), arguments)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="logshipper-agent",
        description="Brings captured jobs' segments from the spool to Loki and Prometheus, or into a store.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, summary: str, description: str, examples: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=summary,
            description=description,
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    words = "run the agent in the foreground"
    run = add("run", words, "Runs the agent in the foreground.", _RUN_EXAMPLES)
    run.add_argument(
        "--idle-secs",
        type=float,
        default=user_agent.IDLE_SECS,
        metavar="SECS",
        help="your own agent: end when as long no capture was alive and nothing came (default: %(default)g)",
    )
    status = add(
        "status",
        "what is spooled, shipped and refused, per job",
        "Shows what is spooled and what became of it, per job. Takes nothing in itself.",
        _STATUS_EXAMPLES,
    )
    for command in (run, status):
        admin_commands.add_place(
            command, "your own store's folder (default: $LOGSHIPPER_STORE, else your data folder)"
        )
    validate = add(
        "validate",
        "say all that is wrong with a configuration",
        "Reads a configuration and says all that is wrong with it. Asks no server.",
        _VALIDATE_EXAMPLES,
    )
    check = add(
        "check",
        "does the configuration fit Loki, Prometheus and this node?",
        "Looks at Loki's and Prometheus' limits and labels, at clock, spool and socket, and where Slurm is\n"
        "at its plugin and hooks; says what to fix.",
        _CHECK_EXAMPLES,
    )
    check.set_defaults(call=_check)
    check.add_argument(
        "--plugstack",
        metavar="FILE",
        help="Slurm's plugstack.conf (default: slurm.conf's, where Slurm is)",
    )
    admin_commands.add_commands(add)
    prepare_command = add(
        "prepare",
        "make a task's directory in the node's spool, for hooks",
        "Makes a task's directory in the node's spool and prints its path: for a scheduler's hooks, as root.",
        prepare.EXAMPLES,
    )
    calls = {run: _run, status: _status, validate: _validate, check: _check}
    for command, call in {**calls, prepare_command: _prepare}.items():
        command.set_defaults(call=call)
    for command in (validate, check, prepare_command):
        admin_commands.add_config(command)
    for command in (status, check):
        admin_commands.add_json(command)
    prepare.add_arguments(prepare_command)
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.config:
        from logshipper_ingest.agent.node_agent import NodeAgent  # late: imports take a while

        try:
            config = agent_config.load(options.config)
        except agent_config.UnsetError as error:
            error.exit_code = NOT_SET_UP
            raise
        yield_to_jobs(JOB_END_NICE)
        NodeAgent(config, write_line).run()
        return 0
    root = store_root(options.store)
    if not user_agent.serve(root, write_line, idle_secs=options.idle_secs):
        write_error(f"logshipper-agent: another agent is at work on {root}")
        return 1
    return 0


def _status(options: argparse.Namespace) -> int:
    config = options.config or admin_commands.config_of_root(options.store)
    if config:
        from logshipper_ingest.agent import node_status

        return node_status.status(agent_config.load(config), as_json=options.json)
    from logshipper_ingest.agent import store_status

    return store_status.status(store_root(options.store), as_json=options.json)


def _validate(options: argparse.Namespace) -> int:
    agent_config.load(options.config)
    sys.stdout.write(safe_lines(f"{options.config}: right\n"))
    return 0


def _check(options: argparse.Namespace) -> int:
    from logshipper_ingest.checks.findings import as_document, exit_code, print_findings
    from logshipper_ingest.checks.server_check import check

    findings = check(agent_config.load(options.config), options.plugstack)
    if options.json:
        sys.stdout.write(json.dumps(as_document(findings), indent=2) + "\n")
    else:
        print_findings(findings)
    return exit_code(findings)


def _prepare(options: argparse.Namespace) -> int:
    return prepare.call(options, agent_config.load(options.config))

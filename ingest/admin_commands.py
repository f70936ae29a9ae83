"""The command lines of what admins call now and then: what each takes, and where it goes on. Light: what they import
takes a while, and is imported when one is called."""

import argparse
from collections.abc import Callable

from ingest import agent_config
from ingest.time_span import time_span

Add = Callable[[str, str, str, str], argparse.ArgumentParser]  # name, summary, description, examples

_REPLAY_EXAMPLES = """\
The agent may run meanwhile: each takes the quarantine's lock for as long as it writes there. A replay that is
killed can be called again. Loki shows entries that are older than three hours when it has flushed them.

exit codes: 0 none of them is left in the quarantine, 1 it couldn't be done: some may be left, 3 Loki refuses some again

examples:
  logshipper-agent replay --dry-run                     what is there, by job and reason
  logshipper-agent replay                               all of it
  logshipper-agent replay --job 4711 --reason line_too_long
  logshipper-agent replay --since 2h --json             what was refused in the last two hours
"""


def add_commands(add: Add) -> None:
    """add: makes a command's parser of its name, summary, description and examples."""
    replay = add(
        "replay",
        "send what Loki refused once more",
        "Brings what lies in the quarantine to Loki, once the cause of its refusal is gone. What Loki takes leaves\n"
        "the quarantine; what it refuses again stays, with its new words. Nothing is there twice.",
        _REPLAY_EXAMPLES,
    )
    replay.add_argument("--job", metavar="ID", default="", help="only this job's")
    replay.add_argument("--reason", metavar="WORD", default="", help="only what was refused for this reason")
    replay.add_argument("--since", metavar="TIME", type=time_span, help="only what was refused in the last, say, 12h")
    replay.add_argument("--dry-run", action="store_true", help="say what would be sent, and send nothing")
    replay.add_argument("--no-query", action="store_true", help="don't ask Loki which entries it has: send all")
    replay.add_argument(
        "--timeout",
        metavar="TIME",
        type=time_span,
        default=60.0,
        help="give up where Loki takes nothing for so long (default: 60s)",
    )
    replay.set_defaults(call=_replay)
    for command in (replay,):
        command.add_argument(
            "--config", metavar="FILE", default=agent_config.DEFAULT_PATH, help="TOML (default: %(default)s)"
        )
        command.add_argument("--json", action="store_true", help="for programs")


def _replay(options: argparse.Namespace) -> int:
    from ingest import replay_command

    return replay_command.call(options, agent_config.load(options.config))

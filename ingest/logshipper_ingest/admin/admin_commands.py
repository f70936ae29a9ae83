"""Command lines of the admins' commands. It imports the commands late, because their imports
take time."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable

from logshipper.spool.captures import store_root
from logshipper.start import node_agent_socket
from logshipper_ingest.config import agent_config
from logshipper_ingest.config.loki_section import FIRST_SINK
from logshipper_ingest.console.time_span import time_span

# of a command: name, summary, description, examples
Add = Callable[[str, str, str, str], argparse.ArgumentParser]
Completer = Callable[..., list[str]]

_REPLAY_EXAMPLES = """\
The agent may run meanwhile: each takes the quarantine's lock for as long as it writes there. A replay that is
killed can be called again. Loki shows entries that are older than three hours when it has flushed them.

exit codes: 0 none of them is left in the quarantine, 1 it couldn't be done: some may be left, 3 Loki refuses some again

examples:
  logshipper-agent replay --dry-run                     what is there, by job and reason
  logshipper-agent replay                               all of it
  logshipper-agent replay --job 4711 --reason line_too_long
  logshipper-agent replay --since 2h --json             what was refused in the last two hours
  logshipper-agent replay --sink national               what [loki.national] refused, to that Loki
"""

_PURGE_EXAMPLES = """\
Without --grep and --fixed all of the job goes, once it has ended. With them each line that has the text, also
in colours, or with the escapes of JSON, in keys and values: in spool and store it is overwritten by asterisks, in
quarantine and Loki it is removed. So are names, tags and notes. Then it looks once more, everywhere. An expression is
one that Python and RE2 (Loki's) read alike; what they read differently is refused. A line of a bar, a
metadata record and an event count as lines. A line over 256 KB lies in Loki in parts: each is looked at alone.

With --config, or as root: a node's spool and quarantine, and Loki, whose delete API must be on (compactor:
retention_enabled, delete_request_store; limits_config: deletion_mode: filter-and-delete). Loki hides the lines within
5 minutes, and takes them out of its chunks after its delete_request_cancel_period (24 h). While the
agent runs, it ships first what is spooled; what a running job has spooled is out of reach then.
Else: your own store.

exit codes: 0 gone, 1 it couldn't be done, 3 some of it is left (standard error says where)

examples:
  logshipper-agent purge --job 4711 --fixed "hunter2" --dry-run    how many lines, and where
  logshipper-agent purge --job 4711 --grep 'token=[0-9a-f]{40}'
  logshipper-agent purge --job 4711 --yes                          all of the job
  logshipper-agent purge --job 4711 --yes --cert purge.pem --key purge.key    through the gateway of docs/privacy.md
  logshipper-agent purge --job k3f9x2 --fixed hunter2 --store ~/.local/share/logshipper
"""

_FSCK_EXAMPLES = """\
Reads only, also while the agent runs, but for --repair. That throws nothing away: what it takes out is kept
next to it. It touches no segment (whoever reads skips what is damaged), and no database while the agent runs.

exit codes: 0 all is well, or fixed, 1 it couldn't be looked at, 3 something is wrong

examples:
  logshipper-agent fsck --config /etc/logshipper/agent.toml
  logshipper-agent fsck --json | jq -r '.faults[] | select(.level == "wrong") | .path'
  systemctl stop logshipper-agent; logshipper-agent fsck --repair; systemctl start logshipper-agent
  logshipper-agent fsck --store ~/.local/share/logshipper
"""

_DRAIN_EXAMPLES = """\
Waits while the agent ships what is spooled of captures that are over. Those of running jobs go on, and are
named. On a terminal a bar shows bytes, rate and how long it may take; else a line comes every 10 seconds.

exit codes: 0 nothing that is over is left, 1 it couldn't be looked at, 3 something is left (and why)

examples:
  scontrol update node=n17 state=drain reason=repair    # and when its jobs have ended:
  logshipper-agent drain && poweroff
  logshipper-agent drain --timeout 30s --json | jq -r .why
"""


_FORGET_SINK_EXAMPLES = """\
A Loki that isn't in the configuration any more is remembered: how far it had each capture, and what it refused. So
it goes on where it was if its table comes back: what went to the others meanwhile it gets only as far as it is still
in the spool. This forgets it for good, while the agent is stopped. A sink that is in the configuration isn't forgotten.

exit codes: 0 forgotten, 1 it couldn't be done, 3 its quarantine isn't empty: give --discard-quarantine

examples:
  systemctl stop logshipper-agent; logshipper-agent forget old; systemctl start logshipper-agent
  logshipper-agent forget old --discard-quarantine       what it refused, too
  logshipper-agent forget loki                           [loki] has a name now, and is another one
"""


def add_commands(add: Add) -> None:
    """Add the commands. add: creates a parser."""
    replay = add(
        "replay",
        "send what Loki refused once more",
        "Brings what lies in the quarantine to Loki, once the cause of its refusal is gone. What Loki takes leaves\n"
        "the quarantine; what it refuses again stays, with its new words. Nothing is there twice.",
        _REPLAY_EXAMPLES,
    )
    replay.set_defaults(call=_replay)
    _add_text(replay, "--job", "ID", "only this job's", _completer(_jobs))
    _add_text(replay, "--reason", "WORD", "only entries refused for this reason", _reasons)
    _add_time(replay, "--since", "only entries refused in this time, such as 12h")
    words = "only what this Loki refused (see status)"
    _add_text(replay, "--sink", "NAME", words, _completer(_sinks))
    add_flag(replay, "--dry-run", "say what would be sent, and send nothing")
    add_flag(replay, "--no-query", "don't ask Loki which entries it has: send all")
    words = "give up where Loki takes nothing for so long (default: 60s)"
    _add_time(replay, "--timeout", words, 60.0)
    purge = add(
        "purge",
        "take a printed secret out of every place where it lies",
        "Takes a job's lines out of spool, quarantine, Loki and your own store: all, or those that have a text.",
        _PURGE_EXAMPLES,
    )
    purge.set_defaults(call=_purge)
    job = purge.add_argument("--job", metavar="ID", required=True, help="the job's id")
    _set_completer(job, _completer(_jobs))
    text = purge.add_mutually_exclusive_group()
    words = "only lines in which this regular expression is found"
    text.add_argument("--grep", metavar="RE", help=words)
    text.add_argument("--fixed", metavar="TEXT", help="only lines that have this text")
    add_flag(purge, "--dry-run", "say how many lines there are, and where")
    add_flag(purge, "--yes", "don't ask")
    _add_text(purge, "--cert", "FILE", "a certificate that may delete, for a gateway (PEM)")
    _add_text(purge, "--key", "FILE", "its key")
    add_flag(purge, "--no-loki", "only this node's files, for the job's other nodes")
    words = "how far back the job is looked for in Loki (default: 29d, which takes it some seconds)"
    _add_time(purge, "--since", words, 29 * 86_400.0)
    _add_text(purge, "--user", "NAME", "whose job it is, where each user has a tenant")
    words = (
        "how long to wait for the agent, and until Loki shows nothing of it any more (default: 6m)"
    )
    _add_time(purge, "--wait", words, 360.0)
    fsck = add(
        "fsck",
        "is anything damaged on this node's disk?",
        "Looks through spool, segments, databases and quarantine: says what is wrong, where, what it means for the\n"
        "lines, and what becomes of it.",
        _FSCK_EXAMPLES,
    )
    fsck.set_defaults(call=_fsck)
    add_flag(fsck, "--repair", "fix what can be fixed")
    drain = add(
        "drain",
        "wait until all that is over is shipped, before a node is taken down",
        "Waits until the agent has shipped all captures that are over; says what is left, and why.",
        _DRAIN_EXAMPLES,
    )
    drain.set_defaults(call=_drain)
    _add_time(drain, "--timeout", "how long to wait (default: 10m)", 600.0)
    forget = add(
        "forget",
        "forget a Loki that was removed from the configuration",
        "Forgets how far a Loki was that isn't in the configuration any more.",
        _FORGET_SINK_EXAMPLES,
    )
    forget.set_defaults(call=_forget_sink)
    name = forget.add_argument("sink", metavar="NAME", help="as `status` shows it")
    _set_completer(name, _completer(_removed_sinks))
    add_flag(forget, "--discard-quarantine", "also what it refused, for good")
    for command in (purge, fsck):
        add_place(command, "your own store's folder (default: $LOGSHIPPER_STORE)")
        add_json(command)
    for command in (replay, drain, forget):
        add_config(command)
    for command in (replay, drain):
        add_json(command)


def add_flag(command: argparse.ArgumentParser, name: str, words: str) -> None:
    command.add_argument(name, action="store_true", help=words)


def add_json(command: argparse.ArgumentParser) -> None:
    add_flag(command, "--json", "for programs")


def add_config(command: argparse.ArgumentParser) -> None:
    """Add the option for the node agent's configuration."""
    path = agent_config.DEFAULT_PATH
    words = "TOML (default: %(default)s)"
    command.add_argument("--config", metavar="FILE", default=path, help=words)


def add_place(command: argparse.ArgumentParser, store_words: str) -> None:
    """Add the options for a node or a user's own store."""
    which = command.add_mutually_exclusive_group()
    which.add_argument("--config", metavar="FILE", help="the node agent's configuration (TOML)")
    which.add_argument("--store", metavar="DIR", help=store_words)


def _add_text(
    command: argparse.ArgumentParser,
    name: str,
    metavar: str,
    words: str,
    completer: Completer | None = None,
) -> None:
    action = command.add_argument(name, metavar=metavar, default="", help=words)
    if completer is not None:
        _set_completer(action, completer)


def _add_time(
    command: argparse.ArgumentParser, name: str, words: str, secs: float | None = None
) -> None:
    command.add_argument(name, metavar="TIME", type=time_span, default=secs, help=words)


def _set_completer(action: argparse.Action, completer: Completer) -> None:
    """Set the attribute that argcomplete reads."""
    action.completer = completer  # type: ignore[attr-defined]  # its own protocol


def _completer(names: Callable[[agent_config.AgentConfig], Iterable[str]]) -> Completer:
    """Return a completer for names from the node agent's configuration or state. It ignores all
    errors: a traceback would disturb the admin's command line."""

    def complete(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
        try:
            config = agent_config.load(parsed_args.config or agent_config.DEFAULT_PATH)
            return sorted(name for name in names(config) if name.startswith(prefix))
        except Exception:
            return []

    return complete


def _jobs(config: agent_config.AgentConfig) -> set[str]:
    """Return ids of jobs from the node agent's checkpoints."""
    from logshipper_ingest.state.sink_states import read_states

    states = read_states(config)
    return {checkpoint.identity.job_id for sink in states for checkpoint in sink.state.checkpoints}


def _reasons(prefix: str, **_: object) -> list[str]:
    from logshipper_ingest.servers.refusals import REASONS

    return [reason for reason in REASONS if reason.startswith(prefix)]


def _sinks(config: agent_config.AgentConfig) -> list[str]:
    return [sink.label for sink in config.sinks]


def _removed_sinks(config: agent_config.AgentConfig) -> list[str]:
    """Return sinks that the configuration no longer has."""
    from logshipper_ingest.state.sink_states import removed_sinks

    return [name or FIRST_SINK for name in removed_sinks(config)]


def config_of_root(store: str | None) -> str:
    """Return the node agent's configuration for root without a named store, or "" if the file is
    missing."""
    if os.geteuid() != 0 or store or os.environ.get("LOGSHIPPER_STORE"):
        return ""
    if os.path.lexists(agent_config.DEFAULT_PATH):
        return agent_config.DEFAULT_PATH
    socket = node_agent_socket.socket_path()
    if socket and os.path.lexists(socket):
        sys.stderr.write(
            f"logshipper-agent: this is root's own store. The node's agent has its configuration elsewhere than in "
            f"{agent_config.DEFAULT_PATH}: give --config FILE.\n"
        )
    return ""


def _replay(options: argparse.Namespace) -> int:
    from logshipper_ingest.admin import replay_command

    return replay_command.call(options, agent_config.load(options.config))


def _purge(options: argparse.Namespace) -> int:
    from logshipper_ingest.admin import purge_command

    config = options.config or config_of_root(options.store)
    if config:
        return purge_command.call_node(options, agent_config.load(config))
    return purge_command.call_store(options, store_root(options.store))


def _fsck(options: argparse.Namespace) -> int:
    from logshipper_ingest.admin.fsck import Fsck
    from logshipper_ingest.admin.fsck_findings import show

    path = options.config or config_of_root(options.store)
    fsck = Fsck(repair=options.repair)
    examination = (
        fsck.node(agent_config.load(path)) if path else fsck.store(store_root(options.store))
    )
    return show(examination, as_json=options.json)


def _drain(options: argparse.Namespace) -> int:
    from logshipper_ingest.admin import drain

    return drain.call(agent_config.load(options.config), options.timeout, as_json=options.json)


def _forget_sink(options: argparse.Namespace) -> int:
    from logshipper_ingest.admin import forget_sink

    config = agent_config.load(options.config)
    return forget_sink.call(config, options.sink, discard_quarantine=options.discard_quarantine)

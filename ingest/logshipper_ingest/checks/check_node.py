"""Checks of this node: the spool, the agent's folder, its socket and its port."""

import errno
import os
import socket
import stat

from logshipper.errors import ConfigError, os_words
from logshipper.filesystem import network_type
from logshipper_ingest.agent.job_socket import GREETING
from logshipper_ingest.checks.findings import Finding, note, ok, wrong
from logshipper_ingest.config.agent_config import AgentConfig, MetricsSection, listen_address
from logshipper_ingest.config.metrics_access import MetricsAccess, MetricsGuard
from logshipper_ingest.servers.server_calls import excerpt
from logshipper_ingest.servers.server_units import words_of_bytes

_FREE_WRONG_BYTES = 256 << 20
_FREE_NOTE_BYTES = 2 << 30
_FREE_WRONG_FILES = 10_000
_ANSWER_SECS = 2.0
_SPOOL_MODE = 0o711  # users enter, but neither list nor write
_STATE_MODE = 0o700


def check_node(config: AgentConfig) -> list[Finding]:
    """Return findings about this node, as the calling user."""
    agent = config.agent
    return [
        *_folder("spool_dir", agent.spool_dir, _SPOOL_MODE),
        *_folder("state_dir", agent.state_dir, _STATE_MODE),
        *_socket(agent.socket),
        *_port(config.metrics.listen),
        *_access(config.metrics.access),
        *_readers(config.metrics),
    ]


def _readers(metrics: MetricsSection) -> list[Finding]:
    if not metrics.is_open:
        return []
    about = "[metrics] job_values"
    fix = "Set username and password_file, or cert_file, key_file and client_ca_file"
    if metrics.job_values:
        words = f"whoever reaches {metrics.listen} reads jobs' ids, users, keys and values, without a password"
        return [note(about, words, f"{fix}; or let a firewall admit only Prometheus.")]
    words = f"is off: {metrics.listen} asks for no password, so Prometheus gets nothing of jobs"
    fix += "; `job_values = true` shows jobs to whoever reaches the port."
    return [note(about, words, fix)]


def _access(access: MetricsAccess) -> list[Finding]:
    """Check certificate, key and password of /metrics."""
    if not access.cert_file and not access.username:
        return []
    try:
        MetricsGuard(access)
    except ConfigError as error:
        return [wrong("/metrics", problem) for problem in error.problems]
    return [ok("/metrics", "its certificate, key and password can be used, as far as they are set")]


def _folder(option: str, path: str, right_mode: int) -> list[Finding]:
    """Check owner, mode, file system and free space of the agent's folder."""
    about = f"[agent] {option}"
    kind = network_type(path)  # first, because a network file system may hang
    if kind is not None:
        return [wrong(about, f"{path} is on {kind}", "It must be on a disk of this node.")]
    try:
        status = os.lstat(path)
        room = os.statvfs(path)
    except FileNotFoundError:
        return [note(about, f"{path} isn't there: the agent makes it when it starts")]
    except OSError as error:
        return [wrong(about, f"{path}: {os_words(error)}")]
    if not stat.S_ISDIR(status.st_mode):
        return [wrong(about, f"{path} isn't a folder (nor may it be a link to one)")]
    mode = stat.S_IMODE(status.st_mode) & 0o777
    problems = []
    if status.st_uid not in (0, os.geteuid()):
        fix = f"`chown root {path}`, or run the agent, and this, as that user."
        problems.append(wrong(about, f"{path} belongs to uid {status.st_uid}", fix))
    if mode != right_mode:
        shared = mode & 0o022  # such as /tmp: its mode must stay
        fix = f"{about}: name a folder of its own." if shared else f"`chmod {right_mode:o} {path}`"
        words = f"{path} has mode {mode:04o}, and must have {right_mode:04o}"
        problems.append(wrong(about, words, fix))
    right = ok(about, f"{path}: owner and mode are right, and its disk is local")
    return [*(problems or [right]), _room(about, room)]


def _room(about: str, room: os.statvfs_result) -> Finding:
    free = room.f_bavail * room.f_frsize
    words = f"{words_of_bytes(free)} are free"
    fix = "Captures wait here while Loki is away; without room the jobs go on and their lines are lost."
    if free < _FREE_WRONG_BYTES:
        return wrong(about, words, fix)
    if room.f_files and room.f_favail < _FREE_WRONG_FILES:
        return wrong(about, f"{room.f_favail} files can be made, no more", fix)
    return note(about, words, fix) if free < _FREE_NOTE_BYTES else ok(about, words)


def _socket(path: str) -> list[Finding]:
    """Check that the agent answers at its socket. A request of an unknown version creates
    nothing."""
    about = "[agent] socket"
    if not path:
        words = "none: `logshipper run` in a job keeps its log in the user's own store"
        return [note(about, words)]
    fix = "Does the agent run? `logshipper run` uses the user's own store meanwhile."
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.settimeout(_ANSWER_SECS)
            peer.connect(path)
            peer.send(GREETING)
            answer = peer.recv(4096)
    except TimeoutError:
        return [wrong(about, f"{path}: no answer within {_ANSWER_SECS:g} s", fix)]
    except OSError as error:
        is_absent = error.errno in (errno.ENOENT, errno.ECONNREFUSED)
        return [Finding("note" if is_absent else "wrong", about, f"{path}: {os_words(error)}", fix)]
    if b'"error"' not in answer:
        words = f"{path}: something else than the agent answers: {excerpt(answer)}"
        fix = "Whose socket is it (`ss -xlp`)? [agent] socket names the agent's."
        return [wrong(about, words, fix)]
    return [ok(about, f"the agent answers at {path}")]


def _port(listen: str) -> list[Finding]:
    address = listen_address(listen)
    if address is None:
        return []
    about = "[metrics] listen"
    try:
        with socket.create_connection((address[0] or "127.0.0.1", address[1]), _ANSWER_SECS):
            return [ok(about, f"somebody listens at {listen}")]
    except OSError as error:
        return [note(about, f"{listen}: {os_words(error)}", "Does the agent run?")]

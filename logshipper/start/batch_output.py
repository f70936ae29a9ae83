"""Captures a batch script's output on clusters without a compiled plugin.
deploy/slurm/hooks/batch-output starts it beside the script's shell, and names its descriptors and
the job by WORD=VALUE.

The script's shell writes into pipes, from which this process relays to the job's own stdout and
stderr first and to a sidecar second, as `logshipper run` does. It is not the shell's parent, so it
sees the script's end but not its result, which the controller adds to the log. After `begun` on
stdout the script depends on this process, and on the sidecar after it. Before, its caller does
without it.
"""

import os
import select
import sys
import syslog
import time
from typing import NamedTuple, NoReturn

from logshipper import config, optin
from logshipper.background import detach, parse_words
from logshipper.errors import LogshipperError, SpoolError
from logshipper.relay.channel import Channel
from logshipper.relay.handover import SidecarLink, SidecarPlan
from logshipper.relay.output import JobOutput
from logshipper.relay.relay import Owner, Relay
from logshipper.sidecar.settings import Settings, leave_to_the_node_agent
from logshipper.sidecar.sidecar import Sidecar, run
from logshipper.spool.captures import CaptureDirectory
from logshipper.start import launchers, node_agent_socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from logshipper.spool.place import Place

COMM = "logship-batch"
COLUMNS, ROWS = 160, 50  # of the rendering; the script has pipes
UNKNOWN_END = "how the script ended isn't known here: TaskProlog's capture doesn't see it"
_TURN_SECS = 3600.0
_CARE_SECS = 0.1


class BatchArguments(NamedTuple):
    """The hook's arguments, by their words."""

    pid: int  # of the script's shell
    optin: int  # fd of ~/.logoptin, closed unless it is a file
    note: str  # a file that exists until all of the script's output is delivered and logged
    agent: str  # the node agent's socket
    from_stdout: int  # fd of the pipe that the script's shell writes to
    from_stderr: int  # likewise
    to_stdout: int  # fd of the job's own
    to_stderr: int  # likewise


class BatchSidecar(Sidecar):
    """A sidecar that knows only that the script has ended."""

    def _end(self, state: str, exit_code: int | None, signo: int, reason: str) -> None:
        super()._end(state, None, 0, reason or UNKNOWN_END)


class BatchOutput(Owner):
    """The relay process. pidfd: of the script's shell; -1 after its end."""

    def __init__(self, words: BatchArguments, settings: Settings, pidfd: int) -> None:
        self._words = words
        self._settings = settings
        self._pidfd = pidfd
        self._ended = pidfd < 0
        self._sidecar = SidecarLink(self._say)

    def begin(self) -> None:
        """Start the capture. Raises OSError for a missing resource, before anything has begun."""
        words, counters = self._words, self._settings.capture.counters
        plan = SidecarPlan(
            masters={1: words.from_stdout, 2: words.from_stderr},
            outs={1: words.to_stdout, 2: words.to_stderr},
            cmd_pid=words.pid,
            cmd_pidfd=self._pidfd,
            columns=COLUMNS,
            rows=ROWS,
            tty=False,
            counters=counters,
            relay_pid=os.getpid(),
            started_ns=time.time_ns(),
        )
        channels = [
            Channel(stream, plan.masters[stream], JobOutput(plan.outs[stream]), counters)
            for stream in (1, 2)
        ]
        self._sidecar.start(self._serve, plan)
        self._relay = Relay(channels, self._sidecar, self)
        if self._pidfd >= 0:
            self._relay.watch(self._pidfd, select.POLLIN, lambda _: self._note_end())
        self._sidecar.attach(self._relay)

    def _serve(self, plan: SidecarPlan) -> None:
        run(plan, BatchSidecar(plan, self._settings))

    def finish(self) -> None:
        """Relay until the script is over, its output delivered, and its log on the disk. The
        sidecar handles streams that others still hold."""
        while not (self._ended or self._relay.is_over()):
            self._turn(_TURN_SECS)
        self._relay.begin_drain()
        while not self._relay.is_drained():
            self._turn(_TURN_SECS)
        self._relay.stop()
        self._sidecar.exited(0)
        while self._sidecar.alive and not self._sidecar.is_flushed:
            self._turn(_CARE_SECS)
        self._sidecar.hang_up()
        while self._sidecar.may_finish():
            self._turn(_CARE_SECS)
        self._relay.release()

    def _turn(self, wait_secs: float) -> None:
        self._relay.turn(min(wait_secs, _CARE_SECS) if self._sidecar.needs_care else wait_secs)
        self._sidecar.check()
        if self._sidecar.pid and not self._sidecar.alive:
            pid, status = os.waitpid(self._sidecar.pid, os.WNOHANG)
            if pid:
                self._sidecar.reaped(status)

    def _note_end(self) -> None:
        self._ended = True
        self._relay.unwatch(self._pidfd)

    def _say(self, reason: str) -> None:
        _log(f"job {self._settings.capture.job_id}: {reason}")


def configure(number: int) -> tuple[config.Config, tuple[str, ...]]:
    """Read ~/.logoptin from the descriptor opened at the script's begin; with problems, logging
    starts disabled (fails closed)."""
    try:
        os.fstat(number)
        file = f"/proc/self/fd/{number}"  # works after its removal, too
    except OSError:
        file = optin.path()
    state, content = optin.read(file)
    if state == optin.PRESENT:
        return config.parse_opt_in(content)
    is_refused = state == optin.REFUSED
    problem = content.decode("utf-8", "replace") if is_refused else "can't be read any more"
    return config.Config(mode="disabled"), (problem,)


def open_capture(agent: str, place: "Place | None") -> CaptureDirectory:
    """A directory of the node's spool, by the agent. Raises SpoolError. The agent knows the job by
    this process' cgroup, or else takes the wish, with the user's number behind it."""
    name, job_id = os.environ.get("SLURM_JOB_NAME", "batch")[:256], os.environ.get("SLURM_JOB_ID")
    capture = node_agent_socket.ask(agent, name, job_id, place)
    if capture is None:
        raise SpoolError(agent, "no agent is there")
    return capture


def _log(text: str) -> None:
    syslog.openlog("logshipper", syslog.LOG_PID, syslog.LOG_USER)
    syslog.syslog(syslog.LOG_WARNING, text)


def _begin(words: BatchArguments) -> BatchOutput:
    """Raises LogshipperError, OSError."""
    try:
        pidfd = os.pidfd_open(words.pid)
    except ProcessLookupError:  # a short script: its output waits in the pipes
        pidfd = -1
    configuration, problems = configure(words.optin)
    place = launchers.find(os.environ)
    settings = Settings(
        configuration,
        problems,
        open_capture(words.agent, place),
        leave_to_the_node_agent,
        limit_secs=launchers.limit_secs(os.environ, place),
    )
    batch = BatchOutput(words, settings, pidfd)
    with open(words.note, "w", encoding="ascii") as note:
        note.write(f"{os.getpid()}\n")
    batch.begin()
    return batch


def main() -> NoReturn:
    # KeyError, ValueError for a missing or wrong word: hook and package have different versions then
    words = BatchArguments(**parse_words(sys.argv[1:], BatchArguments.__annotations__))
    keep = {words.from_stdout, words.from_stderr, words.to_stdout, words.to_stderr, words.optin}
    status_fd = os.dup(1)
    try:
        detach(COMM, keep | {status_fd})
        batch = _begin(words)
    except (LogshipperError, OSError) as error:
        os.write(status_fd, " ".join(str(error).split()).encode("utf-8", "replace"))
        os._exit(1)
    os.write(status_fd, b"begun\n")
    os.close(status_fd)
    try:
        batch.finish()
    finally:
        os.unlink(words.note)
        os._exit(0)

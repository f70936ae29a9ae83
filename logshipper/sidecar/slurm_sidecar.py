"""The sidecar of a Slurm task: `PYTHON -P -s -m logshipper.slurm_sidecar WORD=VALUE...`, started by
the C relay of deploy/slurm/spank, whose words name its descriptors (-1 for none) and the task.

The node's agent ships its spool. The relay offers its descriptors of the job's streams through a
socket each, and the sidecar takes them when the relay has gone. Until then the relay can take them
back, and nobody who waits for the end of the job's output waits for this process. The relay's
journal has its unfinished bytes.
"""

import array
import mmap
import os
import sys
import time
from typing import NamedTuple, NoReturn

from logshipper import config
from logshipper.background import JOB_END_NICE, keep_freed_memory, parse_words, yield_to_jobs
from logshipper.errors import SpoolError, os_words
from logshipper.relay.handover import SidecarPlan, be_sidecar
from logshipper.relay.relay import Relay
from logshipper.relay.take_over import CommandWatch, duplicate_channels
from logshipper.sidecar.settings import Settings, leave_to_the_node_agent
from logshipper.sidecar.sidecar import Sidecar
from logshipper.sidecar.slurm_journal import Journal, Remains, correct_counters
from logshipper.sidecar.slurm_modes import JobModes
from logshipper.spool.captures import COUNTERS, CaptureDirectory
from logshipper.spool.segment import Json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from logshipper.notify.watch import WatchedJob

CLOSING_SECS = 5.0  # how long a relay that has taken a stream back may need to be through with it


class SidecarArguments(NamedTuple):
    """The relay's arguments, by their words."""

    side_pipe: int  # fd
    report: int  # fd
    content: int  # fd: content of ~/.logoptin, or the reason of its refusal
    refused: int  # 1: ~/.logoptin is refused
    stdout: int  # fd of the socket in which the duplicates of the stream wait
    stderr: int  # likewise
    cmd_pid: int
    cmd_pidfd: int  # fd
    columns: int
    rows: int
    tty: int
    attempt: int
    relay_pid: int
    started_ns: int
    modes: int  # fd of the job's table of modes
    slot: int  # the capture's in the table
    awaited: int  # fd: captures of the table to wait for
    stall_secs: int
    journal: int  # fd
    stdout_stage: int  # fd of the relay's own pipe
    stderr_stage: int  # likewise
    task: int  # global rank
    limit_secs: int  # the job's time limit; 0 if unknown
    job_id: str
    name: str  # the job's
    folder: str

    def fds(self) -> set[int]:
        pipes = {self.side_pipe, self.report, self.content, self.stdout, self.stderr}
        others = {self.cmd_pidfd, self.modes, self.awaited, self.journal}
        return (pipes | others | {self.stdout_stage, self.stderr_stage}) - {-1}


class TaskSidecar(Sidecar):
    """A sidecar whose modes the job's other captures see. events: to write at its start.

    still_open: streams that may bring more.
    """

    def __init__(
        self, plan: SidecarPlan, settings: Settings, modes: JobModes, events: list[Json]
    ) -> None:
        self._modes = modes
        self._events = events
        super().__init__(plan, settings)

    def still_open(self) -> list[int]:
        return sorted(self._open)

    def start(self) -> None:
        super().start()
        for event in self._events:
            self._log.write_event(event)
        self._tell_modes()

    def close(self) -> None:
        self._modes.note_over()
        super().close()

    def _flush(self) -> None:
        super()._flush()
        self._tell_modes()

    def _tell_modes(self) -> None:
        self._modes.note(self._classifier.mode, *self.received.values())


def configure(words: SidecarArguments, content: bytes) -> tuple[config.Config, tuple[str, ...]]:
    """The configuration, and its problems: then logging starts disabled (fails closed)."""
    if words.refused:
        return config.Config(mode="disabled"), (content.decode("utf-8", "replace"),)
    return config.parse_opt_in(content)


def serve(words: SidecarArguments) -> None:
    """Run until the capture is over. Raises SpoolError for an unwritable spool."""
    try:
        # the start is nicer, which keeps many starts at once from blocking others
        os.setpriority(os.PRIO_PROCESS, 0, JOB_END_NICE)
    except OSError:
        pass  # no right to do so, without root's help
    yield_to_jobs(JOB_END_NICE)
    keep_freed_memory()
    with open(words.content, "rb") as file:
        configuration, problems = configure(words, file.read())
    modes = JobModes(words.modes, words.slot, words.awaited)
    events = []
    if not problems and configuration.tty != bool(words.tty):
        events.append(_tty_differs(configuration))
    start, reason = configuration.mode, ""
    if configuration.commands:  # else nothing that the job prints changes a mode
        start, reason = modes.start_mode(configuration.mode, words.side_pipe, words.stall_secs)
    if reason:
        text = f"starts as {start}: {reason}"
        events.append(
            {"event": "mode_inherited", "message": text, "from": configuration.mode, "to": start}
        )
    capture = _open_capture(words)
    # of several ranks the first one sends, and of a job with captures of its own for each rank the
    # batch script, which is the job's first capture
    is_sender = words.task == 0 and not (configuration.per_task and words.slot)
    settings = Settings(
        configuration._replace(mode=start),
        problems,
        capture,
        leave_to_the_node_agent,
        watched=_watched(words) if configuration.notify and is_sender else None,
    )
    plan = SidecarPlan(
        masters={},
        outs={},
        cmd_pid=words.cmd_pid,
        cmd_pidfd=words.cmd_pidfd,
        columns=words.columns,
        rows=words.rows,
        tty=bool(words.tty),
        counters=settings.capture.counters,
        relay_pid=words.relay_pid,
        started_ns=words.started_ns,
        side_pipe=words.side_pipe,
        report=words.report,
    )
    sidecar = TaskSidecar(plan, settings, modes, events)
    sidecar.start()
    if not sidecar.follow_relay():
        _relay_on(plan, sidecar, words)
        sidecar.relay_died()
    sidecar.close()


def _relay_on(plan: SidecarPlan, sidecar: TaskSidecar, words: SidecarArguments) -> None:
    """Relay in place of a dead relay, or for streams that it left, until nobody holds them and CMD
    is dead."""
    journal = Journal(words.journal)
    _take_stream(plan, 1, words.stdout)
    _take_stream(plan, 2, words.stderr)
    _await_relay(
        journal,
        [stream for stream in sidecar.still_open() if stream not in plan.masters],
        words.relay_pid,
    )
    stages = {1: words.stdout_stage, 2: words.stderr_stage}
    remains = {
        stream: Remains(journal, stream, stages[stream], plan.outs.get(stream, -1))
        for stream in sidecar.still_open()
    }
    for stream, stream_remains in remains.items():
        if plan.counters is not None:
            correct_counters(plan.counters, stream, stream_remains)
    channels = duplicate_channels(plan, remains)
    command = CommandWatch(plan.cmd_pidfd, plan.cmd_pid)
    relay = Relay(channels, sidecar, command)
    for channel in channels:
        if remains[channel.stream].line_is_open:
            channel.stands_open(time.monotonic())
    for channel in sorted(channels, key=lambda channel: not remains[channel.stream].line_is_open):
        if remains[channel.stream].owed:
            relay.inject(channel, remains[channel.stream].owed)
    for stream, stream_remains in remains.items():
        if unreceived := stream_remains.after(sidecar.received[stream]):
            sidecar.data(stream, unreceived, 0)
        if stream not in plan.masters:
            sidecar.closed(stream)
    command.relay_to_end(relay)


def _await_relay(journal: Journal, streams: list[int], relay_pid: int) -> None:
    """Wait until a living relay has closed the streams that it takes back: it is about to."""
    deadline = time.monotonic() + CLOSING_SECS
    while any(not journal.entry(stream).closed for stream in streams):
        if os.getppid() != relay_pid or time.monotonic() >= deadline:
            return
        time.sleep(0.01)


def _tty_differs(configuration: config.Config) -> Json:
    configured, actual = ("a terminal", "pipes") if configuration.tty else ("pipes", "a terminal")
    text = f"~/.logoptin asks for {configured}, but the task has {actual}: write `tty: false` in a line of its own"
    return {"event": "config_differs", "message": text, "key": "tty"}


def _open_capture(words: SidecarArguments) -> CaptureDirectory:
    path = os.path.join(words.folder, "segments", "counters")
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            counters = mmap.mmap(fd, 0)  # all of it: another release's may have another length
        finally:
            os.close(fd)
    except (OSError, ValueError) as error:  # ValueError: it is empty
        raise SpoolError(path, os_words(error)) from None
    if len(counters) < COUNTERS.size:
        raise SpoolError(path, f"has {len(counters)} bytes only")
    return CaptureDirectory(words.folder, words.job_id, words.attempt, "", counters)


def _watched(words: SidecarArguments) -> "WatchedJob":
    from logshipper.notify.watch import WatchedJob

    started_at = words.started_ns / 1e9
    return WatchedJob(
        words.job_id,
        words.name,
        os.uname().nodename,
        started_at,
        in_user_spool=False,
        ends_at=started_at + words.limit_secs if words.limit_secs else 0.0,
        slurm_id=words.job_id,
    )


def _take_stream(plan: SidecarPlan, stream: int, number: int) -> None:
    """Take master and output of a stream if they still wait; otherwise the relay has taken them
    back."""
    # not `socket`, which is slow to import
    from _socket import CMSG_SPACE, MSG_DONTWAIT, SCM_RIGHTS, socket

    if number < 0:
        return
    fds = array.array("i")
    offered = socket(fileno=number)
    try:
        _, control, _, _ = offered.recvmsg(1, CMSG_SPACE(2 * fds.itemsize), MSG_DONTWAIT)
    except OSError:
        control = []
    finally:
        offered.close()
    for _, kind, data in control:
        if kind == SCM_RIGHTS:
            fds.frombytes(data)
    if len(fds) == 2:
        plan.masters[stream], plan.outs[stream] = fds


def main() -> NoReturn:
    # KeyError, ValueError for a missing or wrong word: relay and package have different builds then
    words = SidecarArguments(**parse_words(sys.argv[1:], SidecarArguments.__annotations__))

    be_sidecar(words.fds, words.report, lambda: serve(words))

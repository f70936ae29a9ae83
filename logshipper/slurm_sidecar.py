"""The sidecar of a Slurm task: `PYTHON -P -s -m logshipper.slurm_sidecar WORD=VALUE...`, started by the C relay of
deploy/slurm/spank, which tells by these words what it holds (numbers of fds, -1 for none) and whose the task is.

The node's agent ships what is spooled here. What the relay holds of the job's streams is offered through a socket
each and taken last, when all imports are done: until then the relay can take it back, and nobody has to wait for
Python's start to see the end of a short task.
"""

import array
import mmap
import os
import sys
from typing import Any, NamedTuple, NoReturn

from logshipper import config, relay
from logshipper.background import detach
from logshipper.capture import Settings
from logshipper.commands import narrowest
from logshipper.errors import ConfigError, SpoolError
from logshipper.handover import COMM, SidecarPlan, report_failure
from logshipper.segment import Json
from logshipper.sidecar import Sidecar
from logshipper.spool import COUNTERS_BYTES, Capture

MAX_MODES_BYTES = 64 << 10  # of the job's modes; who changes them so often is answered by the narrowest
_STREAMS = {1: "stdout", 2: "stderr"}


class Words(NamedTuple):
    """What the relay says. side_pipe, report, content (what ~/.logoptin held, or why it is refused), stdout, stderr
    (sockets in which the duplicates of a stream wait), cmd_pidfd, mode (the job's modes): fds."""

    side_pipe: int
    report: int
    content: int
    refused: int
    stdout: int
    stderr: int
    cmd_pid: int
    cmd_pidfd: int
    columns: int
    rows: int
    tty: int
    attempt: int
    relay_pid: int
    started_ns: int
    mode: int
    job_id: str
    folder: str

    def fds(self) -> set[int]:
        own = {self.side_pipe, self.report, self.content, self.stdout, self.stderr, self.cmd_pidfd, self.mode}
        return own - {-1}


class JobModes:
    """The modes of a job's captures on this node, in a file that its sidecars share: a line `CAPTURE MODE` at each
    change. fd: -1 where there is no such file; then nothing is known, and nothing is told."""

    def __init__(self, fd: int, name: str) -> None:
        self._fd = fd
        self._name = name
        self._mode = ""

    def narrowest(self, mode: str) -> str:
        """The narrowest of mode and those that the job's captures have, or had at their end."""
        if self._fd < 0:
            return mode
        text = os.pread(self._fd, MAX_MODES_BYTES + 1, 0)
        if len(text) > MAX_MODES_BYTES:
            return "disabled"
        for word in dict(line.split(b" ") for line in text.splitlines() if line.count(b" ") == 1).values():
            found = word.decode("utf-8", "replace")
            mode = narrowest(mode, found if found in config.MODES else "disabled")
        return mode

    def note(self, mode: str) -> None:
        """The capture's mode from here on."""
        if mode == self._mode or self._fd < 0:
            return
        self._mode = mode
        try:
            if os.fstat(self._fd).st_size <= MAX_MODES_BYTES:
                os.write(self._fd, f"{self._name} {mode}\n".encode())
        except OSError:
            pass  # a full disk: the log itself has trouble enough


class TaskSidecar(Sidecar):
    """As any, and the job's other captures hear of its modes. events: to be told at its start."""

    def __init__(self, plan: SidecarPlan, settings: Settings, modes: JobModes, events: list[Json]) -> None:
        self._modes = modes
        self._events = events
        super().__init__(plan, settings)

    def start(self) -> None:
        super().start()
        for event in self._events:
            self._write_event(event)
        self._modes.note(self._classifier.mode)

    def _flush(self) -> None:
        super()._flush()
        self._modes.note(self._classifier.mode)


def parse(argv: list[str]) -> Words:
    """Raises KeyError, ValueError where a word is missing or wrong: then relay and package aren't from one build."""
    told = dict(word.split("=", 1) for word in argv)
    values: dict[str, Any] = {  # Any: int or str, as the field has it
        name: told[name] if kind is str else int(told[name]) for name, kind in Words.__annotations__.items()
    }
    return Words(**values)


def configure(words: Words, content: bytes) -> tuple[config.Config, tuple[str, ...]]:
    """The configuration, and its problems: then logging starts disabled (fails closed)."""
    if words.refused:
        return config.Config(mode="disabled"), (content.decode("utf-8", "replace"),)
    try:
        return config.parse(content, "~/.logoptin"), ()
    except ConfigError as error:
        return config.Config(mode="disabled"), error.problems


def serve(words: Words) -> None:
    """Runs until the capture is over. Raises SpoolError where the spool can't be written at all."""
    with open(words.content, "rb") as file:
        chosen, problems = configure(words, file.read())
    modes = JobModes(words.mode, os.path.basename(words.folder))
    events = []
    if not problems and chosen.tty != bool(words.tty):
        events.append(_tty_differs(chosen))
    start = modes.narrowest(chosen.mode)
    if start != chosen.mode:
        text = f"starts as {start}: other output of this job on this node is logged no wider"
        events.append({"event": "mode_inherited", "message": text, "from": chosen.mode, "to": start})
    settings = Settings(chosen._replace(mode=start), problems, _open_capture(words), _leave_to_the_node_agent)
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
    for stream, name in _STREAMS.items():
        _take_stream(plan, stream, getattr(words, name))
    if not sidecar.follow_relay():
        relay.take_over(plan, sidecar)
        sidecar.relay_died()
    sidecar.close()


def _tty_differs(chosen: config.Config) -> Json:
    wanted, has = ("a terminal", "pipes") if chosen.tty else ("pipes", "a terminal")
    text = f"~/.logoptin asks for {wanted}, but the task has {has}: write `tty: false` in a line of its own"
    return {"event": "config_differs", "message": text, "key": "tty"}


def _open_capture(words: Words) -> Capture:
    path = os.path.join(words.folder, "segments", "counters")
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            counters = mmap.mmap(fd, COUNTERS_BYTES)
        finally:
            os.close(fd)
    except (OSError, ValueError) as error:  # ValueError: it is shorter
        raise SpoolError(path, str(getattr(error, "strerror", None) or error).lower()) from None
    return Capture(words.folder, words.job_id, words.attempt, "", counters)


def _leave_to_the_node_agent() -> None:
    """It watches its spool by itself."""


def _take_stream(plan: SidecarPlan, stream: int, number: int) -> None:
    """Master and output of a stream, where they still wait: else it is over, and the relay has taken them back."""
    from _socket import CMSG_SPACE, MSG_DONTWAIT, SCM_RIGHTS, socket  # not `socket`, which is slow to import

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


def _run_as_usual() -> None:
    """Started nice, so that many at once keep nobody from running; serving is worth as much as the job itself."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    except OSError:
        pass  # no such right: without root's help


def main() -> NoReturn:
    words = parse(sys.argv[1:])
    status = 1
    try:
        detach(COMM, words.fds())
        _run_as_usual()
        serve(words)
        status = 0
    except BaseException as error:  # whatever it is: there is nobody above who could know
        report_failure(words.report, error)
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()

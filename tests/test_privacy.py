"""Nothing printed before an enabling command, or after a narrowing one, is ever logged (R10, R11, R16, R17).

A job is a list of writes to two streams; a model of the relay reads them in any order that pipes allow, in any split,
and tells truthfully what it saw empty. Every write carries a character of its own, so that a single one of them in any
output, of any kind, proves a leak. What is forbidden is computed from the order of the writes alone.
"""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.classifier import Classifier
from logshipper.segment import Stream
from logshipper.stream_log import Lines
from tests.model_settings import examples

_COMMAND = '/LOGCOMMAND {"mode":"%s"}\n'
# what a program does with text on a terminal: lines, half lines, bars, repeats, cursor moves, erasing, JSON
_SHAPES = (
    "%s\n",
    "%s",
    "\r%s",
    "\r%s\n",
    "%s\n%s\n%s\n",
    "%s\n\x1b[A",
    "\x1b[2A%s\n\n",
    '{"k": "%s"}\n',
    '{"k": "%s"}',
    "%s\n\n\n",
    "\x1b[2J%s",
    "\x1b[31m%s\x1b[0m\n",
    "\x1b[?1049h%s",
    "%s\x1b[?1049l\n",
    "\x1b[?25l%s\n",
    "%s\x1b[",
    "%s\b\b\t\x1b[K",
    "\x1b]0;%s",
    "/LOGCOMMAND %s\n",
    "/LOGCOMMAND {'mode': '%s'}\n",
)


@dataclass
class _Write:
    stream: Stream
    data: bytes
    mark: str = ""  # the character that must not leak
    mode: str = ""  # in force, by order of the writes, when it was written
    narrowed_by: int = -1  # index of the write that narrowed to that mode, -1: it was so from the start
    own: bool = True  # ... and it stands on the same stream


@dataclass
class _Job:
    start: str
    writes: list[_Write] = field(default_factory=list)


@st.composite
def _jobs(draw: st.DrawFn) -> _Job:
    """Commands stand on one stream (a race between commands on two has no promised order); text on both."""
    job = _Job(draw(st.sampled_from(["enabled", "metadata", "disabled"])))
    commander = draw(st.sampled_from([Stream.STDOUT, Stream.STDERR]))
    mode, narrowed_by = job.start, -1
    at_line_start = True  # of the commanding stream: a command stands at the start of a line
    for index in range(draw(st.integers(1, 14))):
        if draw(st.integers(0, 3)) == 0:
            mode = draw(st.sampled_from(["enabled", "metadata", "disabled"]))
            before = b"" if at_line_start else b"\x1b[?1049l\x18\n"
            job.writes.append(_Write(commander, before + (_COMMAND % mode).encode()))
            narrowed_by = index
            at_line_start = True
            continue
        stream = draw(st.sampled_from([Stream.STDOUT, Stream.STDERR]))
        mark = chr(0x100 + index * 2) if draw(st.booleans()) else chr(0x4E00 + index)
        shape = draw(st.sampled_from(_SHAPES))
        text = mark * draw(st.integers(1, 5))
        data = shape.replace("%s", text).encode()
        job.writes.append(_Write(stream, data, mark, mode, narrowed_by, narrowed_by < 0 or stream is commander))
        if stream is commander:
            at_line_start = False
    return job


def _is_allowed(write: _Write) -> bool:
    """By the mode alone; whether an ordinary line was metadata is for other tests: here JSON counts as allowed."""
    if write.mode == "enabled":
        return True
    return write.mode == "metadata" and write.stream is Stream.STDOUT and write.data.startswith(b'{"k"')


@given(_jobs(), st.data())
@settings(max_examples=examples(150), deadline=None)
def test_nothing_leaks(job: _Job, data: st.DataObject) -> None:
    made = Classifier(job.start)
    pipes: dict[Stream, list[tuple[int, bytes]]] = {Stream.STDOUT: [], Stream.STDERR: []}
    read_until: dict[int, int] = {}  # write -> the step in which its last byte was read
    began: dict[int, int] = {}
    written = 0
    step = 0
    while written < len(job.writes) or any(pipes.values()):
        step += 1
        readable = [stream for stream, waiting in pipes.items() if waiting]
        if written < len(job.writes) and (not readable or data.draw(st.booleans())):
            pipes[job.writes[written].stream].append((written, job.writes[written].data))
            written += 1
            continue
        stream = data.draw(st.sampled_from(readable))
        for other, waiting in pipes.items():
            if other is not stream and not waiting:
                made.seen_empty(other, float(step))
        index, waiting_bytes = pipes[stream].pop(0)
        size = data.draw(st.integers(1, len(waiting_bytes)))
        began.setdefault(index, step)
        made.feed(stream, waiting_bytes[:size], float(step))
        if size < len(waiting_bytes):
            pipes[stream].insert(0, (index, waiting_bytes[size:]))
        else:
            read_until[index] = step
        if not any(pipes.values()) and data.draw(st.booleans()):
            made.seen_empty(Stream.STDOUT, float(step))
            made.seen_empty(Stream.STDERR, float(step))
        made.tick(step * data.draw(st.sampled_from([0.01, 30.0])))
    made.end(Stream.STDOUT, 1e9)
    made.end(Stream.STDERR, 1e9)
    _check(job, began, read_until, "".join(_texts(made)))


def _texts(made: Classifier) -> list[str]:
    """All that is written, of every kind of record."""
    return [item.text.decode() if isinstance(item, Lines) else str(item.record) for item in made.take()]


def _check(job: _Job, began: dict[int, int], read_until: dict[int, int], logged: str) -> None:
    for index, write in enumerate(job.writes):
        if not write.mark or _is_allowed(write):
            continue
        # between streams a narrowing command protects what is read after it; on its own stream, and from the start on,
        # everything
        if write.own or read_until[write.narrowed_by] < began[index]:
            assert write.mark not in logged, f"write {index} leaked: {write}"


@given(st.lists(st.sampled_from(_SHAPES), max_size=6), st.sampled_from(["disabled", "metadata"]))
@settings(max_examples=examples(100), deadline=None)
def test_what_comes_after_enabling_is_as_on_a_fresh_screen(shapes: list[str], start: str) -> None:
    """R11: the screen, repeats and half lines start afresh."""
    made, fresh = Classifier(start), Classifier("enabled")
    for shape in shapes:
        made.feed(Stream.STDOUT, shape.replace("%s", "secret").encode(), 1.0)
    made.feed(Stream.STDERR, (_COMMAND % "enabled").encode(), 2.0)
    made.seen_empty(Stream.STDOUT, 2.0)
    made.take()
    for one in (made, fresh):
        one.feed(Stream.STDOUT, b"\x1b[Aa\nb\rc\n\x1b[2Ad\n", 3.0)
        one.end(Stream.STDOUT, 4.0)
    assert _texts(made) == _texts(fresh)

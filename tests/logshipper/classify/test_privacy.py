"""Text printed before an enabling command, or after a narrowing one, is never logged (R10, R11,
R16, R17).

A job is a list of writes to two streams. A model of the relay reads them in any order that pipes
allow, in any split, and reports truthfully which streams it saw empty. Every write has a character
of its own, so a single one of them in any output proves a leak. The order of the writes alone
determines the forbidden characters.
"""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.classify.classifier import Classifier
from logshipper.classify.commands import narrowest
from logshipper.classify.logged import LoggedLines
from logshipper.spool.segment import Stream
from tests.tools.stress.model_settings import examples

_COMMAND = '/LOGCOMMAND {"mode":"%s"}\n'
# text of programs on a terminal: lines, half lines, bars, repeats, cursor moves, erasing, JSON
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
    # other records than JSON: mode `metadata` logs only the key of the first one
    "{'%s': 5}\n",
    "{'n': 5, 'k': '%s'}\n",
    "Epoch 5/5 - n: 5 %s\n",
    "n=5%s\n",
    # a secret that looks like a line of a series
    "secret %s 1.5: loss=0.25\n",
)
_KINDS = ("json", "dict", "pairs", "auto")


# commands that can only narrow, in every interpretation
_ODD_COMMANDS = (
    'Loading.../LOGCOMMAND {"mode":"%s"}\n',
    "Loading.../LOGCOMMAND {'mode': '%s'}\n",
    ' /LOGCOMMAND {"mode":"%s"}\n',
    '/logcommand {"mode":"%s"}\n',
    '/LOGCOMMAND\t{"mode":"%s"}\n',
    '/LOGCOMMAND  {"mode":"%s"}  \r\n',
    "/LOGCOMMAND {'mode': '%s'}\n",
)


@dataclass
class _Write:
    """A write of `data` to a stream. mark: the character that must not leak. mode: of a command.
    is_odd: the command can only narrow."""

    stream: Stream
    data: bytes
    mark: str = ""
    mode: str = ""
    is_odd: bool = False


@dataclass
class _Job:
    start: str
    writes: list[_Write] = field(default_factory=list)


@st.composite
def _jobs(draw: st.DrawFn, shapes: tuple[str, ...] = _SHAPES) -> _Job:
    """Commands and text on both streams, in any order. shapes: of the text."""
    job = _Job(draw(st.sampled_from(["enabled", "metadata", "disabled"])))
    at_line_start = dict.fromkeys((Stream.STDOUT, Stream.STDERR), True)  # where a command can be
    for index in range(draw(st.integers(1, 14))):
        stream = draw(st.sampled_from([Stream.STDOUT, Stream.STDERR]))
        if draw(st.integers(0, 2)) < (1 if shapes is _SHAPES else 2):
            mode = draw(st.sampled_from(["enabled", "metadata", "disabled"]))
            is_odd = draw(st.integers(0, 2)) == 0
            form = draw(st.sampled_from(_ODD_COMMANDS)) if is_odd else _COMMAND
            before = b"" if at_line_start[stream] else b"\x1b[?1049l\x18\n"
            job.writes.append(
                _Write(stream, before + (form % mode).encode(), mode=mode, is_odd=is_odd)
            )
            at_line_start[stream] = True
            continue
        mark = chr(0x100 + index * 2) if draw(st.booleans()) else chr(0x4E00 + index)
        shape = draw(st.sampled_from(shapes))
        text = mark * draw(st.integers(1, 5))
        job.writes.append(_Write(stream, shape.replace("%s", text).encode(), mark))
        at_line_start[stream] = shape == "%s\n"
    return job


def _is_allowed(write: _Write, mode: str) -> bool:
    """Return whether the mode allows the write. JSON counts as allowed; other tests check if an
    ordinary line was metadata."""
    if mode == "enabled":
        return True
    records = (b'{"k"', f"{{'{write.mark}".encode())
    return mode == "metadata" and write.stream is Stream.STDOUT and write.data.startswith(records)


@given(_jobs(), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_nothing_leaks(job: _Job, data: st.DataObject) -> None:
    _read(job, data, small_pieces=True)


@given(_jobs(("%s\n",)), st.data())
@settings(max_examples=examples(150), deadline=None)
def test_nothing_leaks_between_the_streams(job: _Job, data: st.DataObject) -> None:
    """Plain lines leave more of the tries for the order of commands."""
    _read(job, data, small_pieces=data.draw(st.booleans()))


def _read(job: _Job, data: st.DataObject, *, small_pieces: bool) -> None:
    classifier = Classifier(
        job.start, metadata=_KINDS, first_secs=data.draw(st.sampled_from([0.0, 3.0, 1e9]))
    )
    pipes: dict[Stream, list[tuple[int, bytes]]] = {Stream.STDOUT: [], Stream.STDERR: []}
    read_until: dict[int, int] = {}  # write -> the step in which its last byte was read
    began: dict[int, int] = {}
    write_count = 0
    step = 0
    while write_count < len(job.writes) or any(pipes.values()):
        step += 1
        readable = [stream for stream, queue in pipes.items() if queue]
        if write_count < len(job.writes) and (not readable or data.draw(st.booleans())):
            pipes[job.writes[write_count].stream].append(
                (write_count, job.writes[write_count].data)
            )
            write_count += 1
            continue
        stream = data.draw(st.sampled_from(readable))
        for other_stream, queue in pipes.items():
            if other_stream is not stream and not queue:
                classifier.seen_empty(other_stream, float(step))
        index, waiting_bytes = pipes[stream].pop(0)
        size = data.draw(st.integers(1, len(waiting_bytes))) if small_pieces else len(waiting_bytes)
        began.setdefault(index, step)
        classifier.feed(stream, waiting_bytes[:size], float(step))
        if size < len(waiting_bytes):
            pipes[stream].insert(0, (index, waiting_bytes[size:]))
        else:
            read_until[index] = step
        if not any(pipes.values()) and data.draw(st.booleans()):
            classifier.seen_empty(Stream.STDOUT, float(step))
            classifier.seen_empty(Stream.STDERR, float(step))
        classifier.tick(step * data.draw(st.sampled_from([0.01, 30.0])))
    classifier.end(Stream.STDOUT, 1e9)
    classifier.end(Stream.STDERR, 1e9)
    _check(job, began, read_until, "".join(_texts(classifier)))


def _texts(classifier: Classifier) -> list[str]:
    """Return the texts of all kinds of entries."""
    return [
        item.text.decode() if isinstance(item, LoggedLines) else str(item.record)
        for item in classifier.take()
    ]


def _check(job: _Job, began: dict[int, int], read_until: dict[int, int], logged: str) -> None:
    """Assert that each write obeys the earlier commands of its own stream, and those of the other
    one that had already been read."""
    for index, write in enumerate(job.writes):
        mode = job.start
        for number, command in enumerate(job.writes[:index]):
            if command.mode and (
                command.stream is write.stream or read_until[number] < began[index]
            ):
                mode = narrowest(mode, command.mode) if command.is_odd else command.mode
        if write.mark and not _is_allowed(write, mode):
            assert write.mark not in logged, f"write {index} leaked: {write}"


@given(st.lists(st.sampled_from(_SHAPES), max_size=6), st.sampled_from(["disabled", "metadata"]))
@settings(max_examples=examples(50), deadline=None)
def test_what_comes_after_enabling_is_as_on_a_fresh_screen(shapes: list[str], start: str) -> None:
    """R11: the screen, repeats and half lines start afresh."""
    late = Classifier(start, metadata=_KINDS, first_secs=9.0)
    fresh = Classifier("enabled", metadata=_KINDS, first_secs=9.0)
    for shape in shapes:
        late.feed(Stream.STDOUT, shape.replace("%s", "secret").encode(), 1.0)
    late.feed(Stream.STDERR, (_COMMAND % "enabled").encode(), 2.0)
    late.seen_empty(Stream.STDOUT, 2.0)
    late.take()
    for classifier in (late, fresh):
        classifier.feed(Stream.STDOUT, b"\x1b[Aa\nb\rc\n\x1b[2Ad\n", 3.0)
        classifier.end(Stream.STDOUT, 4.0)
    assert _texts(late) == _texts(fresh)

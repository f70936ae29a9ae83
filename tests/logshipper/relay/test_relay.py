"""The relay by itself: channels between pipes and ptys, in one process, and truthful claims of
empty streams (R16)."""

import contextlib
import errno
import fcntl
import mmap
import os
import random
import socket
import struct
import subprocess
import sys
import time
import tty
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.process import terminal
from logshipper.relay import channel as channel_module
from logshipper.relay import relay as relay_module
from logshipper.relay.channel import (
    BEAT_SECS,
    CLOSE_SECS,
    FULL_BYTES,
    FULL_SECS,
    HELD_BYTES,
    HOLD_SECS,
    MOST_SECS,
    PIECES_SECS,
    POLL_SECS,
    PTY_READ_BYTES,
    SMALL_GATHER_SECS,
    SMALL_READS,
    Channel,
    pair,
)
from logshipper.relay.handover import BUFFER_BYTES, FRAME_BYTES, MUCH_BYTES, SidecarLink
from logshipper.relay.output import JobOutput
from logshipper.relay.relay import GATHER_BYTES, TURN_BYTES, Owner, Relay, RelaySink
from logshipper.relay.side_pipe import HEADER, SideType
from tests.tools.captures import gather_cases
from tests.tools.captures.gather_cases import CASES as GATHER_CASES
from tests.tools.captures.line_cases import CASES, Case
from tests.tools.captures.relay_tools import wait_for
from tests.tools.sources import ROOT
from tests.tools.stress.model_settings import examples
from tests.tools.waiting import scaled

OUT, ERR = 1, 2  # streams, also used as flags


class RecordingSink(RelaySink):
    """A sink that records its calls."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []  # Any: the first element determines the others

    def data(self, stream: int, data: bytes, flags: int) -> None:
        self.events.append(("data", stream, data, flags))

    def empty(self, flags: int) -> None:
        self.events.append(("empty", flags))

    def closed(self, stream: int) -> None:
        self.events.append(("closed", stream))

    def of(self, stream: int) -> bytes:
        return b"".join(event[2] for event in self.events if event[:2] == ("data", stream))


class RecordingOwner(Owner):
    def __init__(self) -> None:
        self.notes: list[tuple[str, int, int]] = []

    def output_gone(self, channel: Channel) -> None:
        os.fstat(channel.master)  # still open: CMD gets its signal first
        self.notes.append(("gone", channel.stream, channel.gone_errno))

    def output_failed(self, channel: Channel) -> None:
        self.notes.append(("failed", channel.stream, channel.out.fault))


class Bench:
    """Two streams through a relay. writers: CMD's ends; readers: of the outputs."""

    def __init__(
        self, *, ptys: bool = False, one_file: bool = False, into: Path | None = None
    ) -> None:
        """into: a folder, for files instead of pipes."""
        pairs = [terminal.open_pty((160, 50), None) if ptys else os.pipe() for _ in range(2)]
        self.writers = {stream: slave for stream, (_, slave) in zip((OUT, ERR), pairs, strict=True)}
        read, write = _file_ends(into / "out") if into else os.pipe()
        self.readers = {OUT: read, ERR: read}
        outs = [write, os.dup(write)]
        if not one_file:
            os.close(outs[1])
            self.readers[ERR], outs[1] = _file_ends(into / "err") if into else os.pipe()
        descriptions = [terminal.own_description(fd) for fd in outs]
        for fd in outs:
            os.close(fd)
        for fd in self.readers.values():
            os.set_blocking(fd, False)
        self.sink, self.owner = RecordingSink(), RecordingOwner()
        self.channels = [
            Channel(stream, master, JobOutput(out))
            for stream, (master, _), out in zip((OUT, ERR), pairs, descriptions, strict=True)
        ]
        self.relay = Relay(self.channels, self.sink, self.owner)

    def write(self, stream: int, data: bytes) -> None:
        os.write(self.writers[stream], data)

    def close_writer(self, stream: int) -> None:
        os.close(self.writers.pop(stream))

    def read(self, stream: int = OUT) -> bytes:
        data = b""
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self.readers[stream], 1 << 20):
                data += more
        return data

    def turns(self, count: int = 1) -> list[tuple[Any, ...]]:
        """Run some turns, and return the sink's calls in them."""
        before = len(self.sink.events)
        for _ in range(count):
            self.relay.turn(0)
        return self.sink.events[before:]

    def close(self) -> None:
        self.relay.stop()
        self.relay.release()
        for fd in {*self.writers.values(), *self.readers.values()}:
            os.close(fd)


def _file_ends(path: Path) -> tuple[int, int]:
    return os.open(path, os.O_RDONLY | os.O_CREAT, 0o600), os.open(path, os.O_WRONLY)


@pytest.fixture
def bench() -> Iterator[Bench]:
    with contextlib.closing(Bench()) as bench:
        yield bench


@pytest.fixture
def one_file() -> Iterator[Bench]:
    with contextlib.closing(Bench(one_file=True)) as bench:
        yield bench


# ---- claims of empty streams


def test_empty_once_after_data(bench: Bench) -> None:
    bench.turns(3)
    assert bench.turns(3) == []  # nothing new to report
    bench.write(OUT, b"one\n")
    assert bench.turns(5) == [("data", OUT, b"one\n", ERR), ("empty", OUT | ERR)]


def test_other_stream_with_data_is_not_called_empty(bench: Bench) -> None:
    bench.turns(3)
    bench.write(OUT, b"one\n")
    bench.write(ERR, b"two\n")
    events = bench.turns(3)
    # the first data may be newer than the other stream's content at that time
    first, second = ("data", OUT, b"one\n", OUT), ("data", ERR, b"two\n", 0)
    assert events == [first, second, ("empty", OUT | ERR)]


def test_order_of_arrival_is_kept(bench: Bench) -> None:
    bench.turns(3)
    bench.write(ERR, b"first\n")
    bench.write(OUT, b"second\n")
    assert [event[1] for event in bench.turns(1)] == [ERR, OUT]
    bench.write(OUT, b"first\n")
    bench.write(ERR, b"second\n")
    assert [event[1] for event in bench.turns(1)] == [OUT, ERR]


def test_what_comes_while_a_stream_is_read_tells_no_order(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.turns(3)
    bench.write(OUT, b"one\n")
    more = [b"two\n"]
    readv = os.readv

    def writing_readv(fd: int, buffers: list[memoryview]) -> int:
        if more:
            bench.write(OUT, more.pop())
        return readv(fd, buffers)

    monkeypatch.setattr(os, "readv", writing_readv)
    assert bench.turns(1) == [("data", OUT, b"one\ntwo\n", ERR)]
    bench.write(ERR, b"first\n")
    bench.write(OUT, b"second\n")
    assert [event[1] for event in bench.turns(1)] == [ERR, OUT]


def test_what_came_before_the_other_stream_was_read_comes_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.turns(3)
    bench.write(OUT, b"one\n")
    data = bench.sink.data

    def writing_data(stream: int, text: bytes, flags: int) -> None:
        data(stream, text, flags)
        if text == b"one\n":
            bench.write(ERR, b"first\n")

    monkeypatch.setattr(bench.sink, "data", writing_data)
    bench.turns(1)
    bench.write(OUT, b"second\n")
    assert [event[1] for event in bench.turns(1)] == [ERR, OUT]


def test_stream_that_is_not_read_is_not_called_empty(bench: Bench) -> None:
    """Backpressure: one stream's output is full, so the relay doesn't poll that stream and knows
    nothing about it."""
    with contextlib.suppress(BlockingIOError):
        while not bench.channels[0].blocked:
            bench.write(OUT, b"x" * 4096)
            bench.turns(2)
    bench.turns(3)
    bench.write(OUT, b"unread\n")
    bench.write(ERR, b"news\n")
    events = bench.turns(3)
    assert events == [("data", ERR, b"news\n", 0), ("empty", ERR)]
    bench.read(OUT)
    events = bench.turns(5)
    assert events[0] == ("data", OUT, b"unread\n", ERR)
    assert events[-1] == ("empty", OUT | ERR)


def test_stream_that_is_read_again_is_not_called_empty(
    one_file: Bench, clock: "Clock", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream holds back so much that the relay stops polling it. The held bytes go out once the
    other stream is silent, and only then polling resumes."""
    for module in (relay_module, channel_module):
        monkeypatch.setattr(module, "HELD_BYTES", 8)
    one_file.write(ERR, b"half")
    clock.jump(0.0)
    one_file.write(OUT, b"waits for it\n")
    clock.jump(0.0)
    one_file.write(OUT, b"unread\n")
    one_file.write(ERR, b" whole\n")
    one_file.sink.events.clear()
    one_file.turns(5)
    assert one_file.sink.events == [
        ("data", ERR, b" whole\n", 0),
        ("empty", ERR),
        ("data", OUT, b"unread\n", ERR),
        ("empty", OUT | ERR),
    ]


def test_paused_relay_reads_and_claims_nothing(bench: Bench) -> None:
    bench.turns(3)
    bench.relay.pause(True)
    bench.write(OUT, b"one\n")
    assert bench.turns(3) == []
    bench.relay.pause(False)
    assert bench.turns(3) == [("data", OUT, b"one\n", ERR), ("empty", OUT | ERR)]


def test_stream_that_is_over_is_empty(bench: Bench) -> None:
    bench.close_writer(ERR)
    bench.turns(3)
    bench.write(OUT, b"one\n")
    assert bench.turns(2)[0] == ("data", OUT, b"one\n", ERR)
    assert ("closed", ERR) in bench.sink.events


class _Clocked:
    """A select.poll that records the start of each poll."""

    def __init__(self, poll: object) -> None:
        self._poll = poll
        self.began = 0.0

    def __getattr__(self, name: str) -> object:
        return getattr(self._poll, name)

    def poll(self, timeout: float) -> object:
        self.began = time.monotonic()
        return self._poll.poll(timeout)  # type: ignore[attr-defined]  # any poll


CLAIM_RECORDS = 6000
RECORDS_PER_CLAIM = 50  # at most: then the writer waits for a claim of an empty stream


def _write_records(bench: Bench, write_times: mmap.mmap) -> None:
    """Write records in a process of its own. write_times: by number, a time after the record's
    write. The reader's count of claims follows them."""
    chance = random.Random(7)
    claims = 0
    for number in range(CLAIM_RECORDS):
        if number and number % RECORDS_PER_CLAIM == 0:
            while _claims_of(write_times) == claims:
                time.sleep(0.0001)
            claims = _claims_of(write_times)
        bench.write(chance.choice((OUT, ERR)), b"%d\n" % number)
        struct.pack_into("<d", write_times, 8 * number, time.monotonic())
        if number % 3 == 0:
            time.sleep(chance.random() * 0.001)  # lets streams run empty


def _claims_of(write_times: mmap.mmap) -> int:
    return int(struct.unpack_from("<q", write_times, 8 * CLAIM_RECORDS)[0])


@pytest.mark.parametrize("ptys", [False, True])
def test_claims_never_lie(ptys: bool) -> None:
    """R16: after a claim that a stream is empty, its next data was written after the claim's
    poll."""
    write_times = mmap.mmap(-1, 8 * (CLAIM_RECORDS + 1))
    with contextlib.closing(Bench(ptys=ptys)) as bench:
        clocked = _Clocked(bench.relay._poll)
        bench.relay._poll = clocked  # type: ignore[assignment]  # stands for it
        writer = os.fork()
        if writer == 0:
            try:
                _write_records(bench, write_times)
            finally:
                os._exit(0)
        bench.close_writer(OUT)
        bench.close_writer(ERR)
        claimed = {OUT: 0.0, ERR: 0.0}  # begin of the poll behind the last claim
        lies = []
        checked = claims = 0
        carry = {OUT: b"", ERR: b""}
        while not bench.relay.is_over():
            for kind, *details in bench.turns(1):
                flags = details[-1] if kind != "closed" else 0
                if kind == "data":
                    flags &= ~details[0]  # a stream's own bit claims nothing
                    stream, data = details[0], details[1]
                    *records, carry[stream] = (carry[stream] + data).split(b"\n")
                    for number in map(int, records):
                        (at,) = struct.unpack_from("<d", write_times, 8 * number)
                        if at and at < claimed[stream]:  # 0: its write has only just returned
                            lies.append((stream, number))
                    checked += len(records)
                for stream in (OUT, ERR):
                    if flags & stream:
                        claimed[stream] = clocked.began
                        claims += 1
                        struct.pack_into("<q", write_times, 8 * CLAIM_RECORDS, claims)
            bench.read(OUT)
            bench.read(ERR)
        os.waitpid(writer, 0)
    assert checked == CLAIM_RECORDS
    assert claims > 100
    assert lies == []


# ---- one file for both: no torn lines


def test_open_line_is_finished_first(one_file: Bench) -> None:
    one_file.turns(3)
    one_file.write(OUT, b"half")
    one_file.turns(1)
    one_file.write(ERR, b"err\n")
    one_file.turns(1)
    one_file.write(OUT, b" whole\n")
    one_file.turns(2)
    assert one_file.read() == b"half whole\nerr\n"


def test_open_line_is_held_for_a_bounded_time(one_file: Bench) -> None:
    """Other output waits only while the line's writer is active: a bar may stand open for hours."""
    one_file.turns(3)
    one_file.write(OUT, b"bar")
    one_file.turns(1)
    began = time.monotonic()
    one_file.write(ERR, b"err\n")

    def arrived() -> bool:
        one_file.turns(1)
        return b"err" in one_file.read()

    wait_for(arrived, "it isn't held any more")
    assert time.monotonic() - began < scaled(1.0)
    one_file.write(ERR, b"more\n")  # goes out at once: the open line is old
    one_file.turns(1)
    assert one_file.read() == b"more\n"


class Clock:
    """The only source of time. `pass_on` runs turns POLL_SECS apart, as for a stream that waits for
    the other one."""

    def __init__(self, bench: Bench, patch: pytest.MonkeyPatch) -> None:
        self._bench = bench
        self._now = 100.0
        patch.setattr(time, "monotonic", lambda: self._now)

    def jump(self, secs: float) -> None:
        """Advance the time in one step, as if the relay had not run, and then run one turn."""
        self._now += secs
        self._bench.turns(1)

    def pass_on(self, secs: float) -> None:
        for _ in range(round(secs / POLL_SECS)):
            self.jump(POLL_SECS)


@pytest.fixture
def clock(one_file: Bench, monkeypatch: pytest.MonkeyPatch) -> Clock:
    one_file.turns(3)
    return Clock(one_file, monkeypatch)


def test_line_that_grows_is_waited_for(one_file: Bench, clock: Clock) -> None:
    for _ in range(20):
        one_file.write(OUT, b"x")
        clock.pass_on(HOLD_SECS - POLL_SECS)
        one_file.write(ERR, b"err\n")
        clock.jump(0.0)
    one_file.write(OUT, b"\n")
    one_file.turns(3)
    assert one_file.read() == b"x" * 20 + b"\n" + b"err\n" * 20


def test_line_is_waited_for_while_the_relay_did_not_run(one_file: Bench, clock: Clock) -> None:
    one_file.write(OUT, b"half")
    clock.jump(0.0)
    one_file.write(ERR, b"err\n")
    clock.jump(0.0)
    clock.jump(3600.0)
    one_file.write(OUT, b" whole\n")
    clock.jump(3600.0)
    one_file.turns(1)
    assert one_file.read() == b"half whole\nerr\n"


@pytest.mark.parametrize(
    ("secs", "output"),
    [(HOLD_SECS + POLL_SECS / 2, b"barerr\n"), (HOLD_SECS + 2 * POLL_SECS, b"bar")],
    ids=["in time", "late"],
)
def test_a_whole_wait_counts_where_it_ends_in_time(
    one_file: Bench, clock: Clock, secs: float, output: bytes
) -> None:
    """A bar costs only a wake-up or two per redraw. A late relay suggests that the bar's writer is
    late too."""
    one_file.write(OUT, b"bar")
    clock.jump(0.0)
    one_file.write(ERR, b"err\n")
    clock.jump(0.0)
    clock.jump(secs)
    assert one_file.read() == output


@pytest.mark.parametrize(
    ("size", "secs"), [(10, HOLD_SECS), (2000, PIECES_SECS), (PTY_READ_BYTES, PIECES_SECS)]
)
def test_line_in_pieces_is_waited_for_longer(
    one_file: Bench, clock: Clock, size: int, secs: float
) -> None:
    line = b"one\n" + b"x" * (size - 4)
    one_file.write(OUT, line)
    clock.jump(0.0)
    one_file.write(ERR, b"err\n")
    clock.pass_on(secs - 2 * POLL_SECS)
    assert one_file.read() == line
    clock.pass_on(3 * POLL_SECS)
    assert one_file.read() == b"err\n"


def test_line_without_an_end_does_not_slow_the_other_stream_down(
    one_file: Bench, clock: Clock
) -> None:
    def dots(secs: float) -> bytes:
        for _ in range(round(secs / POLL_SECS)):
            one_file.write(OUT, b".")
            clock.jump(POLL_SECS)
        return one_file.read()

    dots(0.1)
    one_file.write(ERR, b"err 1\n")
    assert b"err" not in dots(MOST_SECS - 2 * POLL_SECS)
    assert b"err 1\n" in dots(4 * POLL_SECS)
    one_file.write(ERR, b"err 2\n")
    assert b"err 2\n" in dots(2 * POLL_SECS)
    one_file.write(OUT, b"\n")
    dots(POLL_SECS)
    one_file.write(ERR, b"err 3\n")  # this is a new line
    assert b"err" not in dots(MOST_SECS - 2 * POLL_SECS)


def test_line_that_a_dead_relay_left_open(one_file: Bench, clock: Clock) -> None:
    one_file.channels[0].stands_open(time.monotonic())
    one_file.write(ERR, b"err\n")
    clock.pass_on(HOLD_SECS)
    one_file.write(OUT, b"its end\n")
    one_file.turns(3)
    assert one_file.read() == b"its end\nerr\n"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_lines_of_two_streams(case: Case) -> None:
    read, write = os.openpty() if case.is_terminal else os.pipe()
    if case.is_terminal:
        tty.setraw(write)
    os.set_blocking(read, False)
    channels = [
        Channel(stream, os.open("/dev/null", os.O_RDONLY), JobOutput(os.dup(write)))
        for stream in (OUT, ERR)
    ]
    assert pair(channels)
    for step in case.steps:
        now = 100.0 + step.ms / 1000
        for channel in channels:
            channel.ready = channel.stream in dict(step.texts)
        for channel in channels:
            channel.polled(now)
        for stream, text in step.texts:
            channels[stream - 1].may_continue = len(text) >= PTY_READ_BYTES
            channels[stream - 1].put(text, now)
        for channel in channels:
            if channel.pending and not channel.ready:
                channel.deliver(now)
        output = b""
        with contextlib.suppress(BlockingIOError):
            while True:
                output += os.read(read, 1 << 16)
        assert output == step.output, step.ms
    for channel in channels:
        channel.close()
    os.close(read)
    os.close(write)


def test_tail_of_a_line_waits_while_the_other_stream_has_whole_ones(one_file: Bench) -> None:
    one_file.turns(3)
    one_file.write(OUT, b"one\ntw")
    one_file.write(ERR, b"err\n")
    one_file.turns(1)
    one_file.write(OUT, b"o\n")
    one_file.turns(2)
    assert one_file.read() == b"one\nerr\ntwo\n"


def test_held_tail_goes_out_when_nothing_else_comes(one_file: Bench) -> None:
    one_file.write(OUT, b"one\nprompt: ")
    one_file.write(ERR, b"err\n")
    one_file.turns(5)
    assert one_file.read() == b"one\nerr\nprompt: "


def test_held_back_is_bounded(one_file: Bench) -> None:
    """A line longer than HELD_BYTES goes out open."""
    one_file.turns(3)
    output = b""
    for _ in range(4):
        one_file.write(ERR, b"e\n")
        one_file.write(OUT, b"x" * 30_000)
        one_file.turns(1)
        output += one_file.read()
        assert len(one_file.channels[0].pending) <= HELD_BYTES + TURN_BYTES + (64 << 10)
    assert output.count(b"x") >= HELD_BYTES


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([OUT, ERR]), st.integers(0, 9000), st.booleans(), st.integers(0, 2)
        ),
        max_size=40,
    )
)
def test_streams_are_exact_and_lines_whole(steps: list[tuple[int, int, bool, int]]) -> None:
    """For any writes in any pieces, each stream's bytes stay in order and lines written at once
    stay whole.

    stdout writes upper case letters, stderr lower case ones. As time stands still, no line waits
    too long.
    """
    with pytest.MonkeyPatch.context() as patch, contextlib.closing(Bench(one_file=True)) as bench:
        patch.setattr(time, "monotonic", lambda: 100.0)  # stands still
        output = b""
        wrote = {OUT: b"", ERR: b""}
        for number, (stream, size, ends, turns) in enumerate(steps):
            letter = bytes([(65 if stream == OUT else 97) + number % 26])
            piece = letter * size + (b"\n" if ends else b"")
            wrote[stream] += piece
            bench.write(stream, piece or b"\n")
            wrote[stream] += b"" if piece else b"\n"
            bench.turns(turns)
            output += bench.read()
        for stream in (OUT, ERR):  # every line ends
            bench.write(stream, b"\n")
            wrote[stream] += b"\n"
        for _ in range(50):
            bench.turns(2)
            output += bench.read()
    mine = {OUT: b"", ERR: b""}
    for line in output.splitlines(True):
        text = line.rstrip(b"\n")
        assert not text or text.isupper() or text.islower(), line[:80]
        if text:
            mine[OUT if text.isupper() else ERR] += line
    for stream in (OUT, ERR):
        assert mine[stream] == b"".join(
            line for line in wrote[stream].splitlines(True) if line != b"\n"
        )
        assert bench.sink.of(stream) == wrote[stream]
    assert output.count(b"\n") == sum(text.count(b"\n") for text in wrote.values())


# ---- outputs


def test_blocked_output_bounds_what_is_held(bench: Bench) -> None:
    """CMD waits as it would without logshipper, and the other stream goes on."""
    total = 0
    with contextlib.suppress(BlockingIOError):
        os.set_blocking(bench.writers[OUT], False)
        for _ in range(200):
            total += os.write(bench.writers[OUT], b"x" * 4096)
            bench.turns(1)
    assert bench.channels[0].blocked
    assert len(bench.channels[0].pending) <= TURN_BYTES + (64 << 10)
    bench.write(ERR, b"goes on\n")
    bench.turns(2)
    assert bench.read(ERR) == b"goes on\n"
    output = b""
    while len(output) < total:
        output += bench.read(OUT)
        bench.turns(1)
    assert output == b"x" * total


def test_reader_is_gone(bench: Bench) -> None:
    """On EPIPE the owner gets a call (for SIGPIPE) while the pty is still open. Then the stream
    closes; its bytes are logged."""
    os.close(bench.readers.pop(OUT))
    bench.write(OUT, b"lost\n")
    bench.turns(2)
    assert bench.owner.notes == [("gone", OUT, errno.EPIPE)]
    assert ("data", OUT, b"lost\n", ERR) in bench.sink.events
    assert ("closed", OUT) in bench.sink.events
    with pytest.raises(BrokenPipeError):
        bench.write(OUT, b"more\n")
    bench.write(ERR, b"goes on\n")
    bench.turns(2)
    assert bench.read(ERR) == b"goes on\n"


def test_reader_goes_while_output_is_blocked(bench: Bench) -> None:
    os.set_blocking(bench.writers[OUT], False)
    with contextlib.suppress(BlockingIOError):
        while not bench.channels[0].blocked:
            bench.write(OUT, b"x" * 4096)
            bench.turns(1)
    os.close(bench.readers.pop(OUT))
    bench.turns(2)
    assert bench.channels[0].closed


def test_terminal_is_gone() -> None:
    """EIO, unlike EPIPE, causes no SIGPIPE."""
    master, slave = terminal.open_pty((80, 24), None)
    out = JobOutput(terminal.own_description(slave))
    os.close(slave)
    os.close(master)
    read, write = os.pipe()
    owner = RecordingOwner()
    relay = Relay([Channel(OUT, read, out)], RecordingSink(), owner)
    os.write(write, b"x")
    relay.turn(0)
    assert owner.notes == [("gone", OUT, errno.EIO)]
    os.close(write)


def test_full_disk_is_told_once_and_the_log_goes_on() -> None:
    sink, owner = RecordingSink(), RecordingOwner()
    read, write = os.pipe()
    relay = Relay([Channel(OUT, read, JobOutput(os.open("/dev/full", os.O_WRONLY)))], sink, owner)
    for _ in range(3):
        os.write(write, b"line\n")
        relay.turn(0)
    assert owner.notes == [("failed", OUT, errno.ENOSPC)]
    assert sink.of(OUT) == b"line\n" * 3
    os.close(write)
    relay.turn(0)
    assert relay.is_over()


def test_own_description_leaves_the_inherited_one_alone() -> None:
    read, write = os.pipe()
    description = terminal.own_description(write)
    assert (os.get_blocking(description), os.get_blocking(write)) == (False, True)
    assert not os.get_inheritable(description)
    for fd in (description, read, write):
        os.close(fd)


def test_socket_is_written_with_care() -> None:
    """Writes never block, although the description must stay a blocking one."""
    ours, theirs = socket.socketpair()
    description = terminal.own_description(theirs.fileno())
    out = JobOutput(description)
    assert os.get_blocking(description)
    rest = out.write(b"x" * (4 << 20))
    assert 0 < len(rest) < 4 << 20
    out.close()
    ours.close()
    theirs.close()


def test_lines_stay_whole_in_a_pipe_that_others_write_to() -> None:
    """PIPE_BUF: a write of up to 4 KiB is atomic, so pieces end with lines."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    out = JobOutput(write)
    lines = b"".join(b"%05d %s\n" % (n, b"x" * (n % 90)) for n in range(2000))
    rest = out.write(lines)
    piece = os.read(read, 1 << 20)
    assert piece.endswith(b"\n")
    assert piece + rest == lines
    out.close()
    os.close(read)


def test_own_line_is_not_the_jobs(bench: Bench) -> None:
    bench.relay.inject(bench.channels[1], b"logshipper: ours\n")
    assert bench.read(ERR) == b"logshipper: ours\n"
    assert bench.sink.of(ERR) == b""


def test_counters_go_on_from_where_they_are() -> None:
    """Bytes and line feeds read, at their documented offsets. A process that takes over adds to
    them."""
    counters = mmap.mmap(-1, 64)
    struct.pack_into("<QQ", counters, 32, 100, 10)
    read, write = os.pipe()
    relay = Relay(
        [Channel(ERR, read, JobOutput(os.open(os.devnull, os.O_WRONLY)), counters)],
        RecordingSink(),
        Owner(),
    )
    os.write(write, b"one\ntwo\nthree")
    relay.turn(0)
    assert struct.unpack_from("<QQQQ", counters, 16) == (0, 0, 113, 12)
    os.close(write)
    relay.turn(0)


@pytest.mark.parametrize("early", [0, 1])
def test_a_terminals_last_bytes_after_its_first_eio(
    monkeypatch: pytest.MonkeyPatch, early: int
) -> None:
    """Linux sometimes reports EIO too early, while bytes are still on their way between both
    ends."""
    master, slave = os.openpty()
    tty.setraw(slave)
    channel = Channel(OUT, master, JobOutput(os.open(os.devnull, os.O_WRONLY)), None)
    relay, readv, errors = (
        Relay([channel], sink := RecordingSink(), Owner()),
        os.readv,
        [errno.EIO] * early,
    )
    os.write(slave, b"last\n")
    os.close(slave)

    def read(fd: int, buffers: Any) -> int:  # Any: as os.readv's
        if fd == master and errors:
            raise OSError(errors.pop(), "too early")
        return readv(fd, buffers)

    monkeypatch.setattr(os, "readv", read)
    while not channel.closed:
        relay.turn(0)
    assert sink.of(OUT) == b"last\n"


# ---- the drain


def test_drain_is_bounded(bench: Bench) -> None:
    """A remaining child never stops printing: the drain reads some 256 KiB and leaves the rest to
    others."""
    bench.relay.begin_drain()
    read = 0
    while not bench.relay.is_drained():
        bench.write(OUT, b"x" * 32_768)
        bench.turns(1)
        read += len(bench.read(OUT))
        assert read < 1 << 20


def test_drain_waits_for_what_is_there(bench: Bench) -> None:
    bench.turns(3)
    bench.write(OUT, b"x" * 60_000)
    bench.relay.begin_drain()
    assert not bench.relay.is_drained()
    while not bench.relay.is_drained():
        bench.turns(1)
    assert bench.read(OUT) == b"x" * 60_000


def test_nothing_is_called_empty_once_nothing_is_read(bench: Bench) -> None:
    bench.close_writer(OUT)
    bench.relay.begin_drain()
    while not bench.relay.is_drained():
        bench.turns(1)
    bench.relay.stop()
    assert bench.turns(2) == []


def test_drain_goes_on_at_once_when_a_full_output_takes_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This also holds without a sidecar, whose next report would shorten the wait."""
    with contextlib.suppress(BlockingIOError):
        while not bench.channels[0].blocked:
            bench.write(OUT, b"x" * 4096)
            bench.turns(2)
    bench.relay.begin_drain()
    bench.turns(3)
    waits = record_waits(bench, monkeypatch)
    while not bench.relay.is_drained():
        bench.read(OUT)
        bench.relay.turn(3600)
    assert waits[-1] == 0


# ---- frames to the sidecar


class Pipe:
    """A SidecarLink without a process."""

    def __init__(self) -> None:
        self.troubles: list[str] = []
        self.link = SidecarLink(self.troubles.append, stall_secs=0.2)
        self.read, self.link._pipe = os.pipe()
        self.link._report, self.report = os.pipe()
        for fd in (self.read, self.link._pipe, self.link._report):
            os.set_blocking(fd, False)
        self.link.alive = True
        self.relay = Relay([], self.link, Owner())
        self.link.attach(self.relay)
        self._carry = b""

    def is_paused(self) -> bool:
        return self.relay._paused

    def frames(self) -> list[tuple[SideType, int, int, bytes]]:
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self.read, 1 << 20):
                self._carry += more
        frames = []
        while len(self._carry) >= HEADER.size:
            kind, stream, flags, size = HEADER.unpack_from(self._carry)
            if len(self._carry) < HEADER.size + size:
                break
            frames.append(
                (SideType(kind), stream, flags, self._carry[HEADER.size : HEADER.size + size])
            )
            self._carry = self._carry[HEADER.size + size :]
        return frames

    def close(self) -> None:
        self.link.lose("is over")
        for fd in (self.read, self.report, self.link._report):
            os.close(fd)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    with contextlib.closing(Pipe()) as pipe:
        yield pipe


def test_small_reads_gather_in_one_frame(pipe: Pipe) -> None:
    for text in (b"a", b"b", b"c"):
        pipe.link.data(OUT, text, ERR)
    pipe.link.data(ERR, b"d", 0)
    pipe.link.empty(3)
    pipe.link.idle()
    assert pipe.frames() == [
        (SideType.DATA, OUT, ERR, b"abc"),
        (SideType.DATA, ERR, 0, b"d"),
        (SideType.EMPTY, 0, 3, b""),
    ]


def test_gathered_frame_says_no_more_than_its_first_piece_knew(pipe: Pipe) -> None:
    """Flags belong to the poll before all bytes of a frame. A later piece may know less, never
    more."""
    pipe.link.data(OUT, b"a", 0)
    pipe.link.data(OUT, b"b", ERR)
    pipe.link.data(OUT, b"c", 0)
    pipe.link.idle()
    assert pipe.frames() == [(SideType.DATA, OUT, 0, b"a"), (SideType.DATA, OUT, ERR, b"bc")]


@pytest.fixture
def still_clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list with the time as its only element."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("case", GATHER_CASES, ids=lambda case: case.name)
def test_what_gathers_and_what_does_not(
    pipe: Pipe, still_clock: list[float], case: gather_cases.Case
) -> None:
    fcntl.fcntl(pipe.read, fcntl.F_SETPIPE_SZ, 1 << 20)
    for step in case.steps:
        still_clock[0] = 100 + step.ms / 1000
        for call in step.calls:
            calls: dict[str, Callable[[], None]] = {
                "data": partial(pipe.link.data, call.stream, call.data, call.flags),
                "empty": partial(pipe.link.empty, call.flags),
                "closed": partial(pipe.link.closed, call.stream),
                "exited": partial(pipe.link.exited, 0),
            }
            calls[call.name]()
        pipe.link.idle()
        assert pipe.frames() == list(step.frames), step
        wait_secs = pipe.link.wait_secs(untold=False)
        assert (None if wait_secs is None else round(wait_secs * 1000)) == step.wait_ms, step
        assert pipe.link.is_flushed == (step.wait_ms is None)


def test_so_much_at_once_does_not_wait(pipe: Pipe, still_clock: list[float]) -> None:
    """The data may contain a command, and the link doesn't search for one."""
    for name in (b"a", b"b"):
        pipe.link.data(OUT, name * MUCH_BYTES, 0)
        pipe.link.idle()
        assert pipe.frames() == [(SideType.DATA, OUT, 0, name * MUCH_BYTES)]
        pipe.link.empty(3)
        pipe.link.idle()
        assert pipe.frames() == [(SideType.EMPTY, 0, 3, b"")]


def test_command_that_begins_at_the_end_of_much_does_not_wait(
    pipe: Pipe, still_clock: list[float]
) -> None:
    pipe.link.data(OUT, b"x" * MUCH_BYTES + b"/LOGC", 0)
    pipe.link.empty(3)
    pipe.link.idle()
    pipe.frames()
    pipe.link.data(OUT, b"OMMAND", 0)
    pipe.link.idle()
    assert pipe.frames() == [(SideType.DATA, OUT, 0, b"OMMAND")]


@pytest.fixture
def linked(bench: Bench, pipe: Pipe, still_clock: list[float]) -> Bench:
    """Return a bench whose data goes to a sidecar, at a time that stands still."""
    bench.turns(3)
    bench.relay._sink = pipe.link
    bench.write(OUT, b"first\n")
    bench.turns(2)
    pipe.frames()
    return bench


def record_waits(bench: Bench, patch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the later polls' allowed waits in ms. The polls themselves don't wait."""
    waits = []
    real = bench.relay._poll

    class Poll:
        register, unregister = real.register, real.unregister

        def poll(self, wait_ms: float) -> list[tuple[int, int]]:
            waits.append(round(wait_ms))
            return real.poll(0)

    patch.setattr(bench.relay, "_poll", Poll())
    return waits


@pytest.mark.parametrize("was_stopped", [False, True])
def test_small_writes_cost_one_poll_each(
    linked: Bench,
    pipe: Pipe,
    still_clock: list[float],
    monkeypatch: pytest.MonkeyPatch,
    was_stopped: bool,
) -> None:
    """The relay checks for empty streams only at the beat, when it sends frames. The same holds
    once a stopped CMD continues."""
    if was_stopped:
        linked.relay.begin_drain()
        linked.relay.turn(3600)
        linked.relay.end_drain()
        pipe.link.send()
        pipe.frames()
    waits = record_waits(linked, monkeypatch)
    for number in range(4):
        linked.write(OUT, b"%d\n" % number)
        linked.relay.turn(3600)
        still_clock[0] += 0.01
    assert pipe.frames() == []
    still_clock[0] += BEAT_SECS
    linked.relay.turn(3600)
    assert pipe.frames() == [
        (SideType.DATA, OUT, ERR, b"0\n1\n2\n3\n"),
        (SideType.EMPTY, 0, OUT | ERR, b""),
    ]
    # a beat begins with `first`, and all four wait for its end
    beat = round(BEAT_SECS * 1000)
    assert waits == [3600_000, beat - 10, beat - 20, beat - 30, 0]
    linked.relay.turn(3600)
    assert waits[-1] == 3600_000


# ---- small writes into a file


class _Steady:
    """A program that writes a little to stdout every 10 ms, as the only source of time. waits: how
    long each poll may wait, in ms."""

    def __init__(self, bench: Bench, now: list[float], patch: pytest.MonkeyPatch) -> None:
        self.bench = bench
        self._now = now
        bench.turns(3)
        self.waits = record_waits(bench, patch)

    def write(self, *texts: bytes, turns: bool = True) -> list[int]:
        """Write the texts, and return the allowed waits of all polls in ms."""
        self.waits.clear()
        for text in texts:
            self._now[0] += 0.01
            self.bench.write(OUT, text)
            if turns:
                self.bench.relay.turn(3600)
        return list(self.waits)

    def pass_on(self, secs: float) -> None:
        self._now[0] += secs


def _steady(
    now: list[float], patch: pytest.MonkeyPatch, into: Path | None, *, one_file: bool
) -> Iterator[_Steady]:
    with contextlib.closing(Bench(ptys=True, one_file=one_file, into=into)) as bench:
        yield _Steady(bench, now, patch)
        patch.undo()


@pytest.fixture(params=[False, True], ids=["two files", "one file"])
def steady(
    still_clock: list[float],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[_Steady]:
    yield from _steady(still_clock, monkeypatch, tmp_path, one_file=request.param)


@pytest.fixture
def into_pipe(still_clock: list[float], monkeypatch: pytest.MonkeyPatch) -> Iterator[_Steady]:
    yield from _steady(still_clock, monkeypatch, None, one_file=False)


LINES = [b"line\n"] * SMALL_READS
GATHER_MS = round(channel_module.SMALL_GATHER_SECS * 1000)


def test_small_writes_into_a_file_gather(steady: _Steady) -> None:
    """Gathering starts after enough small writes."""
    steady.write(b"begin\n")
    assert steady.write(*LINES) == [3600_000] * SMALL_READS
    steady.write(*[b"more\n"] * 3, turns=False)
    steady.bench.relay.turn(3600)
    assert steady.waits == [GATHER_MS - 30, 3600_000]  # 30 ms have already passed
    assert steady.bench.sink.events[-1] == ("data", OUT, b"more\n" * 3, ERR)
    steady.pass_on(2 * CLOSE_SECS)
    steady.write(b"after a pause\n")
    assert steady.write(b"no gathering\n") == [3600_000]


def test_gathered_output_is_read_at_the_next_beat_at_the_latest() -> None:
    """The relay hands over at beats: output that it reads then waits no second time."""
    writes = channel_module.SmallWrites()
    times = [100.0 + 0.1 * number for number in range(SMALL_READS + 3)]
    waits = []
    for at in times:
        writes.note(10, at)
        waits.append(writes.due - at)
    assert writes.gather
    beats = [BEAT_SECS - at % BEAT_SECS for at in times]
    assert waits == pytest.approx([min(SMALL_GATHER_SECS, beat) for beat in beats])
    assert min(waits) < SMALL_GATHER_SECS


def test_small_writes_into_a_pipe_never_gather(into_pipe: _Steady) -> None:
    assert set(into_pipe.write(*LINES, *LINES)) == {3600_000}


def test_the_other_stream_ends_gathering_and_order_is_kept(steady: _Steady) -> None:
    steady.write(b"begin\n", *LINES)
    steady.bench.sink.events.clear()
    steady.write(b"first\n", turns=False)
    steady.bench.write(ERR, b"second\n")
    steady.bench.relay.turn(3600)
    assert [event[:3] for event in steady.bench.sink.events] == [
        ("data", OUT, b"first\n"),
        ("data", ERR, b"second\n"),
    ]


def test_nothing_gathers_for_a_while_where_a_writer_may_have_waited(steady: _Steady) -> None:
    steady.write(b"begin\n", *LINES)
    assert steady.write(b"gathers\n") == [GATHER_MS - 10, 3600_000]
    steady.bench.write(OUT, b"x" * (FULL_BYTES // 2))
    with contextlib.suppress(BlockingIOError):
        steady.write(b"x" * (FULL_BYTES // 2))
    steady.bench.turns(3)
    assert set(steady.write(*LINES, *LINES)) == {3600_000}
    for _ in range(round(FULL_SECS / 0.01)):
        steady.write(b".")
    assert len(steady.write(b".")) == 2


def test_nothing_gathers_once_the_command_is_gone(steady: _Steady) -> None:
    steady.write(b"begin\n", *LINES)
    steady.bench.relay.begin_drain()
    assert len(steady.write(b"last words\n")) == 1


def test_what_is_empty_after_a_command_is_asked_at_once(linked: Bench, pipe: Pipe) -> None:
    linked.write(OUT, b"/LOGCOMMAND\n")
    linked.relay.turn(3600)
    linked.relay.turn(3600)
    assert pipe.frames() == [
        (SideType.DATA, OUT, ERR, b"/LOGCOMMAND\n"),
        (SideType.EMPTY, 0, OUT | ERR, b""),
    ]


COMMAND = b'/LOGCOMMAND {"mode":"disabled"}\n'


def test_what_may_be_newer_than_the_other_streams_command_comes_after_it(
    linked: Bench, pipe: Pipe
) -> None:
    """Both were there at the poll, and the relay read the command last."""
    linked.write(OUT, b"earlier\n")
    linked.relay.turn(3600)
    linked.write(OUT, b"before or after\n")
    linked.write(ERR, COMMAND)
    linked.relay.turn(3600)
    pipe.link.idle()
    assert pipe.frames() == [
        (SideType.DATA, OUT, ERR, b"earlier\n"),
        (SideType.DATA, ERR, 0, COMMAND),
        (SideType.DATA, OUT, 0, b"before or after\n"),
    ]
    assert linked.read(OUT) == b"first\nearlier\nbefore or after\n"


class WritingPoll:
    """A poll with a write of the program before each call except the first."""

    def __init__(self, bench: Bench, writes: list[tuple[int, bytes]]) -> None:
        self._poll, self._bench, self._writes = bench.relay._poll, bench, writes
        self.register, self.unregister = self._poll.register, self._poll.unregister
        self._has_begun = False

    def poll(self, wait_ms: float) -> list[tuple[int, int]]:
        if self._has_begun and self._writes:
            self._bench.write(*self._writes.pop(0))
        self._has_begun = True
        return self._poll.poll(wait_ms)


@pytest.mark.parametrize(
    ("burst", "output"),
    [(GATHER_BYTES, b"abc"), (GATHER_BYTES - 1, b"a")],
    ids=["flood", "no flood"],
)
def test_what_follows_soon_in_a_flood_is_passed_on_with_it(
    bench: Bench,
    still_clock: list[float],
    monkeypatch: pytest.MonkeyPatch,
    burst: int,
    output: bytes,
) -> None:
    bench.relay._burst = burst
    bench.write(OUT, b"a")
    monkeypatch.setattr(bench.relay, "_poll", WritingPoll(bench, [(OUT, b"b"), (OUT, b"c")]))
    assert bench.turns(1) == [("data", OUT, output, ERR)]
    assert bench.read() == output


def test_small_writes_with_silence_between_are_no_flood(
    bench: Bench, still_clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relay rarely checks for silence, but does so before it calls much data a flood."""
    bench.turns(3)
    waits = record_waits(bench, monkeypatch)
    size = 4000
    for _ in range(-(-GATHER_BYTES // size)):
        bench.write(OUT, b"x" * size)
        bench.relay.turn(3600)
        bench.read()
    bench.relay.turn(3600)
    assert waits[-2:] == [3600_000, 0]
    monkeypatch.undo()
    bench.write(OUT, b"a")
    monkeypatch.setattr(bench.relay, "_poll", WritingPoll(bench, [(OUT, b"b")]))
    assert bench.turns(1) == [("data", OUT, b"a", ERR)]


def test_the_other_stream_is_not_kept_waiting_in_a_flood(
    bench: Bench, still_clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.relay._burst = GATHER_BYTES
    bench.write(OUT, b"a")
    writes = [(OUT, b"b"), (ERR, b"error"), (OUT, b"c")]
    monkeypatch.setattr(bench.relay, "_poll", WritingPoll(bench, writes))
    assert bench.turns(1) == [("data", OUT, b"ab", OUT | ERR)]
    assert bench.read() == b"ab"


def test_ends_and_sizes_do_not_wait(pipe: Pipe, still_clock: list[float]) -> None:
    adds: tuple[Callable[[], None], ...] = (
        partial(pipe.link.closed, ERR),
        partial(pipe.link.resized, 80, 24),
        partial(pipe.link.exited, 0),
    )
    for add in adds:
        pipe.link.data(OUT, b"line\n", 0)
        pipe.link.idle()
        pipe.link.data(OUT, b"line\n", 0)
        add()
        assert pipe.link.wait_secs(untold=False) == 0
        pipe.link.idle()
        assert pipe.link.is_flushed
    kinds = [frame[0] for frame in pipe.frames() if frame[0] is not SideType.DATA]
    assert kinds == [SideType.CLOSED, SideType.SIZE, SideType.EXIT]


def test_full_pipe_pauses_the_relay_and_is_bounded(pipe: Pipe) -> None:
    data = b""
    while not pipe.is_paused():
        piece = os.urandom(30_000)
        data += piece
        pipe.link.data(OUT, piece, 0)
        assert len(data) < BUFFER_BYTES + (64 << 10) + 4 * FRAME_BYTES
    assert pipe.link.needs_care
    output = b""
    while pipe.is_paused() or not pipe.link.is_flushed:
        output += b"".join(payload for _, _, _, payload in pipe.frames())
        pipe.relay.turn(0)
    output += b"".join(payload for _, _, _, payload in pipe.frames())
    assert output == data
    assert not pipe.troubles


def test_no_progress_is_given_up(pipe: Pipe) -> None:
    while not pipe.is_paused():
        pipe.link.data(OUT, b"x" * 30_000, 0)

    def given_up() -> bool:
        pipe.link.check()
        return not pipe.link.alive

    wait_for(given_up, "it is given up")
    assert pipe.troubles == [
        "output is missing from the log, as the logging process took nothing for 0.2 s and was given up"
    ]
    pipe.link.data(OUT, b"x", 0)  # the link ignores later data
    assert pipe.link.is_flushed


def test_reports(pipe: Pipe) -> None:
    os.write(pipe.report, b"ready\ndegraded no ro")
    pipe.relay.turn(0)
    os.write(pipe.report, b"om left\nwhat is this\ndone\n")
    pipe.relay.turn(0)
    assert pipe.troubles == ["no room left"]
    assert pipe.link.done


def test_last_words_are_the_reason(pipe: Pipe) -> None:
    os.write(pipe.report, b"failed no room left\n")
    os.close(pipe.read)
    pipe.link.data(OUT, b"x", 0)
    pipe.link.idle()  # EPIPE
    pipe.link.reaped(1 << 8)
    assert pipe.troubles == ["output is missing from the log: no room left"]
    pipe.read = os.open(os.devnull, os.O_RDONLY)


# ---- taking over


def test_take_over_by_itself() -> None:
    """A whole take-over in one process: the pidfd reports CMD's death, and end of file reports the
    streams' ends."""
    code = """
import os, subprocess, sys
from logshipper.relay.handover import SidecarPlan
from logshipper.relay.relay import RelaySink
from logshipper.relay.take_over import take_over
masters, outs, slaves = {}, {}, {}
for stream in (1, 2):
    masters[stream], slaves[stream] = os.pipe()
    outs[stream] = os.dup(stream)
cmd = subprocess.Popen(['sh', '-c', 'echo out; echo err >&2'], stdout=slaves[1], stderr=slaves[2])
for fd in slaves.values(): os.close(fd)
plan = SidecarPlan(masters=masters, outs=outs, cmd_pid=cmd.pid, cmd_pidfd=os.pidfd_open(cmd.pid), columns=80, rows=24,
                   tty=False, relay_pid=0, started_ns=0)
class Closing(RelaySink):  # as the sidecar does: gives back what the plan holds
    def closed(self, stream): os.close(plan.masters.pop(stream)); os.close(plan.outs.pop(stream))
take_over(plan, Closing())
assert not plan.masters and not plan.outs
cmd.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=scaled(30)
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"out\n", b"err\n")

"""Writer and reader of a capture against a simple model. Despite faults, the reader gives all
written frames once and in order, from any checkpoint. A crash may only cost unsynced data.

Writer and reader are real. A crash of the machine loses any part of the unsynced data: its end, its
bytes, or both.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from logshipper.errors import SpoolError
from logshipper.spool import segment, segment_writer
from logshipper.spool.segment import Kind, Stream
from logshipper.spool.segment_writer import SegmentWriter
from logshipper_ingest.spool.segment_reader import Outcome, SegmentReader, SpoolPosition
from tests.tools.captures.segment_factory import memory_folder
from tests.tools.stress.model_settings import model_settings

SEGMENT_BYTES = 400  # so small that a segment has a few frames
MANY = 1 << 40


class Faults:
    """Planned faults of the writer's next system calls; "" is success. The reader has no faults."""

    def __init__(self) -> None:
        self.pwrite: list[str] = []
        self.sync: list[str] = []
        self.open: list[str] = []

    def failing(
        self, name: str, act: Callable[..., Any]
    ) -> Callable[..., Any]:  # Any: the call's own
        def acting(*arguments: Any, **options: Any) -> Any:  # Any: likewise
            planned: list[str] = getattr(self, name)
            fault = planned.pop(0) if planned else ""
            if fault == "short":
                fd, data, offset = arguments
                return act(fd, data[: max(len(data) // 3, 1)], offset)
            if fault:
                raise OSError(getattr(errno, fault), os.strerror(getattr(errno, fault)))
            return act(*arguments, **options)

        return acting


class FaultyOs:
    """The writer's `os`."""

    def __init__(self, faults: Faults) -> None:
        self.pwrite = faults.failing("pwrite", os.pwrite)
        self.fdatasync = faults.failing("sync", os.fdatasync)
        self.open = faults.failing("open", os.open)

    def __getattr__(self, name: str) -> Any:  # Any: whatever os has
        return getattr(os, name)


class WriterAndReader(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.faults = Faults()
        self.patch.setattr(segment_writer, "os", FaultyOs(self.faults))
        self.patch.setattr(segment_writer, "MAX_SEGMENT_BYTES", SEGMENT_BYTES)
        # syncs are separate steps of the model
        self.patch.setattr(SegmentWriter, "_sync_on", lambda writer: None)
        self.folder = Path(tempfile.mkdtemp(prefix="logshipper-test-", dir=memory_folder()))
        self.writer = SegmentWriter(str(self.folder), 1)
        self.fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        self.reader = self._reader(SpoolPosition())
        self.writer_texts: list[bytes] = []
        self.synced = 0  # frames
        self.synced_bytes = segment.FILE_HEADER_BYTES  # of the current segment
        self.reader_texts: list[bytes] = []
        self.skipped = 0
        self.checkpoints: list[tuple[SpoolPosition, int, int]] = [(SpoolPosition(), 0, 0)]
        self.is_alive = True
        self.is_closed = False
        self.lost_bytes = 0

    def _reader(self, position: SpoolPosition) -> SegmentReader:
        return SegmentReader(self.fd, str(self.folder), position, owner=os.getuid())

    # ---- the writer

    @precondition(lambda self: self.is_alive)
    @rule(size=st.sampled_from([1, 20, 150, 500]), is_record=st.booleans())
    def write(self, size: int, is_record: bool) -> None:
        serial = len(self.writer_texts)
        if is_record:
            text = b'{"type":"event","event":"e%d","message":"%s"}' % (serial, b"m" * size)
            frame = segment.encode_record(
                serial, {"type": "event", "event": f"e{serial}", "message": "m" * size}
            )
        else:
            text = b"%d %s\n" % (serial, b"x" * size)
            frame = segment.encode_lines(Stream.STDOUT, serial, text, [(Kind.LOG, 1)])
        number = self.writer._number
        try:
            self.writer.write(frame, serial)
        except SpoolError:
            pass  # nothing is written
        else:
            self.writer_texts.append(text)
        if self.writer._number != number:
            self.synced = (
                len(self.writer_texts) - 1
                if self.writer_texts[-1:] == [text]
                else len(self.writer_texts)
            )
            self.synced_bytes = segment.FILE_HEADER_BYTES

    @precondition(lambda self: self.is_alive)
    @rule()
    def sync(self) -> None:
        try:
            self.writer.sync()
        except SpoolError:
            return
        self.synced = len(self.writer_texts)
        self.synced_bytes = self.writer._size

    @precondition(lambda self: self.is_alive)
    @rule(
        call=st.sampled_from(["pwrite", "sync", "open"]),
        before=st.integers(0, 2),
        fault=st.sampled_from(["ENOSPC", "EIO", "EDQUOT"]),
        short=st.booleans(),
    )
    def disk_fails(self, call: str, before: int, fault: str, short: bool) -> None:
        setattr(
            self.faults,
            call,
            [""] * before + (["short"] if short and call == "pwrite" else []) + [fault],
        )

    @precondition(lambda self: self.is_alive)
    @rule()
    def close(self) -> None:
        self._end_faults()
        self.writer.close(len(self.writer_texts))
        self.is_alive, self.is_closed = False, True
        self.synced = len(self.writer_texts)

    @precondition(lambda self: self.is_alive)
    @rule(fraction=st.floats(0, 1), zeros=st.booleans())
    def machine_crashes(self, fraction: float, zeros: bool) -> None:
        """The reader resumes at its last checkpoint."""
        self._die()
        path = Path(self.writer._path(self.writer._number))
        size = path.stat().st_size
        new_size = self.synced_bytes + round(fraction * (size - self.synced_bytes))
        os.truncate(path, new_size)
        if zeros:
            os.truncate(path, size)
        self.lost_bytes = size - new_size
        self.resume(len(self.checkpoints) - 1)

    @precondition(lambda self: self.is_alive)
    @rule()
    def killed(self) -> None:
        """The machine runs on, and keeps all written data."""
        self._die()
        self.synced = len(self.writer_texts)

    def _die(self) -> None:
        os.close(self.writer._fd)
        self._end_faults()
        self.is_alive = False

    def _end_faults(self) -> None:
        self.faults.pwrite, self.faults.sync, self.faults.open = [], [], []

    # ---- the reader

    @rule(max_bytes=st.sampled_from([1, 300, MANY]), notes=st.booleans())
    def read(self, max_bytes: int, notes: bool) -> None:
        alive = self.is_alive
        batch = self.reader.read(max_bytes, alive=alive)
        self.reader_texts += [frame.text for frame in batch.frames]
        self.skipped += sum(damage.skipped for damage in batch.damages)
        if notes:
            self.checkpoints.append((batch.position, len(self.reader_texts), self.skipped))
        if alive:
            assert batch.damages == []
            assert self.reader_texts == self.writer_texts[: len(self.reader_texts)]

    @precondition(lambda self: self.is_alive)
    @rule(back=st.integers(0, 3))
    def resume_at_a_checkpoint(self, back: int) -> None:
        self.resume(max(len(self.checkpoints) - 1 - back, 0))

    def resume(self, at: int) -> None:
        self.reader.close()
        position, count, self.skipped = self.checkpoints[at]
        del self.reader_texts[count:]
        del self.checkpoints[at + 1 :]
        self.reader = self._reader(position)

    def teardown(self) -> None:
        try:
            self._settle()
        finally:
            self.reader.close()
            os.close(self.fd)
            self.patch.undo()
            shutil.rmtree(self.folder)

    def _settle(self) -> None:
        if self.is_alive:
            self.killed()
        outcome = Outcome.MORE
        reads = 0
        while outcome is Outcome.MORE:
            batch = self.reader.read(MANY, alive=False)
            self.reader_texts += [frame.text for frame in batch.frames]
            self.skipped += sum(damage.skipped for damage in batch.damages)
            outcome = batch.outcome
            reads += 1
            assert reads < 1000
        assert outcome is (Outcome.CLOSED if self.is_closed else Outcome.CUT)
        assert self.reader_texts == self.writer_texts[: len(self.reader_texts)], (
            "nothing is invented, doubled or misplaced"
        )
        assert len(self.reader_texts) >= self.synced, "nothing that was synced is lost"
        if not self.lost_bytes:
            assert self.reader_texts == self.writer_texts
            assert self.skipped == 0


def test_what_was_synced_is_read_once_whatever_fails() -> None:
    run_state_machine_as_test(WriterAndReader, settings=model_settings(150, 30))

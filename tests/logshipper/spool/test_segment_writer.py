"""Segments on disk: order, rotation, group commit, a full disk."""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logshipper.errors import SpoolError, SpoolFull
from logshipper.spool import segment, segment_writer
from logshipper.spool.segment import FrameType, Kind, Stream
from logshipper.spool.segment_writer import SegmentWriter
from tests.tools.waiting import scaled


def _frames(folder: Path) -> Iterator[tuple[str, segment.Frame]]:
    for path in sorted(folder.glob("*.seg")):
        data = path.read_bytes()
        at = segment.decode_file_header(data)
        while at < len(data):
            decoded = segment.decode_frame(data, at)
            assert decoded is not None, f"{path.name} is torn at {at}"
            frame, at = decoded
            yield path.name, frame


def _line(text: bytes, at: int = 1) -> bytes:
    return segment.encode_lines(Stream.STDOUT, at, text + b"\n", [(Kind.LOG, 1)])


def test_write_and_close(tmp_path: Path) -> None:
    writer = SegmentWriter(str(tmp_path), 1)
    writer.write(_line(b"a") + _line(b"b"), 1)
    writer.sync()
    writer.close(9)
    frames = [frame for _, frame in _frames(tmp_path)]
    assert [frame.text for frame in frames] == [b"a\n", b"b\n", b""]
    assert (frames[-1].type, frames[-1].count) == (FrameType.END, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["0000000001.seg"]
    assert (tmp_path / "0000000001.seg").stat().st_mode & 0o777 == 0o600


def test_rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each segment except the last ends with an END frame that announces the next one."""
    monkeypatch.setattr(segment_writer, "MAX_SEGMENT_BYTES", 2000)
    writer = SegmentWriter(str(tmp_path), 1)
    for number in range(50):
        writer.write(_line(b"%090d" % number), number)
    writer.close(99)
    frames = list(_frames(tmp_path))
    assert [int(frame.text) for _, frame in frames if frame.text] == list(range(50))
    ends = [(name, frame.count) for name, frame in frames if frame.type is FrameType.END]
    assert len(ends) == len(list(tmp_path.glob("*.seg"))) > 2
    assert [count for _, count in ends] == [0] * (len(ends) - 1) + [1]
    assert all(path.stat().st_size < 2100 for path in tmp_path.glob("*.seg"))


def test_what_is_written_is_synced_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Group commit: no explicit call is necessary."""
    synced = threading.Event()
    real = os.fdatasync

    def fdatasync(fd: int) -> None:
        real(fd)
        if armed:
            synced.set()

    armed = False
    monkeypatch.setattr(os, "fdatasync", fdatasync)
    writer = SegmentWriter(str(tmp_path), 1)
    armed = True
    writer.write(_line(b"a"), 1)
    assert synced.wait(timeout=scaled(10)), "no sync within 10 s"
    writer.close(2)


def test_a_short_capture_is_synced_once_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: syncs.append("frames"))
    monkeypatch.setattr(os, "fsync", lambda fd: syncs.append("names"))
    monkeypatch.setattr(segment_writer, "SYNC_SECS", 3600.0)
    writer = SegmentWriter(str(tmp_path), 1)
    writer.write(_line(b"a"), 1)
    writer.close(2)
    assert syncs == ["frames", "names"]


def test_an_end_that_comes_right_before_a_sync_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SegmentWriter(str(tmp_path), 0)

    class LateClosing(threading.Event):
        """An event set just after the wait for it has timed out."""

        def wait(self, timeout: float | None = None) -> bool:
            if not super().wait(timeout):
                self.set()
                writer._dirty.set()
                return False
            return True

    monkeypatch.setattr(writer, "_closing", LateClosing())
    writer.write(_line(b"a"), 1)
    writer._syncer.join(timeout=scaled(10))
    assert not writer._syncer.is_alive()
    writer.close(2)


def test_names_of_later_segments_are_synced_before_the_last_one_says_that_they_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_writer, "MAX_SEGMENT_BYTES", 200)
    monkeypatch.setattr(segment_writer, "SYNC_SECS", 3600.0)
    ends: list[int] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        ends.append(sum(frame.type is FrameType.END for _, frame in _frames(tmp_path)))
        real(fd)

    writer = SegmentWriter(str(tmp_path), 1)
    monkeypatch.setattr(os, "fsync", fsync)
    for number in range(3):
        writer.write(_line(b"x" * 150), number)
    assert ends == [0, 1]
    writer.close(4)


@pytest.mark.parametrize("can_truncate", [True, False])
def test_a_full_disk_leaves_no_torn_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_truncate: bool
) -> None:
    """Short writes and ENOSPC: the writer truncates the frame, or overwrites it if a failing disk
    refuses. Writing goes on with new room."""
    writer = SegmentWriter(str(tmp_path), 1)
    writer.write(_line(b"before"), 1)
    real = os.pwrite

    def full(fd: int, data: Any, offset: int) -> int:  # Any: as os.pwrite's buffer
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data[:20], offset)

    def refuse(fd: int, size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        if not can_truncate:
            patch.setattr(os, "ftruncate", refuse)
        with pytest.raises(SpoolFull, match="no room left there"):
            writer.write(_line(b"lost"), 2)
    writer.write(_line(b"after"), 3)
    writer.close(4)
    assert [frame.text for _, frame in _frames(tmp_path)] == [b"before\n", b"after\n", b""]


def test_a_full_disk_at_rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_writer, "MAX_SEGMENT_BYTES", 200)
    writer = SegmentWriter(str(tmp_path), 1)
    writer.write(_line(b"x" * 150), 1)
    real = os.open

    def full(path: Any, *rest: Any, **options: Any) -> int:  # Any: as os.open
        if str(path).endswith(".seg"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        with pytest.raises(SpoolFull):
            writer.write(_line(b"lost"), 2)
    writer.write(_line(b"after"), 3)
    writer.close(4)
    assert [frame.text[-6:] for _, frame in _frames(tmp_path) if frame.text] == [
        b"xxxxx\n",
        b"after\n",
    ]


def test_a_failed_sync_at_rotation_loses_nothing_that_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last segment already announces the next one, so a reader would never read later frames
    there."""
    monkeypatch.setattr(segment_writer, "MAX_SEGMENT_BYTES", 400)
    writer = SegmentWriter(str(tmp_path), 1)
    writer.write(_line(b"first"), 1)
    writer.sync()
    real = os.fdatasync

    def failing(fd: int) -> None:
        if os.fstat(fd).st_size > 100:  # the last segment, not the new one
            raise OSError(errno.EIO, "Input/output error")
        real(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", failing)
        with pytest.raises(SpoolError):
            writer.write(_line(b"x" * 500), 2)
    writer.write(_line(b"small"), 3)
    writer.close(4)
    kinds = [(name, frame.type, frame.text) for name, frame in _frames(tmp_path)]
    assert kinds == [
        ("0000000001.seg", FrameType.LINES, b"first\n"),
        ("0000000001.seg", FrameType.END, b""),
        ("0000000002.seg", FrameType.LINES, b"small\n"),
        ("0000000002.seg", FrameType.END, b""),
    ]


def test_a_failed_sync_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SegmentWriter(str(tmp_path), 1)
    failed = threading.Event()

    def fdatasync(fd: int) -> None:
        failed.set()
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fdatasync)
        writer.write(_line(b"a"), 1)
        assert failed.wait(timeout=scaled(10))
        with pytest.raises(SpoolError, match="input/output error"):
            writer.sync()
    deadline = threading.Event()
    for _ in range(1000):  # the syncing thread passes the error to the next write
        try:
            writer.write(_line(b"b"), 2)
        except SpoolError as error:
            assert error.reason == "input/output error"  # noqa: PT017  the very call that raises isn't known beforehand
            break
        deadline.wait(0.01)
    else:
        pytest.fail("the failed sync was never told")
    writer.close(3)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere; runs as an ordinary user")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(SpoolError, match="permission denied"):
        SegmentWriter(str(tmp_path), 1)

"""Examination of a spool, as the agent reads it. It changes no segment: readers skip damaged
parts, and people may still decipher lines there."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from typing import NamedTuple

from logshipper.errors import LogshipperError, StoreError, os_words
from logshipper.spool.live_status import LIVE_FILE
from logshipper.spool.segment import FrameType
from logshipper_ingest.spool.capture_folder import CaptureFolder, Life, list_folders
from logshipper_ingest.spool.segment_reader import (
    Damage,
    Outcome,
    SegmentReader,
    SpoolPosition,
    list_segments,
    segment_name,
    segment_number,
)

READ_BYTES = 4 << 20
_MAKING = ".new-"
_OWN_NAMES = {"lock", "counters", "telegraf", LIVE_FILE}  # in segments/, next to the segments
_MAX_ODD = 100  # of a folder
_LOST = "what stood there is lost, and counted as lost when the capture is over"


class Sizes(NamedTuple):
    """Number of captures; bytes and lines of their segments."""

    captures: int = 0
    bytes: int = 0
    lines: int = 0


class SpoolCheck:
    """Examination of one spool. positions: shipped position of each capture, by folder; report:
    `Fsck.report`; bar: receives read and total bytes; node: jobs' users own `segments/`."""

    def __init__(
        self,
        path: str,
        positions: Mapping[str, SpoolPosition],
        report: Callable[..., None],
        bar: Callable[[int, int], None],
        node: bool,
        repair: bool,
    ) -> None:
        self._path = path
        self._node = node
        self._positions = positions
        self._report = report
        self._bar = bar
        self._repair = repair
        self._read = self._all = 0
        self._lines = 0

    def run(self) -> Sizes:
        """Examine the spool. Raises StoreError if it can't be opened."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return Sizes()
        except OSError as error:
            raise StoreError(self._path, f"can't be opened: {os_words(error)}") from None
        try:
            if self._node:
                self._check_mode(fd)
            self._check_names(fd)
            names = list_folders(fd)
            owner = os.fstat(fd).st_uid
            for _, folder in self._folders(fd, names, owner):
                self._all += folder.bytes_from(SpoolPosition())
            captures = 0
            for name, folder in self._folders(fd, names, owner, report_errors=True):
                captures += 1
                self._check_capture(name, folder)
            return Sizes(captures, self._read, self._lines)
        finally:
            os.close(fd)

    def _folders(
        self, fd: int, names: list[str], owner: int, *, report_errors: bool = False
    ) -> Iterator[tuple[str, CaptureFolder]]:
        for name in names:
            try:
                folder = CaptureFolder(fd, self._path, name, owner, node=self._node)
            except FileNotFoundError:
                continue  # shipped and removed meanwhile
            except (OSError, LogshipperError) as error:
                if report_errors:
                    self._report_unreadable(fd, name, error)
                continue
            with folder:
                yield name, folder

    # ---- the folder itself

    def _check_mode(self, fd: int) -> None:
        mode = stat.S_IMODE(os.fstat(fd).st_mode) & 0o777
        if mode == 0o711:
            return
        if self._repair:
            os.fchmod(fd, 0o711)
        what = f"has mode {mode:04o}, and must have 0711"
        means = "the agent doesn't start, and captures can't be made"
        self._report("wrong", self._path, what, means, "--repair sets it", fixed=self._repair)

    def _check_names(self, fd: int) -> None:
        """Report names that are no capture's directory."""
        with os.scandir(fd) as entries:
            odd = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
        for name in [name for name in odd if not name.startswith(".")][:_MAX_ODD]:
            path = os.path.join(self._path, name)
            does = "the agent leaves it alone"
            self._report("note", path, "is no directory", "it holds no capture", does)
        for name in [name for name in os.listdir(fd) if name.startswith(_MAKING)][:_MAX_ODD]:
            path = os.path.join(self._path, name)
            what = "was half made by somebody who was killed"
            does = "the next capture that is made removes it"
            self._report("note", path, what, "nobody has printed into it", does)

    def _report_unreadable(self, fd: int, name: str, error: Exception) -> None:
        path = os.path.join(self._path, name)
        if _is_empty(fd, name):
            if self._repair:
                with suppress(FileNotFoundError):  # the agent removed it meanwhile
                    os.rmdir(name, dir_fd=fd)
            what = "is empty: the agent was killed when it removed it"
            does = "the agent, or --repair, removes it"
            self._report("note", path, what, "all of it was shipped", does, fixed=self._repair)
        else:
            self._report_unshipped(path, error)

    def _report_unshipped(self, path: str, error: Exception) -> None:
        words = getattr(error, "reason", "") or os_words(error)
        does = "the agent leaves it and retries"
        self._report("wrong", path, words, "the agent does not ship its content", does)

    # ---- a capture

    def _check_capture(self, name: str, folder: CaptureFolder) -> None:
        try:
            if folder.identity(complete=True) is None:
                raise StoreError(folder.path, "doesn't say whose it is")
        except LogshipperError as error:
            self._report_unshipped(folder.path, error)
            return
        if folder.segments_fd < 0:
            return
        self._check_odd_names(folder)
        numbers = list_segments(folder.segments_fd)
        position = self._positions.get(folder.key, SpoolPosition())
        self._check_position(folder, position, numbers)
        if numbers:
            self._check_segments(folder, SpoolPosition(numbers[0], 0), position)

    def _check_odd_names(self, folder: CaptureFolder) -> None:
        names = [name for name in os.listdir(folder.segments_fd) if name not in _OWN_NAMES]
        for name in [name for name in names if not segment_number(name)][:_MAX_ODD]:
            path = os.path.join(folder.path, "segments", name)
            does = "it goes with the capture"
            self._report("note", path, "is no segment", "nothing of it is read", does)

    def _check_position(
        self, folder: CaptureFolder, position: SpoolPosition, numbers: list[int]
    ) -> None:
        """Check that the checkpoint matches the segments."""
        following = [number for number in numbers if number >= position.segment]
        if position.segment and numbers and not following:
            return  # shipped; removed with the capture
        first = following[0] if following else 0
        path = os.path.join(folder.path, "segments", segment_name(position.segment))
        if position.segment and first > position.segment:
            what = f"is missing: {segment_name(first)} is the first that is there"
            does = "the agent goes on there"
            self._report("wrong", path, what, _LOST, does, offset=position.offset)
        elif first == position.segment and first:
            name, fd = segment_name(first), folder.segments_fd
            size = os.stat(name, dir_fd=fd, follow_symlinks=False).st_size
            if size < position.offset:
                what = f"ends here, and was shipped up to byte {position.offset}"
                means = "somebody cut it; Loki has the missing part"
                does = "the agent goes on with the next segment"
                self._report("wrong", path, what, means, does, offset=size)

    def _check_segments(
        self, folder: CaptureFolder, begin: SpoolPosition, checkpoint: SpoolPosition
    ) -> None:
        alive = folder.life() is Life.LIVE
        path = os.path.join(folder.path, "segments")
        with closing(SegmentReader(folder.segments_fd, path, begin, owner=folder.writer)) as reader:
            while True:
                try:
                    batch = reader.read(READ_BYTES, alive=alive)
                except OSError as error:
                    what = f"can't be read: {os_words(error)}"
                    self._report("wrong", path, what, "its lines wait", "the agent tries again")
                    return
                self._lines += sum(
                    frame.count for frame in batch.frames if frame.type is FrameType.LINES
                )
                self._read += batch.frame_bytes
                self._bar(self._read, max(self._all, self._read))
                blocked = batch.outcome is Outcome.BLOCKED
                for damage in batch.damages:
                    is_newer = blocked and damage is batch.damages[-1]
                    self._report_damage(damage, checkpoint, is_newer=is_newer)
                if batch.outcome is not Outcome.MORE:
                    break
        if batch.outcome is Outcome.CUT and not alive:
            position = reader.position
            place = os.path.join(path, segment_name(position.segment))
            what = "the capture died here: no frame says that it is over"
            means = "its unwritten lines are lost, and counted as lost"
            does = "the agent ships the rest"
            self._report("note", place, what, means, does, offset=position.offset)

    def _report_damage(self, damage: Damage, checkpoint: SpoolPosition, *, is_newer: bool) -> None:
        error, skipped = damage
        description = error.reason.removeprefix(f"at byte {error.offset}: ")
        number = segment_number(os.path.basename(error.path)) or 0
        if is_newer:
            means, does = "its lines wait", "the agent reads on when it is upgraded"
        elif (number, error.offset) < checkpoint:
            means, does = "the agent has passed it: it is counted", "nothing more comes of it"
        elif skipped:
            means = f"up to {skipped} bytes of lines are lost, and counted"
            does = "the agent skips them"
        else:
            means, does = "no lines are lost by it", "the agent goes on behind it"
        level = "wrong" if is_newer or skipped > 0 or "missing" in description else "note"
        self._report(level, error.path, description, means, does, offset=error.offset)


def _is_empty(fd: int, name: str) -> bool:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        folder = os.open(name, flags, dir_fd=fd)
    except OSError:
        return False
    try:
        return not os.listdir(folder)
    finally:
        os.close(folder)

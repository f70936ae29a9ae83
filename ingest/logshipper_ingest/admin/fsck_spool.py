"""Examination of a spool, as the agent reads it. It changes no segment: readers skip damaged
parts, and people may still decipher lines there."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from logshipper.errors import LogshipperError, StoreError, os_words
from logshipper.spool.live_status import LIVE_FILE
from logshipper.spool.segment import FrameType
from logshipper_ingest.admin.fsck_findings import Fault
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
    """Examination of one spool. node: jobs' users own `segments/`; positions: shipped position
    of each capture, by folder; report: receives each fault; bar: receives read and total bytes."""

    def __init__(
        self,
        path: str,
        *,
        node: bool,
        positions: Mapping[str, SpoolPosition],
        report: Callable[[Fault], None],
        bar: Callable[[int, int], None],
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
            self._all = sum(
                folder.bytes_from(SpoolPosition()) for _, folder in self._folders(fd, names, owner)
            )
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
        self._report(
            Fault("wrong", self._path, -1, f"has mode {mode:04o}, and must have 0711",
                  "the agent doesn't start, and captures can't be made", "--repair sets it", self._repair)
        )  # fmt: skip

    def _check_names(self, fd: int) -> None:
        """Report names that are no capture's directory."""
        with os.scandir(fd) as entries:
            odd = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
            odd = [name for name in odd if not name.startswith(".")][:_MAX_ODD]
        for name in odd:
            self._report(
                Fault("note", os.path.join(self._path, name), -1, "is no directory", "it holds no capture",
                      "the agent leaves it alone")
            )  # fmt: skip
        for name in [name for name in os.listdir(fd) if name.startswith(_MAKING)][:_MAX_ODD]:
            self._report(
                Fault("note", os.path.join(self._path, name), -1, "was half made by somebody who was killed",
                      "nobody has printed into it", "the next capture that is made removes it")
            )  # fmt: skip

    def _report_unreadable(self, fd: int, name: str, error: Exception) -> None:
        path = os.path.join(self._path, name)
        if self._is_empty(fd, name):
            if self._repair:
                self._remove_empty(fd, name)
            self._report(
                Fault("note", path, -1, "is empty: the agent was killed when it removed it",
                      "all of it was shipped", "the agent, or --repair, removes it", self._repair)
            )  # fmt: skip
            return
        reason = getattr(error, "reason", "") or os_words(error)
        self._report(
            Fault(
                "wrong",
                path,
                -1,
                reason,
                "what is in it isn't shipped",
                "the agent leaves it, and tries again",
            )
        )

    def _is_empty(self, fd: int, name: str) -> bool:
        try:
            folder = os.open(
                name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd
            )
        except OSError:
            return False
        try:
            return not os.listdir(folder)
        finally:
            os.close(folder)

    def _remove_empty(self, fd: int, name: str) -> None:
        try:
            os.rmdir(name, dir_fd=fd)
        except FileNotFoundError:
            pass  # the agent removed it meanwhile

    # ---- a capture

    def _check_capture(self, name: str, folder: CaptureFolder) -> None:
        try:
            if folder.identity(complete=True) is None:
                raise StoreError(folder.path, "doesn't say whose it is")
        except LogshipperError as error:
            self._report(
                Fault("wrong", folder.path, -1, getattr(error, "reason", str(error)), "what is in it isn't shipped",
                      "the agent leaves it, and tries again")
            )  # fmt: skip
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
        with os.scandir(folder.segments_fd) as entries:
            odd = [
                entry.name
                for entry in entries
                if not segment_number(entry.name) and entry.name not in _OWN_NAMES
            ]
        for name in odd[:_MAX_ODD]:
            self._report(
                Fault("note", os.path.join(folder.path, "segments", name), -1, "is no segment",
                      "nothing of it is read", "it goes with the capture")
            )  # fmt: skip

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
            self._report(
                Fault("wrong", path, position.offset, f"is missing: {segment_name(first)} is the first that is there",
                      _LOST, "the agent goes on there")
            )  # fmt: skip
        elif first == position.segment and first:
            size = os.stat(
                segment_name(first), dir_fd=folder.segments_fd, follow_symlinks=False
            ).st_size
            if size < position.offset:
                self._report(
                    Fault("wrong", path, size, f"ends here, and was shipped up to byte {position.offset}",
                          "somebody cut it; what was cut is in Loki", "the agent goes on with the next segment")
                )  # fmt: skip

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
                    self._report(
                        Fault("wrong", path, -1, f"can't be read: {os_words(error)}", "its lines wait",
                              "the agent tries again")
                    )  # fmt: skip
                    return
                self._lines += sum(
                    frame.count for frame in batch.frames if frame.type is FrameType.LINES
                )
                self._read += batch.frame_bytes
                self._bar(self._read, max(self._all, self._read))
                blocked = batch.outcome is Outcome.BLOCKED
                for damage in batch.damages:
                    self._report_damage(
                        damage, checkpoint, is_newer=blocked and damage is batch.damages[-1]
                    )
                if batch.outcome is not Outcome.MORE:
                    break
        if batch.outcome is Outcome.CUT and not alive:
            self._report(
                Fault("note", os.path.join(path, segment_name(reader.position.segment)), reader.position.offset,
                      "the capture died here: no frame says that it is over",
                      "what it hadn't written is lost, and counted as lost", "the agent ships what is there")
            )  # fmt: skip

    def _report_damage(self, damage: Damage, checkpoint: SpoolPosition, *, is_newer: bool) -> None:
        error, skipped = damage
        description = error.reason.removeprefix(f"at byte {error.offset}: ")
        number = segment_number(os.path.basename(error.path)) or 0
        if is_newer:
            means, does = "its lines wait", "the agent reads on when it is upgraded"
        elif (number, error.offset) < checkpoint:
            means, does = "the agent has passed it: it is counted", "nothing more comes of it"
        elif skipped:
            means, does = (
                f"up to {skipped} bytes of lines are lost, and counted",
                "the agent skips them",
            )
        else:
            means, does = "no lines are lost by it", "the agent goes on behind it"
        wrong = is_newer or skipped > 0 or "missing" in description
        self._report(
            Fault("wrong" if wrong else "note", error.path, error.offset, description, means, does)
        )

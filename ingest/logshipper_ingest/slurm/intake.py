"""Intake of the records that the hook job-ended writes into a folder. Only the folder's owner may
write there. Each file must be small, regular and the owner's, and no link. Files with other names
stay, because the configured folder may be a wrong one."""

import math
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

from logshipper.errors import SpoolError, os_words
from logshipper.fault_points import fault_point
from logshipper_ingest.model.end_record import (
    MALFORMED,
    MAX_RECORD_BYTES,
    BadRecord,
    EndRecord,
    parse_end,
)
from logshipper_ingest.open_files import opened
from logshipper_ingest.slurm.waiting import HoursOf, WaitingEnd, WaitingEnds

MAX_WAITING = 100_000  # records; most of the oldest belong to jobs without capture
MAX_AT_ONCE = 1000
FIRST_PAUSE_NS = 10**9  # from a record to the first question, for shipping its captures
LITTER_SECS = 600.0  # until unfinished files of the hook are removed
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NAME = re.compile(r"(\.new\.)?[0-9]{1,10}\.[0-9]{1,10}\.(jobcomp|epilog)\.[0-9]{1,10}", re.ASCII)

Say = Callable[[str], None]
Receiver: TypeAlias = "tuple[WaitingEnds, Callable[[str, int], None]]"


class EndedFolder:
    """The folder [slurm] ended_dir. Not thread-safe.

    receivers: stores of all records, each with a function that counts outcomes; count_job: gets
    each record once, captured or not; hours_of: sums of new records, stored by the first receiver.
    """

    def __init__(
        self,
        path: str,
        receiver: Receiver,
        say: Say,
        count_job: Callable[[EndRecord], None],
        hours_of: HoursOf,
    ) -> None:
        self._path = path
        self.receivers = [receiver]
        self._say = say
        self._count_job = count_job
        self._hours_of = hours_of
        self._stuck: set[str] = set()  # files that can't be removed: logged once, then ignored

    def take(self) -> bool:
        """Collect at most MAX_AT_ONCE records; return whether more exist. Raises SpoolError for an
        unusable folder, StoreError."""
        with self._open_folder() as (folder, owner):
            self._finish(folder)
            names = sorted(name for name in os.listdir(folder) if self._is_record(folder, name))
            ends, bad = [], []
            for name in names[:MAX_AT_ONCE]:
                try:
                    record = _read(folder, name, owner)
                except FileNotFoundError:
                    continue
                except (BadRecord, OSError) as error:
                    words = error.strerror if isinstance(error, OSError) else str(error)
                    bad.append(name)
                    words = f"{words}; the agent removes it and counts it as malformed"
                    self._say(f"{os.path.join(self._path, name)!r}: {words}")
                else:
                    now_ns = time.time_ns()
                    ends.append(WaitingEnd(name, record, now_ns, now_ns + FIRST_PAUSE_NS))
            old_names = self.receivers[0][0].unready()
            for place, (waiting_ends, count_outcome) in enumerate(self.receivers):
                hours_of = None if place else self._hours_of
                counts = waiting_ends.put(ends, MAX_WAITING, hours_of) if ends else {}
                for outcome, number in counts.items():
                    count_outcome(outcome, number)
                if bad:
                    waiting_ends.count(MALFORMED, len(bad))
                    count_outcome(MALFORMED, len(bad))
            for end in ends:
                if end.name not in old_names:
                    self._count_job(end.record)
            self._remove_files(folder, bad)
            if ends:
                fault_point("slurm_taken")
                self._finish(folder)
            return len(names) > MAX_AT_ONCE

    def _finish(self, folder: int) -> None:
        """Remove the files of records that all receivers have, and release these for sending."""
        unready = [waiting_ends.unready() for waiting_ends, _ in self.receivers]
        everywhere = set.intersection(*unready)
        partial = set.union(*unready) - everywhere
        names = everywhere | {name for name in partial if not _is_there(folder, name)}
        names -= self._stuck
        if not names:
            return
        self._remove_files(folder, sorted(names))
        os.fsync(folder)  # or a power cut brings them back
        fault_point("slurm_file_removed")
        for waiting_ends, _ in self.receivers:
            waiting_ends.make_ready(names - self._stuck)

    def _remove_files(self, folder: int, names: Iterable[str]) -> None:
        for name in names:
            try:
                os.unlink(name, dir_fd=folder)
            except FileNotFoundError:
                pass
            except OSError as error:
                self._stuck.add(name)
                words = f"can't remove it: {error.strerror}; the agent doesn't send it"
                self._say(f"{os.path.join(self._path, name)!r}: {words}")

    def _is_record(self, folder: int, name: str) -> bool:
        match = _NAME.fullmatch(name)
        if match is None or name in self._stuck:
            return False
        if match[1]:
            with suppress(OSError):  # finished, gone, or no file: harmless
                written = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
                if time.time() - written > LITTER_SECS:
                    os.unlink(name, dir_fd=folder)
        return not match[1]

    @contextmanager
    def _open_folder(self) -> Iterator[tuple[int, int]]:
        """Open the folder; yield its descriptor and owner."""
        try:
            with opened(self._path, _FOLDER_FLAGS) as folder:
                folder_stat = os.fstat(folder)
                if stat.S_IMODE(folder_stat.st_mode) & 0o022:
                    words = "other users than its owner may write there: run `chmod 700` on it"
                    raise SpoolError(self._path, f"{words} ([slurm] ended_dir)")
                yield folder, folder_stat.st_uid
        except OSError as error:
            raise SpoolError(self._path, f"{os_words(error)} ([slurm] ended_dir)") from None


def _is_there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _read(folder: int, name: str, owner: int) -> EndRecord:
    with opened(name, _FILE_FLAGS, dir_fd=folder) as fd:
        file_stat = os.fstat(fd)
        if not stat.S_ISREG(file_stat.st_mode):
            raise BadRecord("isn't a file")
        if file_stat.st_uid not in (owner, 0):
            raise BadRecord(f"belongs to uid {file_stat.st_uid}, not to the folder's owner")
        with open(fd, "rb", closefd=False) as file:
            content = file.read(MAX_RECORD_BYTES + 1)
        return parse_end(content, math.ceil(file_stat.st_mtime))

"""Removal of a job's lines from the files of a node's state_dir, also next to a running agent.
The files are the quarantine, its unreadable part from `fsck`, and measurements of unknown
senders."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from logshipper.errors import StoreError, os_words
from logshipper_ingest.admin.fsck import UNREADABLE
from logshipper_ingest.spool.purge_masks import masked, masked_json
from logshipper_ingest.spool.purge_pattern import EVERY_LINE, LinePattern
from logshipper_ingest.state import quarantine_files
from logshipper_ingest.telegraf import unidentified

_JOB_ID = re.compile(rb'"job_id" ?: ?"([^"]*)"')
_OPEN_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class StateFiles:
    """The files. sink_dirs: state_dir and those of its sinks. Raises StoreError."""

    def __init__(
        self, state_dir: str, sink_dirs: Sequence[str], job_id: str, pattern: LinePattern
    ) -> None:
        self._sink_dirs = sink_dirs
        kept_apart = os.path.join(state_dir, unidentified.FOLDER, unidentified.FILE)
        # the first is renamed to the second, so it comes first
        self._unidentified = [kept_apart, f"{kept_apart}.1"]
        self._job_id = job_id.encode()
        self._pattern = pattern

    def purge(self, *, dry_run: bool) -> dict[str, int]:
        """Purge, and return the number of lines by place. Places other than the quarantine
        appear only with lines. dry_run: only count. The caller holds the rewriter's lock."""
        counts: Counter[str] = Counter()
        for sink_dir in self._sink_dirs:
            folder = os.path.join(sink_dir, quarantine_files.FOLDER)
            counts["quarantine"] += self._purge_quarantine(folder, dry_run=dry_run)
            path = os.path.join(sink_dir, UNREADABLE)
            counts[UNREADABLE] += _mask_lines(path, self._mask_torn, dry_run=dry_run)
        for path in self._unidentified:
            counts["telegraf"] += _mask_lines(path, self._mask_unknown, dry_run=dry_run)
        return {place: count for place, count in counts.items() if count or place == "quarantine"}

    def _purge_quarantine(self, folder: str, *, dry_run: bool) -> int:
        if not dry_run:
            quarantine_files.remove_leftovers(folder)
        line_count = 0
        for name in quarantine_files.names(folder):
            lines = quarantine_files.read_bytes(folder, name)
            count = sum(self._is_meant(line, raw) for line, raw in lines)
            if count and not dry_run:
                quarantine_files.rewrite(folder, name, self._remaining)
            line_count += count
        return line_count

    def _remaining(self, line: quarantine_files.QuarantineLine, raw: bytes) -> bytes:
        return b"" if self._is_meant(line, raw) else raw

    def _is_meant(self, line: quarantine_files.QuarantineLine, raw: bytes) -> bool:
        entry = line.entry
        if entry is None:
            return self._is_torn_meant(raw)
        if entry.job_id.encode() != self._job_id:
            return False
        texts = (entry.line, entry.words, *entry.metadata.values())
        return self._pattern is EVERY_LINE or any(map(self._pattern.has, texts))

    def _is_torn_meant(self, raw: bytes) -> bool:
        """Whether a damaged line belongs to the job, as far as it names one."""
        match = _JOB_ID.search(raw)
        is_ours = match is not None and match[1] == self._job_id
        if self._pattern is EVERY_LINE:
            return is_ours and bool(raw.strip(b"*\n"))
        return (is_ours or match is None) and self._pattern.has(raw.rstrip(b"\n"))

    def _mask_torn(self, raw: bytes) -> bytes:
        return masked(raw) if self._is_torn_meant(raw) else raw

    def _mask_unknown(self, raw: bytes) -> bytes:
        """Mask lines of unknown jobs: all lines with the pattern, none without one."""
        return raw if self._pattern is EVERY_LINE else masked_json(raw, self._pattern)


def _mask_lines(path: str, mask: Callable[[bytes], bytes], *, dry_run: bool) -> int:
    """Overwrite lines in place, since others may append to the file or rename it. Return their
    number."""
    try:
        fd = os.open(path, _OPEN_FLAGS | (os.O_RDONLY if dry_run else os.O_RDWR))
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StoreError(path, f"can't be opened: {os_words(error)}") from None
    line_count = 0
    try:
        for offset, line in _lines(fd):
            new = mask(line)
            line_count += new != line
            if new != line and not dry_run and os.pwrite(fd, new, offset) != len(new):
                raise StoreError(path, "can't be written to the end")
        if line_count and not dry_run:
            os.fsync(fd)
    except OSError as error:
        raise StoreError(path, f"can't be purged: {os_words(error)}") from None
    finally:
        os.close(fd)
    return line_count


def _lines(fd: int) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of each line, without its LF."""
    with open(fd, "rb", closefd=False) as file:
        offset = 0
        while line := file.readline(quarantine_files.MAX_ENTRY_BYTES):
            yield offset, line.rstrip(b"\n")
            offset += len(line)

"""`logshipper-agent fsck`: examines all files of the agent on a node, or a user's store. Reports
each fault with its place, its effect on the lines, and the next step.

--repair fixes obstacles for the agent and discards nothing: it moves damaged parts aside. It
changes databases only with the agent's lock, so never next to a running agent. The quarantine
has its own locks.
"""

import os
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing

from logshipper.errors import LogshipperError, StoreError, os_words
from logshipper.spool.captures import spool_root
from logshipper_ingest.admin.fsck_findings import MAX_FINDINGS, Examination, Fault, Level
from logshipper_ingest.admin.fsck_spool import Sizes, SpoolCheck
from logshipper_ingest.agent.user_agent import take_lock
from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.config.sink_config import SINKS_FOLDER
from logshipper_ingest.console.progress_bar import Bar
from logshipper_ingest.slurm import waiting as slurm_waiting
from logshipper_ingest.spool.segment_reader import SpoolPosition
from logshipper_ingest.sqlite_file import SUFFIXES, open_reader, store_errors
from logshipper_ingest.state import checkpoints, quarantine_files
from logshipper_ingest.state.quarantine_files import QuarantineLine
from logshipper_ingest.state.sink_states import folders, least_of
from logshipper_ingest.store import marks_file
from logshipper_ingest.store.job_db import VERSION as JOB_VERSION

UNREADABLE = "quarantine.unreadable"  # in state_dir: lines that --repair took out of the quarantine
_STATE_LOST = (
    "the agent doesn't start",
    "--repair moves it aside: all that is spooled is sent once more, byte for byte, which Loki shows once",
)
_ENDS_LOST = (
    "the agent doesn't start",
    "--repair moves it aside: how jobs ended is not told of those that waited",
)


class Fsck:
    """One examination. Raises StoreError for unreadable folders."""

    def __init__(self, *, repair: bool) -> None:
        self._repair = repair
        self._faults: list[Fault] = []
        self._left_out = 0
        self._entries = 0
        self._bar = Bar("Reading segments", "{:,}".format, " bytes")

    def report(
        self,
        level: Level,
        path: str,
        what: str,
        means: str,
        does: str,
        *,
        offset: int = -1,
        fixed: bool = False,
    ) -> None:
        """Keep a fault (`Fault` has the fields)."""
        if len(self._faults) < MAX_FINDINGS:
            self._faults.append(Fault(level, path, offset, what, means, does, fixed))
        else:
            self._left_out += 1

    def node(self, config: AgentConfig) -> Examination:
        """Examine a node."""
        state_dir = config.agent.state_dir
        lock = take_lock(state_dir) if self._repair and os.path.isdir(state_dir) else None
        try:
            stopped = lock is not None
            # examine the files of removed sinks as well
            removed = [os.path.join(state_dir, SINKS_FOLDER, name) for name in folders(state_dir)]
            sinks = dict.fromkeys((state_dir, *(sink.folder for sink in config.sinks), *removed))
            positions = {folder: self._check_state(folder, fixable=stopped) for folder in sinks}
            least = least_of([positions[sink.folder] for sink in config.sinks])
            sizes = self._check_spool(config.agent.spool_dir, least, node=True)
            for folder in sinks:
                self._check_quarantine(state_dir, folder)
        finally:
            if lock is not None:
                os.close(lock)
        return self._examination(sizes)

    def store(self, root: str) -> Examination:
        """Examine a user's own store."""
        if not os.path.isdir(root):
            raise StoreError(root, "there is no store here")
        does = "the next command makes it again, of the jobs' own files"
        remade = ("lists of jobs wait for it", does)
        self._check_database(os.path.join(root, "catalogue.db"), JOB_VERSION, remade)
        marks = ("tags and notes of jobs can't be read", "move it away: the jobs are as before")
        self._check_database(os.path.join(root, marks_file.FILE), marks_file.VERSION, marks)
        jobs = os.path.join(root, "jobs")
        names = sorted(os.listdir(jobs)) if os.path.isdir(jobs) else []
        lost = ("this job can't be read", "move it away: the others are as before")
        for name in names:
            if name.endswith(".db"):
                self._check_database(os.path.join(jobs, name), JOB_VERSION, lost)
        return self._examination(self._check_spool(spool_root(root), {}, node=False))

    def _examination(self, sizes: Sizes) -> Examination:
        return Examination(*sizes, self._entries, self._faults, self._left_out)

    def _check_spool(
        self, path: str, positions: Mapping[str, SpoolPosition], *, node: bool
    ) -> Sizes:
        try:
            return SpoolCheck(path, positions, self.report, self._bar, node, self._repair).run()
        finally:
            self._bar.clear()

    # ---- databases

    def _check_state(self, folder: str, *, fixable: bool) -> dict[str, SpoolPosition]:
        """Check a sink's checkpoints and ends of jobs; return the position of each capture."""
        path = os.path.join(folder, checkpoints.STATE_FILE)
        positions = {}
        if self._check_database(path, checkpoints.VERSION, _STATE_LOST, fixable=fixable):
            try:
                kept = checkpoints.read_state(path).checkpoints
                positions = {checkpoint.folder: checkpoint.position for checkpoint in kept}
            except LogshipperError as error:
                self._report_database(path, str(error), _STATE_LOST, fixable=fixable)
        ends = os.path.join(folder, slurm_waiting.FILE)
        self._check_database(ends, slurm_waiting.VERSION, _ENDS_LOST, fixable=fixable)
        return positions

    def _check_database(
        self, path: str, version: int, lost: tuple[str, str], *, fixable: bool = False
    ) -> bool:
        """Whether a database exists and is intact."""
        if not os.path.lexists(path):
            return False
        try:
            with closing(open_reader(path, version)) as connection, store_errors(path):
                rows = connection.execute("PRAGMA integrity_check(5)").fetchall()
        except (LogshipperError, sqlite3.Error) as error:
            self._report_database(path, getattr(error, "reason", str(error)), lost, fixable=fixable)
            return False
        words = "; ".join(str(row[0]) for row in rows)
        if words != "ok":
            self._report_database(path, words, lost, fixable=fixable)
        return words == "ok"

    def _report_database(
        self, path: str, words: str, lost: tuple[str, str], *, fixable: bool
    ) -> None:
        if "newer logshipper" in words:
            self.report("wrong", path, words, "this version doesn't read it", "upgrade")
            return
        means, does = lost
        if fixable:
            _move_aside(path)
        elif self._repair and "--repair" in does:
            does += " (not while the agent runs: stop it)"
        self.report("wrong", path, words, means, does, fixed=fixable)

    # ---- the quarantine

    def _check_quarantine(self, state_dir: str, sink_dir: str) -> None:
        folder = os.path.join(sink_dir, quarantine_files.FOLDER)
        if not self._repair:
            self._look_at_quarantine(folder)
        elif os.path.isdir(folder):
            with quarantine_files.rewriter_lock(state_dir):
                self._look_at_quarantine(folder)

    def _look_at_quarantine(self, folder: str) -> None:
        for name in quarantine_files.leftovers(folder):
            what = "was half written by a `replay` or `purge` that was killed"
            means = "the file that it was to replace is whole"
            does = "the next one, or --repair, removes it"
            path = os.path.join(folder, name)
            self.report("note", path, what, means, does, fixed=self._repair)
        if self._repair:
            quarantine_files.remove_leftovers(folder)
        for name in quarantine_files.names(folder):
            bad = 0
            for line in quarantine_files.read_lines(folder, name):
                self._entries += line.entry is not None
                if line.entry is None:
                    bad += 1
                    self._report_line(os.path.join(folder, name), line)
            if bad and self._repair:
                self._take_out(folder, name)

    def _report_line(self, path: str, line: QuarantineLine) -> None:
        torn = f"the last line, of {line.size} bytes, is torn"
        what = f"{line.size} bytes are no entry" if line.whole else torn
        means = "`replay` can't send it"
        does = f"`replay` passes it over; --repair puts it into {UNREADABLE}, next to it"
        self.report("wrong", path, what, means, does, offset=line.offset, fixed=self._repair)

    def _take_out(self, folder: str, name: str) -> None:
        beside = os.path.join(os.path.dirname(folder), UNREADABLE)

        def decide(line: QuarantineLine, raw: bytes) -> bytes:
            if line.entry is not None:
                return raw
            _append(beside, raw)
            return b""

        quarantine_files.rewrite(folder, name, decide)


def _move_aside(path: str) -> None:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    try:
        for suffix in reversed(SUFFIXES):  # the file itself last, so that it never lacks its log
            if os.path.lexists(path + suffix):
                os.rename(path + suffix, f"{path}.damaged-{stamp}{suffix}")
    except OSError as error:
        raise StoreError(path, f"can't be moved aside: {os_words(error)}") from None


def _append(path: str, raw: bytes) -> None:
    """Append and sync, before the lines leave their old place. Raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "ab") as file:
        file.write(raw if raw.endswith(b"\n") else raw + b"\n")
        file.flush()
        os.fsync(file.fileno())

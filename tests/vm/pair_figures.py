"""Compare the lines of a job's own files with Loki's: values in, values out."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from tests.slurm.tools.capturing import Stream
from tests.vm.answers import Account, event_words, ledger_faults

STREAMS = {"out": "stdout", "err": "stderr"}  # by suffix of its files


class Log(Enum):
    """Expected state of a job's log. WHOLE: equals the job's files. AHEAD: has further lines that a
    reset removed from the files before they reached the disk. COUNTED: some lines are missing, and
    log and ledger report their number."""

    WHOLE = "whole"
    AHEAD = "ahead"
    COUNTED = "counted"


class Figures(NamedTuple):
    """Counts of lines. printed: in own files. lost: of these, missing from Loki. more: only in
    Loki."""

    jobs: int = 0
    printed: int = 0
    lost: int = 0
    repeated: int = 0
    more: int = 0

    def plus(self, other: "Figures") -> "Figures":
        return Figures(*(a + b for a, b in zip(self, other, strict=True)))

    def words(self) -> str:
        """Return the figures as text."""
        words = f"{self.jobs} jobs, {self.printed} lines printed, {self.lost} lost, {self.repeated} repeated"
        return f"{words}, {self.more} more in the log than in own files" if self.more else words


def own_lines(files: Mapping[str, bytes], log: Log) -> dict[str, dict[str, list[str]]]:
    """Return lines by job id and stream. files: content of `JOB.out` and `JOB.err`, by name."""
    jobs: dict[str, dict[str, list[str]]] = {}
    for name, content in files.items():
        job_id, _, kind = name.rpartition(".")
        if kind in STREAMS:
            # a reset leaves null bytes instead of unsynced content
            end = content.partition(b"\0")[0].rfind(b"\n") + 1 if log is Log.AHEAD else None
            lines = content[:end].decode(errors="replace").split("\n")
            # slurmstepd writes into the file itself
            own = [line for line in lines if line and not line.startswith("slurmstepd")]
            jobs.setdefault(job_id, {})[STREAMS[kind]] = own
    return jobs


def sequence_faults(job_id: str, lines: Mapping[str, Sequence[str]], *, whole: bool) -> list[str]:
    """Return messages about own files that differ from the script's output. whole: the script
    printed all of it."""
    faults = []
    for stream, own in lines.items():
        word = stream.removeprefix("std")
        numbers = list(own)
        if whole and stream == "stdout":
            if numbers[-1:] != ["out end"]:
                faults.append(f"{job_id} {stream}: its file doesn't end as the script does")
            numbers = numbers[:-1]
        if numbers != [f"{word} {n}" for n in range(1, len(numbers) + 1)]:
            faults.append(f"{job_id} {stream}: its file isn't what was printed")
    return faults


def compare(
    job_id: str, own: Mapping[str, Sequence[str]], account: Account, log: Log
) -> tuple[Figures, list[str]]:
    """Return a job's figures, and messages about its faults."""
    figures, faults = Figures(jobs=1), []
    logs = _by_stream(account.logs)
    for stream in STREAMS.values():
        printed, stored = own.get(stream, []), logs.get(stream, [])
        here = Figures(
            0, len(printed), len(set(printed) - set(stored)), len(stored) - len(set(stored)),
            len(set(stored) - set(printed)),
        )  # fmt: skip
        figures = figures.plus(here)
        faults += [f"{job_id} {stream}: {fault}" for fault in _faults(printed, stored, log)]
    if len(account.closed) != 1:
        faults.append(f"{job_id}: {len(account.closed)} captures are closed, not 1")
    faults += [f"{job_id} {fault}" for fault in _ledger_faults(account, figures, log)]
    if faults:
        faults += [f"{job_id} event: {words}" for words in event_words(account)]
    return figures, faults


def _by_stream(logs: Mapping[Stream, Sequence[str]]) -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {}
    for place in sorted(logs):
        lines.setdefault(place[-1], []).extend(logs[place])
    return lines


def _faults(printed: Sequence[str], stored: Sequence[str], log: Log) -> Iterable[str]:
    kept = set(stored)
    if log is Log.AHEAD:
        right = list(stored[: len(printed)]) == list(printed) and len(kept) == len(stored)
    elif log is Log.COUNTED:
        right = list(stored) == [line for line in printed if line in kept]
    else:
        right = list(stored) == list(printed)
    if not right:
        missing = [line for line in printed if line not in kept]
        more = [line for line in stored if line not in set(printed)]
        yield (
            f"{len(stored)} lines in Loki, {len(printed)} in its file; missing {missing[:5]}, "
            f"too much {more[:5]}, repeated {len(stored) - len(kept)}"
        )


def _ledger_faults(account: Account, figures: Figures, log: Log) -> list[str]:
    faults = ledger_faults(account)
    if log is not Log.COUNTED:
        # a reset loses unsynced lines, and the ledger reports them
        return [fault for fault in faults if log is Log.WHOLE or "lines are lost" not in fault]
    faults = [fault for fault in faults if "lines are lost" not in fault]
    lost = sum(
        event["ledger"].get(stream, {}).get("lost", 0)
        for event in account.closed
        for stream in STREAMS.values()
    )
    if lost != figures.lost:
        faults.append(f"the ledger has {lost} lines as lost, {figures.lost} are missing")
    said = sum(event["lines"] for event in account.events if event["event"] == "lines_lost")
    if said != figures.lost:
        faults.append(f"the log says that {said} lines are lost, {figures.lost} are missing")
    return faults

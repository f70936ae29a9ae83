"""Several jobs as people name them: ids, names, beginnings of ids, ranges `a3-a9`, wildcards,
`last`; `sim` for the jobs `sim:0`, `sim:1` and so on. Pure."""

import fnmatch
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from logshipper.errors import UnknownJob
from logshipper_ingest.model.summary import find_job

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary

_RANGE = re.compile(
    r"(?P<prefix>.*?)(?P<first>[0-9]{1,18})-(?:(?P=prefix))?(?P<last>[0-9]{1,18})", re.DOTALL
)
_NUMBERED = re.compile(r"(?P<prefix>.*?)(?P<number>[0-9]{1,18})", re.DOTALL)
WILDCARDS = "*?["
_MAX_DIGITS = 18


class JobPicks(NamedTuple):
    """jobs: in the given order, each once; unknown: an error for each unknown name."""

    jobs: "list[JobSummary]"
    unknown: list[UnknownJob]


def pick(
    names: Iterable[str], jobs: "Sequence[JobSummary]", *, all_named: bool = False
) -> JobPicks:
    """jobs: newest first; all_named: a name means every job that has it, not the newest."""
    job_by_key: dict[tuple[str, str], JobSummary] = {}
    unknown = []
    for name in names:
        try:
            matches = jobs_of(name, jobs, all_named=all_named)
        except UnknownJob as error:
            unknown.append(error)
            continue
        for job in matches:
            job_by_key.setdefault((job.cluster, job.job_id), job)
    return JobPicks(list(job_by_key.values()), unknown)


def resolve_each(
    names: Iterable[str], resolve: Callable[[str], str], jobs: "Callable[[], Sequence[JobSummary]]"
) -> tuple[list[str], list[UnknownJob]]:
    """Return the ids of the selectors' jobs, each once, in the given order, and an error for each
    unknown one.

    resolve: returns a name's job; jobs: returns all of them, for names of several.
    """
    ids: dict[str, None] = {}
    unknown = []
    for name in names:
        try:
            ids[resolve(name)] = None
        except UnknownJob as error:
            listing = jobs()
            if _pattern(name) is None:
                parts = iterations_of(name, listing)
                ids.update(dict.fromkeys(job.job_id for _, job in parts))
                unknown += [] if parts else [no_single_job(error, listing)]
                continue
            picks = pick([name], listing)
            ids.update(dict.fromkeys(job.job_id for job in picks.jobs))
            unknown += picks.unknown
    return list(ids), unknown


def jobs_of(
    name: str, jobs: "Sequence[JobSummary]", *, all_named: bool = False
) -> "list[JobSummary]":
    """Return the jobs of one selector, at least one. Raises UnknownJob, with suggestions."""
    exact = [job for job in jobs if name in (job.job_id, job.name)]
    if exact:
        return exact if all_named else [find_job(name, exact)]
    matches = _pattern(name)
    if matches is None:
        return [job for _, job in iterations_of(name, jobs)] or [find_job(name, jobs)]
    hits = [job for job in jobs if matches(job.job_id) or matches(job.name)]
    if not hits and any(mark in name for mark in WILDCARDS):
        raise UnknownJob(name, f"no job's id or name matches {name!r}")
    return hits or [find_job(name, jobs)]


def iterations_of(name: str, jobs: "Iterable[JobSummary]") -> "list[tuple[int, JobSummary]]":
    """The newest job of each name NAME:i, by i. jobs: newest first."""
    job_by_number: dict[int, JobSummary] = {}
    for job in jobs:
        numbered = _numbered(job.name)
        if numbered is not None and numbered[0] == name:
            job_by_number.setdefault(numbered[1], job)
    return sorted(job_by_number.items(), key=lambda part: part[0])


def parent_of(name: str, jobs: "Iterable[JobSummary]") -> "tuple[JobSummary, int] | None":
    """Return, for NAME:i, the newest job NAME, which may have a task or an iteration i, and i.

    jobs: newest first.
    """
    numbered = _numbered(name)
    if numbered is None:
        return None
    head, number = numbered
    parent = next((job for job in jobs if head in (job.job_id, job.name)), None)
    return None if parent is None else (parent, number)


def no_single_job(error: UnknownJob, jobs: "Sequence[JobSummary]") -> UnknownJob:
    """Return the error for a name that is no job's, with words for names of several jobs or of a
    part.

    jobs: newest first.
    """
    name = error.name
    parent = parent_of(name, jobs)
    if parent is not None:
        words = f"{error}; what is a task or an iteration of {parent[0].name} alone, `info`, `status`, `logs` and"
        return UnknownJob(name, f"{words} `monitor` take")
    try:
        several = jobs_of(name, jobs)
    except UnknownJob:
        return error
    if any(name in (job.job_id, job.name) for job in several):
        return error  # it is there more than once
    words = str(error)
    if len(several) > 1:
        words = f"{name!r} stands for {len(several)} jobs; name one of them"
    return UnknownJob(name, words, _single_names(several)[:10])


def _single_names(jobs: "Sequence[JobSummary]") -> list[str]:
    """A name for each job: its own, or the id where several of these jobs share the name."""
    counts = Counter(job.name for job in jobs)
    return [job.name if counts[job.name] == 1 else job.job_id for job in jobs]


def _numbered(name: str) -> tuple[str, int] | None:
    """NAME and i of NAME:i."""
    head, colon, number = name.rpartition(":")
    is_number = colon and number.isascii() and number.isdigit() and len(number) <= _MAX_DIGITS
    return (head, int(number)) if is_number else None


def _pattern(name: str) -> Callable[[str], bool] | None:
    if any(mark in name for mark in WILDCARDS):
        fullmatch = re.compile(fnmatch.translate(name.casefold())).fullmatch
        return lambda text: fullmatch(text.casefold()) is not None
    bounds = _RANGE.fullmatch(name)
    if bounds is None:
        return None
    prefix, first, last = bounds["prefix"], int(bounds["first"]), int(bounds["last"])

    def within(text: str) -> bool:
        match = _NUMBERED.fullmatch(text)
        if match is None or match["prefix"] != prefix:
            return False
        return first <= int(match["number"]) <= last

    return within

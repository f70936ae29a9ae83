"""Takes a pattern out of all that a store's folder holds of one job. The caller holds the store's
lock."""

import os
from collections.abc import Callable

from logshipper_ingest.spool.purge_pattern import LinePattern
from logshipper_ingest.spool.purge_segments import PurgeResult
from logshipper_ingest.sqlite_file import UnwritableError
from logshipper_ingest.store import due_marks, marks_file
from logshipper_ingest.store.catalogue import Catalogue, read_row
from logshipper_ingest.store.intake import Intake
from logshipper_ingest.store.job_traces import JobPlace, moved_aside, remove_unfinished
from logshipper_ingest.store.purge_store import purge_database


def purge_job(
    place: JobPlace, intake: Intake, catalogue: Catalogue, pattern: LinePattern, *, dry_run: bool
) -> PurgeResult:
    """Count and overwrite matching lines, names, tags and notes, by file.

    dry_run: only counts. Raises StoreError for files that cannot be written, after all other files.
    """
    spooled = intake.purge(place.job_id, pattern, dry_run=dry_run)
    if not dry_run:
        remove_unfinished(place)
    steps: dict[str, Callable[[], int]] = {
        place.database: lambda: _purge_database(place, pattern, dry_run=dry_run),
        catalogue.path: lambda: _purge_summary(place, catalogue, pattern, dry_run=dry_run),
        os.path.join(place.root, marks_file.FILE): lambda: marks_file.purge_marks(
            place.root, place.job_id, pattern, wal=place.wal, dry_run=dry_run
        ),
        os.path.join(place.root, due_marks.FILE): lambda: due_marks.purge(
            place.root, place.job_id, pattern, dry_run=dry_run
        ),
    }
    lines, files = spooled.lines, list(spooled.files)
    failed: list[UnwritableError] = []
    for path, step in steps.items():
        try:
            hit_count = step()
        except UnwritableError as error:
            failed.append(error)
        else:
            lines += hit_count
            files += [path] if hit_count else []
    if failed:
        raise failed[0]
    return PurgeResult(lines, files)


def _purge_database(place: JobPlace, pattern: LinePattern, *, dry_run: bool) -> int:
    if not os.path.exists(place.database):
        return 0
    return purge_database(place.database, pattern, wal=place.wal, dry_run=dry_run)


def _purge_summary(
    place: JobPlace, catalogue: Catalogue, pattern: LinePattern, *, dry_run: bool
) -> int:
    """Purge the summary; its matches count in the job's database."""
    hit_count = sum(map(pattern.has, catalogue.words(place.job_id)))
    if dry_run or not hit_count or not os.path.exists(place.database):
        return hit_count
    row = read_row(place.database, place.job_id)
    if row is not None:
        catalogue.replace(row)
    return 0


def not_purged(place: JobPlace, pattern: LinePattern) -> list[str]:
    """List remaining places that may match, a sentence each."""
    problems = [
        f"{path}: was moved aside as damaged, and not searched: remove it"
        for path in moved_aside(place)
    ]
    if pattern.has(place.job_id):
        problems.append(f"the job's id has it, which names files: `logshipper rm {place.job_id}`")
    return problems

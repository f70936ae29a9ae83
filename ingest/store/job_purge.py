"""Takes a pattern out of all that a store's folder holds of one job. The caller holds the store's lock."""

import os

from ingest.capture.purge_pattern import LinePattern
from ingest.capture.purge_segments import Purged
from ingest.store import due_marks, marks_file
from ingest.store.catalogue import Catalogue
from ingest.store.intake import Intake
from ingest.store.job_traces import JobPlace, moved_aside, remove_unfinished
from ingest.store.purge_store import purge_database


def purge_job(place: JobPlace, intake: Intake, catalogue: Catalogue, pattern: LinePattern, *, dry_run: bool) -> Purged:
    """How many lines, names, tags and notes have it, and in which files. dry_run: only counts. Raises StoreError."""
    spooled = intake.purge(place.job_id, pattern, dry_run=dry_run)
    if not dry_run:
        remove_unfinished(place)
    found = dict.fromkeys(spooled.files, 0)
    if os.path.exists(place.database):
        stored = purge_database(place.database, place.job_id, pattern, wal=place.wal, dry_run=dry_run)
        found[place.database] = stored.found
        if stored.summary is not None and not dry_run:
            catalogue.replace(stored.summary)  # which has the job's name, too
    if dry_run:
        found[catalogue.path] = sum(map(pattern.has, catalogue.words(place.job_id)))
    found[os.path.join(place.root, marks_file.FILE)] = marks_file.purge_marks(
        place.root, place.job_id, pattern, wal=place.wal, dry_run=dry_run
    )
    found[os.path.join(place.root, due_marks.FILE)] = due_marks.purge(
        place.root, place.job_id, pattern, dry_run=dry_run
    )
    files = [path for path, count in found.items() if count or path in spooled.files]
    return Purged(spooled.lines + sum(found.values()), files)


def not_purged(place: JobPlace, pattern: LinePattern) -> list[str]:
    """What stays as it is and may have it, a sentence each."""
    left = [f"{path}: was moved aside as damaged, and isn't looked into: remove it" for path in moved_aside(place)]
    if pattern.has(place.job_id):
        left.append(f"the job's id has it, which names files: `logshipper rm {place.job_id}`")
    return left

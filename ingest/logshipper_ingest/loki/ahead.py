"""Reads many jobs of Loki in a known order, in growing groups."""

from collections.abc import Sequence

from logshipper_ingest.loki.finding import Finder, LokiJob, TooMany
from logshipper_ingest.model.capture_id import JobKey

FIRST, MOST = 8, 128  # jobs in the first group, and in the largest
MOST_ENTRIES = 50_000  # of jobs in one group


class Ahead:
    """Gives each job once, and forgets skipped ones. Raises QueryError."""

    def __init__(self, finder: Finder, keys: Sequence[JobKey]) -> None:
        self._finder = finder
        self._keys = keys
        self._places = {key: place for place, key in enumerate(keys)}
        self._read: dict[JobKey, LokiJob | None] = {}
        self._size = FIRST

    def take(self, key: JobKey) -> LokiJob | None:
        """None where no job has this key (any more)."""
        while key not in self._read:
            place = self._places[key]
            keys = self._keys[place : place + self._size]
            try:
                max_entries = MOST_ENTRIES if len(keys) > 1 else None
                jobs = self._finder.find({each.job_id for each in keys}, max_entries=max_entries)
            except TooMany:
                self._size = max(self._size // 4, 1)
                continue
            self._read = {each: jobs.get(each) for each in keys}
            self._size = min(2 * self._size, MOST)
        return self._read.pop(key)

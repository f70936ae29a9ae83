"""Many jobs of Loki, read in an order that is known before: several at a time, more and more of
them."""

from collections.abc import Sequence

from logshipper_ingest.loki.finding import Finder, LokiJob, TooMany
from logshipper_ingest.model.capture_id import JobKey

FIRST, MOST = 8, 128  # jobs at a time
MOST_ENTRIES = 50_000  # of jobs that are read together


class Ahead:
    """Each job is there to be taken once; what was passed over is forgotten. Raises QueryError."""

    def __init__(self, finder: Finder, keys: Sequence[JobKey]) -> None:
        self._finder = finder
        self._keys = keys
        self._places = {key: place for place, key in enumerate(keys)}
        self._read: dict[JobKey, LokiJob | None] = {}
        self._size = FIRST

    def take(self, key: JobKey) -> LokiJob | None:
        """None where no job has this key (any more)."""
        if key not in self._read:
            self._read_from(self._places[key])
        return self._read.pop(key, None)

    def _read_from(self, place: int) -> None:
        while True:
            keys = self._keys[place : place + self._size]
            try:
                jobs = self._finder.find(
                    {key.job_id for key in keys},
                    max_entries=MOST_ENTRIES if len(keys) > 1 else None,
                )
            except TooMany:
                self._size = max(self._size // 4, 1)
                continue
            self._read = {key: jobs.get(key) for key in keys}
            self._size = min(2 * self._size, MOST)
            return

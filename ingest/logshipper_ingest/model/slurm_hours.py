"""Hourly sums over all jobs that Slurm ended, captured or not; it keeps nothing else of uncaptured
ones. Pure.

Only ended jobs count, so an hour's sums grow until all jobs of that hour have ended.
"""

from collections import defaultdict
from typing import NamedTuple

from logshipper_ingest.model.end_record import EndRecord

HOUR_SECS = 3600
MAX_HOURS = 14 * 24  # kept hours: of longer jobs the last days count


class HourSums(NamedTuple):
    """node_secs: seconds of nodes that jobs had in the hour; ended: jobs that ended in it."""

    node_secs: int = 0
    ended: int = 0


class Hours:
    """Sums by hour, in hours since 1970."""

    def __init__(self) -> None:
        self.sums: defaultdict[int, HourSums] = defaultdict(HourSums)

    def add(self, record: EndRecord, now_secs: int) -> None:
        """Add one run of a job. An unknown number of nodes counts as 1."""
        end = min(record.end, now_secs)
        first = oldest_hour(now_secs) * HOUR_SECS
        if end < first:
            return
        start = max(record.start or end, first)
        for hour in range(start // HOUR_SECS, end // HOUR_SECS + 1):
            secs = min(end, (hour + 1) * HOUR_SECS) - max(start, hour * HOUR_SECS)
            if secs > 0:
                self._add(hour, secs * (record.node_count or 1), 0)
        self._add(end // HOUR_SECS, 0, 1)

    def _add(self, hour: int, node_secs: int, ended: int) -> None:
        before = self.sums[hour]
        self.sums[hour] = HourSums(before.node_secs + node_secs, before.ended + ended)


def oldest_hour(now_secs: int) -> int:
    """The oldest hour kept."""
    return now_secs // HOUR_SECS - MAX_HOURS + 1

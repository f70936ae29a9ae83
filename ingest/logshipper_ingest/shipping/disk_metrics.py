"""Metrics of the disks of the agent's folders, and of each sink's quarantine."""

import math
import os
import time
from collections.abc import Mapping

from logshipper_ingest.metrics.agent_metrics import AgentMetrics, SinkMetrics
from logshipper_ingest.shipping.quarantine import Quarantine

LOOK_SECS = 10.0  # between two measurements: a quarantine has a file per day and user


class DiskMetrics:
    """Metrics of the file systems of folders. One thread's."""

    def __init__(self, metrics: AgentMetrics, folders: Mapping[str, str]) -> None:
        self._metrics = metrics
        self._folders = folders  # paths by label
        self._due = 0.0

    def measure(self) -> None:
        """Measure if it is due. Failures give NaN, which triggers no alert."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + LOOK_SECS
        for name, path in self._folders.items():
            free, size, free_files, size_files = _room(path)
            self._metrics.disk_free_bytes.labels(name).set(free)
            self._metrics.disk_size_bytes.labels(name).set(size)
            self._metrics.disk_free_files.labels(name).set(free_files)
            self._metrics.disk_size_files.labels(name).set(size_files)


class QuarantineMetrics:
    """Metrics of a sink's quarantine."""

    def __init__(self, metrics: SinkMetrics, quarantine: Quarantine, max_bytes: int) -> None:
        self._metrics = metrics
        self._quarantine = quarantine
        self._due = 0.0
        metrics.quarantine_max_bytes.set(max_bytes)

    def measure(self) -> None:
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + LOOK_SECS
        try:
            self._metrics.quarantine_bytes.set(self._quarantine.size())
        except OSError:
            self._metrics.quarantine_bytes.set(math.nan)


def _room(path: str) -> tuple[float, float, float, float]:
    """Return the bytes that are free without root, and all bytes; the same of inodes."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return (math.nan,) * 4
    free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    if not disk.f_files:  # a file system without a limit of inodes
        return free, size, math.nan, math.nan
    return free, size, disk.f_favail, disk.f_files

"""Keys and X axis of a job, for all readers, from their statistics."""

from collections.abc import Iterator
from dataclasses import replace

from logshipper_ingest.model.job import Child, ChildChange, Json
from logshipper_ingest.model.key_values import KeyValues, values_of
from logshipper_ingest.model.metadata_keys import raw_value
from logshipper_ingest.model.x_axis import KeyStats, XAxis, XChoice, merge_all


class KeyedReader:
    """Keys and X of a job. A reader gives `_axes` and `_records_at`."""

    _axis: XAxis | None = None

    def details(self) -> Json:
        """Return an imported job's data of its own system besides the summary; empty for other
        jobs."""
        return {}

    def children(self) -> Iterator[Child]:
        """Yield parts of an imported job that are no separate jobs, in order of their iterations."""
        return iter(())

    def child_changes(
        self, *, newest_first: bool = False, begin_ns: int = 0, end_ns: int = 0
    ) -> Iterator[ChildChange]:
        """Yield changes of their states in order of time, or newest first.

        begin_ns, end_ns: the time range; 0 for no limit.
        """
        return iter(())

    def _axes(self) -> list[XAxis]:
        """Return the statistics of each capture, in their order; called once."""
        raise NotImplementedError

    def _records_at(self, time_ns: int) -> list[str]:
        """The records of one time, newest first."""
        raise NotImplementedError

    def _x_axis(self) -> XAxis:
        if self._axis is None:
            axes = self._axes()
            self._axis = axes[0] if len(axes) == 1 else merge_all(axes)
        return self._axis

    def keys(self) -> list[KeyStats]:
        """All keys of the job's metadata in alphabetical order: numbers of nested objects, and
        top-level keys."""
        records: dict[int, list[str]] = {}
        key_stats = []
        for stats, last_ns in self._x_axis().key_stats():
            if last_ns not in records:
                records[last_ns] = self._records_at(last_ns)
            values = (raw_value(record, stats.path) for record in records[last_ns])
            key_stats.append(
                replace(stats, last=next((value for value in values if value is not None), "null"))
            )
        return key_stats

    def key_values(self) -> dict[str, KeyValues]:
        """Each key's last, least and greatest value by its name."""
        keys = self.keys()
        return {key.key: values_of(key) for key in keys}

    def x_axis(self) -> XChoice:
        """The X of the job's graphs (R25)."""
        return self._x_axis().choose()

    def x_for(self, key: str) -> XChoice:
        """Return the X of one key's graph: the job's, or its own if the two never share a record."""
        return self._x_axis().x_for(key)

    def notes(self) -> list[str]:
        """Describe the omissions of the limits on keys, a sentence each."""
        return self._x_axis().notes()

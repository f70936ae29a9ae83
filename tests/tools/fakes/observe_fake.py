"""A job in memory with the interface of readers, for tests of reading that need no store."""

import dataclasses
from collections.abc import Iterator, Sequence

from logshipper.config import JSON
from logshipper.spool.segment import Stream
from logshipper_ingest.model.job import Capture, JobSummary, MetadataRecord
from logshipper_ingest.model.metadata_keys import parse_record, raw_value
from logshipper_ingest.model.x_axis import KeyStats, XAxis, XChoice, merge_all

STARTED_NS = 1_780_000_000_000_000_000


class FakeReader:
    """A reader of records, given as lines per capture, a second apart.

    Captures are attempts 1, 2, ..., or the given tasks. origin: of all records.
    """

    def __init__(
        self, *captures: Sequence[str], tasks: Sequence[int] | None = None, origin: str = JSON
    ) -> None:
        self.captures = [
            Capture(number, 1 if tasks else number, "", tasks[number - 1] if tasks else 0, "node1", "COMPLETED", 0, 0,
                    STARTED_NS, STARTED_NS + 10**10, "enabled", "", {}, 160, 50, True)
            for number in range(1, len(captures) + 1)
        ]  # fmt: skip
        self._records: list[MetadataRecord] = []
        self._axes: list[XAxis] = []
        for capture, lines in zip(self.captures, captures, strict=True):
            axis = XAxis()
            self._axes.append(axis)
            for line in lines:
                time_ns = STARTED_NS + (len(self._records) + 1) * 10**9
                self._records.append(
                    MetadataRecord(
                        time_ns, 1, capture.attempt, capture.capture, line, Stream.STDOUT, origin
                    )
                )
                record = parse_record(line.encode("utf-8", "surrogatepass"))
                if record is not None:
                    axis.add(record, time_ns, origin=origin)
        self.summary = JobSummary(
            "k3f9x2", "train.py", "ada", "node1", "COMPLETED", 0, 0, len(captures), STARTED_NS, STARTED_NS + 10**10,
            STARTED_NS, "enabled", len(self._records), len(self._records), 0, 1000, 100,
        )  # fmt: skip

    def records(
        self,
        *,
        attempt: int | None = None,
        newest_first: bool = False,
        begin_ns: int = 0,
        end_ns: int = 0,
    ) -> Iterator[MetadataRecord]:
        records = [
            record
            for record in self._records
            if attempt in (None, record.attempt)
            and begin_ns <= record.time_ns
            and record.time_ns < (end_ns or 1 << 63)
        ]
        return iter(records[::-1] if newest_first else records)

    def keys(self) -> list[KeyStats]:
        keys = []
        for key, _ in merge_all(self._axes).key_stats():
            values = (raw_value(record.keyed_line, key.path) for record in reversed(self._records))
            keys.append(
                dataclasses.replace(key, last=next(value for value in values if value is not None))
            )
        return keys

    def x_axis(self) -> XChoice:
        return merge_all(self._axes).choose()

    def x_for(self, key: str) -> XChoice:
        return merge_all(self._axes).x_for(key)

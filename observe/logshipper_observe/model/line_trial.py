"""Tries the kinds of ~/.logoptin on a job's lines: possible records, and the line to add."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from logshipper.classify.metadata import json_record, keys_of
from logshipper.classify.series.items import ListedShape, Record
from logshipper.classify.series.key_rules import KeyRules
from logshipper.classify.series.recogniser import Recogniser
from logshipper.classify.text_records import TextRecords
from logshipper.config import AUTO, DICT, JSON, METADATA_KINDS, PAIRS, MetadataPattern
from logshipper.spool.segment import Kind, Stream
from logshipper_observe.model.documents import STREAM_NAMES

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import Reader

HINT_LINES = 5_000  # of a job without records: the first lines to try
_LEAST_RECORDS = 3  # fewer may be chance


class TrialRecord(NamedTuple):
    """A line that would be a record."""

    line: int  # its number, from 1
    origin: str
    record: str  # JSON


class LineTrial:
    """Takes final lines, in order. kinds: as in the file; key_rules: corrections of series.

    lines: their number; counts: records by origin; keys: those of series; switched_off: patterns
    that took too long.
    """

    def __init__(
        self, kinds: Sequence[str | MetadataPattern], key_rules: KeyRules | None = None
    ) -> None:
        self._kinds = kinds
        self._text_records = TextRecords(kinds)
        self._series = Recogniser(key_rules) if AUTO in kinds else None
        self.lines = 0
        self.counts: Counter[str] = Counter()
        self.keys: set[str] = set()
        self.switched_off: list[str] = []

    def take(self, text: bytes) -> Iterator[TrialRecord]:
        """The records of these lines, each ended by LF."""
        record_by_line = {record.at: record for record in self._text_records.find(text)}
        self.switched_off += self._text_records.take_disabled()
        lines = text.split(b"\n")[:-1]
        begin, self.lines = self.lines, self.lines + len(lines)
        plain_lines = []
        for at, line in enumerate(lines):
            number = begin + at + 1
            if text_record := record_by_line.get(at):
                record = TrialRecord(number, text_record.origin, text_record.line.decode())
            elif line[:1] == b"{" and JSON in self._kinds and isinstance(keys_of(line), tuple):
                record = TrialRecord(number, JSON, line.decode("utf-8", "replace"))
            else:
                plain_lines.append((number, line))
                continue
            self.counts[record.origin] += 1
            yield record
        if self._series is not None:
            for number, line in plain_lines:
                yield from self._found(self._series.feed((line,), 0.0, number))

    def finish(self) -> Iterator[TrialRecord]:
        """The records that awaited further lines."""
        if self._series is not None:
            yield from self._found(self._series.flush())

    def _found(self, records: Sequence[Record]) -> Iterator[TrialRecord]:
        for record in records:
            self.counts[AUTO] += 1
            self.keys.update(record.values)
            yield TrialRecord(record.seq, AUTO, json_record(record.values)[1].decode())

    def list_shapes(self) -> list[ListedShape]:
        """List the shapes of series, those with the most lines first."""
        return [] if self._series is None else self._series.list_shapes()

    def logoptin(self) -> str:
        """The line for ~/.logoptin by which all these would be records."""
        patterns = [kind for kind in self._kinds if isinstance(kind, MetadataPattern)]
        origins = set(self.counts)
        words = [JSON]
        words += [DICT] if DICT in origins else []
        words += (
            [PAIRS] if origins - {JSON, DICT, AUTO, *(pattern.name for pattern in patterns)} else []
        )
        words += [AUTO] if AUTO in origins else []
        words += [_as_yaml(pattern) for pattern in patterns if pattern.name in origins]
        return f"metadata: [{', '.join(words)}]"


class MetadataHint(NamedTuple):
    """Possible records of a job without any."""

    lines: int  # number of lines tried
    counts: dict[str, int]  # records by origin
    logoptin: str  # the line for the user's file
    stream: str
    series: int  # number of keys of `auto`

    @property
    def words(self) -> str:
        counts = ", ".join(
            f"{count} {origin}" + f" with {self.series} series" * (origin == AUTO)
            for origin, count in self.counts.items()
        )
        return f"of its first {self.lines:,} lines of {self.stream} some would be records ({counts}): `{self.logoptin}`"


def metadata_hint(reader: "Reader") -> MetadataHint | None:
    """Try stdout, then stderr. None for a job with records, or with hardly any possible ones."""
    if reader.summary.records:
        return None
    for stream, kinds in ((Stream.STDOUT, METADATA_KINDS[1:]), (Stream.STDERR, (AUTO,))):
        trial = LineTrial(kinds)
        lines = reader.lines(streams=(stream,), kinds=(Kind.LOG,))
        text = "".join(
            f"{line.text}\n" for line in islice(lines, HINT_LINES) if "part" not in line.attrs
        )
        for _ in chain(trial.take(text.encode("utf-8", "replace")), trial.finish()):
            pass
        if trial.counts.total() >= _LEAST_RECORDS:
            counts = dict(trial.counts.most_common())
            name = STREAM_NAMES[stream]
            return MetadataHint(trial.lines, counts, trial.logoptin(), name, len(trial.keys))
    return None


def _as_yaml(pattern: MetadataPattern) -> str:
    quoted = pattern.pattern.replace("'", "''")
    return f"{{pattern: '{quoted}', name: {pattern.name}}}"

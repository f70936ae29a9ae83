"""Which line of a job's log a metadata record is, or was made of. Where that isn't certain it is
none."""

from itertools import islice
from typing import TYPE_CHECKING

from logshipper.classify.text_records import TextRecords
from logshipper.config import DICT, JSON, PAIRS
from logshipper.spool.segment import Kind
from logshipper_observe.base.words import uncoloured
from logshipper_observe.page.logs import Blocks, Log, merged_lines

if TYPE_CHECKING:
    from logshipper_ingest.model.job import LogLine, MetadataRecord
    from logshipper_ingest.model.stores import Reader

_MOST_GROUPS = 16  # of blocks that are looked through, of a copy whose lines came late
_MOST_BESIDE = 4_096  # lines, or records, that are looked at for those that were written together
_EPOCH = '{"epoch": '  # what a program says in a line before goes first in its record


def line_number(log: Log, source: Blocks, reader: "Reader", record: "MetadataRecord") -> int | None:
    """The line's number in the log; None where no line is certain to be the record's."""
    groups = islice(log.index.groups_back(record.time_ns), _MOST_GROUPS)
    for group in groups:
        log_lines = merged_lines(source, group)
        for at, line in enumerate(log_lines):
            if line.time_ns == record.time_ns and _is_of(record, line):
                is_record = line.kind is Kind.METADATA and line.text == record.line
                return group.first + at if is_record else None
        if record.origin != JSON:
            place = _line_beside(log_lines, reader, record)
            if place is not None:
                return group.first + place
    return None


def _is_of(record: "MetadataRecord", line: "LogLine") -> bool:
    return line.stream is record.stream and line.capture == record.capture


def _line_beside(
    log_lines: "list[LogLine]", reader: "Reader", record: "MetadataRecord"
) -> int | None:
    """The place of the line that a record was made of. Such lines and their records were written
    together, 1 ns apart, in the same order: where as many lines make this very record as there are
    such records, each is one's."""
    records = _records_beside(reader, record)
    place_by_time = {line.time_ns: at for at, line in enumerate(log_lines) if _is_of(record, line)}
    places: list[int] = []
    time_ns = records[0].time_ns - 1
    while time_ns in place_by_time and len(places) < _MOST_BESIDE:
        places.append(place_by_time[time_ns])
        time_ns -= 1
    places.reverse()
    text = "".join(f"{uncoloured(log_lines[place].text)}\n" for place in places)
    made_at = [
        places[made.at]
        for made in TextRecords((DICT, PAIRS)).find(text.encode("utf-8", "replace"))
        if made.origin == record.origin and _is_same(made.line.decode(), record.line)
    ]
    same_times = [peer.time_ns for peer in records if peer.line == record.line]
    if len(made_at) != len(same_times):
        return None
    return made_at[same_times.index(record.time_ns)]


def _is_same(made: str, line: str) -> bool:
    return line == made or (line.startswith(_EPOCH) and line.partition(", ")[2] == made[1:])


def _records_beside(reader: "Reader", record: "MetadataRecord") -> "list[MetadataRecord]":
    """The records that were written together with one, in order, that one among them."""
    time_ns = record.time_ns
    begin_ns, end_ns = max(time_ns - _MOST_BESIDE, 0), time_ns + _MOST_BESIDE
    peer_by_time = {
        peer.time_ns: peer
        for peer in reader.records(begin_ns=begin_ns, end_ns=end_ns)
        if (peer.capture, peer.stream) == (record.capture, record.stream) and peer.origin != JSON
    }
    first = time_ns
    while first - 1 in peer_by_time:
        first -= 1
    records = []
    while first in peer_by_time:
        records.append(peer_by_time[first])
        first += 1
    return records

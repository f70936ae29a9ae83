"""The line of a metadata record in its job's log, or none if the line is uncertain."""

from itertools import count, islice, takewhile
from typing import TYPE_CHECKING

from logshipper.classify.text_records import TextRecords
from logshipper.config import DICT, JSON, PAIRS
from logshipper.spool.segment import Kind
from logshipper_observe.base.words import uncoloured
from logshipper_observe.page.log.logs import Blocks, Log, merged_lines

if TYPE_CHECKING:
    from logshipper_ingest.model.job import LogLine, MetadataRecord
    from logshipper_ingest.model.stores import Reader

_MOST_GROUPS = 16  # of blocks: in a copy, late lines are in later groups
_MOST_NEIGHBOURS = 4_096  # lines or records of one batch
_EPOCH = '{"epoch": '  # an epoch from an earlier line is the first key of a record


def line_number(log: Log, source: Blocks, reader: "Reader", record: "MetadataRecord") -> int | None:
    """Return the number of the record's line, None if it is uncertain."""
    for group in islice(log.index.groups_back(record.time_ns), _MOST_GROUPS):
        log_lines = merged_lines(source, group)
        for at, line in enumerate(log_lines):
            if line.time_ns == record.time_ns and _is_of(record, line):
                is_record = line.kind is Kind.METADATA and line.text == record.line
                return group.first + at if is_record else None
        if record.origin != JSON:
            place = _neighbour_line(log_lines, reader, record)
            if place is not None:
                return group.first + place
    return None


def _is_of(record: "MetadataRecord", line: "LogLine") -> bool:
    return line.stream is record.stream and line.capture == record.capture


def _neighbour_line(
    log_lines: "list[LogLine]", reader: "Reader", record: "MetadataRecord"
) -> int | None:
    """Return the place of the line that a record was made of.

    The sidecar writes a batch of such lines, then their records, 1 ns apart and in the same order.
    So if as many lines make this record as there are such records, they correspond in order.
    """
    records = _neighbour_records(reader, record)
    place_by_time = {line.time_ns: at for at, line in enumerate(log_lines) if _is_of(record, line)}
    times = takewhile(place_by_time.__contains__, count(records[0].time_ns - 1, -1))
    places = [place_by_time[time_ns] for time_ns in islice(times, _MOST_NEIGHBOURS)][::-1]
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


def _neighbour_records(reader: "Reader", record: "MetadataRecord") -> "list[MetadataRecord]":
    """Return the records of a record's batch, in order."""
    time_ns = record.time_ns
    begin_ns, end_ns = max(time_ns - _MOST_NEIGHBOURS, 0), time_ns + _MOST_NEIGHBOURS
    peer_by_time = {
        peer.time_ns: peer
        for peer in reader.records(begin_ns=begin_ns, end_ns=end_ns)
        if (peer.capture, peer.stream) == (record.capture, record.stream) and peer.origin != JSON
    }
    first = time_ns - sum(1 for _ in takewhile(peer_by_time.__contains__, count(time_ns - 1, -1)))
    return [peer_by_time[at_ns] for at_ns in takewhile(peer_by_time.__contains__, count(first))]

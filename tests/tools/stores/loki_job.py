"""Convert captures in a spool to the entries that the node agent pushes to Loki."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from logshipper.spool.segment import Json, Kind
from logshipper_ingest.model.capture_rows import BlockRow, EventRow, Rows
from logshipper_ingest.model.ledger import STREAM_NAMES
from logshipper_ingest.model.x_axis import XAxis
from logshipper_ingest.servers.loki_push import Entry
from logshipper_ingest.spool.capture_folder import CaptureFolder, Identity, Life, list_folders
from logshipper_ingest.spool.learning import learn, new_account
from logshipper_ingest.spool.segment_reader import Outcome, SegmentReader, SpoolPosition

HOST = "node1"
_KINDS = {Kind.LOG: "log", Kind.NOTE: "log", Kind.METADATA: "metadata", Kind.COMMAND: "command"}


class Pushed(Protocol):
    """A Loki to push to, real or in memory."""

    def push(
        self, labels: Mapping[str, str], entries: list[Entry]
    ) -> Any: ...  # Any: nobody uses it


def push_spool(
    loki: Pushed, spool: Path, *, cluster: str = "local", max_line_bytes: int = 256_000
) -> None:
    """Push all entries of a spool, and leave the spool unchanged."""
    for labels, entries in streams_of(spool, cluster=cluster, max_line_bytes=max_line_bytes):
        loki.push(labels, entries)


def streams_of(
    spool: Path, *, cluster: str = "local", max_line_bytes: int = 256_000
) -> Iterator[tuple[dict[str, str], list[Entry]]]:
    """Yield labels and entries of each stream and capture."""
    spool_fd = os.open(spool, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in sorted(list_folders(spool_fd)):
            with CaptureFolder(spool_fd, str(spool), name, os.geteuid()) as folder:
                yield from _of_capture(folder, cluster, max_line_bytes)
    finally:
        os.close(spool_fd)


def _of_capture(
    folder: CaptureFolder, cluster: str, max_line_bytes: int
) -> Iterator[tuple[dict[str, str], list[Entry]]]:
    identity = folder.identity(complete=True)
    assert identity is not None
    life = folder.life()
    account, axis, rows = new_account(folder, identity), XAxis(), Rows()
    segments = os.path.join(folder.path, "segments")
    with closing(
        SegmentReader(folder.segments_fd, segments, SpoolPosition(), owner=folder.writer)
    ) as reader:
        while True:
            batch = reader.read(1 << 20, alive=life is Life.LIVE)
            learnt = learn(account, axis, rows, batch, folder, life, account.newest_ns or 1 << 62)
            if batch.outcome is not Outcome.MORE:
                break
    rows.marks = [
        EventRow(mark.time_ns, _dressed(mark.event, identity, cluster)) for mark in rows.marks
    ]
    if learnt.done:
        choice = axis.choose()
        x_axis = {
            "key": choice.key,
            "rule": choice.rule,
            "words": choice.words,
            "path": list(choice.path),
        }
        closed = {"event": "closed", **account.end_facts(), "hosts": [HOST], "x_axis": x_axis}
        rows.marks.append(EventRow(account.newest_ns + 1, closed))
    fields = {"job_id": identity.job_id, "user": identity.user, "step": identity.step}
    fields |= {"task": str(identity.task), "attempt": str(identity.attempt)}
    common = {name: value for name, value in fields.items() if value}
    where = {"cluster": cluster, "host": HOST, "service_name": "logshipper"}
    for block in rows.blocks:
        yield from _of_block(block, common, where, max_line_bytes)
    for record in rows.records:
        if record.is_copy:
            labels = {**where, "stream": STREAM_NAMES[record.stream], "kind": "metadata"}
            own = {"n": str(record.n), "origin": record.origin, "copy": "1"}
            yield labels, [Entry(record.time_ns, record.line.decode(), {**common, **own})]
    for status in rows.statuses.values():
        labels = {**where, "stream": STREAM_NAMES[status.stream], "kind": "status"}
        yield labels, [Entry(status.time_ns, status.text.decode() or " ", common)]
    events = sorted([*rows.events, *rows.marks], key=lambda row: row.time_ns)
    yield (
        {**where, "kind": "event"},
        [Entry(row.time_ns, json.dumps(row.event), common) for row in events],
    )


def _of_block(
    block: BlockRow, common: dict[str, str], where: dict[str, str], max_line_bytes: int
) -> Iterator[tuple[dict[str, str], list[Entry]]]:
    texts = block.text.decode("utf-8", "replace").split("\n")
    at = 0
    for number, count in block.runs or [(int(Kind.LOG), block.lines)]:
        labels = {**where, "stream": STREAM_NAMES[block.stream], "kind": _KINDS[Kind(number)]}
        entries = []
        for line in range(at, at + count):
            attrs = {name: str(value) for name, value in (block.attrs or {}).get(line, {}).items()}
            note = {"note": "1"} if number == Kind.NOTE else {}
            for text, part in pieces(texts[line], attrs.get("part", ""), max_line_bytes):
                row_attrs = {**attrs, **note, "part": part} if part else {**attrs, **note}
                entries.append(Entry(block.time_ns + line, text, {**common, **row_attrs}))
        at += count
        yield labels, entries


def pieces(text: str, part: str, max_bytes: int) -> list[tuple[str, str]]:
    """Return a line in pieces that Loki accepts, with their `part`."""
    if len(text.encode()) <= max_bytes:
        return [(text, part)]
    chunks, rest = [], text
    while rest:
        piece = rest.encode()[:max_bytes].decode("utf-8", "ignore")
        chunks.append(piece)
        rest = rest[len(piece) :]
    above = f"{part}." if part else ""
    return [
        (piece, f"{above}{number}/{len(chunks)}") for number, piece in enumerate(chunks, start=1)
    ]


def _dressed(event: Json, identity: Identity, cluster: str) -> Json:
    if event["event"] == "started":
        identity_fields = {
            name: getattr(identity, name)
            for name in ("name", "user", "uid", "account", "partition")
        }
        return {**event, **identity_fields, "host": HOST, "cluster": cluster}
    return event if event["event"] == "heartbeat" else {**event, "hosts": [HOST]}

"""Entries for Loki about the ends of Slurm's jobs: an event, and a line in the log. Pure."""

import os
from collections.abc import Sequence

from logshipper_ingest.model.end_record import SECOND_NS, EndRecord, event_of, note_of
from logshipper_ingest.servers.loki_push import encode_metadata, to_utf8
from logshipper_ingest.shipping import shipper
from logshipper_ingest.shipping.entries import Chunk, Metadata, StreamKey, json_line, replay_hour
from logshipper_ingest.shipping.quarantine import Refusal
from logshipper_ingest.slurm.captured import Run
from logshipper_ingest.slurm.waiting import SentNote, WaitingEnd

SETTLE_SECS = 120  # for captures to close after a job's end: KillWait, and the way to Loki
NODE_SETTLE_SECS = 15  # after a node's death, when nobody closes its captures
_EVENTS = StreamKey("", "event")
_NOTES = StreamKey("stdout", "log")


def patient_until_ns(record: EndRecord) -> int:
    """Return the time until which the record waits for its captures."""
    secs = NODE_SETTLE_SECS if record.state in ("NODE_FAIL", "BOOT_FAIL") else SETTLE_SECS
    return (record.end + secs) * SECOND_NS


def sent_note_of(
    record: EndRecord, run: Run, now_ns: int, newest_ns: dict[str, int], tenant: str
) -> SentNote:
    """Place the end behind the job's last line, or after the wait for its captures. Stay below
    Loki's limit for future times."""
    time_ns = max(record.end * SECOND_NS, run.newest_ns + 1)
    if not run.is_complete:
        time_ns = max(time_ns, patient_until_ns(record))
    time_ns = min(time_ns, now_ns + shipper.MAX_AHEAD_NS // 2)
    newest = (newest_ns.get(key._replace(tenant=tenant).text, 0) for key in (_EVENTS, _NOTES))
    late = (at_ns - shipper.REPLAY_AFTER_NS > time_ns for at_ns in newest)
    hour = replay_hour(time_ns)
    return SentNote(run.attempt, time_ns, *(hour if is_late else "" for is_late in late))


def notes_behind(ends: Sequence[WaitingEnd], refusals: Sequence[Refusal]) -> dict[str, SentNote]:
    """Return the notes for replay streams in the next round."""
    notes = {end.name: end.sent_note for end in ends if end.sent_note is not None}
    again: dict[str, SentNote] = {}
    for refusal in refusals:
        if refusal.is_behind:
            name = refusal.chunk.capture
            note = again.get(name, notes[name])
            hour = replay_hour(note.time_ns)
            is_event = refusal.chunk.key.kind == _EVENTS.kind
            again[name] = (
                note._replace(event_replay=hour) if is_event else note._replace(note_replay=hour)
            )
    return again


def event_chunk(end: WaitingEnd) -> Chunk | None:
    note = end.sent_note
    if note is None:
        return None
    key = _EVENTS._replace(replay=note.event_replay)
    return _chunk(end, note, key, json_line(event_of(end.record)), {})


def note_chunk(end: WaitingEnd) -> Chunk | None:
    text, note = note_of(end.record), end.sent_note
    if note is None or not text:
        return None
    return _chunk(end, note, _NOTES._replace(replay=note.note_replay), to_utf8(text), {"note": "1"})


def _chunk(
    end: WaitingEnd, sent_note: SentNote, key: StreamKey, line: bytes, more: dict[str, str]
) -> Chunk:
    record, attempt = end.record, str(sent_note.attempt)
    pairs = {"job_id": record.job_id, "user": record.user, "attempt": attempt, **more}
    pairs = {name: value for name, value in pairs.items() if value}
    common = Metadata(pairs, encode_metadata(pairs), os.geteuid())
    return Chunk(end.name, key, range(sent_note.time_ns, sent_note.time_ns + 1), [line], common)

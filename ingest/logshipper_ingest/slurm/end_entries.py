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
    late = [
        replay_hour(time_ns) if time_ns < one_ns - shipper.REPLAY_AFTER_NS else ""
        for one_ns in newest
    ]
    return SentNote(run.attempt, time_ns, *late)


def is_behind(refusal: Refusal) -> bool:
    """Return whether its stream has newer lines. The next round sends it to a replay stream."""
    return refusal.reason == "too_far_behind" and not refusal.chunk.key.replay


def notes_behind(ends: Sequence[WaitingEnd], refusals: Sequence[Refusal]) -> dict[str, SentNote]:
    """Return the notes for replay streams in the next round."""
    again = {end.name: end.sent_note for end in ends if end.sent_note is not None}
    names = set()
    for refusal in filter(is_behind, refusals):
        name = refusal.chunk.capture
        hour = replay_hour(again[name].time_ns)
        is_event = refusal.chunk.key.kind == _EVENTS.kind
        again[name] = (
            again[name]._replace(event_replay=hour)
            if is_event
            else again[name]._replace(note_replay=hour)
        )
        names.add(name)
    return {name: again[name] for name in names}


def event_chunk(end: WaitingEnd) -> Chunk | None:
    if end.sent_note is None:
        return None
    return _chunk(
        end,
        end.sent_note,
        _EVENTS._replace(replay=end.sent_note.event_replay),
        json_line(event_of(end.record)),
        {},
    )


def note_chunk(end: WaitingEnd) -> Chunk | None:
    note = note_of(end.record)
    if end.sent_note is None or not note:
        return None
    return _chunk(
        end,
        end.sent_note,
        _NOTES._replace(replay=end.sent_note.note_replay),
        to_utf8(note),
        {"note": "1"},
    )


def _chunk(
    end: WaitingEnd, sent_note: SentNote, key: StreamKey, line: bytes, more: dict[str, str]
) -> Chunk:
    pairs = {
        "job_id": end.record.job_id,
        "user": end.record.user,
        "attempt": str(sent_note.attempt),
        **more,
    }
    pairs = {name: value for name, value in pairs.items() if value}
    common = Metadata(pairs, encode_metadata(pairs), os.geteuid())
    return Chunk(end.name, key, range(sent_note.time_ns, sent_note.time_ns + 1), [line], common)

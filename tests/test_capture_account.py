"""What a capture's records add to a store, where somebody writes very many or very large ones."""

import pytest

from ingest.capture import capture_account
from ingest.capture.capture_account import MAX_UNPARSED, CaptureAccount, Rows
from ingest.metadata.x_axis import XAxis
from logshipper import segment
from logshipper.segment import Frame, FrameType, Json, Kind, Stream
from tests.segment_factory import SECOND_NS, START_NS


def take(account: CaptureAccount, rows: Rows, record: Json, time_ns: int) -> None:
    decoded = segment.decode_frame(segment.encode_record(time_ns, record), 0)
    assert decoded is not None
    account.take(decoded[0], None, rows, time_ns)


def test_lines_that_are_no_metadata_are_soon_no_longer_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    monkeypatch.setattr(capture_account, "parse_record", parsed.append)
    account, rows, axis = CaptureAccount(), Rows(), XAxis()
    for _ in range(5):
        frame = Frame(FrameType.LINES, Stream.STDOUT, START_NS, 90, b"{x}\n" * 90, ((Kind.METADATA, 90),))
        account.take(frame, axis, rows, START_NS)
    assert len(parsed) == MAX_UNPARSED
    assert len(rows.records) == 450
    assert [row.event["event"] for row in rows.events] == ["metadata_ignored"]


@pytest.mark.parametrize("kept", [False, True])  # whether the account was written down in between
def test_a_heartbeat_a_second_is_enough(kept: bool) -> None:
    account, rows = CaptureAccount(), Rows()
    for beat in range(1000):
        take(account, rows, {"type": "heartbeat", "mode": "metadata", "ledger": {}}, START_NS + beat * SECOND_NS // 100)
        if kept:
            account = CaptureAccount.from_json(account.to_json())
    assert [mark.time_ns for mark in rows.marks] == [START_NS + second * SECOND_NS for second in range(10)]
    assert account.mode == "metadata"
    assert account.heartbeat_ns == START_NS + 999 * SECOND_NS // 100


def test_a_record_that_is_too_long_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("json.loads", lambda text: pytest.fail("it is parsed"))
    text = b'{"type":"end","state":"COMPLETED","x":"' + b"x" * segment.MAX_RECORD_BYTES + b'"}'
    account, rows = CaptureAccount(), Rows()
    account.take(Frame(FrameType.RECORD, Stream.NONE, START_NS, 1, text), None, rows, START_NS)
    words = f"a record of {len(text)} bytes is left out"
    assert [row.event for row in rows.events] == [{"event": "record_left_out", "message": words}]
    assert account.state == "RUNNING"

"""Rows of a capture's records in a store, with very many or very large records."""

import pytest

from logshipper.spool import segment
from logshipper.spool.segment import Frame, FrameType, Json, Kind, Stream
from logshipper_ingest.model import capture_account
from logshipper_ingest.model.capture_account import (
    AHEAD_BYTES,
    MAX_EVENTS,
    MAX_UNPARSED,
    MOST_PRINTED_PER_SEC,
    CaptureAccount,
)
from logshipper_ingest.model.capture_rows import Rows
from logshipper_ingest.model.job import UNRESPONSIVE_NS
from logshipper_ingest.model.x_axis import XAxis
from tests.tools.captures.segment_factory import SECOND_NS, START_NS, make_ledger


def take(account: CaptureAccount, rows: Rows, record: Json, time_ns: int) -> None:
    decoded = segment.decode_frame(segment.encode_record(time_ns, record), 0)
    assert decoded is not None
    account.take(decoded[0], None, rows, time_ns)


def test_lines_that_are_no_metadata_are_soon_no_longer_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[bytes] = []
    monkeypatch.setattr(capture_account, "parse_record", parsed.append)
    account, rows, axis = CaptureAccount(), Rows(), XAxis()
    for _ in range(5):
        frame = Frame(
            FrameType.LINES, Stream.STDOUT, START_NS, 90, b"{x}\n" * 90, ((Kind.METADATA, 90),)
        )
        account.take(frame, axis, rows, START_NS)
    assert len(parsed) == MAX_UNPARSED
    assert len(rows.records) == 450
    assert [row.event["event"] for row in rows.events] == ["metadata_ignored"]


# restart: whether the account is saved and loaded in between
@pytest.mark.parametrize("restart", [False, True])
def test_a_heartbeat_a_second_is_enough(restart: bool) -> None:
    account, rows = CaptureAccount(), Rows()
    for beat in range(1000):
        take(
            account,
            rows,
            {"type": "heartbeat", "mode": "metadata", "ledger": {}},
            START_NS + beat * SECOND_NS // 100,
        )
        if restart:
            account = CaptureAccount.from_json(account.to_json())
    assert [mark.time_ns for mark in rows.marks] == [
        START_NS + second * SECOND_NS for second in range(10)
    ]
    assert account.mode == "metadata"
    assert account.heartbeat_ns == START_NS + 999 * SECOND_NS // 100


# restart: whether the account is saved and loaded in between
@pytest.mark.parametrize("restart", [False, True])
def test_a_silence_is_told_once_and_ends(restart: bool) -> None:
    account, rows = CaptureAccount(), Rows()
    take(account, rows, {"type": "start", "started_ns": START_NS}, START_NS)
    take(account, rows, {"type": "heartbeat"}, START_NS + UNRESPONSIVE_NS)
    assert rows.events == [], "just in time"
    last_ns = account.newest_ns
    for _ in range(3):  # an agent watches the capture
        account.add_heartbeat_lost(rows)
        if restart:
            account = CaptureAccount.from_json(account.to_json())
    found_ns = last_ns + 61 * SECOND_NS
    take(account, rows, {"type": "heartbeat"}, found_ns)
    take(account, rows, {"type": "heartbeat"}, found_ns + SECOND_NS)
    assert [(row.event["event"], row.time_ns) for row in rows.events] == [
        ("heartbeat_lost", last_ns + UNRESPONSIVE_NS), ("heartbeat_found", found_ns),
    ]  # fmt: skip
    assert (account.first_change_ns, account.last_change_ns) == (
        last_ns + UNRESPONSIVE_NS,
        found_ns,
    )
    again = Rows()
    seen_late = CaptureAccount()  # without a watching agent, events and times are the same
    for time_ns in (START_NS, START_NS + UNRESPONSIVE_NS, found_ns):
        take(seen_late, again, {"type": "heartbeat"}, time_ns)
    assert again.events == rows.events


def test_a_job_cannot_forge_heartbeats() -> None:
    account, rows = CaptureAccount(), Rows()
    for name in ("heartbeat_lost", "heartbeat_found", "started", "closed", "job_ended"):
        take(account, rows, {"type": "event", "event": name}, START_NS)
    assert [row.event["event"] for row in rows.events] == [
        "not_heartbeat_lost", "not_heartbeat_found", "not_started", "not_closed", "not_job_ended",
    ]  # fmt: skip
    assert account.last_change_ns == 0


def test_silences_without_end_fill_no_store() -> None:
    """Frames have times half a minute apart, and nothing else comes."""
    account, rows = CaptureAccount(), Rows()
    for number in range(2 * MAX_EVENTS):
        take(account, rows, {"type": "heartbeat"}, START_NS + number * 30 * SECOND_NS)
    assert len(rows.events) == MAX_EVENTS + 1
    assert rows.events[-1].event["event"] == "events_left_out"


def test_a_record_that_is_too_long_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("json.loads", lambda text: pytest.fail("it is parsed"))
    text = b'{"type":"end","state":"COMPLETED","x":"' + b"x" * segment.MAX_RECORD_BYTES + b'"}'
    account, rows = CaptureAccount(), Rows()
    account.take(Frame(FrameType.RECORD, Stream.NONE, START_NS, 1, text), None, rows, START_NS)
    words = f"a record of {len(text)} bytes is left out"
    assert [row.event for row in rows.events] == [{"event": "record_left_out", "message": words}]
    assert account.state == "RUNNING"


def test_a_command_that_could_not_be_run_is_told_by_its_exit_code() -> None:
    """The capture's directory stays in a node's spool after such a run."""
    for wait_status, reason in (
        (127 << 8, "its command couldn't be run"),
        (1 << 8, "its capture died before"),
    ):
        account = CaptureAccount()
        account.conclude(died=True, boot_id="", end=(wait_status, START_NS))
        assert (account.state, account.exit_code, account.reason.startswith(reason)) == (
            "FAILED",
            wait_status >> 8,
            True,
        )
    account = CaptureAccount()
    account.take_counters({"stdout": 7, "stderr": 0}, {"stdout": 0, "stderr": 0})
    account.conclude(died=True, boot_id="", end=(127 << 8, START_NS))
    assert "lines are missing" in account.reason


@pytest.mark.parametrize("silent_secs", [0.0, 2.0])
@pytest.mark.parametrize(
    ("printed", "feeds"), [(1 << 61, 1 << 61), (5000, 1 << 61), (0, 1 << 61), (1 << 61, 0)]
)
def test_forged_counters_count_for_no_more_than_can_have_been_printed(
    printed: int, feeds: int, silent_secs: float
) -> None:
    """The limit applies to counts beyond the segments' ledger."""
    account, rows = CaptureAccount(), Rows()
    ledger = make_ledger({"stored": 20, "bytes": 4000, "line_feeds": 20})
    take(account, rows, {"type": "ledger", "ledger": ledger}, START_NS)
    account.stored = {"stdout": 20}
    account.take_counters(
        {"stdout": printed, "stderr": printed}, {"stdout": feeds, "stderr": feeds}, silent_secs
    )
    account.conclude(died=True, boot_id="")
    max_ahead = AHEAD_BYTES + int(silent_secs * MOST_PRINTED_PER_SEC)
    assert account.bytes_printed <= 4000 + 2 * max_ahead
    assert account.lost() <= min(2 * max_ahead, 2 * printed)


def test_counters_that_are_ahead_of_the_ledger_count_what_is_lost() -> None:
    account, rows = CaptureAccount(), Rows()
    take(
        account,
        rows,
        {"type": "ledger", "ledger": make_ledger({"stored": 20, "bytes": 400})},
        START_NS,
    )
    account.stored = {"stdout": 20}
    account.take_counters({"stdout": 1400, "stderr": 0}, {"stdout": 70, "stderr": 0})
    account.conclude(died=True, boot_id="")
    assert (account.bytes_printed, account.lost()) == (1400, 50)

"""The sidecar's own process, here in the test's: its tasks besides reading."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from logshipper.classify import stream_status
from logshipper.config import Config
from logshipper.errors import SpoolFull
from logshipper.relay import side_pipe
from logshipper.relay.handover import SidecarPlan
from logshipper.relay.side_pipe import SideType
from logshipper.sidecar import frame_builder, sidecar
from logshipper.sidecar.settings import Settings
from logshipper.spool import captures, segment, segment_writer
from logshipper.spool.live_status import LIVE_FILE, decode_live

BURSTS = 5
CLOSED = side_pipe.encode(SideType.CLOSED, 1) + side_pipe.encode(SideType.CLOSED, 2)


class InConstantFlow(sidecar.Sidecar):
    """A sidecar that always has new data after a read. Then the command ends."""

    def __init__(self, plan: SidecarPlan, settings: Settings, send: int) -> None:
        super().__init__(plan, settings)
        self._send = send
        self.bursts = 0
        self.in_flow = True
        self.send()

    def send(self) -> None:
        self.bursts += 1
        frame = side_pipe.encode(SideType.DATA, 1, 0, b"\rstep %d" % self.bursts)
        self.in_flow = self.bursts < BURSTS
        if not self.in_flow:
            frame += CLOSED + side_pipe.encode_exit(0)
        os.write(self._send, frame)
        if not self.in_flow:
            os.close(self._send)

    def _feed(self, stream: int, data: bytes, now: float) -> None:
        super()._feed(stream, data, now)
        if self.in_flow:
            self.send()


@pytest.fixture
def capture(tmp_path: Path) -> captures.CaptureDirectory:
    return captures.create_capture(str(tmp_path), "job")


@pytest.fixture
def pipes() -> Iterator[tuple[SidecarPlan, int]]:
    """Yield the sidecar's plan, and the relay's end of its side pipe."""
    read, send = os.pipe()
    report_end, report = os.pipe()
    yield (
        SidecarPlan(
            masters={}, outs={}, cmd_pid=os.getpid(), cmd_pidfd=-1, columns=80, rows=24, tty=True,
            relay_pid=os.getpid(), started_ns=1, side_pipe=read, report=report,
        ),
        send,
    )  # fmt: skip
    for fd in (read, report_end, report):
        os.close(fd)


def test_what_time_brings_comes_in_constant_flow_too(
    capture: captures.CaptureDirectory,
    pipes: tuple[SidecarPlan, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job never pauses, so reading never finishes. Heartbeats and the agent's start still
    happen."""
    monkeypatch.setattr(sidecar, "AGENT_AFTER_SECS", 0.0)
    plan, send = pipes
    in_flow: list[bool] = []
    settings = Settings(Config(), (), capture, lambda: in_flow.append(served.in_flow))
    served = InConstantFlow(plan, settings, send)
    served.start()
    assert served.follow_relay()
    served.close()
    assert in_flow == [True, False]  # after AGENT_AFTER_SECS, and at the end
    assert [record["type"] for record in _records(capture)].count("heartbeat") == 1


def test_what_comes_after_the_commands_end_is_in_the_last_ledger(
    capture: captures.CaptureDirectory,
    pipes: tuple[SidecarPlan, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sidecar, "LEDGER_SECS", 3600.0)  # nothing else is due soon
    plan, send = pipes
    served = sidecar.Sidecar(plan, Settings(Config(), (), capture, lambda: None))
    served.start()
    of_child = side_pipe.encode(SideType.DATA, 1, 0, b"left behind\n")
    os.write(send, side_pipe.encode_exit(0) + of_child + CLOSED)
    os.close(send)
    assert served.follow_relay()
    served.close()
    last = _records(capture)[-1]["ledger"]["stdout"]
    assert (last["read"], last["stored"], last["bytes"]) == (1, 1, len(b"left behind\n"))


def test_a_line_is_written_with_its_ledger_and_a_heartbeat_needs_no_sync(
    capture: captures.CaptureDirectory,
    pipes: tuple[SidecarPlan, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A quiet job costs one sync for each of its lines."""
    monkeypatch.setattr(sidecar, "LEDGER_SECS", 0.0)
    plan, _ = pipes
    served = sidecar.Sidecar(plan, Settings(Config(), (), capture, lambda: None))
    served.start()
    served.idle()
    written: list[tuple[bool, bool, bool]] = []
    write = segment_writer.SegmentWriter.write

    def noted(
        writer: segment_writer.SegmentWriter, data: bytes, now_ns: int, *, syncs: bool
    ) -> None:
        written.append((b"epoch 1\n" in data, b'"type":"ledger"' in data, syncs))
        write(writer, data, now_ns, syncs=syncs)

    monkeypatch.setattr(segment_writer.SegmentWriter, "write", noted)
    served._heartbeat_due = 0.0
    served.idle()
    served.data(1, b"epoch 1\n", 0)
    served._classifier.release()
    served.idle()
    assert written == [(False, False, False), (True, True, True)]
    # a heartbeat may be lost with the machine, so it stands for no ledger
    monkeypatch.setattr(sidecar, "LEDGER_SECS", 3600.0)
    served._flush()
    served.data(1, b"epoch 2\n", 0)
    served._classifier.release()
    served._heartbeat_due = 0.0
    served.idle()
    assert written[2:] == [(False, False, True), (False, False, False)]
    served._ledger_due = 0.0
    served.idle()
    assert written[4:] == [(False, True, True)]
    for stream in (1, 2):
        served.closed(stream)
    served.close()


def test_records_beside_their_lines_that_are_refused_are_counted(
    capture: captures.CaptureDirectory,
    pipes: tuple[SidecarPlan, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their lines may still be written, so no line is lost."""
    plan, send = pipes
    config = Config(metadata=("json", "pairs"))
    served = sidecar.Sidecar(plan, Settings(config, (), capture, lambda: None))
    write = segment_writer.SegmentWriter.write

    def refuse_records(
        writer: segment_writer.SegmentWriter, data: bytes, now_ns: int, *, syncs: bool
    ) -> None:
        if b'{"loss": 0.5}' in data:
            raise SpoolFull(capture.path, "no room")
        write(writer, data, now_ns, syncs=syncs)

    monkeypatch.setattr(segment_writer.SegmentWriter, "write", refuse_records)
    monkeypatch.setattr(frame_builder, "MAX_FRAME_BYTES", 1)  # one frame for each record
    served.start()
    os.write(send, side_pipe.encode(SideType.DATA, 1, 0, b"loss: 0.5\nloss: 0.5\n"))
    os.write(send, side_pipe.encode_exit(0) + CLOSED)
    os.close(send)
    assert served.follow_relay()
    served.close()
    lost = [record for record in _records(capture) if record.get("event") == "records_lost"]
    assert [(record["records"], record["reason"]) for record in lost] == [(2, "no room")]
    assert _records(capture)[-1]["ledger"]["stdout"]["lost"] == 0


def test_a_bar_that_is_drawn_again_and_again_fills_no_spool(
    capture: captures.CaptureDirectory,
    pipes: tuple[SidecarPlan, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A ledger isn't due for its bytes alone, and a small file has its current text."""
    monkeypatch.setattr(sidecar, "LEDGER_SECS", 0.0)
    monkeypatch.setattr(stream_status, "LIVE_SECS", 0.0)
    plan, _ = pipes
    served = sidecar.Sidecar(plan, Settings(Config(), (), capture, lambda: None))
    served.start()
    segments = Path(capture.path) / "segments"
    printed = 0
    for step in range(500):
        bar = b"\rstep %03d" % step
        served.data(2, bar, 0)
        served.idle()
        printed += len(bar)
        assert decode_live((segments / LIVE_FILE).read_bytes())[segment.Stream.STDERR][1] == bar[1:]
    records = _records(capture)
    assert [record["type"] for record in records].count("ledger") == 1
    assert (segments / LIVE_FILE).stat().st_size < 200
    for stream in (1, 2):
        served.closed(stream)
    assert not any(text for _, text in decode_live((segments / LIVE_FILE).read_bytes()).values())
    served.close()
    last = [record for record in _records(capture) if "ledger" in record][-1]
    assert last["ledger"]["stderr"]["bytes"] == printed


def _records(capture: captures.CaptureDirectory) -> list[segment.Json]:
    (path,) = (Path(capture.path) / "segments").glob("*.seg")
    data, at = path.read_bytes(), segment.FILE_HEADER_BYTES
    records = []
    while at < len(data):
        decoded = segment.decode_frame(data, at)
        assert decoded is not None
        frame, at = decoded
        if frame.type is segment.FrameType.RECORD:
            records.append(frame.record())
    return records

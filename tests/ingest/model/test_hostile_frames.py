"""A job may write any frames into its segments, with valid checksums. They cause no fault in the
agent, which ships and shows other jobs' lines next to them."""

import json
import struct
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logshipper.spool import segment
from logshipper_ingest.metrics.agent_metrics import exposition
from logshipper_ingest.model.capture_account import RESERVED_EVENTS, CaptureAccount
from logshipper_ingest.model.capture_rows import Rows
from logshipper_ingest.model.x_axis import XAxis
from logshipper_ingest.state.checkpoints import read_state
from tests.tools.captures.segment_factory import memory_folder
from tests.tools.stores.shipping_node import ShippingNode, soon_ns
from tests.tools.stress.model_settings import model_settings

WHOLES = st.sampled_from(
    [0, 1, -1, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, -(1 << 63), 10**400]
)
FLOATS = st.sampled_from([0.5, 1e308, -1e308, 5e-324])
ODD_TEXTS = ("enabled", "\ud800", "\u202e", "\x00\x1b[2J", "A" * 5000, "1/3")
TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["enabled", "\ud800", "\u202e", "\x00\x1b[2J", "A" * 5000, "1/3"]),
)
SCALARS = st.one_of(st.none(), st.booleans(), WHOLES, FLOATS, TEXTS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
COUNTS = st.dictionaries(
    st.sampled_from(["read", "stored", "lost", "pending", "line_feeds", "bytes"]), SCALARS
)
LEDGERS = st.one_of(
    VALUES, st.fixed_dictionaries({"stdout": COUNTS | SCALARS, "stderr": COUNTS, "notes": SCALARS})
)
NAMES = (
    "message mode version started_ns ended_ns state exit_code signal reason host columns to".split()
)
RECORDS = st.fixed_dictionaries(
    {
        "type": st.one_of(
            st.sampled_from(["start", "heartbeat", "ledger", "event", "end"]), SCALARS
        ),
        "ledger": LEDGERS,
    },
    optional=dict.fromkeys(NAMES, VALUES)
    | {"event": st.sampled_from(["closed", "mode_changed", "x", "\ud800"])},
)
TIMES = st.sampled_from([0, 1, 1 << 62, (1 << 63) - 1, (1 << 64) - 1])
KEYS = st.sampled_from(["runs", "lines", "x"])
ATTRIBUTES = st.one_of(
    st.just(b""),
    st.binary(max_size=20),
    st.builds(
        lambda runs, lines: json.dumps({"runs": runs, "lines": lines}).encode("utf-8", "replace"),
        st.lists(st.tuples(st.integers(0, 6) | SCALARS, st.integers(-1, 3) | SCALARS), max_size=4)
        | VALUES,
        st.dictionaries(st.sampled_from(["0", "1", "-1", "x", "9" * 5000]), VALUES, max_size=3)
        | VALUES,
    ),
)
LINES = st.lists(
    st.one_of(
        st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")),
        st.dictionaries(TEXTS, VALUES, max_size=3).map(
            lambda record: json.dumps(record).encode("utf-8", "replace")
        ),
    ),
    max_size=4,
)


def frame(
    kind: int, stream: int, time_ns: int, count: int, attributes: bytes, text: bytes
) -> bytes:
    """Return a frame of any values, with a valid checksum."""
    sizes = len(attributes) + len(text), count, time_ns, len(attributes)
    head = struct.pack("<4sBBHIIQI", segment.FRAME_MAGIC, kind, stream, 0, *sizes)
    return (
        head
        + zlib.crc32(text, zlib.crc32(attributes, zlib.crc32(head))).to_bytes(4, "little")
        + attributes
        + text
    )


def of_lines(lines: list[bytes], stream: int, time_ns: int, attributes: bytes, kind: int) -> bytes:
    """Return a frame of lines. kind: of all lines, if not 0, in place of the attributes."""
    if kind:
        attributes = json.dumps(
            {"runs": [[kind, len(lines)]], "lines": {"0": {"n": 1 << 70}}}
        ).encode()
    return frame(
        1, stream, time_ns, len(lines), attributes, b"".join(line + b"\n" for line in lines)
    )


def of_record(record: Any, time_ns: int) -> bytes:  # Any: JSON
    return frame(2, 0, time_ns, 1, b"", json.dumps(record).encode("utf-8", "replace"))


FRAMES = st.one_of(
    st.builds(
        of_lines,
        LINES,
        st.integers(0, 3),
        TIMES | st.just(time.time_ns()),
        ATTRIBUTES,
        st.integers(0, 5),
    ),
    st.builds(of_record, RECORDS | VALUES, TIMES | st.just(time.time_ns())),
    st.binary(max_size=40),
)


LONG_KIND = json.dumps({"runs": [["A" * 5000, 1]]}).encode()


@model_settings(40, 1)
@given(st.lists(FRAMES, max_size=8), st.binary(min_size=72, max_size=72), st.booleans())
@example([frame(1, 1, 5, 100, LONG_KIND, b"x\n" * 100)], bytes(72), True)
def test_any_frames_stop_nobody(frames: list[bytes], counters: bytes, ends: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="logshipper-test-", dir=memory_folder()) as folder:
        node = ShippingNode(Path(folder))
        try:
            with (
                node.capture("hostile", soon_ns()) as hostile,
                node.capture("honest", soon_ns()) as honest,
            ):
                hostile.append(b"".join(frames))
                (hostile.segments / "counters").write_bytes(b"LOGCNT\r\n" + counters)
                honest.lines(["good day"])
                if ends:
                    hostile.close()
                node.ship()
            node.restart()
            node.ship()
            page, _ = exposition(node.health, node.metrics)
            read_state(str(Path(folder) / "state" / "state.db"))
        finally:
            node.close()
        assert b"good day" in [entry.line for entry in node.loki.find('kind="log"')]
        assert b'job_id="honest"' in page
        assert not [words for words in node.messages if "fault" in words or len(words) > 2000]


@pytest.mark.parametrize("party", ["learner", "shipper"])
def test_a_fault_that_a_job_s_frames_find_stops_no_other_job(
    party: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate an unknown fault."""
    node = ShippingNode(tmp_path)
    take = CaptureAccount.take

    def failing(
        account: CaptureAccount, frame: segment.Frame, axis: XAxis | None, rows: Rows, now_ns: int
    ) -> None:
        take(account, frame, axis, rows, now_ns)
        if b"poison" in frame.text and (axis is None) is (party == "shipper"):
            raise ZeroDivisionError("A" * 10_000)

    with monkeypatch.context() as patch:
        patch.setattr(CaptureAccount, "take", failing)
        for name, line in (
            ("a-hostile", "poison"),
            ("b-honest", "good day"),
            ("c-honest", "here, too"),
        ):
            with node.capture(name, soon_ns()) as capture:
                capture.lines([line])
                capture.close()
        node.learn()
        for _ in range(3):
            node.round()
        assert node.loki.lines('kind="log"') == ["good day", "here, too"]
        (message,) = (words for words in node.messages if "a-hostile" in words)
        assert "fault of logshipper's own" in message
        assert len(message) < 1000
    for followed in node.captures.values():
        followed.next_look = 0.0
    node.ship()
    assert sorted(node.loki.lines('kind="log"')) == ["good day", "here, too", "poison"]
    (hostile,) = [
        checkpoint
        for checkpoint in node.checkpoints.shipped()
        if checkpoint.identity.job_id == "a-hostile"
    ]
    assert hostile.account.lines == 1
    assert all(capture.knowledge.account.lines == 1 for capture in node.captures.values())
    node.close()


def test_a_job_cannot_say_what_only_the_agents_say(tmp_path: Path) -> None:
    """An example is Slurm's end of a job, which overrides the capture's own."""
    node = ShippingNode(tmp_path)
    with node.capture("hostile", soon_ns()) as capture:
        for event in RESERVED_EVENTS:
            capture.event(event, state="COMPLETED", by="slurm")
        node.ship()
    events = [event["event"] for event in node.events("hostile")]
    assert events == [f"not_{event}" for event in RESERVED_EVENTS]
    assert "job_ended" in RESERVED_EVENTS
    node.close()

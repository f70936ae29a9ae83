"""docs/side-pipe.md and the code agree, because a relay in C follows that page."""

import re
import struct

from logshipper.relay import channel, handover, relay, side_pipe
from logshipper.relay.side_pipe import Empty, SideType
from logshipper.render import command_prefix
from tests.tools.sources import ROOT

PAGE = (ROOT / "docs" / "side-pipe.md").read_text()


def test_header_is_as_documented() -> None:
    rows = re.findall(r"^\| (\d) \| (\d) \| (\w+) \|", PAGE, re.MULTILINE)
    assert [name for _, _, name in rows] == ["type", "stream", "flags", "length"]
    sizes = [int(size) for _, size, _ in rows]
    assert [int(offset) for offset, _, _ in rows] == [sum(sizes[:at]) for at in range(len(sizes))]
    assert side_pipe.HEADER.format == "<" + "".join(
        {1: "B", 2: "H", 4: "I"}[size] for size in sizes
    )
    assert side_pipe.HEADER.size == 8


def test_types_are_as_documented() -> None:
    rows = re.findall(r"^\| (\d) ([A-Z]+) \|", PAGE, re.MULTILINE)
    assert {int(number): name for number, name in rows} == {
        kind.value: kind.name for kind in SideType
    }
    assert (Empty.STDOUT, Empty.STDERR) == (1, 2)


def test_limits_are_as_documented() -> None:
    assert side_pipe.MAX_PAYLOAD_BYTES == 1 << 20
    assert "at most 1 MiB" in PAGE
    assert f"{handover.FRAME_BYTES >> 10} KiB have come together" in PAGE
    assert f"after {relay.SINK_SECS * 1000:g} ms" in PAGE
    assert f"after {relay.GATHER_BYTES >> 10} KiB without silence" in PAGE
    assert f"silent for {relay.GATHER_SECS * 1000:g} ms" in PAGE
    assert f"a buffer of {handover.BUFFER_BYTES >> 10} KiB" in PAGE
    assert f"once in {channel.BEAT_SECS * 1000:g} ms at most" in PAGE
    assert f"{handover.MUCH_BYTES >> 10} KiB and more read at once" in PAGE
    assert f"takes nothing for {handover.STALL_SECS:g} s" in PAGE
    # a frame has at most the data of one turn
    assert (
        max(handover.FRAME_BYTES, relay.TURN_BYTES + (64 << 10), channel.HELD_BYTES)
        <= side_pipe.MAX_PAYLOAD_BYTES
    )


def test_commands_are_known_to_the_relay() -> None:
    assert command_prefix.PREFIX == handover._COMMAND


def test_frames_byte_by_byte() -> None:
    assert (
        side_pipe.encode(SideType.DATA, 1, Empty.STDERR, b"hi")
        == b"\x01\x01\x02\x00\x02\x00\x00\x00hi"
    )
    assert (
        side_pipe.encode(SideType.EMPTY, 0, Empty.STDOUT | Empty.STDERR)
        == b"\x02\x00\x03\x00\x00\x00\x00\x00"
    )
    assert side_pipe.encode_size(160, 50) == b"\x03\x00\x00\x00\x04\x00\x00\x00\xa0\x00\x32\x00"
    assert side_pipe.encode(SideType.CLOSED, 2) == b"\x04\x02\x00\x00\x00\x00\x00\x00"
    assert side_pipe.encode_exit(-1) == b"\x05\x00\x00\x00\x04\x00\x00\x00" + struct.pack("<i", -1)

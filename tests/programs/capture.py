"""A capture: a program's terminal output in its original reads, and the lines that tmux shows of
it.

File: xz of a line of JSON and the bytes. The JSON has the fields of Capture. reads: pairs of
seconds since the first read and size in bytes. streams: stream of each read, if stdout and stderr
had separate terminals.
"""

import json
import lzma
from dataclasses import dataclass, field
from pathlib import Path

CAPTURES = Path(__file__).resolve().parent.parent / "captures"
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]


@dataclass(frozen=True, slots=True)
class Capture:
    """One recorded program. columns, rows: the terminal's size. shown: tmux's lines with history,
    without trailing blanks and blank lines. tmux: its version."""

    name: str
    program: str
    version: str
    columns: int
    rows: int
    tmux: str
    shown: list[str]
    reads: list[tuple[float, int]]
    data: bytes
    streams: list[int] = field(default_factory=list)

    def timed_reads(self) -> list[tuple[bytes, float]]:
        """Return the reads as input of the renderer: bytes and time."""
        at = 0
        reads = []
        for now, size in self.reads:
            reads.append((self.data[at : at + size], now))
            at += size
        return reads


def path_of(name: str) -> Path:
    return CAPTURES / f"{name}.xz"


def names(folder: str = "") -> list[str]:
    return sorted(f"{folder}{path.stem}" for path in (CAPTURES / folder).glob("*.xz"))


def write(capture: Capture) -> int:
    """Write the capture. Return the size of the file in bytes."""
    head = {name: getattr(capture, name) for name in Capture.__slots__ if name != "data"}
    raw = json.dumps(head, ensure_ascii=False).encode() + b"\n" + capture.data
    packed = lzma.compress(raw, format=lzma.FORMAT_XZ, filters=_FILTERS)
    path_of(capture.name).parent.mkdir(parents=True, exist_ok=True)
    path_of(capture.name).write_bytes(packed)
    return len(packed)


def read(name: str) -> Capture:
    head, _, data = lzma.decompress(path_of(name).read_bytes()).partition(b"\n")
    fields = json.loads(head)
    fields["reads"] = [(now, size) for now, size in fields["reads"]]
    return Capture(data=data, **fields)

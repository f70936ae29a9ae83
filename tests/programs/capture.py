"""A capture: what a program wrote to a terminal, in the reads in which it came, and what tmux shows
of it.

File: xz of a line of JSON and the bytes. The JSON's fields are those of Capture; reads are pairs of
seconds since the first one and sizes in bytes. streams: of each read, where stdout and stderr had
a terminal of their own.
"""

import json
import lzma
from dataclasses import dataclass, field
from pathlib import Path

CAPTURES = Path(__file__).resolve().parent.parent / "captures"
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]


@dataclass(frozen=True, slots=True)
class Capture:
    """columns, rows: the terminal's size. shown: tmux's lines, history included, without blanks at
    their ends, and without blank ones; tmux: its version."""

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
        """As the renderer is fed."""
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
    """Returns the size of the file, in bytes."""
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

"""Bars redrawn with CR, by the chunk: drops text that later text covers. Pure.

Each step is one primitive over the whole chunk, with no work per drawing.
"""

from codecs import utf_8_decode

from logshipper import line_feeds
from logshipper.render.cell_width import not_one_cell

_ASCII_TEXT = bytes([0x0A, 0x0D, *range(0x20, 0x7F)])
_CONTINUATION = bytes(range(0x80, 0xC0))
_CONTROLS = bytes([*range(0x0A), *range(0x0B, 0x20), 0x7F])
_BLOCKS = b"\x92\x93\x94\x95\x96"  # second bytes of U+2480 to U+25BF, which bars are drawn with; each takes one cell
_MIN_BYTES = 512  # smaller texts do not repay the checks
_MIN_DRAWINGS = 4  # over each other in one line
_MAX_KEPT = 16


def fold(text: str, data: bytes, columns: int) -> str:
    """Return text that draws the same on a screen of this width, between whole sequences.

    data: the text's bytes. The result keeps everything before a line's first CR, the last drawing,
    and all parts that stick out of later drawings.
    """
    begin = data.find(b"\r")
    has_lines = b"\n" in data
    if (
        data.rfind(b"\r") - begin < _MIN_BYTES
        or (has_lines and data.count(b"\r") < _MIN_DRAWINGS * line_feeds.count(data))
        or not _takes_single_cells(data, begin)
    ):
        return text
    if not has_lines:
        return _fold_line(text, columns)
    return "\n".join(
        [
            _fold_line(line, columns) if line.count("\r") >= _MIN_DRAWINGS else line
            for line in text.split("\n")
        ]
    )


def _fold_line(text: str, columns: int) -> str:
    texts = text.split("\r")
    sizes = list(map(len, texts))
    sizes[0] = 0
    if max(sizes) > columns:
        return text
    sizes.reverse()
    drawings = [texts[0]]
    rest_count = len(sizes) - 1  # of sizes, from the last one on
    while rest_count and len(drawings) < _MAX_KEPT:
        rest_count = sizes.index(max(sizes[:rest_count]))
        drawings.append(texts[-1 - rest_count])
    return "\r".join(drawings + texts[len(texts) - rest_count :])


def _takes_single_cells(data: bytes, begin: int) -> bool:
    """Return whether data holds only text, LF and CR, and each character from begin on takes one
    cell.

    Replacements of invalid bytes take one.
    """
    head = data[:begin]
    if head.translate(None, _CONTROLS) != head:
        return False
    non_ascii = data[begin:].translate(None, _ASCII_TEXT)
    if not (
        non_ascii[::3].translate(None, b"\xe2")
        or non_ascii[1::3].translate(None, _BLOCKS)
        or non_ascii[2::3].translate(None, _CONTINUATION)
    ):
        return True
    # controls take no cell
    return not_one_cell(utf_8_decode(non_ascii, "replace", False)[0]) is None

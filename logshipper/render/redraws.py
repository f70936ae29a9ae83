"""Removes needless drawing from a chunk: unkept colours, and rows that later drawings cover. Pure.

Many programs redraw the same rows: up and erase, row by row, then the rows again (rich, tqdm,
docker). A frame is the text between two equal runs of such control functions. Frames have one shape
if their control functions are equal and their texts equally long, of characters of one cell. Then
they draw and erase the same cells in the same order. If one of them leaves the screen as the one
before did, apart from characters (`LogScreen.shape`), all following ones do, and the last one
covers them. So those between need no drawing.

Each step is one primitive over the whole chunk, with little work per frame.
"""

from collections.abc import Iterator
from itertools import accumulate, pairwise

from logshipper.late_pattern import late_pattern
from logshipper.render.cell_width import not_one_cell

_CAN = "\x18"
# No possessive group here: Python 3.11's continues behind its last attempt.
_COLOURS = late_pattern(r"\x1b\[[0-9;:]*+m(?:\x1b\[[0-9;:]*+m)*")
# A whole sequence, or one cut off by the end. No REP: it repeats the character before.
_SEQUENCE = late_pattern(
    r"\x1b(?:\[[0-?]*+[ -/]*+(?:[@-ac-~]|\Z)|[6-9=>DEHM]|[(-+][0-~]|\][^\x07\x18\x1a\x1b]{0,4096}+(?:\x07|\x1b\\)|\Z)"
)
_MAYBE_REP = late_pattern(r"(?:\x1b(?:\[[0-9]*+)?)?\Z")  # with the next input

# Control functions between the rows of a frame: none moves drawn cells, or sets a column but the
# first.
_MOVE = r"\[(?:[0-9]{0,4}[ABEF]|[0-2]?[JK]|[0-9;:]*m|[01]?G|\?25[hl])"
_RUNS = late_pattern(rf"([\r\n\x1b](?:(?<!\x1b)|{_MOVE})(?:[\r\n]|\x1b{_MOVE})*)")
_RISES = late_pattern("[AF]")
_BEGINS_ROW = late_pattern(r"[\r\nEFG]")
_LEAVES_ROW = late_pattern("[AB]")
# "/" is a text's last character, or that of /LOGCOMMAND may come next
_MAYBE_COMMAND = late_pattern("/(?![^lL\0-\x1f])")
_MIN_FRAMES = 6  # of one shape, and characters: fewer do not repay the checks
_MIN_SIZE = 512


def without_colours(text: str) -> str:
    """Return text that draws the same without SGR, between whole sequences.

    CAN replaces each one: like SGR it ends a broken sequence, and does nothing else. It goes, too,
    if nothing can be broken.
    """
    reduced = _COLOURS.sub(_CAN, text)
    if len(reduced) == len(text) or "\x1b" in _SEQUENCE.sub("", reduced):
        return reduced
    head, _, tail = reduced.rpartition(_CAN)
    if _MAYBE_REP.match(tail):  # no text precedes it
        return head.replace(_CAN, "") + _CAN + tail
    return reduced.replace(_CAN, "")


def stretches(text: str, columns: int) -> Iterator[list[int]]:
    """Frames of one shape that follow each other, in order: where in text each begins. columns: the
    screen's width."""
    if len(text) < _MIN_SIZE or not _repeats(text, columns):
        return
    for places in _stretches(text, columns, _MIN_FRAMES):
        if places[-1] - places[0] >= _MIN_SIZE:
            yield places


def _repeats(text: str, columns: int) -> bool:
    """Return whether a frame inside text has the shape of the one before: other redraws cost little
    time."""
    quarter = len(text) // 4
    return any(_stretches(text[quarter : 2 * quarter], columns, 2))


def _stretches(text: str, columns: int, min_frames: int) -> Iterator[list[int]]:
    parts = _RUNS.split(text)
    runs = parts[1::2]
    marks = _marks(runs)
    if len(marks) <= min_frames:
        return
    texts = parts[2::2]  # texts[n] comes after runs[n]
    sizes = list(map(len, texts))
    places = list(accumulate(map(len, parts)))[::2]  # where runs begin
    begin, end = marks[0], marks[-1]
    if not (
        _draws_rows(runs[begin:end], sizes[begin:end], columns)
        and _is_text("".join(texts[begin:end]))
        and not ("/" in text and _MAYBE_COMMAND.search(text, places[begin], places[end]))
    ):
        return
    shapes = [(runs[at:next_at], sizes[at:next_at]) for at, next_at in pairwise(marks)]
    first = 0
    for frame in range(1, len(shapes) + 1):
        if frame == len(shapes) or shapes[frame] != shapes[first]:
            if frame - first >= min_frames:
                yield [places[mark] for mark in marks[first:frame]]
            first = frame


def _marks(runs: list[str]) -> list[int]:
    """Return the begins of frames: runs equal to one inside them, which raise the cursor if any
    does.

    CR alone does not count; the parser handles it fast.
    """
    later = runs[len(runs) // 2 :]
    mark = next(filter(_RISES.search, later), later[0] if later else "\n")
    if "\x1b" not in mark or ("\n" in mark and not _RISES.search(mark)):
        return []
    return [at for at, run in enumerate(runs) if run == mark]


def _draws_rows(runs: list[str], sizes: list[int], columns: int) -> bool:
    """Return whether each text begins in the first column, or at the last one's end, and stays in
    its row."""
    amid_row = {run for run in set(runs) if not _BEGINS_ROW.search(run)}
    if not amid_row:
        return max(sizes) <= columns
    x = columns
    for run, size in zip(runs, sizes, strict=True):
        x = x + size if run in amid_row else size
        if x > columns:
            return False
    return not any(map(_LEAVES_ROW.search, amid_row))


def _is_text(text: str) -> bool:
    return text.isprintable() if text.isascii() else not not_one_cell(text)

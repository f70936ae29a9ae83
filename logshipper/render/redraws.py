"""What the screen needn't be asked to draw of a chunk: colours that nobody keeps, and rows that are
drawn over. Pure.

Many programs draw the same rows over and over: up and erase, row by row, then the rows again (rich,
tqdm, docker). A frame is what stands between two equal runs of control functions that begin so.
Frames have one shape if their control functions are the same and their texts equally long, of
characters of one cell: then they draw and erase the same cells in the same order. If one of them
leaves the screen as the one before did, but for the characters on it (`LogScreen.shape`), so do all
that follow, and what the last one draws covers theirs: those between needn't be drawn.

Each step is one primitive over the whole chunk; little is done for each frame.
"""

from collections.abc import Iterator
from itertools import accumulate, pairwise

from logshipper.late_pattern import late_pattern
from logshipper.render.cell_width import not_one_cell

_CAN = "\x18"
# No possessive group here: Python 3.11's goes on behind what it tried last.
_COLOURS = late_pattern(r"\x1b\[[0-9;:]*+m(?:\x1b\[[0-9;:]*+m)*")
# A sequence that is whole, or cut off by the end. No REP: it looks at what is before it.
_SEQUENCE = late_pattern(
    r"\x1b(?:\[[0-?]*+[ -/]*+(?:[@-ac-~]|\Z)|[6-9=>DEHM]|[(-+][0-~]|\][^\x07\x18\x1a\x1b]{0,4096}+(?:\x07|\x1b\\)|\Z)"
)
_MAYBE_REP = late_pattern(r"(?:\x1b(?:\[[0-9]*+)?)?\Z")  # with what is fed next

# Control functions between the rows of a frame: none moves what is drawn, or sets a column but the
# first.
_MOVE = r"\[(?:[0-9]{0,4}[ABEF]|[0-2]?[JK]|[0-9;:]*m|[01]?G|\?25[hl])"
_RUNS = late_pattern(rf"([\r\n\x1b](?:(?<!\x1b)|{_MOVE})(?:[\r\n]|\x1b{_MOVE})*)")
_RISES = late_pattern("[AF]")
_BEGINS_ROW = late_pattern(r"[\r\nEFG]")
_LEAVES_ROW = late_pattern("[AB]")
# "/" is a text's last character, or that of /LOGCOMMAND may come next
_MAYBE_COMMAND = late_pattern("/(?![^lL\0-\x1f])")
_MIN_FRAMES = 6  # of one shape, and characters: less isn't worth the looks
_MIN_SIZE = 512


def without_colours(text: str) -> str:
    """What draws the same without SGR, where no sequence is half read.

    In place of each stands CAN, which like SGR ends what it breaks off, and else does nothing; it
    goes as well, where it is sure that nothing is broken off.
    """
    reduced = _COLOURS.sub(_CAN, text)
    if len(reduced) == len(text) or "\x1b" in _SEQUENCE.sub("", reduced):
        return reduced
    head, _, tail = reduced.rpartition(_CAN)
    if _MAYBE_REP.match(tail):  # it isn't text that comes before it
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
    """Whether somewhere amid text a frame has the shape of the one before: where programs redraw
    otherwise little time is lost."""
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
    """Where frames begin: at runs that are equal to one amid of them, by which the cursor rises, if
    it does. Not at CR alone, of which the parser makes little."""
    later = runs[len(runs) // 2 :]
    mark = next(filter(_RISES.search, later), later[0] if later else "\n")
    if "\x1b" not in mark or ("\n" in mark and not _RISES.search(mark)):
        return []
    return [at for at, run in enumerate(runs) if run == mark]


def _draws_rows(runs: list[str], sizes: list[int], columns: int) -> bool:
    """Whether each text begins in the first column, or where the one before it ended, and ends in
    the same row."""
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

"""Cells of a character on a terminal: 0 (joins the one before), 1 or 2, as in tmux and xterm.

From Python's own Unicode tables, with additions: 0 for marks, variation selectors, joiners and the
vowels of conjoining Hangul, which terminals draw upon the character before; VS16 widens nothing; a
soft hyphen takes 1.

Most short jobs print only ASCII, and compiling such large patterns takes a quarter of a sidecar's
start. So each compiles at its first use.
"""

import unicodedata

from logshipper.late_pattern import late_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re

ZWJ = "\u200d"
_SKIN_TONES = "\U0001f3fb-\U0001f3ff"

# Characters that surely take one cell and join nothing, even after a ZWJ. Programs print hardly any
# others, and such text needs no check of each.
_ONE_CELL = (
    "\x20-\x7e\xa0-\u02ff\u0370-\u0377\u037a-\u037f\u0384-\u038a\u038c\u038e-\u03a1\u03a3-\u0482\u048a-\u052f"
    "\u2010-\u2027\u2030-\u205e\u2070\u2071\u2074-\u208e\u20a0-\u20b9\u2100-\u218b\u2190-\u2193\u2196-\u2319\u231c-\u2328"
    "\u232b-\u23e8\u23f1\u23f2\u2400-\u2426\u2440-\u244a\u2460-\u25fc\u2600-\u2604\u2700-\u2704\u2706\u2707\u2709"
    "\u270c-\u2727\u2800-\u28ff\ue0a0-\ue0d7"
)
# ... and two cells wide.
_TWO_CELLS = "\u3041-\u3096\u30a1-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff60"
# More characters with their own cells, never drawn upon the one before.
_OWN_CELLS = (
    "\u2190-\u2bff\u2e80-\u2fdf\u2ff0-\u3029\u3030-\u3098\u309b-\ua4cf\uac00-\ud7a3\uff01-\uffdc\ufffd"
    "\U0001f000-\U0001f3fa\U0001f400-\U0001faff"
)


_not_one_cell = late_pattern(f"[^{_ONE_CELL}]")
# runs of characters that are surely one cell wide, or two; others each by itself
RUN = late_pattern(f"[{_ONE_CELL}]+|[{_TWO_CELLS}]+|.")
TWO_CELLS = late_pattern(f"[{_TWO_CELLS}]")
SKIN_TONE = late_pattern(f"[{_SKIN_TONES}]")
_not_own_cells = late_pattern(f"[^\n{_ONE_CELL}{_OWN_CELLS}\t\r\x1b]")
_not_own_ascii = late_pattern("[^\n\x20-\x7e\t\r\x1b]")

# Joining characters of programs: accents, variation selectors, skin tones, and emoji by ZWJ.
_JOINERS = f"\u0300-\u036f\ufe0e\ufe0f{_SKIN_TONES}{ZWJ}"
_MAX_JOINERS = 16  # in a row; a cell holds more
_neither_own_nor_joiner = late_pattern(f"[^\n{_ONE_CELL}{_OWN_CELLS}{_JOINERS}]")
_joiner_runs = late_pattern(f"[{_JOINERS}](?:[{_JOINERS}]|(?<={ZWJ})[^\n])*")

_widths: dict[str, int] = {}  # characters seen so far
_MAX_KEPT = 4096


def not_one_cell(text: str) -> "re.Match[str] | None":
    """None: each character of the text takes one cell."""
    return _not_one_cell.search(text)


def not_own_cells(text: str) -> "re.Match[str] | None":
    """None: no character joins another one."""
    return _not_own_ascii.search(text) if text.isascii() else _not_own_cells.search(text)


def cell_width(character: str) -> int:
    """Cells that one printable character takes."""
    width = _widths.get(character)
    if width is None:
        width = _look_up(character)
        if len(_widths) >= _MAX_KEPT:
            _widths.clear()
        _widths[character] = width
    return width


def shows_as_it_is(text: str) -> bool:
    """Return whether printable text, with line feeds, tabs, CR and ESC, surely shows all of its
    characters in order.

    False does not prove the contrary. A joining character needs one before it in its line.
    """
    if not_own_cells(text) is None:
        return True
    if _neither_own_nor_joiner.search(text) is not None:
        return False
    return all(
        match.start() > 0
        and text[match.start() - 1] != "\n"
        and match.end() - match.start() <= _MAX_JOINERS
        for match in _joiner_runs.finditer(text)
    )


def _look_up(character: str) -> int:
    category = unicodedata.category(character)
    if category in ("Mn", "Me") or (category == "Cf" and character != "\xad"):
        return 0
    if "\u1160" <= character <= "\u11ff" or "\ud7b0" <= character <= "\ud7ff":
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1

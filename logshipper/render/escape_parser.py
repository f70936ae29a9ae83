"""Finds text and control functions in a program's terminal output, and lets a screen perform them.
Pure.

One regular expression finds complete sequences. Odd ones, and those cut off by the end of the
input, go through a state machine character by character (after Paul Williams' parser of the DEC
VT500), which keeps at most MAX_PARAMETERS characters. So the result does not depend on cuts of the
input. Control characters inside a sequence take effect, ESC begins another one, CAN and SUB end it.
The parser skips strings (OSC, DCS, APC, PM, SOS). BEL ends them as ST does, except DCS (Buildkite's
agent writes `ESC _ bk;t=... BEL`). A string of more than MAX_STRING characters ends at its next LF,
so that a stray one does not swallow the log. The parser drops C1 controls as U+0080 to U+009F (as
tmux does): in logs they are broken text, and programs send the ESC forms.
"""

from collections.abc import Callable
from enum import Enum, auto
from functools import lru_cache

from logshipper.late_pattern import late_pattern
from logshipper.render.carriage_returns import fold
from logshipper.render.log_screen import LogScreen
from logshipper.render.redraws import stretches, without_colours

MAX_PARAMETERS = 256  # characters of a CSI sequence between CSI and its last one
MAX_STRING = 4096
MAX_NUMBER = 9999
_MAX_DRAWN = 5  # frames of one shape; if the screen still differs then, all are drawn

_CONTROL = "\x00-\x1f\x7f-\x9f"
_TOKEN = late_pattern(
    rf"([^{_CONTROL}]++)"  # 1 text
    r"|(\n)"  # 2
    rf"|((?:\r[^{_CONTROL}]++)+(?=\r))"  # 3 text drawn over and over, but for the last time
    r"|(\r)"  # 4
    r"|\x1b\[([0-?]*+[ -/]*+)([@-~])"  # 5, 6 CSI
    r"|([\x00-\x1a\x1c-\x1f\x7f-\x9f])"  # 7 other controls
    # strings; in DCS, BEL may be content
    rf"|\x1b(?:[\]X^_][^\x07\x18\x1a\x1b]{{0,{MAX_STRING}}}+(?:\x07|\x1b\\)"
    rf"|P[^\x18\x1a\x1b]{{0,{MAX_STRING}}}+\x1b\\)"
    r"|(\x1b)"  # 8 begin of another sequence, or of one that is cut off
)
_TEXT, _LF, _REDRAWN, _CR, _CSI, _C0, _ESC = 1, 2, 3, 4, 6, 7, 8
_CSI_SHAPE = late_pattern(r"([<-?]?)([0-9:;]*)([ -/]*)\Z")
_STRING_END = late_pattern(r"[\x07\x18\x1a\x1b]")
_DCS_END = late_pattern(r"[\x18\x1a\x1b]")
_LONG_STRING_END = late_pattern(r"[\x07\x18\x1a\x1b\n]")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Concatenate

_Args = list[int]
_Function = Callable[[LogScreen, _Args], None]


class _State(Enum):
    GROUND = auto()
    ESCAPE = auto()
    CSI = auto()
    STRING = auto()


_COLLECTED = {_State.ESCAPE: late_pattern("[ -/]+"), _State.CSI: late_pattern("[ -?]+")}


def _with_count(method: "Callable[Concatenate[LogScreen, int, ...], None]") -> _Function:
    """Return a function with a count, 1 if missing or 0."""
    return lambda screen, args: method(screen, args[0] or 1)


def _with_selector(method: Callable[[LogScreen, int], None]) -> _Function:
    """Return a function with a selector, 0 by default."""
    return lambda screen, args: method(screen, args[0])


def _place(screen: LogScreen, args: _Args) -> None:
    screen.to_place(args[0] or 1, (args[1] if len(args) > 1 else 0) or 1)


def _region(screen: LogScreen, args: _Args) -> None:
    screen.set_region(args[0] or 1, args[1] if len(args) > 1 else 0)


def _scroll_down(screen: LogScreen, args: _Args) -> None:
    if len(args) == 1:  # more arguments concern the mouse
        screen.scroll_down(args[0] or 1)


def _save_cursor(screen: LogScreen, args: _Args) -> None:
    if len(args) == 1:  # two set left and right margins, which this screen lacks
        screen.save_cursor()


def _protection(screen: LogScreen, args: _Args) -> None:
    if args[0] <= 2:
        screen.protects = args[0] == 1


def _private_modes(screen: LogScreen, args: _Args, *, on: bool) -> None:
    for mode in args:
        if mode == 3:  # 80 or 132 columns: the width stays, but the screen is cleared
            screen.to_place(1, 1)
            screen.erase_display(2)
        elif mode == 6:
            screen.set_origin(on=on)
        elif mode == 7:
            screen.autowrap = on
        elif mode == 25 and not on:
            screen.hide_cursor()
        elif mode in (47, 1047, 1049) and on:
            screen.show_alternate(saves_cursor=mode == 1049)
        elif mode in (47, 1047, 1049):
            screen.show_main(restores_cursor=mode == 1049)
        elif mode == 1048:
            (screen.save_cursor if on else screen.restore_cursor)()


def _insert_mode(screen: LogScreen, args: _Args, *, on: bool) -> None:
    if 4 in args:
        screen.insert_mode = on


# Control functions by private marker, intermediate characters and last character; all others mean
# nothing here.
_CSI_FUNCTIONS: dict[str, _Function] = {
    "@": _with_count(LogScreen.insert_characters),
    "A": _with_count(LogScreen.up),
    "B": _with_count(LogScreen.down),
    "C": _with_count(LogScreen.right),
    "D": _with_count(LogScreen.left),
    "E": _with_count(LogScreen.next_line),
    "F": _with_count(LogScreen.previous_line),
    "G": _with_count(LogScreen.to_column),
    "H": _place,
    "I": _with_count(LogScreen.tab),
    "J": _with_selector(LogScreen.erase_display),
    "K": _with_selector(LogScreen.erase_line),
    "L": _with_count(LogScreen.insert_lines),
    "M": _with_count(LogScreen.delete_lines),
    "P": _with_count(LogScreen.delete_characters),
    "S": _with_count(LogScreen.scroll_up),
    "T": _scroll_down,
    "X": _with_count(LogScreen.erase_characters),
    "Z": _with_count(LogScreen.back_tab),
    "`": _with_count(LogScreen.to_column),
    "a": _with_count(LogScreen.right),
    "d": _with_count(LogScreen.to_row),
    "e": _with_count(LogScreen.rows_down),
    "f": _place,
    "g": _with_selector(LogScreen.clear_tabs),
    "j": _with_count(LogScreen.left),
    "h": lambda screen, args: _insert_mode(screen, args, on=True),
    "l": lambda screen, args: _insert_mode(screen, args, on=False),
    "r": _region,
    "s": _save_cursor,
    "u": lambda screen, args: screen.restore_cursor(),
    "^": _scroll_down,
    "?J": _with_selector(LogScreen.erase_display_selectively),
    "?K": _with_selector(LogScreen.erase_line_selectively),
    '"q': _protection,
    "?h": lambda screen, args: _private_modes(screen, args, on=True),
    "?l": lambda screen, args: _private_modes(screen, args, on=False),
    " @": lambda screen, args: screen.delete_columns(args[0] or 1, at_edge=True),
    " A": lambda screen, args: screen.insert_columns(args[0] or 1, at_edge=True),
    "'}": lambda screen, args: screen.insert_columns(args[0] or 1),
    "'~": lambda screen, args: screen.delete_columns(args[0] or 1),
    "!p": lambda screen, args: screen.soft_reset(),
}
_ESC_FUNCTIONS: dict[str, Callable[[LogScreen], None]] = {
    "6": LogScreen.back_index,
    "7": lambda screen: screen.save_cursor(),
    "8": lambda screen: screen.restore_cursor(),
    "9": LogScreen.forward_index,
    "D": LogScreen.index,
    "E": LogScreen.next_row,
    "H": LogScreen.set_tab,
    "M": LogScreen.reverse_index,
    "c": LogScreen.reset,
    "#8": LogScreen.align,
    "(0": lambda screen: screen.designate(0, drawing=True),
    "(B": lambda screen: screen.designate(0, drawing=False),
    ")0": lambda screen: screen.designate(1, drawing=True),
    ")B": lambda screen: screen.designate(1, drawing=False),
}
_C0_FUNCTIONS: dict[str, Callable[[LogScreen], None]] = {
    "\b": LogScreen.backspace,
    "\t": LogScreen.tab,
    "\n": LogScreen.line_feed,
    "\v": LogScreen.index,
    "\f": LogScreen.index,
    "\r": LogScreen.carriage_return,
    "\x0e": lambda screen: screen.shift(1),
    "\x0f": lambda screen: screen.shift(0),
}


@lru_cache(maxsize=1024)
def _look_up(collected: str, last: str) -> tuple[_Function | None, _Args]:
    """Return the function of a CSI sequence, and its numbers, at least one.

    collected: all between CSI and its last character.
    """
    shape = _CSI_SHAPE.match(collected) if len(collected) <= MAX_PARAMETERS else None
    if shape is None:
        return None, []
    marker, numbers, intermediates = shape.groups()
    if last == "b" and (marker or intermediates):
        return None, []
    args = [min(int(number or 0), MAX_NUMBER) for number in numbers.replace(":", ";").split(";")]
    return _CSI_FUNCTIONS.get(marker + intermediates + last), args


class EscapeParser:
    """Feeds one screen. select_style: gets the parameters of each SGR sequence, for kept colours."""

    def __init__(
        self, screen: LogScreen, select_style: Callable[[str], None] | None = None
    ) -> None:
        self._screen = screen
        self._select_style = select_style
        self._state = _State.GROUND
        self._collected = ""  # in ESCAPE: intermediates; in CSI: parameters and intermediates
        # the character drawn right before the sequence, for REP; "" for anything else
        self._before = ""
        self._string_size = 0
        self._is_dcs = False
        self._text_end = -1  # place of the last end of text in the input, -1 without one
        self._last_drawn = ""

    @property
    def is_ground(self) -> bool:
        """Whether no sequence is incomplete."""
        return self._state is _State.GROUND

    @property
    def ends_with_text(self) -> bool:
        """Whether a character was drawn last, not a control function."""
        return self._text_end == 0

    def drew(self, character: str) -> None:
        """The screen was drawn upon otherwise, with this character last; "" where a control came
        after it."""
        self._last_drawn = character
        self._text_end = 0 if character else -1

    def feed(self, text: str) -> int:
        """Perform text up to its end, or up to an LF that ends a line beginning like a command.

        It does not perform that LF: call LogScreen.line_feed or take_line. Returns the place behind
        it, or -1 without one.
        """
        if "\x1b" not in text:
            return self._feed_part(text)
        begin = 0
        if self._state is not _State.GROUND:
            begin = self._resume(text, 0)
            if begin < 0:
                return -begin
            self._text_end = -1
        rest = text[begin:]
        if self._select_style is None:
            rest = without_colours(rest)
            if "\x1b" not in rest and not self._screen.insert_mode:
                rest = fold(rest, rest.encode(), self._screen.columns)
        end = self._feed_frames(rest)
        if end < 0:
            return -1
        for _ in range(rest.count("\n", 0, end)):  # colours have none
            begin = text.index("\n", begin) + 1
        return begin

    def _feed_frames(self, text: str) -> int:
        """Feed text without the frames that later ones cover."""
        at = 0
        for places in stretches(text, self._screen.columns):
            shape: object = None
            for place in places[1:_MAX_DRAWN]:
                end = self._feed_part(text[at:place])
                if end >= 0:
                    return at + end
                at = place
                shape_before, shape = shape, self._screen.shape()
                if shape == shape_before is not None:
                    at = places[-1]
                    break
        end = self._feed_part(text[at:] if at else text)
        return at + end if end >= 0 else -1

    def _feed_part(self, text: str) -> int:
        at = 0
        end = len(text)
        match_token = _TOKEN.match
        screen = self._screen
        while at < end:
            if self._state is not _State.GROUND:
                at = self._resume(text, at)
                if at < 0:
                    return -at
                continue
            token = match_token(text, at)
            if token is None:  # never: each character begins some token
                break
            kind = token.lastindex
            begin, at = at, token.end()
            if kind == _TEXT:
                screen.draw(token[1])
                self._text_end = at
            elif kind == _CR:
                screen.carriage_return()
            elif kind == _LF:
                if screen.command() is not None:
                    self._text_end = -1
                    return at
                screen.line_feed()
            elif kind == _CSI:
                last = token[6]
                if last != "m":
                    before = self._drawn_before(text, begin) if last == "b" else ""
                    self._carry_out(token[5], last, before)
                elif self._select_style is not None:
                    self._select_style(token[5])
            elif kind == _REDRAWN:
                screen.redraw(token[3].split("\r")[1:])
            elif kind == _C0:
                function = _C0_FUNCTIONS.get(token[7])
                if function is not None:
                    function(screen)
            elif kind == _ESC:
                self._begin_sequence(text, begin)
        if end:
            self._last_drawn = text[-1]
            self._text_end = 0 if self._text_end == end else -1
        return -1

    def _drawn_before(self, text: str, at: int) -> str:
        if self._text_end != at:
            return ""
        return text[at - 1] if at else self._last_drawn

    def _carry_out(self, collected: str, last: str, before: str) -> None:
        function, args = _look_up(collected, last)
        if last == "b":
            if before and args:
                self._screen.draw(before * min(args[0] or 1, self._screen.columns))
        elif function is not None:
            if last != "K":  # without an erasure it does nothing
                self._screen.disturb()
            function(self._screen, args)

    # ---- the state machine

    def _begin_sequence(self, text: str, at: int) -> None:
        self._before = self._drawn_before(text, at)
        self._state = _State.ESCAPE
        self._collected = ""

    def _resume(self, text: str, at: int) -> int:
        """Goes on in a sequence until it or text is over. Returns the place behind, negative behind
        a command's LF."""
        while at < len(text) and self._state is not _State.GROUND:
            if self._state is _State.STRING:
                at = self._skip_string(text, at)
                continue
            character = text[at]
            if character >= "\x80":
                self._state = _State.GROUND  # broken: text follows
                return at
            at += 1
            if character == "\x1b":
                self._begin_sequence(text, at - 1)
            elif character in "\x18\x1a":
                self._state = _State.GROUND
            elif character < " ":
                if character == "\n" and self._screen.command() is not None:
                    self._text_end = -1
                    return -at
                if character in _C0_FUNCTIONS:
                    _C0_FUNCTIONS[character](self._screen)
            elif character != "\x7f":
                at = self._take(text, at - 1)
        return at

    def _take(self, text: str, at: int) -> int:
        """Printable characters of an escape or CSI sequence, all that are collected or the last one
        of it."""
        collected = _COLLECTED[self._state].match(text, at)
        if collected is not None:
            self._collected = (self._collected + collected[0])[: MAX_PARAMETERS + 1]
            return collected.end()
        character = text[at]
        if self._state is _State.CSI:
            self._state = _State.GROUND
            if character != "m":
                self._carry_out(self._collected, character, self._before)
            elif self._select_style is not None:
                self._select_style(self._collected)
        elif not self._collected and character in "[]PX^_":
            self._state = _State.CSI if character == "[" else _State.STRING
            self._string_size = 0
            self._is_dcs = character == "P"
        else:
            self._state = _State.GROUND
            function = _ESC_FUNCTIONS.get(self._collected + character)
            if function is not None:
                if not self._collected:
                    self._screen.disturb()
                function(self._screen)
        return at + 1

    def _skip_string(self, text: str, at: int) -> int:
        room = MAX_STRING - self._string_size
        if room > 0:
            ends = _DCS_END if self._is_dcs else _STRING_END
            match = ends.search(text, at, at + room)
        else:
            match = _LONG_STRING_END.search(text, at)
        if match is None:
            behind = min(len(text), at + room) if room > 0 else len(text)
            self._string_size += behind - at
            return behind
        if match[0] == "\x1b":  # it may be ST, which does nothing else
            self._begin_sequence(text, match.start())
        else:
            self._state = _State.GROUND
        return match.end()

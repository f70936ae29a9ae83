"""In-band commands (R14, R15): one rendered line in, a value out. Pure; a malformed command is a value, not an error.

A closed set that only affects what is logged of the job that printed it:
`{"mode":"enabled|metadata|disabled"}`, `{"stop":"TOKEN"}`, `{"resume":"TOKEN"}`.
"""

import json
from typing import NamedTuple

from logshipper.config import MODES

PREFIX = b"/LOGCOMMAND"
MAX_BYTES = 64 << 10
MAX_TOKEN_CHARS = 256
RIGHT_FORM = '/LOGCOMMAND {"mode":"metadata"}  (one space, one JSON object, nothing after it)'


class Command(NamedTuple):
    """A valid command. verb: mode, stop or resume; value: the mode or the token."""

    verb: str
    value: str


class Refused(NamedTuple):
    """A line that begins like a command but isn't one. narrow: the mode its text asks for, taken if it is narrower."""

    reason: str
    narrow: str | None


def width(mode: str) -> int:
    """0 for enabled, the widest; larger is narrower."""
    return MODES.index(mode)


def narrowest(one: str, other: str) -> str:
    return one if width(one) >= width(other) else other


def parse(line: bytes) -> Command | Refused:
    """What a rendered line that begins with PREFIX asks for. line: without LF, with the blanks at its end."""
    reason = _fault(line)
    if not reason:
        try:
            pairs = json.loads(line[len(PREFIX) + 1 :], object_pairs_hook=list)
        except (ValueError, RecursionError):
            reason = "what follows isn't one JSON object"
        else:
            found = _from_pairs(pairs)
            if isinstance(found, Command):
                return found
            reason = found
    return Refused(reason, _named_narrow_mode(line))


def _fault(line: bytes) -> str:
    rest = line[len(PREFIX) :]
    if len(line) > MAX_BYTES:
        return f"the line is over {MAX_BYTES >> 10} KiB"
    if not rest.strip():
        return "nothing follows"
    if not rest.startswith(b" "):
        return "no blank follows /LOGCOMMAND"
    if not rest.startswith(b" {"):
        return "more than one blank follows" if rest.startswith((b"  ", b" \t")) else "what follows isn't a JSON object"
    if not rest.endswith(b"}"):
        return "something follows the JSON object"
    return ""


def _from_pairs(pairs: object) -> Command | str:
    """pairs: the object's (key, value) pairs, which json.loads made of every object in the line."""
    if not isinstance(pairs, list) or len(pairs) != 1 or not isinstance(pairs[0], tuple):
        return "the object must hold one key: mode, stop or resume"
    key, value = pairs[0]
    if key == "mode":
        return Command("mode", value) if value in MODES else "mode must be enabled, metadata or disabled"
    if key in ("stop", "resume"):
        usable = isinstance(value, str) and 0 < len(value) <= MAX_TOKEN_CHARS and value.isprintable()
        return Command(key, value) if usable else f"{key} takes a token of 1 to {MAX_TOKEN_CHARS} printable characters"
    return "the object must hold one key: mode, stop or resume"


def _named_narrow_mode(line: bytes) -> str | None:
    """A job that prints a dict's repr means to hide what follows: its token must not leak for two wrong quotes."""
    for mode in reversed(MODES[1:]):
        if mode.encode() in line:
            return mode
    return None

"""Stop tokens are never logged, however they are written: as they are, or as JSON may escape them.
Pure."""

import json
import re

from logshipper.late_pattern import late_pattern

MASK = b"***"
MAX_TOKENS = 1000  # the oldest makes room: each costs a search of all text
MIN_CHARS = 8  # shorter ones could stand anywhere
MIN_SHOWN = 4  # of a token that the end of a text has cut off
# several units at once: they may be one character
_ESCAPED = late_pattern(rb'(?:\\u[0-9A-Fa-f]{4})+|\\["\\/bfnrt]')


class Masks:
    """The tokens of a capture. longest: bytes of the longest form of any of them."""

    __slots__ = ("_patterns", "longest")

    def __init__(self) -> None:
        self._patterns: dict[
            bytes, re.Pattern[bytes] | None
        ] = {}  # by token, in UTF-8; the oldest first; made when met
        self.longest = 0

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def add(self, token: str) -> None:
        if len(token) < MIN_CHARS or token.encode() in self._patterns:
            return
        if len(self._patterns) >= MAX_TOKENS:
            del self._patterns[next(iter(self._patterns))]
        self._patterns[token.encode()] = None
        self.longest = max(
            self.longest, sum(6 * len(char.encode("utf-16-be")) // 2 for char in token)
        )

    def masked(self, text: bytes) -> bytes:
        if not self._patterns:
            return text
        plain = _ESCAPED.sub(_unescaped, text) if b"\\" in text else text
        for token in self._patterns:
            if token in text or (plain is not text and token in plain):
                text = self._pattern(token).sub(MASK, text)
        return text

    def _pattern(self, token: bytes) -> re.Pattern[bytes]:
        """Matches the token in UTF-8 and in each way that JSON can write it."""
        pattern = self._patterns[token]
        if pattern is None:
            pattern = self._patterns[token] = re.compile(b"".join(map(_forms, token.decode())))
        return pattern

    def masked_open(self, text: bytes) -> bytes:
        """As `masked`, of text that may go on: what may be the begin of a token isn't shown
        either."""
        text = self.masked(text)
        if self._patterns and b"\\" in text[-self.longest :]:
            return text[: -self.longest] + MASK  # escapes hide where a token begins
        for token in self._patterns:
            for size in range(min(len(token), len(text)), MIN_SHOWN - 1, -1):
                if text.endswith(token[:size]):
                    return text[:-size] + MASK
        return text


def _forms(char: str) -> bytes:
    units = char.encode("utf-16-be")
    escaped = b"".join(
        b"\\\\u(?i:%04x)" % int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)
    )
    forms = [escaped, re.escape(char.encode())]
    if char in '"\\/':
        forms.insert(0, b"\\\\" + re.escape(char.encode()))
    return b"(?:%s)" % b"|".join(forms)


def _unescaped(match: re.Match[bytes]) -> bytes:
    return str(json.loads(b'"%s"' % match[0])).encode("utf-8", "replace")

"""Masks stop tokens, as printed or as JSON may escape them. Pure."""

import json
import re

from logshipper.late_pattern import late_pattern
from logshipper.masks.shape_mask import MASK

MAX_TOKENS = 1000  # a new token replaces the oldest: each costs a search of all text
MIN_CHARS = 8  # shorter tokens could occur anywhere
MIN_SHOWN = 4  # of a token cut off by the end of a text
# several units together, as two of them may form one character
_ESCAPED = late_pattern(rb'(?:\\u[0-9A-Fa-f]{4})+|\\["\\/bfnrt]')


class StopTokens:
    """The stop tokens of a capture."""

    __slots__ = ("_patterns", "longest")

    def __init__(self) -> None:
        # by token in UTF-8, oldest first; None: not compiled yet
        self._patterns: dict[bytes, re.Pattern[bytes] | None] = {}
        self.longest = 0  # bytes of the longest form of any token

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
        """Return an expression for all forms of the token: in UTF-8 and as JSON may escape it."""
        pattern = self._patterns[token]
        if pattern is None:
            pattern = self._patterns[token] = re.compile(b"".join(map(_forms, token.decode())))
        return pattern

    def masked_open(self, text: bytes) -> bytes:
        """Mask a text that may continue: also hide an end that may begin a token."""
        text = self.masked(text)
        if self._patterns and b"\\" in text[-self.longest :]:
            return text[: -self.longest] + MASK  # escapes hide the begin of a token
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

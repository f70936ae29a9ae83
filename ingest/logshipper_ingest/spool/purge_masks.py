"""Masks of purged lines and texts: asterisks of the same length, so that offsets stay valid and
lines still count. In JSON they cover the job's keys and values, not the format's own. Pure."""

import re
from collections.abc import Iterator

from logshipper_ingest.spool.purge_pattern import LinePattern

# with or without a closing quote
_TOKEN = re.compile(rb'"((?:[^"\\]++|\\.)*+)"?|[{}\[\]:,]', re.DOTALL)
_DATA = b"data"  # of an event: values that the job logged
_NOTHING = b' *"{}[],:'  # its characters once all texts are masked
# of imports, and of lines' attributes
_OWN_KEYS = frozenset((b"import", b"n", b"repeat", b"part", b"origin", b"copy", b"sent"))
# values that logshipper itself uses, at the first level of its records, accounts and identities
_OWN_VALUES = frozenset(
    (b"type", b"event", b"state", b"mode", b"from", b"to", b"stream", b"origin", b"parent", b"allocation", b"cluster",
     b"version", b"boot_id", b"user", b"host", b"job_id")
)  # fmt: skip


def masked(line: bytes) -> bytes:
    """Return the mask of a line."""
    return b"*" * len(line)


def masked_lines(text: bytes, pattern: LinePattern) -> tuple[bytes, int]:
    """Return the masked text and the number of matching lines."""
    lines = text.split(b"\n")
    hits = [at for at, line in enumerate(lines) if line and pattern.has(line)]
    for at in hits:
        lines[at] = masked(lines[at])
    return b"\n".join(lines), len(hits)


def masked_json(text: bytes, pattern: LinePattern, own_levels: int = 1) -> bytes:
    """Return JSON of the same length with matching keys and texts masked. If an event's data still
    matches, by a number, it becomes `{}`. own_levels: levels whose keys are logshipper's own and
    stay."""
    scan = _Scan(text, own_levels)
    edited = bytearray(text)
    for begin, end in scan.job_texts():
        if pattern.has(text[begin:end]):
            edited[begin:end] = masked(text[begin:end])
    begin, end = scan.data
    if edited[begin:end].strip(_NOTHING) and pattern.has(bytes(edited[begin:end])):
        edited[begin:end] = b"{}".ljust(end - begin) if end - begin > 1 else b"0"
    return bytes(edited)


class _Scan:
    """A scan of JSON, or of text that resembles it, token by token."""

    def __init__(self, text: bytes, own_levels: int) -> None:
        self.data = 0, 0  # begin and end of the value of `data` at the first level, after the scan
        self._text = text
        self._own_levels = own_levels
        self._open: list[bytes] = []
        self._is_key = False
        self._key = b""  # at the first level

    def job_texts(self) -> Iterator[tuple[int, int]]:
        """Yield begin and end, inside the quotes, of the job's texts and keys."""
        for token in _TOKEN.finditer(self._text):
            if token[1] is None:
                self._enter(token[0], token.start())
            elif not self._is_own(token[1]):
                yield token.span(1)

    def _is_own(self, word: bytes) -> bool:
        if not self._is_key:
            return len(self._open) == 1 and self._own_levels > 0 and self._key in _OWN_VALUES
        if len(self._open) == 1:
            self._key = word
        return len(self._open) <= self._own_levels or word in _OWN_KEYS

    def _enter(self, sign: bytes, at: int) -> None:
        if sign in b"{[":
            self._open.append(sign)
            self._is_key = sign == b"{"
            return
        if self._key == _DATA and len(self._open) == 1:
            if sign == b":":
                self.data = (at + 1, at + 1)
            else:
                self.data, self._key = (self.data[0], at), b""
        if sign in b"}]" and self._open:
            self._open.pop()
        self._is_key = sign == b"," and self._open[-1:] == [b"{"]

"""What stands in the place of a line or a text that is purged: as many asterisks, so that places in
a file stay what they are, and lines still count. Of JSON the keys and values of others are masked,
none of the format's own. Pure."""

import re
from collections.abc import Iterator

from logshipper_ingest.spool.purge_pattern import LinePattern

_TOKEN = re.compile(rb'"((?:[^"\\]++|\\.)*+)"?|[{}\[\]:,]', re.DOTALL)  # a text without an end, too
_DATA = b"data"  # of an event: what the job logged, numbers, too
_NOTHING = b' *"{}[],:'  # what is left of it where all of its texts are masked
# of imports, and of lines' attributes
_OWN_KEYS = frozenset((b"import", b"n", b"repeat", b"part", b"origin", b"copy", b"sent"))
# values that logshipper itself goes by, at the first level of its records, accounts and identities
_OWN_VALUES = frozenset(
    (b"type", b"event", b"state", b"mode", b"from", b"to", b"stream", b"origin", b"parent", b"allocation", b"cluster",
     b"version", b"boot_id", b"user", b"host", b"job_id")
)  # fmt: skip


def masked(line: bytes) -> bytes:
    """What stands in a line's place: as long, in bytes."""
    return b"*" * len(line)


def masked_lines(text: bytes, pattern: LinePattern) -> tuple[bytes, int]:
    """The text, and how many of its lines have the pattern."""
    lines = text.split(b"\n")
    hits = [at for at, line in enumerate(lines) if line and pattern.has(line)]
    for at in hits:
        lines[at] = masked(lines[at])
    return b"\n".join(lines), len(hits)


def masked_json(text: bytes, pattern: LinePattern, own_levels: int = 1) -> bytes:
    """JSON as long as it was, whose keys and texts that have the pattern are masked; an event's
    data that has it otherwise (a number) is `{}`. own_levels: at so many the keys are logshipper's
    own, and stay."""
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
    """Goes through JSON token by token; what isn't JSON is taken as far as it looks like it. data:
    where the value of `data` at the first level begins and ends, once all are gone through."""

    def __init__(self, text: bytes, own_levels: int) -> None:
        self.data = (0, 0)
        self._text = text
        self._own_levels = own_levels
        self._open: list[bytes] = []
        self._is_key = False
        self._key = b""  # at the first level

    def job_texts(self) -> Iterator[tuple[int, int]]:
        """Where texts and keys begin and end, without their quotes, that aren't logshipper's
        own."""
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

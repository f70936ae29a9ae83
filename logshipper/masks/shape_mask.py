"""Finds and masks secrets of the shapes in logshipper/masks/secret_shapes.py. Pure.

A search for the shapes' literals skips nearly all text. Only behind a literal the expression of its
shape runs, so the time is linear.
"""

from functools import cache

from logshipper.late_pattern import late_pattern
from logshipper.masks import secret_shapes
from logshipper.named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from re import Pattern

MASK = b"***"
MAX_HELD_BYTES = 32 << 10  # at the end of a cut text, which may begin a secret
HELD_BYTES = 64  # cover a split literal, or a name with the text behind it
HELD_NAME_BYTES = 256  # before a secret that goes on: its name, and the text between
MAX_KEY_LINES = 1000  # of a private key without an end; later lines stay visible
MAX_OTHER_LINES = 8  # in a row inside a private key, as of other threads; then it has ended
MAX_CONTEXT_BYTES = 1000  # of the two lines before a secret's line
# CPython searches a text below 30,000 bytes three times as fast for a literal of six bytes or more
_WINDOW_BYTES = 29_900
_LONG_LITERAL_BYTES = 6
_WINDOW_OVERLAP_BYTES = 32
# A search for one byte takes a tenth of the time. A literal needs no search in a text without its
# first byte of this list. The list begins with bytes that many texts lack.
_GATES = b"_JKxzAT=CWywkgphQXZqYVGUjHBDF?&;\\OLMPNRSIEvb/f:-umdc lsnrtioae.0123456789\"'\t"
# with many literals left, only words as long as tokens are searched
_MANY_LITERALS = 6
_LONG_TEXT_BYTES = 2000
_LONG_WORD = b"w" * 15
_HEX_WORD_BYTES = 40  # secrets that long are hex digits
_TOKEN_BYTES = secret_shapes.NAME_BYTES | frozenset(b".=")  # of all tokens' alphabets
_WORD_BYTES = bytes(ord("w" if byte in _TOKEN_BYTES else " ") for byte in range(256))
_BEFORE_WORD_BYTES = 9  # of a literal, before its word

_BESIDE_BYTES = 300  # behind a key id, at most to the end of the next line
_BESIDE = late_pattern(
    rb"(?<![A-Za-z0-9+/=])(?![0-9a-f]{40}|[0-9A-F]{40})[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=])"
)
_USERINFO = late_pattern(
    rb"[^\s/\"'<>@:]{0,200}:[^\s/\"'<>]{1,400}(?=@)|[^\s/\"'<>@:]{20,400}(?=@)"
)
# of an address that may continue; digits behind a colon are a port
_OPEN_USERINFO = late_pattern(
    rb"[^\s/\"'<>@:]{0,200}:(?![0-9]{0,5}\Z)[^\s/\"'<>]{1,400}\Z|[^\s/\"'<>@:.]{12,400}\Z"
)
_OPEN_BESIDE = late_pattern(rb"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{8,40}\Z")
_KEY_LITERAL = b"PRIVATE KEY"
_KEY_MARK = rb"-{4,5} ?%s [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
_KEY_BEGIN = late_pattern(_KEY_MARK % b"BEGIN")
_KEY_END = late_pattern(_KEY_MARK % b"END")
_KEY_TEXT = late_pattern(rb"[A-Za-z0-9+/=]{16,}|(?:Proc-Type|DEK-Info|Version|Comment): .*")
_KEY_TAIL = late_pattern(rb"(?<!\S)[A-Za-z0-9+/=]+\s*\Z")  # a key's last line
_SCHEME_ENDS = (b"://", b":\\/\\/", rb":\\/\\/")  # JSON, and JSON in JSON, escape slashes
_WITH_CONTEXT = (
    secret_shapes.AWS_KEY_ID,
    secret_shapes.NETRC,
)  # shapes whose secrets may follow on a later line


class Secret(NamedTuple):
    """A secret's place in a text."""

    begin: int
    end: int
    shape: str


class _Literals:
    """The literals of all shapes, and the shapes' expressions."""

    def __init__(self) -> None:
        # by a byte: literals with it, the parts that each needs, and the shape's number
        groups: dict[int, list[tuple[bytes, tuple[int | bytes, ...], int]]] = {}
        for number, shape in enumerate(secret_shapes.SHAPES):
            for literal in shape.literals:
                gate, *others = sorted(set(literal), key=_GATES.find)
                parts: tuple[int | bytes, ...] = tuple(others)
                if shape.shared:
                    parts += (shape.shared,)
                groups.setdefault(gate, []).append((literal, parts, number))
        self._groups = sorted(groups.items(), key=lambda group: _GATES.find(group[0]))
        self.whole: list[Pattern[bytes]] = []
        self.open: list[Pattern[bytes]] = []
        for shape in secret_shapes.SHAPES:
            secret = rb"(%s{%d,})" % (shape.alphabet, shape.least)
            self.whole.append(late_pattern(shape.between + shape.check + secret))
            self.open.append(late_pattern(rb"%s(%s*)\Z" % (shape.between, shape.alphabet)))

    def inside(self, text: bytes) -> list[tuple[bytes, int]]:
        """The literals that the text holds, and the numbers of their shapes."""
        names: list[tuple[bytes, int]] = []
        tokens: list[tuple[bytes, int]] = []
        known: dict[int | bytes, bool] = {}  # whether the text holds a part
        for gate, group in self._groups:
            if gate not in text:
                known[gate] = False
                continue
            for literal, parts, number in group:
                for part in parts:
                    held = known.get(part)
                    if held is None:
                        held = known[part] = part in text
                    if not held:
                        break
                else:
                    of_kind = names if secret_shapes.SHAPES[number].keeps_literal else tokens
                    of_kind.append((literal, number))
        is_long = len(tokens) > _MANY_LITERALS and len(text) > _LONG_TEXT_BYTES
        words = _long_words(text) if is_long else text
        return [
            *(entry for entry in names if known.get(entry[0], True) and _holds(text, entry[0])),
            *(entry for entry in tokens if known.get(entry[0], True) and _holds(words, entry[0])),
        ]


def _long_words(text: bytes) -> bytes:
    """Return the words of a text that may be tokens, and the bytes before them."""
    words = text.translate(_WORD_BYTES)
    parts = []
    begin = words.find(_LONG_WORD)
    while begin >= 0:
        end = words.find(b" ", begin)
        end = end if end >= 0 else len(words)
        parts.append(text[max(begin - _BEFORE_WORD_BYTES, 0) : end])
        begin = words.find(_LONG_WORD, end)
    return b" ".join(parts)


@cache
def _literals() -> _Literals:
    return _Literals()


def _holds(text: bytes, literal: bytes) -> bool:
    if len(literal) < _LONG_LITERAL_BYTES or len(text) <= _WINDOW_BYTES:
        return literal in text
    step = _WINDOW_BYTES - _WINDOW_OVERLAP_BYTES
    return any(text.find(literal, at, at + _WINDOW_BYTES) >= 0 for at in range(0, len(text), step))


class Findings(NamedTuple):
    """The secrets of a text but private keys."""

    secrets: list[Secret]  # in order, without overlaps
    has_context: bool  # the next line may hold the secret of this one


def find(text: bytes, *, may_go_on: bool = False) -> Findings:
    """Find secrets. may_go_on: the text's end may begin one."""
    literals = _literals()
    secrets: list[Secret] = []
    has_context = False
    for literal, number in literals.inside(text):
        if may_go_on or _may_hold_word(text, secret_shapes.SHAPES[number].least):
            secrets += _behind(literal, number, text, literals, may_go_on)
        has_context = has_context or secret_shapes.SHAPES[number].name in _WITH_CONTEXT
    if may_go_on or b"@" in text:
        for scheme_end in _SCHEME_ENDS:
            secrets += _in_addresses(text, scheme_end, may_go_on)
    secrets += [beside for secret in secrets for beside in _beside(secret, text, may_go_on)]
    return Findings(_without_overlaps(secrets), has_context)


def _may_hold_word(text: bytes, size: int) -> bool:
    """Return whether a frequent name such as `login` may have a secret of so many hex digits behind
    it."""
    if size < _HEX_WORD_BYTES or len(text) <= _LONG_TEXT_BYTES:
        return True
    return b"w" * size in text.translate(_WORD_BYTES)


def _behind(
    literal: bytes, number: int, text: bytes, literals: _Literals, may_go_on: bool
) -> "Iterator[Secret]":
    shape = secret_shapes.SHAPES[number]
    at = text.find(literal)
    while at >= 0:
        end = at + len(literal)
        if not at or text[at - 1] not in shape.apart_from:
            match = literals.whole[number].match(text, end)
            if match is None and may_go_on:
                match = literals.open[number].match(text, end)
            if match is not None:
                end = match.end(1)
                begin = match.start(1) if shape.keeps_literal else at
                if text[begin:end] != MASK:
                    yield Secret(begin, end, shape.name)
        at = text.find(literal, end)


def _in_addresses(text: bytes, scheme_end: bytes, may_go_on: bool) -> "Iterator[Secret]":
    at = text.find(scheme_end)
    while at >= 0:
        at += len(scheme_end)
        match = _OPEN_USERINFO.match(text, at) if may_go_on else None
        match = match or _USERINFO.match(text, at)
        if match is not None:
            yield Secret(match.start(), match.end(), secret_shapes.URL_CREDENTIALS)
        at = text.find(scheme_end, at)


def _beside(secret: Secret, text: bytes, may_go_on: bool) -> "Iterator[Secret]":
    """The secret of an AWS key, on the same line as its id or on the next one."""
    if secret.shape != secret_shapes.AWS_KEY_ID:
        return
    limit = min(len(text), secret.end + _BESIDE_BYTES)
    next_line = text.find(b"\n", secret.end, limit)
    if next_line >= 0:
        end = text.find(b"\n", next_line + 1, limit)
        limit = end if end >= 0 else limit
    match = _BESIDE.search(text, secret.end, limit)
    if match is None and may_go_on and limit == len(text):
        match = _OPEN_BESIDE.search(text, secret.end)
    if match is not None:
        yield Secret(match.start(), match.end(), secret_shapes.AWS_SECRET)


def _has_key(text: bytes) -> bool:
    return b"V" in text and _holds(text, _KEY_LITERAL)


def _without_overlaps(secrets: list[Secret]) -> list[Secret]:
    secrets.sort()
    merged = secrets[:1]
    for secret in secrets[1:]:
        last = merged[-1]
        if secret.begin >= last.end:
            merged.append(secret)
        elif secret.end > last.end:
            merged[-1] = last._replace(end=secret.end)
    return merged


def replaced(text: bytes, secrets: "list[Secret]") -> bytes:
    """The text with MASK in place of its secrets."""
    parts = []
    at = 0
    for secret in secrets:
        parts += [text[at : secret.begin], MASK]
        at = secret.end
    return b"".join([*parts, text[at:]])


def masked_text(text: str) -> str:
    """A text, of several lines perhaps, with MASK in place of its secrets."""
    raw = text.encode("utf-8", "surrogateescape")
    masked = ShapeMask().masked(raw)
    return text if masked is raw else masked.decode("utf-8", "surrogateescape")


def masked_words(words: "Iterable[str]") -> list[str]:
    """A command line: a word may give away the next one, as in `wandb login KEY`."""
    raw = [word.encode("utf-8", "surrogateescape") for word in words]
    secrets = find(b" ".join(raw)).secrets
    masked = []
    at = 0
    for word in raw:
        inside = [
            Secret(secret.begin - at, min(secret.end - at, len(word)), secret.shape)
            for secret in secrets
            if at <= secret.begin < at + len(word)
        ]
        masked.append(replaced(word, inside).decode("utf-8", "surrogateescape"))
        at += len(word) + 1
    return masked


class ShapeMask:
    """Masks the secrets in the lines of one stream. counts: masked values by shape."""

    __slots__ = ("_context", "_key_lines", "_other_lines", "counts")

    def __init__(self, counts: "dict[str, int] | None" = None) -> None:
        self.counts: dict[str, int] = {} if counts is None else counts
        self._context = b""  # lines before the next text that it may belong to, ended by LF
        self._key_lines = 0  # number of further lines that may belong to a private key
        self._other_lines = 0  # lines since its last one

    def masked(self, text: bytes, *, counted: bool = True, goes_on: bool = False) -> bytes:
        """Lines, masked; as many lines. counted: in `counts`, too; goes_on: the last line's other
        part comes next."""
        whole = self._context + text if self._context else text
        begin = len(whole) - len(text)
        findings = find(whole)
        secrets = [secret for secret in findings.secrets if secret.begin >= begin]
        self._context = _context_of(whole) if findings.has_context else b""
        if secrets:
            text = replaced(whole, secrets)[begin:]
        if self._key_lines or _has_key(text):
            text, keys = self._without_keys(text, goes_on=goes_on)
            secrets += keys
        if counted:
            for secret in secrets:
                self.counts[secret.shape] = self.counts.get(secret.shape, 0) + 1
        return text

    def masked_open(self, text: bytes) -> bytes:
        """Mask a line that may continue, with the possible begin of a secret."""
        if self._key_lines:
            return _KEY_TAIL.sub(MASK, _KEY_TEXT.sub(MASK, text))
        if _has_key(text):
            text, _ = ShapeMask()._without_keys(text, goes_on=True)
        whole = self._context + text
        begin = len(whole) - len(text)
        secrets = find(whole, may_go_on=True).secrets
        return replaced(whole, [secret for secret in secrets if secret.begin >= begin])[begin:]

    def _without_keys(self, text: bytes, *, goes_on: bool) -> tuple[bytes, list[Secret]]:
        """Lines without private keys: from BEGIN to END, in this text and in later ones."""
        lines = text.split(b"\n")
        keys: list[Secret] = []
        for number, line in enumerate(lines):
            if line and (self._key_lines or _has_key(line)):
                is_whole = not goes_on or number < len(lines) - 1
                lines[number] = self._without_key(line, keys, is_whole=is_whole)
        return b"\n".join(lines), keys

    def _without_key(self, line: bytes, keys: list[Secret], *, is_whole: bool) -> bytes:
        """Remove keys from a line. keys: gets those that begin there; is_whole: the line does not
        continue."""
        parts = []
        at = 0
        while True:
            if not self._key_lines:
                begin = _KEY_BEGIN.search(line, at)
                if begin is None:
                    parts.append(line[at:])
                    break
                parts += [line[at : begin.start()], MASK]
                keys.append(Secret(0, 0, secret_shapes.PRIVATE_KEY))
                self._key_lines, self._other_lines = MAX_KEY_LINES, 0
                at = begin.end()
            end = _KEY_END.search(line, at)
            if end is None:
                if not at:
                    parts.append(self._masked_key_line(line))
                elif is_whole and _KEY_TEXT.search(line, at):
                    self._key_lines = 0  # this line holds the whole key, as in JSON
                break
            if not at:
                parts.append(MASK)
            self._key_lines = 0
            at = end.end()
        return b"".join(parts)

    def _masked_key_line(self, line: bytes) -> bytes:
        self._key_lines -= 1
        masked = _KEY_TEXT.sub(MASK, line)
        if masked != line:
            self._other_lines = 0
            return masked
        if not self._other_lines:
            masked = _KEY_TAIL.sub(MASK, line)
        self._other_lines += 1
        if self._other_lines >= MAX_OTHER_LINES:
            self._key_lines = 0
        return masked


def _context_of(text: bytes) -> bytes:
    """The last two lines, if they end and are short."""
    begin = text.rfind(b"\n", 0, max(text.rfind(b"\n", 0, len(text) - 1), 0)) + 1
    lines = text[begin:]
    return lines if lines.endswith(b"\n") and len(lines) <= MAX_CONTEXT_BYTES else b""


def cut(text: bytes) -> int:
    """Return the number of bytes before a cut of a continuing text that splits no secret."""
    tail = max(len(text) - MAX_HELD_BYTES, 0)
    secrets = find(text[tail:], may_go_on=True).secrets
    at = max(len(text) - tail - HELD_BYTES, 0)
    for secret in reversed(secrets):
        if secret.end == len(text) - tail or secret.begin < at < secret.end:
            at = min(at, max(secret.begin - HELD_NAME_BYTES, 0))
    return tail + at

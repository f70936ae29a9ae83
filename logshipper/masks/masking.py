"""Masks secrets in command lines and in text that has assignments. Pure.

Three things give a secret away:
- its name, which contains one of _WORDS in any case: `PGPASSWORD`, `--dbpassword`, `apiToken`. Only
  the program that reads a value knows its end, so the mask reaches to the end of the word or line.
  `--max-tokens 512` is masked, too: one value too many is better than a secret;
- the program that takes it: `curl -u`, `mysql -p` (logshipper/masks/password_options.py);
- its own shape (logshipper/masks/secret_shapes.py).
"""

from logshipper.late_pattern import late_pattern
from logshipper.masks import shape_mask
from logshipper.masks.password_options import NAMES, masked_passwords

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

MASK = "***"
# a name's length has a cap, so that a text takes time in proportion to its length
_WORDS = (
    r"(?:pass[-_. ]?w(?:or)?d|pass[-_. ]?phrase|secret|token|api[-_. ]?key|credential|authorization"
    r"|(?<![a-z0-9])(?:pass|pwd?|auth)(?![a-z0-9]))[\w.\-]{0,200}"
)
_NAMED = late_pattern(rf"(?i){_WORDS}")
_ASSIGNED = late_pattern(  # NAME=value, "name": value, name => value, ("name", value), <name>value
    rf"(?i){_WORDS}(?:[\"'\])\s]{{0,9}}[-+*/%&|^?!:<=>~]{{0,3}}[:=>]|[\"']\s{{0,9}},)\s*(?=\S)"
)
# --name value
_GIVEN = late_pattern(rf"(?i)(?<![^\s\"'`=(,;:|&{{\[])-[\w.\-]{{0,200}}?{_WORDS}[\"']?\s+(?=\S)")
# an option that ends in one of these: only its value, the next word, is masked
_KEY = r"-[\w.\-]{0,200}?(?:key|cookie|license|signature|webhook|(?<![a-z0-9])(?:pat|pin|sig|pwd?))"
_OPTION = late_pattern(rf"(?i)(?:-[\w.\-]{{0,200}}?{_WORDS}|{_KEY})[:=]?")  # value: the next word
_KEY_GIVEN = late_pattern(
    rf"(?i)(?<![^\s\"'`=(,;:|&{{\[])({_KEY}(?:[:=]|\s{{1,9}}))(?:\"[^\"]*\"|'[^']*'|[^\s\"'][^\s]*)"
)
_WORD = late_pattern(r"(?:\"[^\"]*\"|'[^']*'|\S)+")
_USERINFO = late_pattern(r"(?<=://)[^/\s]*@")
_NEEDED = frozenset(":=>,-@")  # none of these patterns matches without one of them


def masked_text(text: str) -> str:
    """A text without secrets: nothing behind a secret's name, no user and password in an address,
    no secret of a known shape."""
    if not _NEEDED.isdisjoint(text):
        for pattern in (_ASSIGNED, _GIVEN):
            match = pattern.search(text)
            if match is not None:
                text = text[: match.end()] + MASK
        text = _USERINFO.sub(f"{MASK}@", text)
    return shape_mask.masked_text(text)


def masked_lines(text: str) -> str:
    """Mask a text like masked_text, line by line; a private key has many lines."""
    return "\n".join(map(masked_text, shape_mask.masked_text(text).split("\n")))


def masked_words(words: "Iterable[str]") -> "Iterator[str]":
    """Mask a command line word by word. The word after an option with a secret's name is always
    masked: a password may begin with `-`."""
    hide = False
    before = ""
    for word in masked_passwords(shape_mask.masked_words(words)):
        yield MASK if hide else _masked_argument(word)
        names_secret = before == "set" and _NAMED.search(word) is not None  # aws configure set
        hide = names_secret or (word.startswith("-") and _OPTION.fullmatch(word) is not None)
        before = word


def _masked_argument(word: str) -> str:
    """Mask one word, which may be a command line, as in `sh -c "curl -u ..."`."""
    word = masked_text(_KEY_GIVEN.sub(rf"\1{MASK}", word) if "-" in word else word)
    if " " not in word or not any(name in word for name in NAMES):
        return word
    places = [match.span() for match in _WORD.finditer(word)]
    words = masked_passwords([word[begin:end] for begin, end in places])
    parts = []
    at = 0
    for (begin, end), masked in zip(places, words, strict=True):
        parts += [word[at:begin], masked]
        at = end
    return "".join([*parts, word[at:]])


def masked_json(value: "Any", name: str = "") -> "Any":  # Any: JSON
    """Mask texts in a JSON value, lists of texts as command lines, and values with names of
    secrets."""
    if isinstance(value, dict):
        return {key: masked_json(member, str(key)) for key, member in value.items()}
    if value not in (None, "", [], {}) and _NAMED.search(name):
        return MASK
    if isinstance(value, list):
        if all(isinstance(word, str) for word in value):
            return list(masked_words(value))
        return [masked_json(element) for element in value]
    return masked_lines(value) if isinstance(value, str) else value

"""Values that are called like secrets, masked in command lines and in text that has assignments.
Pure.

A name counts that contains one of the words of _WORDS, in any case, whatever is joined to it:
`PGPASSWORD`, `--dbpassword`, `apiToken`. What follows it is masked to the end of the word, or of
the line: where a value ends, only the program that reads it knows. So `--max-tokens 512` is masked,
too: rather one value too many than a secret.
"""

from logshipper.late_pattern import late_pattern

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
_OPTION = late_pattern(rf"(?i)-[\w.\-]{{0,200}}?{_WORDS}[:=]?")  # whose value is the next word
_USERINFO = late_pattern(r"(?<=://)[^/\s]*@")
_NEEDED = frozenset(":=>,-@")  # none of these patterns matches without one of them


def masked_text(text: str) -> str:
    """A text without what follows a secret's name, to its end, and without users and passwords in
    addresses."""
    if _NEEDED.isdisjoint(text):
        return text
    for pattern in (_ASSIGNED, _GIVEN):
        match = pattern.search(text)
        if match is not None:
            text = text[: match.end()] + MASK
    return _USERINFO.sub(f"{MASK}@", text)


def masked_lines(text: str) -> str:
    """As masked_text, line by line."""
    return "\n".join(map(masked_text, text.split("\n")))


def masked_words(words: "Iterable[str]") -> "Iterator[str]":
    """A command line, word by word. The word after an option that is called like a secret is
    masked, whatever it is: a password may begin with `-`."""
    hide = False
    for word in words:
        yield MASK if hide else masked_text(word)
        hide = word.startswith("-") and _OPTION.fullmatch(word) is not None


def masked_json(value: "Any", name: str = "") -> "Any":  # Any: JSON
    """A JSON value with texts masked, lists of texts as command lines, and values that are called
    like secrets."""
    if isinstance(value, dict):
        return {key: masked_json(member, str(key)) for key, member in value.items()}
    if value not in (None, "", [], {}) and _NAMED.search(name):
        return MASK
    if isinstance(value, list):
        if all(isinstance(word, str) for word in value):
            return list(masked_words(value))
        return [masked_json(element) for element in value]
    return masked_lines(value) if isinstance(value, str) else value

"""The order of keys by their names, and families of keys that share a graph, for queries.

They follow the local page's rules (logshipper_observe/graphs/families.py), as far as queries can.
"""

from collections.abc import Iterable

from logshipper_ingest.model.key_words import LOSSES, PARTS, SCORES, SIDE, TARGETS
from logshipper_ingest.model.ranks import MAX_RULE, RULE_UNIT

_SEPARATORS = "/_.: -"
_WORDS = "|".join(PARTS)
FAMILY = f"(?i:(?:{_WORDS})[{_SEPARATORS}]([^(].*)|([^(]+)[{_SEPARATORS}](?:{_WORDS}))"
# of series: JavaScript's
VALIDATION = "|".join(word for word, part in PARTS.items() if part != "train")
VALIDATION = f"/(?<![a-z])({VALIDATION})(?![a-z])/i"
_AFFIXES = "|".join(f"{word}{mark}|{mark}{word}" for word in PARTS for mark in _SEPARATORS)


def with_family(series: str) -> str:
    """Add the label `family`: the key without the part of the data. Loki reads it, too."""
    whole = f"label_replace({series}, `family`, `$1`, `key`, `(.+)`)"
    return f"label_replace({whole}, `family`, `$1$2`, `key`, `{FAMILY}`)"


def family(key: str) -> str:
    """Return a template's action for the family of a key. key: the expression for its name."""
    return f'{{{{regexReplaceAll "^{FAMILY}$" {key} "$1$2"}}}}'


def is_member(name: str, family: str) -> str:
    """Return a template's condition: a key is one of the family. Regular expressions are slow there."""
    rests = (
        f'(print "|" (ToLower ({trim} "{family}" {name})) "|")'
        for trim in ("trimSuffix", "trimPrefix")
    )
    found = " ".join(f"(contains {rest} $lu)" for rest in rests)
    return f'or (eq {name} "{family}") {found}'


AFFIXES = f'{{{{$lu := "|{_AFFIXES}|"}}}}'  # for is_member


def _with_word(words: Iterable[str]) -> str:
    """Match names with one of these words, between other characters or as in `valLoss`."""
    lower, camel = "|".join(sorted(words)), "|".join(word.capitalize() for word in sorted(words))
    return f"(?:(?:.*[^a-zA-Z])?(?i:{lower})|.*[a-z](?:{camel}))(?:[^a-z].*)?"


KINDS = {".*": 2, _with_word(SIDE): 3, _with_word(SCORES | TARGETS): 1, _with_word(LOSSES): 0}


def places(ranks: str) -> str:
    """Return the places of keys among graphs: losses, scores, others, rates and counters, each in
    the order of the alphabet; those of series behind all others.

    ranks: of logshipper_x_rank, by key. Loki reads it, too.
    """
    is_auto = f"({ranks} >= bool {(MAX_RULE + 1) * RULE_UNIT})"
    series = f"(({ranks}) % {RULE_UNIT} + {len(KINDS) * RULE_UNIT} * {is_auto})"
    for pattern, kind in KINDS.items():
        series = f"label_replace({series}, `lskind`, `{kind}`, `key`, `{pattern}`)"
    begins = " or ".join(
        f"label_replace(vector({kind * RULE_UNIT}), `lskind`, `{kind}`, ``, ``)"
        for kind in KINDS.values()
    )
    return f"max by (key)({series} + on(lskind) group_left() ({begins}))"

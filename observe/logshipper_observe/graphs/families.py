"""Families of keys that share a graph, such as `train/loss` and `val/loss`, and the order of graphs:
the most telling ones first. Pure, from the keys' names alone."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from logshipper_ingest.model.key_words import LOSSES, PARTS, SCORES, SIDE, TARGETS, Part
from logshipper_ingest.model.metadata_keys import AUTO_MARK

Goal: TypeAlias = Literal["least", "largest", ""]  # the best number, "" if nobody knows

_ORDER: tuple[Part, ...] = ("train", "", "validation", "test")
_PREFIX = re.compile(r"[^\W\d][\w -]*[/.]")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_SEPARATOR = re.compile(r"([/_\-.: ]+)")


class Member(NamedTuple):
    """A key of a family."""

    key: str
    part: Part


class Family(NamedTuple):
    """Keys that share a graph."""

    title: str  # the key's name; that of several keys lacks the part of the data
    members: tuple[Member, ...]


def split_part(key: str) -> tuple[str, Part]:
    """Return a key's name without the word for a part of the data, and this part."""
    name = key.removesuffix(AUTO_MARK)
    pieces = _SEPARATOR.split(name)  # every other one is a separator
    places = [at for at, piece in enumerate(pieces) if piece.lower() in PARTS]
    if len(places) != 1 or len(pieces) < 3:
        return key, ""
    begin = min(places[0], len(pieces) - 2)  # the separator before the last piece goes, too
    rest = "".join(pieces[:begin] + pieces[begin + 2 :])
    return rest + key[len(name) :], PARTS[pieces[places[0]].lower()]


def families(keys: Iterable[str], x_of: Mapping[str, str | None]) -> list[Family]:
    """Join keys over the same X that differ only in the part of the data; a name without a part
    joins them. A family has the place of its first key. x_of: the X of keys."""
    groups: dict[tuple[str, str | None], list[Member]] = {}
    for key in keys:
        title, part = split_part(key)
        groups.setdefault((title, x_of.get(key)), []).append(Member(key, part))
    return [
        Family(title, tuple(sorted(members, key=lambda member: _ORDER.index(member.part))))
        if len(members) > 1
        else Family(members[0].key, tuple(members))
        for (title, _), members in groups.items()
    ]


def sections(families: Iterable[Family]) -> list[str]:
    """Return the heading of each family: the prefix that its title shares with others, or ""."""
    prefixes = [found[0] if (found := _PREFIX.match(family.title)) else "" for family in families]
    counts = Counter(prefixes)
    return [prefix[:-1] if counts[prefix] > 1 else "" for prefix in prefixes]


def goal_of(key: str) -> Goal:
    """Return which number of a key is the best one: the least loss, the largest score."""
    words = _words(key)
    return "least" if words & LOSSES else "largest" if words & SCORES else ""


def rank_of(key: str) -> int:
    """Return the place of a key among graphs: losses, scores, others, rates and counters."""
    words = _words(key)
    kinds = (LOSSES, SCORES | TARGETS, SIDE)
    return next((rank for rank, kind in zip((0, 1, 3), kinds, strict=True) if words & kind), 2)


def _words(key: str) -> set[str]:
    name = key.removesuffix(AUTO_MARK)
    words = {word.lower() for word in _WORD.findall(name)}
    return words | {piece.lower() for piece in _SEPARATOR.split(name)}

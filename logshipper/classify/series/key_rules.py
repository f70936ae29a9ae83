"""The user's corrections of series: ignored and renamed keys. Pure."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from logshipper.classify.series.items import Record
from logshipper.classify.series.names import is_counter

MAX_KNOWN_KEYS = 1024  # with a remembered rule


class KeyRules:
    """Applies `ignore` and `rename` of ~/.logoptin to keys as printed."""

    def __init__(self, ignore: Iterable[str] = (), rename: Iterable[tuple[str, str]] = ()) -> None:
        # name and new name; a key follows the first rule that it matches. "": it is ignored
        self._rules = [*((name, "") for name in ignore), *rename]
        self._known: dict[str, tuple[str, str]] = {}  # the rule of each key
        self._conflicts: dict[tuple[str, str], bool] = {}  # rules; whether they were taken

    def apply(self, records: list[Record]) -> list[Record]:
        """Return the corrected records, without those that lose all measurements."""
        if not self._rules:
            return records
        corrected = (record._replace(values=self._corrected(record.values)) for record in records)
        return [record for record in corrected if record.values]

    def take_conflicts(self) -> list[tuple[str, str]]:
        """Return each renaming, once, that gave a key a name which the record already had."""
        new = [rule for rule, is_taken in self._conflicts.items() if not is_taken]
        self._conflicts |= dict.fromkeys(new, True)
        return new

    def _corrected(self, values: dict[str, str]) -> dict[str, str]:
        rules = {key: self._rule_of(key) for key in values}
        kept = [key for key, (_, new_name) in rules.items() if new_name]
        if len(kept) < len(values) and all(map(only_counts, kept)):
            return {}
        taken = {key for key in kept if rules[key][1] == key}
        corrected: dict[str, str] = {}
        for key in kept:
            new_name = rules[key][1]
            if new_name != key and new_name in taken:  # the first one wins
                self._conflicts.setdefault(rules[key], False)
                new_name = key
            taken.add(new_name)
            corrected.setdefault(new_name, values[key])
        return corrected

    def _rule_of(self, key: str) -> tuple[str, str]:
        rule = self._known.get(key)
        if rule is None:
            if len(self._known) >= MAX_KNOWN_KEYS:
                self._known.clear()
            matches = (rule for rule in self._rules if fnmatchcase(key, _pattern(rule[0])))
            rule = self._known[key] = next(matches, (key, key))
        return rule


def only_counts(key: str) -> bool:
    """Return whether a key measures nothing."""
    return is_counter(key) or key in ("count", "rank")  # of bars, and of prefixes


def _pattern(name: str) -> str:
    return name.replace("[", "[[]")  # only `*` and `?` are wildcards

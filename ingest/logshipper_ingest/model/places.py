"""Places of a key's last, least and largest number: their records, and the X there. Pure."""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple, TypeAlias

from logshipper_ingest.model.metadata_keys import Number, Path, pack_number, unpack_number

# The record that a number is of: its number among those with the same keys (0: not known), its
# numbers by path, and which of these are kept (None: all). A plain tuple: one is made of each
# record.
Place: TypeAlias = tuple[int, Mapping[Path, Number], Set[Path] | None]


class Places(NamedTuple):
    """First occurrences of a key's last, least and largest number; None if unknown."""

    last: Place | None = None
    least: Place | None = None
    largest: Place | None = None


def x_at(places: Places, x: Path) -> tuple[bool, list[Number | None]]:
    """Return whether x is the X, and its value at each place; without X at one of them, all are
    record numbers."""
    x_values = [None if place is None else _number(place, x) for place in places]
    if None not in x_values:
        return True, x_values
    return False, [None if place is None else place[0] or None for place in places]


def _number(place: Place, path: Path) -> Number | None:
    _, numbers, kept = place
    return numbers.get(path) if kept is None or path in kept else None


def without_others(all_places: Iterable[Places], keys: Set[Path]) -> list[Places]:
    """Return the places with the kept numbers of these keys only."""
    short: dict[int, Place] = {}

    def shortened(place: Place | None) -> Place | None:
        if place is None:
            return None
        if id(place) not in short:
            n, numbers, kept = place
            paths = keys & numbers.keys() if kept is None else keys & numbers.keys() & kept
            short[id(place)] = n, {path: numbers[path] for path in paths}, None
        return short[id(place)]

    return [Places(*map(shortened, places)) for places in all_places]


def pack_places(
    all_places: Iterable[Places], number_of: Mapping[Path, int]
) -> dict[str, Any]:  # Any: JSON
    """Of places `without_others`; each record once. number_of: of each path."""
    at: dict[int, int] = {}
    records: list[object] = []

    def packed(place: Place | None) -> int | None:
        if place is None:
            return None
        if id(place) not in at:
            at[id(place)] = len(records)
            numbers = sorted((number_of[path], value) for path, value in place[1].items())
            records.append([place[0], [[key, pack_number(value)] for key, value in numbers]])
        return at[id(place)]

    return {"of": [list(map(packed, places)) for places in all_places], "records": records}


def unpack_places(
    packed: dict[str, Any], paths: Sequence[Path]
) -> list[Places]:  # Any: JSON of our own; what is wrong with it raises
    records: list[Place] = [
        (n, {paths[key]: unpack_number(value) for key, value in numbers}, None)
        for n, numbers in packed["records"]
    ]
    return [
        Places(*(None if at is None else records[at] for at in triple)) for triple in packed["of"]
    ]

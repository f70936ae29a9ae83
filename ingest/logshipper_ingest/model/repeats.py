"""Finds series (docs/series.md) that repeat the numbers of another key, so that graphs draw them
once. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal

from logshipper_ingest.model.metadata_keys import printed_path
from logshipper_ingest.model.x_axis import KeyStats

_HALF = Decimal("0.500001")


def with_repeats(keys: Iterable[KeyStats], *, over: bool) -> list[KeyStats]:
    """Return the keys, with `repeats` for each series whose numbers another key has.

    Both have the same letters and digits in their names, in any case. Least, greatest and last
    number are equal at the series' precision. Records of series may come later than others, so
    before the job's end (over) one equal extreme is enough if the other does not exceed the key's.
    """
    keys = list(keys)
    peers: dict[str, list[KeyStats]] = {}
    for key in keys:
        if key.numbers and not key.is_auto:
            peers.setdefault(_plain_name(key), []).append(key)
    marked = []
    for key in keys:
        same_name = peers.get(_plain_name(key), []) if key.numbers and key.is_auto else []
        repeated = next((peer.key for peer in same_name if _repeats(key, peer, over)), "")
        marked.append(replace(key, repeats=repeated) if repeated else key)
    return marked


def _plain_name(key: KeyStats) -> str:
    return "".join(filter(str.isalnum, "".join(printed_path(key.path)))).casefold()


def _repeats(series: KeyStats, key: KeyStats, over: bool) -> bool:
    least = _difference(repr(series.min), repr(key.min))
    greatest = _difference(repr(series.max), repr(key.max))
    if not over:
        return least >= 0 >= greatest and not (least and greatest)
    return not (least or greatest or _difference(series.last, key.last))


def _difference(rounded: str, number: str) -> Decimal:
    """Return the difference of two numbers, 0 if the first one may be the second one rounded."""
    if not (rounded[-1:].isdigit() and number[-1:].isdigit()):  # NaN or an infinity
        return Decimal(rounded != number)
    value = Decimal(rounded)
    difference = value - Decimal(number)
    unit = Decimal(1).scaleb(int(value.as_tuple().exponent))
    return Decimal(0) if abs(difference) <= unit * _HALF else difference

"""A key's values in lists of jobs: last, least and greatest. Pure."""

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from logshipper_ingest.model.x_axis import KeyStats


class KeyValues(NamedTuple):
    """Values of a key, as JSON texts, exact."""

    last: str
    records: int  # how many have the key
    min: str = ""  # of numbers, "" without any
    max: str = ""  # likewise


def values_of(stats: "KeyStats") -> KeyValues:
    if stats.min is None or stats.max is None:
        return KeyValues(stats.last, stats.count)
    return KeyValues(stats.last, stats.count, json.dumps(stats.min), json.dumps(stats.max))

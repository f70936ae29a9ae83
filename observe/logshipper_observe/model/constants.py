"""A job's configuration in its records: constant values of its first records, and first values of
changing keys."""

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from logshipper_ingest.model.metadata_keys import names_of
from logshipper_observe.model.records import Path, flat

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import Reader

FIRST_RECORDS = 100
_STEPS = {(name,) for name in ("epoch", "progress", "step", "iteration")}


class FirstValues(NamedTuple):
    """JSON texts of the values in a job's first FIRST_RECORDS records, by key, in the order of
    printing.

    constants: the same in all of these, and the same number in all others; changing: the other
    keys; results: constants of a single record, with or after measurements.
    """

    constants: dict[str, str]
    changing: dict[str, str]
    results: frozenset[str]


def first_values(reader: "Reader") -> FirstValues:
    """Read the job's first records."""
    values: dict[Path, str] = {}
    places: dict[Path, list[int]] = {}  # the first two records that have the key
    changing = {key.path for key in reader.keys() if key.numbers and key.min != key.max}  # noqa: SIM118  not a dict's
    for at, record in enumerate(islice(reader.records(), FIRST_RECORDS)):
        for path, value in flat(record.line).items():
            if len(places.setdefault(path, [])) < 2:
                places[path].append(at)
            if values.setdefault(path, value) != value:
                changing.add(path)
    names = names_of(values)
    constants: dict[str, str] = {}
    first: dict[str, str] = {}
    for path, value in values.items():
        (first if path in changing else constants)[names[path]] = value
    measured = min((places[path][0] for path in values if path in changing | _STEPS), default=1)
    results = frozenset(
        names[path] for path in values if len(places[path]) == 1 and places[path][0] >= measured
    )
    return FirstValues(constants, first, results & constants.keys())

"""What a job was configured with, as far as its records say: values in its first records that never
change, and of those that do the first ones."""

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from logshipper_ingest.model.metadata_keys import names_of
from logshipper_observe.model.records import Path, flat

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import Reader

FIRST_RECORDS = 100
_STEPS = {(name,) for name in ("epoch", "progress", "step", "iteration")}


class FirstValues(NamedTuple):
    """JSON texts of a job's first values by the names of their keys, in the order of printing, of
    its first FIRST_RECORDS records. constants: the same in all of these, and the same number in all
    others; changing: of the other keys; results: names of constants that stand in one record, which
    comes with or after measurements."""

    constants: dict[str, str]
    changing: dict[str, str]
    results: frozenset[str]


def first_values(reader: "Reader") -> FirstValues:
    """What the job's first records say."""
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

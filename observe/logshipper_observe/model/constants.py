"""What a job was configured with, as far as its records say: values in its first records that never
change, and of those that do the first ones."""

from itertools import islice
from typing import TYPE_CHECKING

from logshipper_ingest.model.metadata_keys import names_of
from logshipper_observe.model.records import Path, flat

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import Reader

FIRST_RECORDS = 100


def constants_of(reader: "Reader") -> dict[str, str]:
    """The JSON texts of the job's constants, as `first_values` has them."""
    return first_values(reader)[0]


def first_values(reader: "Reader") -> tuple[dict[str, str], dict[str, str]]:
    """The JSON texts of the job's first values by the names of their keys, in the order of
    printing, of what stands in one of the first FIRST_RECORDS records: of constants, which are the
    same in all of these, and the same number in all others; and of the other keys."""
    values: dict[Path, str] = {}
    changing = {key.path for key in reader.keys() if key.numbers and key.min != key.max}  # noqa: SIM118  not a dict's
    for record in islice(reader.records(), FIRST_RECORDS):
        for path, value in flat(record.line).items():
            if values.setdefault(path, value) != value:
                changing.add(path)
    names = names_of(values)
    constants: dict[str, str] = {}
    first: dict[str, str] = {}
    for path, value in values.items():
        (first if path in changing else constants)[names[path]] = value
    return constants, first

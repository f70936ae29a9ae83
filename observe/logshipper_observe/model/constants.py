"""What a job was configured with, as far as its records say: values in its first records that never
change."""

from itertools import islice
from typing import TYPE_CHECKING

from logshipper_ingest.model.metadata_keys import names_of
from logshipper_observe.model.records import Path, flat

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import Reader

FIRST_RECORDS = 100


def constants_of(reader: "Reader") -> dict[str, str]:
    """The JSON texts of the job's constants by the names of their keys, in the order of printing:
    what stands in one of the first FIRST_RECORDS records, is the same in all of these, and the same
    number in all others."""
    values: dict[Path, str] = {}
    changing = {key.path for key in reader.keys() if key.numbers and key.min != key.max}  # noqa: SIM118  not a dict's
    for record in islice(reader.records(), FIRST_RECORDS):
        for path, value in flat(record.line).items():
            if values.setdefault(path, value) != value:
                changing.add(path)
    names = names_of(values)
    return {names[path]: value for path, value in values.items() if path not in changing}

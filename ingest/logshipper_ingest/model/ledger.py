"""The ledger: counts of each stream's lines by outcome, from untrusted JSON."""

from collections.abc import Iterable

from logshipper.spool.segment import Stream
from logshipper_ingest.model.job import Json

OUTCOMES = ("stored", "collapsed", "blank", "dropped", "commands", "pending", "lost")
COLUMNS = ("read", *OUTCOMES)  # read is the sum of the others
LEDGER_COUNTS = (*COLUMNS, "line_feeds", "bytes")
STREAM_NAMES = {Stream.STDOUT: "stdout", Stream.STDERR: "stderr"}


def clean_ledger(ledger: Json) -> Json:
    """A ledger with all its counts, as integers."""
    cleaned: Json = {}
    for name in STREAM_NAMES.values():
        account = ledger.get(name)
        cleaned[name] = counts_of(account if isinstance(account, dict) else {}, LEDGER_COUNTS)
    return {**cleaned, **counts_of(ledger, ("notes", "status", "parts"))}


def count_of(record: Json, name: str) -> int:
    """A count that fits into SQLite, else 0."""
    return counts_of(record, (name,))[name]


def counts_of(record: Json, names: Iterable[str]) -> dict[str, int]:
    """The counts of these names, each as in `count_of` but without a call per count."""
    return {
        name: value if type(value := record.get(name)) is int and 0 <= value < 1 << 63 else 0
        for name in names
    }

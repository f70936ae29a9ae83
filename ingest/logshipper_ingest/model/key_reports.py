"""The node agent's reports about a capture's keys: entries of kind `value`, one per key
(docs/in-loki.md). Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from logshipper_ingest.model.job import Json
from logshipper_ingest.model.metadata_keys import Number

VALUE = "value"  # their kind in Loki
MAX_REPORTED = 100  # keys of a capture
MAX_NAME_BYTES = 128  # of a key and of its X
_MAX_INT = 1 << 63


@dataclass(frozen=True, slots=True, order=True)
class KeyReport:
    """The numbers of a key in one capture.

    x: the key of the `_at`s; None if these are the records' numbers, among records with the same
    keys.
    """

    key: str
    count: int
    x: str | None
    last: Number | None
    least: Number | None
    largest: Number | None
    last_at: Number | None
    least_at: Number | None
    largest_at: Number | None

    def document(self) -> Json | None:
        """Return the report as JSON; None if it is too long, or a number exceeds floats."""
        names = (self.key, self.x or "")
        if any(len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES for name in names):
            return None
        try:
            return {name: _short(getattr(self, name)) for name in _FIELDS}
        except OverflowError:
            return None


_FIELDS = tuple(field.name for field in fields(KeyReport))


def _short(value: object) -> object:
    """Numbers with a few digits: integers of any length are floats."""
    return float(value) if type(value) is int and abs(value) >= _MAX_INT else value


def documents(reports: Iterable[KeyReport], facts: Mapping[str, Json] | None = None) -> list[Json]:
    """Return the reports of the first MAX_REPORTED valid keys; the others are counted.

    facts: more fields by key (ranks.reported_documents).
    """
    facts = facts or {}
    found = [(report.key, report.document()) for report in reports]
    shown = [{**document, **facts.get(key, {})} for key, document in found if document is not None]
    del shown[MAX_REPORTED:]
    left_out = len(found) - len(shown)
    return [*shown, {"left_out": left_out}] if left_out else shown

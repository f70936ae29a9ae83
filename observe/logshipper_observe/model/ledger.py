"""The account of a job's lines."""

from typing import TYPE_CHECKING

from logshipper_ingest.model.ledger import COLUMNS
from logshipper_observe.model.documents import Document

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import Reader


def ledger_of(reader: "Reader") -> Document:
    """The job's account: its captures' ledgers, summed."""
    total: Document = {stream: dict.fromkeys(COLUMNS, 0) for stream in ("stdout", "stderr")}
    total |= {"notes": 0, "status": 0, "parts": 0}
    for capture in reader.captures:
        for name, value in capture.ledger.items():
            if isinstance(value, dict) and name in ("stdout", "stderr"):
                for column in COLUMNS:
                    total[name][column] += int(value.get(column, 0))
            elif name in ("notes", "status", "parts"):
                total[name] += int(value)
    return total

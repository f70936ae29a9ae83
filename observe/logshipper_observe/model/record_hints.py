"""The captures' reasons why apparent metadata lines are no records."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import Reader

_GAP = "nan"  # of a record: no missing line


def record_hints(reader: "Reader") -> list[str]:
    """A sentence or two for each reason, the first of all captures, in order of time."""
    messages: dict[str, str] = {}
    for job_event in reader.events(names=("json_hint",)):
        reason, message = (str(job_event.event.get(name, "")) for name in ("reason", "message"))
        if reason != _GAP and message:
            messages.setdefault(reason, message)
    return list(messages.values())

"""Masks secrets by their shape in imported texts. Pure."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from logshipper.masks.shape_mask import ShapeMask, masked_text
from logshipper_ingest.model.imported import ImportedChange, ImportedChild, ImportedJob

Value = TypeVar("Value")


def without_secrets(job: ImportedJob) -> ImportedJob:
    """The job with masks in its texts; its console is masked when it is rendered."""
    mask = ShapeMask()
    return replace(
        job,
        name=masked_text(job.name),
        reason=masked_text(job.reason),
        details=_masked(job.details),
        changes=_masked_changes(job.changes),
        children=job.children and _masked_children(job),
        events=[event._replace(event=_masked(event.event)) for event in job.events],
        records=[record._replace(line=mask.masked(record.line)) for record in job.records],
        tags=_masked(job.tags),
        note=masked_text(job.note),
    )


def _masked_children(job: ImportedJob) -> Iterator[ImportedChild]:
    for child in job.children:
        yield child._replace(
            name=masked_text(child.name),
            details=_masked(child.details),
            changes=_masked_changes(child.changes),
        )


def _masked_changes(changes: Sequence[ImportedChange]) -> list[ImportedChange]:
    return [change._replace(data=_masked(change.data)) for change in changes]


def _masked(value: Value) -> Value:
    """A JSON value: masked as text, in which a member's name stands beside its secret."""
    if not value:
        return value
    text = json.dumps(value, ensure_ascii=False)
    masked = masked_text(text)
    return value if masked == text else json.loads(masked)

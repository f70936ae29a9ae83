"""Masking of secrets with well-known shapes in imported jobs (R33)."""

import json

import pytest

from logshipper_ingest.model.imported import (
    ImportedChange,
    ImportedChild,
    ImportedEvent,
    ImportedJob,
    ImportedRecord,
)
from logshipper_ingest.store.job_imports import without_secrets
from tests.tools.captures.shaped_secrets import PRINTED, Printed, revealed


def job_with(text: str) -> ImportedJob:
    """Return a job with a text in every field of text."""
    change = ImportedChange(1, "DONE", data={"message": text, text: [text]})
    return ImportedJob(
        key="k",
        ids=["a"],
        name=text,
        origin="xt",
        reason=text,
        changes=[change],
        details={"execution": {"args": [text]}, "n": 1.5},
        children=[ImportedChild(text, 1, "DONE", [change], details={"x": text})],
        events=[ImportedEvent(2, {"event": "told", "message": text, "n": [1, None]})],
        records=[ImportedRecord(3, json.dumps({"k": text}).encode())],
        tags={"where": text},
        note=text,
    )


@pytest.mark.parametrize("secret", PRINTED, ids=lambda secret: secret.name)
def test_no_secret_is_imported(secret: Printed) -> None:
    masked = without_secrets(job_with(secret.text))
    assert revealed([secret], [repr(masked), repr(list(masked.children))]) == []
    assert masked.events[0].event["n"] == [1, None]
    assert masked.details["n"] == 1.5


def test_a_job_without_secrets_stays_as_it_is() -> None:
    job = job_with("commit 0123456789abcdef0123456789abcdef01234567")
    masked = without_secrets(job)
    masked.children = list(masked.children)
    assert masked == job

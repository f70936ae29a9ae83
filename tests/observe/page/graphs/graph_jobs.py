"""Jobs whose numbers the page shows as graphs, in a table and side by side."""

import json
import math
from pathlib import Path

from logshipper_ingest.store.local_store import LocalStore
from tests.observe.page.jobs import STARTED_NS
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.stores.reading_store import SpooledCapture
from tests.tools.waiting import scaled

CURVES, OTHER, AGAIN, WIDE_JOB, HOSTILE, LONG, PLAIN = (
    "c1",
    "c2",
    "again",
    "keys256",
    "hostile",
    "long",
    "plain",
)
EPOCHS = 40
LONG_RECORDS = 20_000
PEAK_AT = 14_001
KEYS = 256
INGEST_SECS = 60.0
XSS = '<img src=x onerror="window.attacked=1">'
HOSTILE_KEYS = [
    XSS,
    "__proto__",
    "constructor",
    "a\u202egnp.exe",
    "",
    "'\"`$[[",
    "y" * 250,
    "tab\there",
    "a.b",
    "日本語",
]


def curves_of(lr: float, epochs: int = EPOCHS) -> list[dict[str, object]]:
    return [
        {"epoch": epoch, "loss": round(2 * math.exp(-lr * epoch) + 0.05 * math.sin(3 * epoch), 6),
         "acc": round(1 - math.exp(-lr * epoch), 6), "val": {"loss": round(2.2 * math.exp(-lr * epoch), 6)}}
        for epoch in range(1, epochs + 1)
    ]  # fmt: skip


def graph_jobs(root: Path) -> None:
    """Make the jobs: two runs of one training, a restarted one, one with 256 keys, one with hostile
    keys, a long one, and one without numbers."""
    for job_id, lr, batch in ((CURVES, 0.1, 32), (OTHER, 0.2, 64)):
        with SpooledCapture(root, job_id, name="train.py", started_ns=STARTED_NS) as job:
            job.metadata({"lr": lr, "batch": batch, "seed": 7, "model": "resnet"})
            job.metadata(*curves_of(lr))
            job.end()
    for attempt in (1, 2):
        with SpooledCapture(
            root, AGAIN, attempt, name="again.py", started_ns=STARTED_NS + attempt * 60 * NS
        ) as job:
            job.metadata(*curves_of(0.1 * attempt, 5 * attempt))
            job.end()
    with SpooledCapture(root, WIDE_JOB, name="many keys", started_ns=STARTED_NS) as job:
        for step in range(1, 21):
            job.metadata(
                {"step": step, **{f"k{number:03}": step * number for number in range(KEYS - 1)}}
            )
        job.end()
    with SpooledCapture(root, HOSTILE, name=XSS, started_ns=STARTED_NS) as job:
        for step in range(1, 4):
            values: dict[str, object] = {
                key: step * number for number, key in enumerate(HOSTILE_KEYS, start=1)
            }
            job.metadata({"step": step, **values, "text": XSS, "nested": {"a": {"b": [1, XSS]}}})
        job.metadata(
            '{"step": 4, "a": {"b": 1}, "big": 123456789012345678901234567890, "exact": 0.10, "e": 1E5}'
        )
        job.end()
    with SpooledCapture(root, LONG, name="long", started_ns=STARTED_NS) as job:
        job.metadata(*(long_line(step) for step in range(LONG_RECORDS)))
        job.end()
    with SpooledCapture(root, PLAIN, name="words only", started_ns=STARTED_NS) as job:
        job.metadata({"words": "only"})
        job.end()
    with LocalStore(str(root)) as store:
        assert store.ingest(
            deadline_secs=scaled(INGEST_SECS)
        ).complete  # so no page's first answer waits for it


def long_line(step: int) -> str:
    """Return one record of the long job, which has a peak."""
    return json.dumps(
        {"step": step, "loss": 99.5 if step == PEAK_AT else round(math.cos(step / 2e3), 6)}
    )

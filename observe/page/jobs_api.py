"""`api/jobs`, the list, and `api/jobs/ID`, what the head of a job's page shows."""

import time
from typing import TYPE_CHECKING

from ingest.job import JobSummary
from observe.documents import STREAM_NAMES, capture_document, job_document, moment
from observe.page.answers import Answer, Ask, tagged_answer
from observe.show import ledger_of

if TYPE_CHECKING:
    from ingest.stores import Reader


def jobs(ask: Ask) -> Answer:
    """All jobs, newest first, as `ls --json` has them."""
    now_ns = time.time_ns()
    found = ask.store.jobs()
    document = {
        "place": ask.store.intake.place,
        "problems": ask.store.intake.problems,
        "now_ns": now_ns,
        "jobs": [job_document(job, now_ns) for job in found],
    }
    return tagged_answer(ask, document, [_facts(job) for job in found])


def job(ask: Ask) -> Answer:
    """One job: as in the list, its captures, account of lines and what a running bar shows."""
    now_ns = time.time_ns()
    with ask.store.job(ask.parts[0]) as reader:
        status = reader.status()
        document = {
            "now_ns": now_ns,
            "poll_secs": ask.store.poll_secs,
            **job_document(reader.summary, now_ns),
            "is_over": reader.is_over,
            "ledger": ledger_of(reader),
            "captures": [capture_document(capture) for capture in reader.captures],
            "live_status": {
                STREAM_NAMES[stream]: {**moment("time", time_ns), "text": text}
                for stream, (time_ns, text) in status.items()
            },
        }
        return tagged_answer(
            ask, document, [*_facts(reader.summary), reader.is_over, _shown(reader), sorted(status.items())]
        )


def _shown(reader: "Reader") -> list[object]:
    return [(capture.capture, capture.state, capture.ledger) for capture in reader.captures]


def _facts(summary: JobSummary) -> tuple[object, ...]:
    """What a change of is shown; a heartbeat alone changes nothing."""
    return (summary.job_id, summary.state, summary.attempts, summary.ended_ns, summary.lines, summary.records,
            summary.lost, summary.mode, summary.bytes_printed, summary.name, summary.exit_code)  # fmt: skip

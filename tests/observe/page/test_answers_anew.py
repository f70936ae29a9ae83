"""An ETag stands for one document: each visible change of a job changes it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from logshipper.classify.stream_status import LIVE_SECS
from logshipper_ingest.model.job import JobSummary
from logshipper_observe.page.data.job_list import facts_of
from logshipper_observe.page.server import PageServer
from tests.observe.page.test_access import Client
from tests.tools.stores.reading_store import SpooledCapture

JOB = "r5t8aa"


@pytest.mark.parametrize(
    "path", ["jobs", f"jobs/{JOB}", "compare?jobs=" + quote(json.dumps([JOB]))]
)
def test_more_lines_are_another_answer(
    serve: Callable[[Path], PageServer], tmp_path: Path, path: str
) -> None:
    store = tmp_path / "store"
    with SpooledCapture(store, JOB) as job:
        job.lines("one")
        job.beat()
        client = Client(serve(store))
        tag, lines = client.ask(f"api/{path}").headers["ETag"], 1
        job.lines("two")
        job.beat()
        while lines == 1:  # ingested at most every so often
            answer = client.ask(f"api/{path}")
            lines = lines_of(json.loads(answer.body))
        assert lines == 2
        assert answer.headers["ETag"] != tag


def test_a_running_bar_is_looked_at_more_often(
    serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    """The page polls so often that a bar is less than a second old, including the sidecar's
    delay."""
    store = tmp_path / "store"
    with SpooledCapture(store, JOB) as job:
        job.lines("one")
        job.beat()
        client = Client(serve(store))
        without = client.ask(f"api/jobs/{JOB}")
        assert json.loads(without.body)["poll_secs"] == 1.5
        for bar in ("10%", "20%"):
            job.live(bar)
            answer = client.ask(f"api/jobs/{JOB}")
            document = json.loads(answer.body)
            assert document["live_status"]["stderr"]["text"] == bar
            assert document["poll_secs"] + LIVE_SECS <= 0.9
            assert answer.headers["ETag"] != without.headers["ETag"]


def lines_of(document: dict[str, Any]) -> int:  # Any: JSON
    job = document["jobs"][0] if "jobs" in document else document
    return int(job["lines"])


def test_all_that_is_told_of_a_job_counts() -> None:
    job = JobSummary(
        JOB, "n", "u", "h", "RUNNING", None, 0, 1, 5, None, 7, "enabled", 1, 2, 3, 4, 5
    )
    of_job = facts_of(job)
    assert facts_of(JobSummary(**{**vars(job), "heartbeat_ns": 8})) == of_job
    for name, value in (
        ("children_finished", 1),
        ("bytes_logged", 6),
        ("reason", "r"),
        ("signal", 9),
    ):
        assert facts_of(JobSummary(**{**vars(job), name: value})) != of_job


def test_masked_values_are_another_answer(
    serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    with SpooledCapture(store, JOB) as job:
        job.beat()
        client = Client(serve(store))
        without = client.ask(f"api/jobs/{JOB}")
        assert json.loads(without.body)["masked"] == ""
        job.event("values_masked", "1 value masked: npm", values=1, shapes={"npm": 1})
        job.beat()
        masked = ""
        while not masked:  # ingested at most every so often
            answer = client.ask(f"api/jobs/{JOB}")
            masked = json.loads(answer.body)["masked"]
        assert masked == "1 value: npm"
        assert answer.headers["ETag"] != without.headers["ETag"]

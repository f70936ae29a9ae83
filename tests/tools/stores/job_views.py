"""Views of captures as input for tests of metrics, and parsers of the metrics' text."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from logshipper_ingest.config.agent_config import MetricsSection
from logshipper_ingest.metrics.job_metrics import JobMetrics
from logshipper_ingest.metrics.job_series import CaptureView
from logshipper_ingest.model.metadata_keys import parse_record
from logshipper_ingest.model.ranks import RULE_UNIT
from logshipper_ingest.model.x_axis import XAxis
from logshipper_ingest.spool.capture_folder import Identity

Labels = tuple[tuple[str, str], ...]
SECOND = 10**9
_AUTO_RANK = re.compile(
    r'^logshipper_x_rank\{.*choice="auto",key="(.*)",path="(.*)"\} (\S+)$', re.MULTILINE
)
START_NS = 1_700_000_000 * SECOND


@dataclass
class FakeCapture:
    """A capture that prints records."""

    key: str = "c1"
    job_id: str = "4711"
    attempt: int = 1
    task: int = 0
    step: str = ""
    identity: Mapping[str, Any] = field(default_factory=dict)  # Any: other fields of Identity
    axis: XAxis = field(default_factory=XAxis)
    records: int = 0

    def print(self, *records: Mapping[str, object] | str) -> "FakeCapture":
        for record in records:
            line = record if isinstance(record, str) else json.dumps(record)
            parsed = parse_record(line.encode())
            assert parsed is not None
            self.records += 1
            self.axis.add(parsed, self.records)
        return self

    def view(
        self, *, over: bool = False, **changes: Any
    ) -> CaptureView:  # Any: other fields of CaptureView
        facts = {
            "name": "train.py",
            "user": "alice",
            "host": "n1",
            "cluster": "c1",
            "account": "ml",
            "partition": "gpu",
        }
        fields: dict[str, Any] = {
            "key": self.key,
            "identity": Identity(
                job_id=self.job_id,
                attempt=self.attempt,
                step=self.step,
                task=self.task,
                **{**facts, **self.identity},
            ),
            "state": "COMPLETED" if over else "RUNNING",
            "exit_code": 0 if over else None,
            "signal": 0,
            "started_ns": START_NS,
            "ended_ns": START_NS + 60 * SECOND if over else None,
            "heartbeat_ns": START_NS + 60 * SECOND,
            "mode": "enabled",
            "ledger": {},
            "lines": self.records,
            "records": self.records,
            "bytes_printed": 100,
            "bytes_logged": 90,
            "nodes": 0,
            "axis": self.axis,
            "latest": self.axis.latest(),
            "over": over,
        }
        return CaptureView(**{**fields, **changes})


def job_metrics(
    section: MetricsSection | None = None,
    *,
    host: str = "n1",
    log: Callable[[str], None] = lambda _: None,
    clock: Callable[[], int] = lambda: START_NS + 61 * SECOND,
) -> JobMetrics:
    """Return metrics with their own clock, by which FakeCaptures are alive."""
    return JobMetrics(section or MetricsSection(), "c1", host, log=log, clock=clock)


def samples(text: str, family: str) -> dict[Labels, float]:
    """Return a family's values by labels, without cluster and job_id.

    Fail if two series have the same labels.
    """
    values: dict[Labels, float] = {}
    for parsed in text_string_to_metric_families(text):
        for sample in parsed.samples:
            if sample.name == family:
                labels = tuple(
                    sorted(
                        (label, value)
                        for label, value in sample.labels.items()
                        if label not in ("cluster", "job_id")
                    )
                )
                assert labels not in values, labels
                values[labels] = sample.value
    return values


def auto_ranks(jobs: JobMetrics) -> dict[tuple[str, str], float]:
    """Return ranks with choice="auto" by key and path.

    A pattern parses them, because property tests call this function thousands of times.
    """
    ranks = {}
    for key, path, value in _AUTO_RANK.findall(jobs.text()):
        names = key.replace(r"\"", '"'), path.replace(r"\"", '"')
        assert names not in ranks, names
        ranks[names] = float(value)
    return ranks


def answer(nodes: Iterable[Mapping[tuple[str, str], float]]) -> tuple[str, int] | None:
    """Return key and rule that `bottomk(1, max by(key,path)(...))` over all nodes yields; None
    without any key."""
    worst: dict[tuple[str, str], float] = {}
    for ranks in nodes:
        for key, value in ranks.items():
            worst[key] = max(worst.get(key, 0.0), value)
    if not worst:
        return None
    best = min(worst, key=lambda key: worst[key])
    return best[0], rule_in(worst[best])


def rule_in(rank: float | str) -> int:
    return int(float(rank)) // RULE_UNIT

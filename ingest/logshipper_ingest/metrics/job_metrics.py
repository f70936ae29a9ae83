"""Series of this node's jobs: the latest values, the X axis, state and ledger (docs/metrics.md).

`update` only copies a capture's values and marks its job as changed, so it costs the calling thread
little. A scrape ranks keys and writes series; their text is cached until the job changes. A finished
capture is merged into its job for good: a job's ranks outlive the captures that max_captures drops.

Limits: max_captures captures, of which the oldest finished ones go first; MAX_JOB_KEYS compared and
max_keys shown keys of a job; MAX_SLURM_ENDS ends of jobs by Slurm. Everything omitted is counted and
logged.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from prometheus_client import Counter
from prometheus_client.metrics_core import Metric

from logshipper_ingest.config.agent_config import MetricsSection
from logshipper_ingest.console.service_log import LogLine
from logshipper_ingest.metrics.job_series import (
    FAMILIES,
    SLURM_END,
    SLURM_START,
    CaptureValues,
    CaptureView,
    JobValues,
    capture_labels,
    family_header,
    job_series,
    slurm_end_series,
    slurm_start_series,
)
from logshipper_ingest.model.courses import Trend
from logshipper_ingest.model.job import RUNNING, UNRESPONSIVE_NS
from logshipper_ingest.model.metadata_keys import Path, plain_name
from logshipper_ingest.model.ranks import REASONS, JobKeys, escape
from logshipper_ingest.model.x_axis import NAMED_RULES, XAxis

MAX_JOB_KEYS = 1024
MAX_KEYS_LOGGED = 20  # of a job: all users share the agent's log
MAX_SLURM_ENDS = 20_000
_NO_AXIS = XAxis()
_MAX_REMEMBERED = 100_000  # omitted captures; further ones are not counted


class _Job:
    """A job's captures on this node."""

    def __init__(self, job_id: str, labels: str, keys: JobKeys) -> None:
        self.job_id = job_id
        self.labels = labels
        self.keys = keys
        self.captures: dict[str, CaptureValues] = {}
        # of finished captures
        self.closed: dict[Path, Trend] = {}
        self.closed_records = 0
        # over the job's whole life; two threads add, so there may be some too many
        self.compared: set[Path] = set()
        self.not_compared = 0  # keys past MAX_JOB_KEYS
        self.over_ns: int | None = None  # when `expire` first found all captures over
        self.changes = 0
        # of the last scrape
        self.written_changes = -1
        self.valid_until_ns = 0
        self.texts: dict[str, str] = {}

    def close(self, capture: CaptureValues) -> None:
        """Merge the trends of a finished capture for good."""
        self.not_compared += _merge(self.closed, capture.trends, self.compared)
        self.closed_records += capture.view.records
        capture.trends = {}

    def values(self) -> JobValues:
        """Return the present values for a scrape, with the trends of finished captures only."""
        records = self.closed_records + sum(
            capture.view.records for capture in self.captures.values() if not capture.view.over
        )
        return JobValues(
            self.labels, list(self.captures.values()), dict(self.closed), records, self.not_compared
        )


class JobMetrics:
    """The series of this node's jobs. Any thread may call any method."""

    def __init__(
        self,
        section: MetricsSection,
        cluster: str,
        host: str,
        *,
        log: Callable[[str], None] = lambda _: None,
        clock: Callable[[], int] = time.time_ns,  # ns since 1970
    ) -> None:
        self._section = section
        self._cluster = cluster
        self._host = host
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()  # of everything that update and expire change
        # of keys and texts of jobs; always taken before the other lock
        self._scrape_lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}
        self._job_of: dict[str, _Job] = {}  # by the capture's key
        # by job and attempt: time of the report, its lines
        self._slurm_ends: dict[tuple[str, int], tuple[int, str, str]] = {}
        self._over = 0
        self._left_out: set[str] = set()
        self.keys_left_out = Counter(
            "logshipper_agent_keys_left_out",
            "Numeric keys that no series shows.",
            ["reason"],
            registry=None,
        )
        for reason in REASONS:
            self.keys_left_out.labels(reason)  # so that it shows 0
        self.captures_left_out = Counter(
            "logshipper_agent_captures_left_out",
            "Captures that no series shows: over max_captures.",
            registry=None,
        )

    # ---- taking values

    def update(self, view: CaptureView) -> None:
        """Take the present state of a capture. A finished capture stays finished."""
        if not self._section.job_values:
            return
        with self._lock:
            job = self._job_of.get(view.key)
            if job is None:
                self._add(view)
            else:
                before = job.captures[view.key]
                job.captures[view.key] = capture = _values_of(view, before.labels, before)
                self._note_change(job, capture, before)

    def slurm_ended(
        self, job_id: str, attempt: int, state: str, end_secs: int, *, start_secs: int = 0
    ) -> int:
        """Take how Slurm ended an attempt of a captured job on any node; the last report counts.
        Times are seconds since 1970, start_secs 0 if unknown. Return the number of older ends that
        had to make room."""
        if not self._section.job_values:
            return 0
        labels = self._job_labels(job_id)
        line = slurm_end_series(labels, attempt, state, end_secs)
        start = slurm_start_series(labels, attempt, start_secs) if start_secs else ""
        with self._lock:
            self._slurm_ends.pop((job_id, attempt), None)
            self._slurm_ends[job_id, attempt] = self._clock(), line, start
            if len(self._slurm_ends) <= MAX_SLURM_ENDS:
                return 0
            del self._slurm_ends[next(iter(self._slurm_ends))]
            return 1

    def _job_labels(self, job_id: str) -> str:
        return f'cluster="{escape(self._cluster)}",job_id="{escape(job_id)}"'

    def _add(self, view: CaptureView) -> None:
        job_id = view.identity.job_id
        if len(self._job_of) >= self._section.max_captures:
            if not self._over or (view.over and view.key in self._left_out):
                self._leave_out(view.key, job_id)
                return
            self._make_room()
        self._left_out.discard(view.key)
        job = self._jobs.get(job_id)
        if job is None:
            job = self._jobs[job_id] = _Job(job_id, self._job_labels(job_id), self._keys_of(job_id))
        capture = _values_of(view, capture_labels(job.labels, view.identity, self._host), None)
        job.captures[view.key] = capture
        self._job_of[view.key] = job
        self._note_change(job, capture, None)

    def _note_change(self, job: _Job, capture: CaptureValues, before: CaptureValues | None) -> None:
        job.changes += 1
        if not capture.view.over:
            job.over_ns = None
        elif before is None or not before.view.over:
            job.close(capture)
            self._over += 1

    def _make_room(self) -> None:
        """Remove the capture that ended first."""
        views = ((key, job.captures[key].view) for key, job in self._job_of.items())
        _, key = min((view.ended_ns or view.heartbeat_ns, key) for key, view in views if view.over)
        job = self._job_of.pop(key)
        self._over -= 1
        del job.captures[key]
        job.changes += 1
        if not job.captures:
            del self._jobs[job.job_id]
        self._leave_out(key, job.job_id)

    def _leave_out(self, key: str, job_id: str) -> None:
        if key in self._left_out or len(self._left_out) >= _MAX_REMEMBERED:
            return
        self._left_out.add(key)
        self.captures_left_out.inc()
        cap = self._section.max_captures
        words = f"metrics: a capture of job {job_id} is left out: [metrics] max_captures is {cap}"
        self._log(LogLine(words, job=job_id))

    def expire(self, now_ns: int) -> None:
        """Forget jobs whose captures all ended expire_secs ago. Call it about once a second: a
        job's time runs from the first call that finds it over, so late news shows as long."""
        oldest_ns = now_ns - int(self._section.expire_secs * 1e9)
        with self._lock:
            for key, (reported_ns, *_) in list(self._slurm_ends.items()):
                if reported_ns <= oldest_ns:
                    del self._slurm_ends[key]
            for job_id, job in list(self._jobs.items()):
                if not all(capture.view.over for capture in job.captures.values()):
                    continue
                if job.over_ns is None:
                    job.over_ns = now_ns
                if now_ns - job.over_ns >= self._section.expire_secs * 1e9:
                    del self._jobs[job_id]
                    for capture in job.captures:
                        del self._job_of[capture]
                    self._over -= len(job.captures)

    def _keys_of(self, job_id: str) -> JobKeys:
        log_count = 0

        def leave_out(reason: str, path: Path) -> None:
            nonlocal log_count
            self.keys_left_out.labels(reason).inc()
            log_count += 1
            if log_count > MAX_KEYS_LOGGED:
                return
            key = plain_name(path)
            key_text = ascii(key if len(key) <= 60 else key[:57] + "...")
            more = "; more keys of it are only counted" if log_count == MAX_KEYS_LOGGED else ""
            words = f"metrics: key {key_text} of job {job_id} is left out: {reason}{more}"
            self._log(LogLine(words, job=job_id))

        return JobKeys(self._section.max_keys, self._section.max_label_bytes, leave_out)

    # ---- writing series

    def text(self) -> str:
        """Return all series in Prometheus' text format 0.0.4, which OpenMetrics shares for gauges."""
        with self._scrape_lock:
            with self._lock:
                jobs = list(self._jobs.values())
                by_slurm = {
                    SLURM_END: [line for _, line, _ in self._slurm_ends.values()],
                    SLURM_START: [start for _, _, start in self._slurm_ends.values() if start],
                }
            for job in jobs:
                self._write(job)
            parts = []
            for family in FAMILIES:
                texts = [text for job in jobs if (text := job.texts.get(family))]
                texts = by_slurm.get(family, texts)
                if texts:
                    parts += [family_header(family), *texts]
            return "".join(parts)

    def _write(self, job: _Job) -> None:
        """Write a job's series again if the job, or its state by the clock, has changed."""
        now_ns = self._clock()
        if job.written_changes == job.changes and now_ns <= job.valid_until_ns:
            return
        with self._lock:
            job.written_changes = job.changes
            values = job.values()
        # without the lock: a capture's values are replaced, never changed
        for capture in values.captures:
            values.not_compared += _merge(values.trends, capture.trends, job.compared)
        views = (capture.view for capture in values.captures)
        signs = (view.heartbeat_ns + UNRESPONSIVE_NS for view in views if view.state == RUNNING)
        job.valid_until_ns = min((sign for sign in signs if sign >= now_ns), default=1 << 63)
        job.texts = job_series(values, job.keys, now_ns)

    def counters(self) -> Iterator[Metric]:
        """Yield the counters of omissions, which show even without job_values."""
        yield from self.keys_left_out.collect()
        yield from self.captures_left_out.collect()


def _values_of(
    view: CaptureView, labels: tuple[str, str], before: CaptureValues | None
) -> CaptureValues:
    """Return a copy of a view's values. before: the capture's previous values; a finished capture
    stays finished, and its trends are merged already."""
    over = view.over or (before is not None and before.view.over)
    trends: Mapping[Path, Trend] = {}
    if before is not None and not over and before.view.records == view.records:
        trends = before.trends
    elif before is None or not before.view.over:
        trends = view.axis.trends(over=over)
    ledger = {name: dict(lines) for name, lines in view.ledger.items() if isinstance(lines, dict)}
    kept = replace(view, over=over, ledger=ledger, latest=dict(view.latest), axis=_NO_AXIS)
    return CaptureValues(labels, kept, trends)


def _merge(into: dict[Path, Trend], trends: Mapping[Path, Trend], compared: set[Path]) -> int:
    """Merge trends, adding their keys to those compared while there is room. Return the number of
    keys without room."""
    left_out = 0
    for path, trend in trends.items():
        trend_so_far = into.get(path)
        if trend_so_far is not None:
            into[path] = trend_so_far.merge(trend)
        elif path in compared or len(compared) < MAX_JOB_KEYS or path in NAMED_RULES:
            compared.add(path)
            into[path] = trend
        else:
            left_out += 1
    return left_out

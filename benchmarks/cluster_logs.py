"""A made-up day of a cluster's logs in Loki, with the labels and structured metadata of the agent's
own encoder. Each host runs one job an hour; callers add further jobs."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush, heapreplace, merge
from itertools import chain
from typing import Any

from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.model.capture_rows import BlockRow, EventRow, ReportRow, Rows, StatusRow
from logshipper_ingest.model.job import HEARTBEAT
from logshipper_ingest.model.key_reports import KeyReport, documents
from logshipper_ingest.model.ledger import LEDGER_COUNTS
from logshipper_ingest.servers.loki_push import assemble, compress, encode_metadata
from logshipper_ingest.shipping.entries import Chunk, EntryBuilder, Metadata, StreamKey, json_line
from logshipper_ingest.spool.capture_folder import Identity
from tests.servers.running import LokiServer

Json = dict[str, Any]  # Any: JSON

CLUSTER = "bench"
CONTROLLER = "slurmctl"  # its agent reports the end of each job of the cluster
SECOND_NS = 10**9
SLICE_SECS = 7200  # Loki closes a chunk after this span (max_chunk_age)
SLICES = 12
HOUR_SECS = 3600
SELDOM_SECS = 300  # between heartbeats of unobserved hosts: 10 s would fill most of the store
BODY_BYTES = 1 << 20
THREADS = 3
MAX_LINE_BYTES = 256_000
LINE = b"epoch %02d step %07d: loss 0.%06d acc 0.%05d lr 1.0e-04 grad 0.%04d time 0.123 s/it ok\n"
BLOCK_LINES = 700  # at most: the lines of a full pipe
# Loki's usual limits would stop a day's pushes within minutes. Query limits stay as recommended.
LIMITS = {
    "ingestion_rate_mb": 10_000,
    "ingestion_burst_size_mb": 10_000,
    "per_stream_rate_limit": "10GB",
    "per_stream_rate_limit_burst": "10GB",
    "max_global_streams_per_user": 0,
    "shard_streams": {"enabled": False},
}


@dataclass(frozen=True)
class Job:
    """A job of one task that prints evenly."""

    job_id: str
    host: str
    begin_ns: int
    secs: int
    lines: int
    records: int
    heartbeat_secs: int = 10
    user: str = "ann"
    state: str = "COMPLETED"
    task: int = 0
    keys: int = 3  # of a record
    bar_secs: int = 0  # between two entries of its bar; 0: no bar
    report_secs: int = 0  # between two reports of its keys; 0: no reports

    @property
    def end_ns(self) -> int:
        return self.begin_ns + self.secs * SECOND_NS

    @property
    def identity(self) -> Identity:
        return Identity(
            self.job_id,
            1,
            "0",
            self.task,
            "train.py",
            self.user,
            self.host,
            CLUSTER,
            1000,
            "ml",
            "gpu",
        )

    def record(self, number: int) -> Json:
        """Return a record's values. number: from 1."""
        values = {
            f"metric_{key:02}": number * (7919 + key) % 9973 / 9973 for key in range(3, self.keys)
        }
        return {"step": number, "loss": round(7 / number**0.5, 6), "lr": 1e-4, **values}

    def ledger(self) -> Json:
        read = self.lines + self.records
        counts = dict.fromkeys(LEDGER_COUNTS, 0)
        return {
            "stdout": {**counts, "read": read, "stored": read, "line_feeds": read},
            "stderr": counts,
        }

    def counts(self) -> Json:
        lines = self.lines + self.records
        counts = {"lines": lines, "records": self.records, "lost": 0}
        return {
            "ledger": self.ledger(),
            **counts,
            "bytes_printed": 90 * lines,
            "bytes_logged": 90 * lines,
        }


def chunks_of(job: Job) -> Iterator[Chunk]:
    """Yield all entries of a job in order of time, in the agent's encoding."""
    builder = EntryBuilder(job.job_id, job.identity, MAX_LINE_BYTES)
    blocks = (
        (Rows(blocks=[block]) for block in blocks) for blocks in (_console(job), _records(job))
    )
    marks = ([Rows(marks=rows)] for rows in (_marks(job), _heartbeats(job)))
    streams = (*blocks, _bars(job), _reports(job), *marks)
    parts = (chain.from_iterable(map(builder.chunks, rows)) for rows in streams)
    return merge(*parts, key=_begin_ns)


def _begin_ns(chunk: Chunk) -> int:
    return chunk.times_ns[0]


def chunks_of_all(jobs: Sequence[Job]) -> Iterator[Chunk]:
    """Yield the chunks of many jobs in order of time.

    jobs: sorted by their begin. A job's chunks are generated only from its begin on, because a
    whole day would fill the memory.
    """
    running: list[tuple[int, int, Chunk, Iterator[Chunk]]] = []
    for number, job in enumerate(jobs):
        while running and running[0][0] < job.begin_ns:
            yield _next(running)
        chunks = chunks_of(job)
        first = next(chunks)
        heappush(running, (_begin_ns(first), number, first, chunks))
    while running:
        yield _next(running)


def _next(running: list[tuple[int, int, Chunk, Iterator[Chunk]]]) -> Chunk:
    _, number, chunk, rest = running[0]
    following = next(rest, None)
    if following is None:
        heappop(running)
    else:
        heapreplace(running, (_begin_ns(following), number, following, rest))
    return chunk


def _console(job: Job) -> Iterator[BlockRow]:
    for burst, (at_ns, first, last) in enumerate(_bursts(job, job.lines)):
        yield BlockRow(
            Stream.STDOUT, at_ns, last - first, None, None, _text(last - first, burst % 16)
        )


def _bursts(job: Job, count: int) -> Iterator[tuple[int, int, int]]:
    """Yield the time of each burst and its range of line numbers, from 0. Bursts come every minute,
    and more often for jobs with many lines."""
    bursts = max(min(count, job.secs // 60), -(-count // BLOCK_LINES))
    for burst in range(bursts):
        at_ns = job.begin_ns + burst * job.secs * SECOND_NS // bursts
        yield at_ns, burst * count // bursts, (burst + 1) * count // bursts


@lru_cache(maxsize=256)
def _text(lines: int, seed: int) -> bytes:
    """Return lines of pseudo-random numbers, the same for each call."""
    numbers = ((seed * 104729 + line) * 7919 % 1_000_003 for line in range(lines))
    return b"".join(
        LINE % (seed, number, number % 999_983, number % 99_991, number % 9973)
        for number in numbers
    )


def _records(job: Job) -> Iterator[BlockRow]:
    for at_ns, first, last in _bursts(job, job.records):
        text = b"".join(json_line(job.record(number + 1)) + b"\n" for number in range(first, last))
        numbers: dict[int, Json] = {
            place: {"n": first + place + 1} for place in range(last - first)
        }
        behind_ns = at_ns + BLOCK_LINES  # the console's lines take the times before
        yield BlockRow(
            Stream.STDOUT,
            behind_ns,
            last - first,
            [(int(Kind.METADATA), last - first)],
            numbers,
            text,
        )


def _bars(job: Job) -> Iterator[Rows]:
    for secs in range(job.bar_secs, job.secs, job.bar_secs) if job.bar_secs else ():
        done = 100 * secs // job.secs
        bar = f"{done:3}%|{'█' * (done // 2):50}|"
        text = (
            f"train: {bar} {secs * 50}/{job.secs * 50} [{secs // 60:02}:{secs % 60:02}, 50.0it/s]"
        )
        at_ns = job.begin_ns + secs * SECOND_NS
        yield Rows(statuses={Stream.STDERR: StatusRow(Stream.STDERR, at_ns, text.encode())})


def _reports(job: Job) -> Iterator[Rows]:
    for secs in range(job.report_secs, job.secs, job.report_secs) if job.report_secs else ():
        number = job.records * secs // job.secs
        if number:
            yield Rows(report=_report(job, number, job.begin_ns + secs * SECOND_NS, final=False))
    if job.report_secs:
        yield Rows(report=_report(job, job.records, job.end_ns + 1, final=True))


def _report(job: Job, number: int, time_ns: int, *, final: bool) -> ReportRow:
    numbers = ((key, value) for key, value in job.record(number).items() if key != "step")
    found = [
        KeyReport(key, number, "step", value, 0.0, value, number, number // 2, number)
        for key, value in numbers
    ]
    return ReportRow(time_ns, documents(found), final)


def _marks(job: Job) -> list[EventRow]:
    identity = {
        "name": "train.py",
        "user": job.user,
        "uid": 1000,
        "account": "ml",
        "partition": "gpu",
        "host": job.host,
    }
    where = {
        "cluster": CLUSTER,
        "version": "1",
        "boot_id": "0" * 32,
        "columns": 160,
        "rows": 50,
        "tty": True,
    }
    started = {
        "event": "started",
        **identity,
        **where,
        "mode": "enabled",
        "started_ns": job.begin_ns,
    }
    ended = {
        "state": job.state,
        "exit_code": 0,
        "signal": 0,
        "reason": "",
        "ended_ns": job.end_ns,
        "mode": "enabled",
    }
    end = {**ended, **job.counts(), "hosts": [job.host]}
    x_axis = {"key": "step", "rule": 3, "words": "step: integers that never fall", "path": ["step"]}
    return [
        EventRow(job.begin_ns, started),
        EventRow(job.end_ns, {"event": "ended", **end}),
        EventRow(job.end_ns + 1, {"event": "closed", **end, "x_axis": x_axis}),
    ]


def _heartbeats(job: Job) -> list[EventRow]:
    heartbeat = {"event": HEARTBEAT, "mode": "enabled", **job.counts()}
    beats = range(job.heartbeat_secs, job.secs, job.heartbeat_secs)
    return [EventRow(job.begin_ns + secs * SECOND_NS, heartbeat) for secs in beats]


def slurm_chunks(jobs: Iterable[Job]) -> Iterator[Chunk]:
    """Yield the controller agent's entries about ended jobs: an event each, and a line for each job
    that did not complete."""
    for job in jobs:
        pairs = {"job_id": job.job_id, "user": job.user, "attempt": "1"}
        common = Metadata(pairs, encode_metadata(pairs))
        times = range(job.end_ns + 2, job.end_ns + 3)
        words = f"Slurm ended job {job.job_id}: {job.state}"
        event = {"event": "job_ended", "message": words, "job_id": job.job_id, "state": job.state, "exit_code": 0,
                 "signal": 0, "started_ns": job.begin_ns, "ended_ns": job.end_ns, "by": "jobcomp"}  # fmt: skip
        yield Chunk(
            job.job_id, StreamKey("", "event", host=CONTROLLER), times, [json_line(event)], common
        )
        if job.state != "COMPLETED":
            line = f"[logshipper: {words}]".encode()
            extra = ({"note": "1"},)
            yield Chunk(
                job.job_id,
                StreamKey("stdout", "log", host=CONTROLLER),
                times,
                [line],
                common,
                extra,
            )


def usual_job(host: int, number: int, day_ns: int, heartbeat_secs: int) -> Job:
    """Return the job that a host runs in one hour. host, number: from 0; day_ns: begin of the day."""
    begin_ns = day_ns + (number * HOUR_SECS + host % 60) * SECOND_NS
    state = "TIMEOUT" if (host + number) % 10 == 0 else "COMPLETED"
    job_id = f"{100_000 + host * 24 + number}"
    return Job(
        job_id, host_name(host), begin_ns, HOUR_SECS - 120, 200, 50, heartbeat_secs, state=state
    )


def host_name(host: int) -> str:
    return f"n{host + 1:04d}"


class Filler:
    """Pushes to Loki from several threads. say: reports progress."""

    def __init__(self, loki: LokiServer, say: Callable[[str], None]) -> None:
        self._loki = loki
        self._say = say
        self._pools = [
            ThreadPoolExecutor(1, "fill") for _ in range(THREADS)
        ]  # one thread per stream keeps its entries in order of time
        self._room = threading.Semaphore(4 * THREADS)
        self._clients = threading.local()
        self._pushes: list[Future[None]] = []
        self._at = ""
        self.entries = 0
        self.line_bytes = 0

    def hosts(self, first: int, last: int, day_ns: int, further: Sequence[Job] = ()) -> None:
        """Push a day of the hosts in range(first, last), and further jobs on any host."""
        for number in range(SLICES):
            hours = range(number * SLICE_SECS // HOUR_SECS, (number + 1) * SLICE_SECS // HOUR_SECS)
            slice_ns = day_ns + number * SLICE_SECS * SECOND_NS
            host_jobs = [
                job
                for job in further
                if slice_ns <= job.begin_ns < slice_ns + SLICE_SECS * SECOND_NS
            ]
            jobs: list[Job] = [*host_jobs]
            for host in range(first, last):
                self._at = f"hour {hours[0]} of 24, host {host - first + 1} of {last - first}"
                beside = [job for job in host_jobs if job.host == host_name(host)]
                of_host = [
                    usual_job(host, hour, day_ns, 10 if beside else SELDOM_SECS) for hour in hours
                ]
                jobs += of_host
                self._push(merge(*map(chunks_of, (*of_host, *beside)), key=_begin_ns))
            self.slice(self._at, (), sorted(jobs, key=lambda job: job.end_ns))

    def slice(self, at: str, chunks: Iterable[Chunk], ends: Iterable[Job] = ()) -> None:
        """Push the chunks of one period of SLICE_SECS, in order of time. at: the period's name for
        `say`; ends: jobs that Slurm ended in it."""
        self._at = at
        self._push(chunks)
        self._push(slurm_chunks(ends))
        self._settle()

    def _push(self, chunks: Iterable[Chunk]) -> None:
        """Send chunks in order of time, each body with one stream and about BODY_BYTES."""
        streams: dict[StreamKey, list[Chunk]] = defaultdict(list)
        sizes: dict[StreamKey, int] = defaultdict(int)
        for chunk in chunks:
            streams[chunk.key].append(chunk)
            sizes[chunk.key] += chunk.size
            if sizes[chunk.key] >= BODY_BYTES:
                self._send(chunk.key, streams.pop(chunk.key))
                del sizes[chunk.key]
        for key, rest in streams.items():
            self._send(key, rest)

    def _send(self, key: StreamKey, chunks: Sequence[Chunk]) -> None:
        self.entries += sum(len(chunk.lines) for chunk in chunks)
        self.line_bytes += sum(chunk.line_bytes for chunk in chunks)
        body = compress(assemble(key.labels(CLUSTER, ""), [chunk.encoded() for chunk in chunks]))
        self._say(f"{self._at}: {self.entries:,} entries")
        self._room.acquire()
        pool = self._pools[hash(key) % THREADS]
        self._pushes.append(pool.submit(self._send_body, body))

    def _send_body(self, body: bytes) -> None:
        try:
            if not hasattr(self._clients, "own"):
                self._clients.client = LokiClient(self._loki.url)
            self._clients.client.push_body(body)
        finally:
            self._room.release()

    def _settle(self) -> None:
        """Raise the first error of a push. Let Loki write its chunks, as a real day would."""
        for push in self._pushes:
            push.result()
        self._pushes = []
        self._loki.flush()

    def close(self) -> None:
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)

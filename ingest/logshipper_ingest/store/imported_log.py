"""Renders the console of an imported job as a capture of it, from its last import on."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping

from logshipper.classify.classifier import Classifier
from logshipper.classify.logged import LoggedEvent, LoggedLines
from logshipper.config import JSON, Config
from logshipper.sidecar.frame_builder import FrameBuilder
from logshipper.spool.segment import Stream
from logshipper_ingest.model.capture_account import CaptureAccount
from logshipper_ingest.model.capture_rows import Rows
from logshipper_ingest.model.imported import ImportedJob, LogPiece
from logshipper_ingest.model.imported_states import is_over
from logshipper_ingest.model.job import UNKNOWN, Json
from logshipper_ingest.model.ledger import clean_ledger
from logshipper_ingest.store.job_db import CaptureRow
from logshipper_ingest.store.job_rows import OWN_DETAILS

_LOG_STEP_BYTES = 64 << 10


class AnotherLog(Exception):
    """A job's log differs from the imported one."""


def import_facts(account: CaptureAccount) -> Json:
    """The facts that importing itself keeps with a job."""
    facts: Json = account.details.setdefault(OWN_DETAILS, {})
    return facts


def log_rows(row: CaptureRow, job: ImportedJob, time_ns: int) -> Iterator[Rows]:
    """Render a console as a capture of it.

    Ingested bytes pass through as well, so that modes, fences and record numbers continue. time_ns:
    of lines without a later time; new lines are never before earlier ones. Raises AnotherLog if
    the ingested bytes have changed.
    """
    if job.log == ():
        return
    account, facts = row.account, import_facts(row.account)
    is_ended = job.log_ended or (is_over(account.state) and account.state != UNKNOWN)
    was_ended = bool(facts.get("log_ended"))
    logs = {stream: _LogPosition(facts, stream) for stream in (Stream.STDOUT, Stream.STDERR)}
    config = job.config or Config(metadata=(JSON,))
    classifier = Classifier(
        "enabled",
        obey=config.commands,
        keep_colours=config.colors == "keep",
        metadata=config.metadata or (JSON,),
        finds_series=config.metadata is None,
        ignore=config.ignore,
        rename=config.rename,
        limits_series=False,
        mask=config.mask,
    )
    builder = FrameBuilder(max(account.last_ns.values(), default=0), epoch_ns=time_ns)
    now_ns = time_ns
    for piece in _steps(job.log, logs):
        log = logs[piece.stream]
        if piece.time_ns > now_ns:
            now_ns = piece.time_ns
            classifier.tick((now_ns - time_ns) / 1e9)
        now = (now_ns - time_ns) / 1e9
        classifier.feed(piece.stream, piece.data, now)
        log.feed(piece.data)
        if log.is_at_end and was_ended:
            classifier.end(piece.stream, now, may_continue=True)  # as the last import did
        items = classifier.take()
        if log.is_past_end:
            yield _rows_of(row, items, builder, now_ns)
    if any(log.fed and not log.is_known for log in logs.values()):
        raise AnotherLog
    fed_logs = {stream: log for stream, log in logs.items() if log.fed}
    if any(log.is_past_end for log in fed_logs.values()) or (
        fed_logs and is_ended and not was_ended
    ):
        for stream, log in fed_logs.items():
            if is_ended and (log.is_past_end or not was_ended):
                classifier.end(stream, (now_ns - time_ns) / 1e9, may_continue=True)
        yield _rows_of(row, classifier.take(), builder, now_ns)
        account.ledger = clean_ledger(classifier.ledger())
        account.mode = classifier.mode
        for log in fed_logs.values():
            facts |= log.facts()
        facts["log_ended"] = is_ended


class _LogPosition:
    """How far a stream's log was ingested, and is fed now. facts: of the last import."""

    def __init__(self, facts: Json, stream: Stream) -> None:
        self._name = "log" if stream is Stream.STDOUT else "log_stderr"
        self.end = int(facts.get(f"{self._name}_bytes", 0))
        self.fed = 0
        self._last_digest = facts.get(f"{self._name}_digest", "")
        self._digest = hashlib.sha256()

    def feed(self, data: bytes) -> None:
        """Raise AnotherLog if the ingested bytes have changed."""
        if self.is_at_end and not self.is_known:
            raise AnotherLog
        self.fed += len(data)
        self._digest.update(data)

    @property
    def is_at_end(self) -> bool:
        return 0 < self.fed == self.end

    @property
    def is_past_end(self) -> bool:
        return self.fed > self.end

    @property
    def is_known(self) -> bool:
        """Whether it may continue the ingested log."""
        is_same = not self.is_at_end or self._digest.hexdigest() == self._last_digest
        return self.fed >= self.end and is_same

    def facts(self) -> Json:
        return {f"{self._name}_bytes": self.fed, f"{self._name}_digest": self._digest.hexdigest()}


def _rows_of(
    row: CaptureRow, items: Iterable[LoggedLines | LoggedEvent], builder: FrameBuilder, time_ns: int
) -> Rows:
    rows = Rows()
    for frame in builder.frames(items, time_ns):
        row.account.take(frame, row.axis, rows, 0)
    return rows


def _steps(log: Iterable[LogPiece], logs: Mapping[Stream, _LogPosition]) -> Iterator[LogPiece]:
    """Split a log into small pieces, none across the end of the ingested bytes."""
    for piece in log:
        position, begin = logs[piece.stream], 0
        while begin < len(piece.data):
            missing = position.end - position.fed
            step_bytes = min(_LOG_STEP_BYTES, missing) if missing > 0 else _LOG_STEP_BYTES
            yield piece._replace(data=piece.data[begin : begin + step_bytes])
            begin += step_bytes

"""Exports a job as TensorBoard's event files: scalars, hparams and the console as text. Needs
tensorboardX."""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from logshipper.errors import LogshipperError
from logshipper_observe.base.words import NS
from logshipper_observe.trackers.tracker import NOT_IN_FILES, TrackedJob, TrackerRun
from logshipper_observe.trackers.value_stream import Value

try:
    from tensorboardX import SummaryWriter
    from tensorboardX.summary import hparams
except ImportError:
    raise LogshipperError(
        "--tensorboard needs tensorboardX, which is not installed: pip install tensorboardX"
    ) from None

TEXT_LINES = 500  # of one text: TensorBoard shows a text for each step
FLUSH_SECS = 1  # tensorboardX's own thread writes; its flush() does not wait for that thread
_EVENTS = "events.out.tfevents."
logging.getLogger("tensorboardX").setLevel(logging.ERROR)  # it warns of each NaN


class TensorBoardRun(TrackerRun):
    """A folder of event files: that of the job, and one in it for each further curve."""

    def __init__(self, folder: str, name: str, job_id: str, *, force: bool) -> None:
        self.place = os.path.join(folder, f"{NOT_IN_FILES.sub('-', name)}-{job_id}")
        for path in list(_event_files(self.place)):
            if not force:
                raise LogshipperError(
                    f"--tensorboard: {self.place} has event files already; --force replaces them"
                )
            os.unlink(path)
        self._last: dict[str, float] = {}  # by key
        self._writers: dict[str, Any] = {}  # by curve. Any: tensorboardX has no types
        self._writer("")

    def add(self, values: Sequence[Value]) -> None:
        for value in values:
            self._writer(value.curve).add_scalar(
                value.key, value.number, value.step, value.time_ns / NS
            )
            self._last[value.key] = value.number

    def finish(self, job: TrackedJob, lines: Iterable[str]) -> None:
        writer = self._writer("")
        if job.config:
            for summary in hparams(dict(job.config), dict(self._last)):
                writer.file_writer.add_summary(summary, walltime=job.summary.started_ns / NS)
        number = 0
        for block in _blocks(lines):
            writer.add_text("console", block, number, job.summary.started_ns / NS)
            number += TEXT_LINES

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def _writer(self, curve: str) -> Any:  # Any: tensorboardX has no types
        if curve not in self._writers:
            folder = os.path.join(self.place, NOT_IN_FILES.sub("-", curve)) if curve else self.place
            try:
                self._writers[curve] = SummaryWriter(folder, flush_secs=FLUSH_SECS)
            except OSError as error:
                raise LogshipperError(f"--tensorboard: {folder}: {error.strerror}") from None
        return self._writers[curve]


def _event_files(folder: str) -> Iterator[str]:
    for parent, _, names in os.walk(folder):
        yield from (os.path.join(parent, name) for name in names if name.startswith(_EVENTS))


def _blocks(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines in groups of TEXT_LINES, as preformatted Markdown."""
    block: list[str] = []
    for line in lines:
        block.append(f"    {line}")
        if len(block) == TEXT_LINES:
            yield "\n".join(block)
            block.clear()
    if block:
        yield "\n".join(block)

"""`logshipper export --tensorboard DIR` and `--mlflow URI`: jobs as runs of other trackers."""

import argparse
import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from logshipper.classify.repeat_note import printed_line
from logshipper.errors import LogshipperError
from logshipper.safe_text import safe
from logshipper_ingest.console.progress_bar import Bar
from logshipper_ingest.console.text_table import plural
from logshipper_observe.base.output import Output
from logshipper_observe.base.running import say
from logshipper_observe.base.words import count, uncoloured
from logshipper_observe.model.command_arguments import arguments_of
from logshipper_observe.model.documents import STREAMS, Document
from logshipper_observe.model.job_context import GIT_DIFF
from logshipper_observe.model.options import options_of
from logshipper_observe.model.records import is_number, text_of
from logshipper_observe.query.opening import ingest, overlay_of
from logshipper_observe.trackers.tracker import TrackedJob, TrackerRun
from logshipper_observe.trackers.value_stream import ValueStream

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary
    from logshipper_ingest.model.stores import JobStore, Reader

_VALUES = 10_000  # written at a time
_MAX_TEXT = 500  # characters of a setting


class _Export:
    """One job, until it is written or its end is awaited no more."""

    def __init__(self, store: "JobStore", job_id: str, args: argparse.Namespace) -> None:
        self.job_id = job_id
        self.values = ValueStream(args.x)
        self.is_over = False
        self._store = store
        with store.open(job_id) as reader:
            self.run = _open_run(reader.summary, args)

    def write(self) -> None:
        """Write the values since the last call."""
        with self._store.open(self.job_id) as reader:
            bar = Bar(f"Values of {safe(reader.summary.name)}", count, " values")
            try:
                values = self.values.new_values(reader)
                while block := list(islice(values, _VALUES)):
                    self.run.add(block)
                    bar(self.values.count, max(self.values.count, reader.summary.records))
            finally:
                bar.clear()
            self.is_over = reader.is_over

    def finish(self) -> None:
        with self._store.open(self.job_id) as reader:
            self.run.finish(
                TrackedJob(reader.summary, _config(self._store, reader)), _console(reader)
            )
        self.run.close()

    def tell(self) -> None:
        steps = "; ".join(self.values.step_words()) or "none"
        out = Output()
        out.line(
            f"Wrote {self.run.place}: {plural(self.values.count, 'value')} "
            f"of {plural(len(self.values.keys), 'key')}, step: {steps}"
        )
        if self.values.without_step:
            out.note(f"{plural(self.values.without_step, 'number')} left out: no X in their record")

    def document(self) -> Document:
        return {
            "job_id": self.job_id,
            "place": self.run.place,
            "values": self.values.count,
            "keys": self.values.keys,
            "without_step": self.values.without_step,
        }


def call(
    args: argparse.Namespace, store: "JobStore", job_ids: list[str]
) -> Iterator[Document | str]:
    """Export jobs; yield a document for each, or the words of its failure. With --follow, wait for
    the end of running ones."""
    exports = []
    try:
        for job_id in job_ids:
            try:
                exports.append(_Export(store, job_id, args))
            except LogshipperError as error:
                yield str(error)
        waiting = list(exports)
        while waiting:
            for export in list(waiting):
                try:
                    export.write()
                    if args.follow and not export.is_over:
                        continue
                    export.finish()
                except LogshipperError as error:
                    yield f"{export.job_id}: {error}"
                else:
                    if not args.json:
                        export.tell()
                    yield export.document()
                waiting.remove(export)
            if waiting:
                time.sleep(store.poll_secs)
                for export in waiting:
                    for problem in ingest(store, job_id=export.job_id):
                        say(problem)
    finally:
        for export in exports:
            export.run.close()


def _open_run(job: "JobSummary", args: argparse.Namespace) -> TrackerRun:
    # late: both need packages that are optional
    if args.mlflow is not None:
        from logshipper_observe.trackers.mlflow_run import MlflowRun

        return MlflowRun(args.mlflow, job, force=args.force)
    from logshipper_observe.trackers.tensorboard_run import TensorBoardRun

    return TensorBoardRun(args.tensorboard, job.name, job.job_id, force=args.force)


def _config(store: "JobStore", reader: "Reader") -> dict[str, str | float]:
    """Return a job's options and the settings of its command line, without dashes."""
    options = options_of(reader, overlay_of(store).of(reader.summary.key))
    config: dict[str, str | float] = {}
    command = text_of(options["command"]) if "command" in options else ""
    for name, value in arguments_of(command).items():
        config[name.lstrip("-+")] = float(value) if is_number(value) else value[:_MAX_TEXT]
    for name, value in options.items():
        if name.startswith("first.") or name == GIT_DIFF:
            continue
        text = text_of(value) if value.startswith('"') else value
        config[name] = float(text) if is_number(value) else text[:_MAX_TEXT]
    return config


def _console(reader: "Reader") -> Iterator[str]:
    for line in reader.lines(streams=STREAMS["both"]):
        yield printed_line(uncoloured(line.text), line.attrs)

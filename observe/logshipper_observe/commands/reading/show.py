"""`logshipper show JOB`: all data about a job."""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from logshipper.safe_text import safe
from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.console.text_table import plural
from logshipper_ingest.model.ledger import COLUMNS, OUTCOMES
from logshipper_observe.base import output
from logshipper_observe.base.bar_width import shortened
from logshipper_observe.base.words import (
    FAILED_STATES,
    RUNNING_STATES,
    count,
    duration,
    exit_words,
    local,
    number,
    size,
    times_smaller,
    uncoloured,
    when,
)
from logshipper_observe.commands.options import (
    LAST,
    LAST_HELP,
    add_job,
    add_json,
    add_source,
    describe,
)
from logshipper_observe.model import documents, job_facts
from logshipper_observe.model.job_context import context_options
from logshipper_observe.model.job_events import event_words
from logshipper_observe.model.job_info import totals
from logshipper_observe.model.line_trial import metadata_hint
from logshipper_observe.model.overlay import Marks
from logshipper_observe.model.records import table_text, text_of
from logshipper_observe.query.opening import open_job, overlay_of, store_place

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobEvent, JobSummary, LogLine
    from logshipper_ingest.model.stores import JobStore, Reader
    from logshipper_ingest.model.x_axis import KeyStats

SCHEMA = "logshipper.show/1"
_CAPTURE_COLUMNS = (
    output.Column("attempt", right=True),
    output.Column("step"),
    output.Column("task", right=True),
    output.Column("host"),
    output.Column("state"),
    output.Column("started"),
    output.Column("took", right=True),
)
_KEY_COLUMNS = (
    output.Column("key", flexible=True),
    output.Column("last", right=True, flexible=True, ellipsis=True),
    *(output.Column(name, right=True) for name in ("min", "max", "count")),
)
_LAST_LINES = 12
_EVENTS_SHOWN = 20
_KEYS_SHOWN = 30
_VALUE_WIDE = 40
_ORIGINS = {
    "files": "output file",
    "csv": "CSV file",
    "tensorboard": "TensorBoard",
    "wandb": "wandb",
    "qcg": "QCG-PilotJob",
    "balsam": "Balsam",
    "xt": "XT",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    describe(
        parser,
        "Shows a job's state, times, account of lines, X axis and the rule that chose it,\nkeys, and events.",
        "examples:\n  logshipper show\n  logshipper show train.py --json | jq .x_axis\n"
        "  logshipper show 4711 --from loki",
    )
    add_job(parser, LAST_HELP, nargs="?", default=LAST)
    add_json(parser)
    add_source(parser)


def call(args: argparse.Namespace) -> int:
    now_ns = time.time_ns()
    with open_job(args) as (store, job_id), store.open(job_id) as reader:
        marks = overlay_of(store).of(reader.summary.key)
        # first: a running job's counts include its records read
        keys = reader.keys()
        job = _with_parts(reader.summary, store)
        if args.json:
            output.print_json(_document(reader, job, keys, store_place(args), now_ns, marks))
        else:
            _Page(output.Output(), reader, job, keys, now_ns, marks).print()
    return 0


def _with_parts(job: "JobSummary", store: "JobStore") -> "JobSummary":
    """XT's parts of a run are jobs, too: these are counted."""
    if job.origin != "xt" or job.children:
        return job
    part_totals = totals([part.state for part in store.jobs() if part.parent == job.job_id])
    children, finished, failed = part_totals.total, part_totals.finished, part_totals.failed
    return replace(job, children=children, children_finished=finished, children_failed=failed)


def _document(
    reader: "Reader",
    job: "JobSummary",
    keys: "Sequence[KeyStats]",
    store: str,
    now_ns: int,
    marks: Marks,
) -> documents.Document:
    choice = reader.x_axis()
    details = reader.details() if job.origin else {}
    return {
        "schema": SCHEMA,
        "store": store,
        **documents.job_document(job, now_ns, marks),
        "x_axis": {"key": choice.key, "rule": choice.rule, "words": choice.words},
        "ledger": job_facts.ledger_of(reader),
        "keys": [documents.key_document(key) for key in keys],
        "key_notes": reader.notes(),
        "hints": job_facts.record_hints(reader),
        "masked": job_facts.masked_values(reader),
        "missed_tasks": job_facts.missed_tasks(reader)._asdict(),
        "events": [_event_document(event) for event in reader.events()],
        "captures": [documents.capture_document(capture) for capture in reader.captures],
        "last_lines": [
            {"stream": documents.STREAM_NAMES[line.stream], "text": uncoloured(line.text)}
            for line in (last_lines(reader) if job.state in FAILED_STATES else ())
        ],
        "details": details,
        "metrics_rollup": job_facts.metrics_rollup(details, keys),
        "start": {name: output.Raw(text) for name, text in context_options(reader).items()},
        **({"metadata_hint": hint._asdict()} if (hint := metadata_hint(reader)) else {}),
        "live_status": {
            documents.STREAM_NAMES[stream]: {**documents.moment("time", time_ns), "text": text}
            for stream, (time_ns, text) in reader.status().items()
        },
    }


def _event_document(job_event: "JobEvent") -> documents.Document:
    event = job_event.event
    return {
        **documents.moment("time", job_event.time_ns),
        "event": event.get("event", ""),
        "message": event.get("message", ""),
        "attempt": job_event.attempt,
        "capture": job_event.capture,
        "details": documents.event_details(job_event),
    }


@dataclass
class _Page:
    """The answer for people, section by section."""

    out: output.Output
    reader: "Reader"
    job: "JobSummary"
    keys: "Sequence[KeyStats]"
    now_ns: int
    marks: Marks

    def print(self) -> None:
        self.out.job_line(self.job.name, self.job.job_id)
        self.out.line()
        self._print_failure()
        self.out.fields(list(self._fields()))
        self._print_ledger()
        self._print_keys()
        self._print_hints()
        self._print_captures()
        self._print_events()
        self._print_next()

    def _print_failure(self) -> None:
        job = self.job
        if job.state not in FAILED_STATES:
            return
        words = [job.state, exit_words(job.exit_code, job.signal), job.reason]
        self.out.note(", ".join(filter(None, words)), "bold red")
        for line in last_lines(self.reader):
            self.out.line(f"  {safe(uncoloured(line.text))}")
        self.out.line()

    def _fields(self) -> Iterator[tuple[str, list[output.Cell]]]:
        job = self.job
        outcome = exit_words(job.exit_code, job.signal)
        yield "State", [output.state_cell(job.state), f", {outcome}" if outcome else ""]
        if job.reason:
            yield "Reason", [job.reason]
        yield "Started", [local(job.started_ns), *self._ago(job.started_ns)]
        if job.ended_ns is not None:
            yield "Ended", [local(job.ended_ns), *self._ago(job.ended_ns)]
        running = "" if job.ended_ns is not None else " so far"
        limit = f" of {duration(job.limit_secs)}" if job.limit_secs else ""
        yield "Duration", [duration(documents.duration_secs(job, self.now_ns)) + limit + running]
        if job.user or job.host:
            yield "Where", ["@".join(filter(None, (job.user, job.host)))]
        if job.origin:
            part = f", part of {job.parent}" if job.parent else ""
            yield "From", [_ORIGINS.get(job.origin, job.origin) + part]
        if job.nodes:
            yield "Nodes", [str(job.nodes), f", {plural(job.cores, 'core')}" if job.cores else ""]
        if job.children:
            over = f"{count(job.children_finished)} finished, {count(job.children_failed)} of them failed"
            yield "Parts", [f"{count(job.children)}: {over}"]
        if job.attempts > 1:
            yield "Attempts", [str(job.attempts)]
        if job.cluster:
            yield "Cluster", [job.cluster]
        if self.marks.tags:
            yield "Tags", [", ".join(self.marks.tag_words())]
        if self.marks.note or self.marks.starred:
            star = output.Styled("starred  " if self.marks.starred else "", "yellow")
            yield "Note", [star, note_line(self.marks.note)]
        yield from self._start()
        yield "Mode", [job.mode]
        yield "Output", [self._output()]
        if masked := job_facts.masked_words(job_facts.masked_values(self.reader)):
            yield "Masked", [safe(masked)]
        if missed := job_facts.missed_tasks(self.reader).words():
            yield "Not captured", [output.Styled(missed, "yellow")]
        if job.records:
            choice = self.reader.x_axis()
            rule = f"rule {choice.rule} of 7" if choice.rule else "no key fits"
            yield "Records", [f"{count(job.records)} of metadata"]
            yield "X axis", [choice.words, output.Styled(f"  ({rule})", "dim")]
        elif (hint := metadata_hint(self.reader)) is not None:
            words = f"none; {hint.words} in ~/.logoptin would take them"
            reread = f"; `logshipper metadata {job.job_id} --reread` shows the series"
            yield "Records", [words + reread * bool(hint.series)]
        if job.state in RUNNING_STATES:
            for stream, (time_ns, text) in sorted(self.reader.status().items()):
                name, ago = f"Now on {documents.STREAM_NAMES[stream]}", self._ago(time_ns)
                columns = self.out.columns - len(name) - 4
                for bar in text.split("\n"):
                    yield name, self._bar(bar, ago, columns)
                    name, ago = "", []

    def _start(self) -> Iterator[tuple[str, list[output.Cell]]]:
        options = {
            name: text_of(value) if value.startswith('"') else value
            for name, value in context_options(self.reader).items()
        }
        if command := options.get("command"):
            yield "Command", [command]
        if cwd := options.get("cwd"):
            yield "Folder", [cwd]
        commit, branch = options.get("git.commit", ""), options.get("git.branch", "")
        if commit or branch:
            changes = ", with changes" if options.get("git.dirty") == "true" else ""
            yield "Git", [f"{commit[:12]} {branch}".strip() + changes]
        if prefix := options.get("python.prefix"):
            yield "Python", [f"{options.get('python.version', '')} {prefix}".strip()]

    def _bar(self, text: str, ago: list[output.Cell], columns: int) -> list[output.Cell]:
        """Return a bar, on a terminal in one row, by shortening the bar itself."""
        if self.out.terminal:
            text = shortened(text, output.line_width([text, *ago]) - columns)
        return [text, *ago]

    def _ago(self, time_ns: int) -> list[output.Cell]:
        words = when(time_ns, self.now_ns)
        return (
            []
            if words[:1].isdigit() and "ago" not in words
            else [output.Styled(f"  ({words})", "dim")]
        )

    def _output(self) -> str:
        job = self.job
        if not job.bytes_printed:
            lines = max(job.lines, job.records)
            if not lines:
                return "nothing printed"
            return f"{plural(lines, 'line')} logged so far; Loki gets the bytes at the end"
        smaller = times_smaller(job.bytes_printed, job.bytes_logged)
        text = f"{size(job.bytes_printed)} printed, {size(job.bytes_logged)} logged in {plural(job.lines, 'line')}"
        return f"{text}: {smaller}" if smaller else text

    def _print_ledger(self) -> None:
        ledger = job_facts.ledger_of(self.reader)
        streams = {name: ledger[name] for name in ("stdout", "stderr")}
        if not any(account["read"] for account in streams.values()):
            return
        streams["both"] = {name: sum(a[name] for a in streams.values()) for name in COLUMNS}
        sums = streams["both"]
        # a terminal shows no columns of zeros: the rest still adds up
        outcomes = [name for name in OUTCOMES if not self.out.terminal or sums[name]]
        columns = [
            output.Column("stream"),
            *(output.Column(name, right=True) for name in ("read", *outcomes)),
        ]
        rows: list[list[output.Cell]] = []
        for stream, account in streams.items():
            row: list[output.Cell] = [stream, self._number(account["read"])]
            for name in outcomes:
                text = self._number(account[name])
                row.append(
                    output.Styled(text, "bold red") if name == "lost" and account[name] else text
                )
            rows.append(row)
        balance = sums["read"] - sum(sums[name] for name in OUTCOMES)
        self.out.heading("Lines", "read = " + " + ".join(outcomes))
        self.out.table(columns, rows)
        if balance:
            lines = plural(abs(balance), "line")
            self.out.note(f"The account doesn't balance: {lines} unaccounted for.", "red")
        extras = {
            "notes": ("note", ""),
            "status": ("live status line", ""),
            "parts": ("part", " of long lines"),
        }
        words = [
            plural(ledger[key], noun) + of for key, (noun, of) in extras.items() if ledger[key]
        ]
        if words:
            self.out.note(f"Besides, made by logshipper itself: {', '.join(words)}")

    def _number(self, value: int) -> str:
        return count(value) if self.out.terminal else str(value)

    def _print_keys(self) -> None:
        keys = self.keys
        if not keys:
            return
        visible_keys = keys[:_KEYS_SHOWN] if self.out.terminal else keys
        self.out.heading("Keys", f"of {plural(self.job.records, 'metadata record')}")
        self.out.table(_KEY_COLUMNS, [self._key_row(key) for key in visible_keys])
        if len(visible_keys) < len(keys):
            self.out.note(f"{plural(len(keys) - len(visible_keys), 'more key')}: see --json")
        for note in self.reader.notes():
            self.out.note(note, "yellow")

    def _key_row(self, key: "KeyStats") -> list[output.Cell]:
        last = table_text(key.last)
        if self.out.terminal and len(last) > _VALUE_WIDE:
            last = last[: _VALUE_WIDE - 1] + "…"
        low = number(key.min, integer=key.integer) if key.numbers else ""
        high = number(key.max, integer=key.integer) if key.numbers else ""
        is_x = key.key == self.reader.x_axis().key
        name = output.Styled(key.key, "bold cyan" if is_x else "")
        return [name, last, low, high, self._number(key.count)]

    def _print_hints(self) -> None:
        hints = job_facts.record_hints(self.reader)
        if hints:
            self.out.heading("Hints", "lines that nearly are records")
        for hint in hints:
            self.out.note(safe(hint), "yellow")

    def _print_captures(self) -> None:
        captures = self.reader.captures
        if len(captures) < 2:
            return
        self.out.heading("Captures", plural(self.job.attempts, "attempt"))
        rows: list[list[output.Cell]] = []
        for capture in captures:
            outcome = exit_words(capture.exit_code, capture.signal)
            text = f"{capture.state}, {outcome}" if outcome and self.out.terminal else ""
            rows.append(
                [
                    str(capture.attempt),
                    capture.step,
                    str(capture.task),
                    capture.host,
                    output.state_cell(capture.state, text),
                    local(capture.started_ns),
                    duration(documents.duration_secs(capture, self.now_ns)),
                ]
            )
        # a terminal shows only the differences
        indexes = [
            at
            for at in range(len(_CAPTURE_COLUMNS))
            if not self.out.terminal or len({row[at] for row in rows}) > 1 or at > 3
        ]
        self.out.table(
            [_CAPTURE_COLUMNS[at] for at in indexes], [[row[at] for at in indexes] for row in rows]
        )

    def _print_events(self) -> None:
        events = list(self.reader.events())
        if not events:
            return
        visible_events = events[-_EVENTS_SHOWN:] if self.out.terminal else events
        self.out.heading("Events")
        if len(visible_events) < len(events):
            earlier = plural(len(events) - len(visible_events), "earlier event")
            self.out.note(f"{earlier}: see --json")
        self.out.fields(
            [(local(event.time_ns), [event_words(event.event)]) for event in visible_events]
        )

    def _print_next(self) -> None:
        if not self.out.terminal:
            return
        job_id = safe(self.job.job_id)
        follow = " --follow" if self.job.state in RUNNING_STATES else ""
        rows = [("Next:", [f"logshipper logs {job_id}{follow}"])]
        if self.job.records:
            rows += [("", [f"logshipper {command} {job_id}"]) for command in ("metadata", "plot")]
        self.out.line()
        self.out.fields(rows)


def last_lines(reader: "Reader") -> "list[LogLine]":
    """Return the newest attempt's last lines on stderr; those on stdout if there are none."""
    attempt = reader.summary.attempts
    for stream in (Stream.STDERR, Stream.STDOUT):
        lines = list(
            reader.lines(streams=(stream,), attempt=attempt, kinds=(Kind.LOG,), tail=_LAST_LINES)
        )
        if lines:
            return lines
    return []


def note_line(note: str) -> str:
    """A note of several lines as one."""
    return " / ".join(line.strip() for line in note.splitlines() if line.strip())

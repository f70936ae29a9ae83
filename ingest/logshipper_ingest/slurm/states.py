"""Ends of Slurm's jobs, on the controller. The agent collects records of the hook job-ended, and
sends an event and a log line to Loki for each captured job. It sends nothing about other jobs (R1).

A job's captures may arrive after its end, so the agent queries Loki again at growing intervals. The
record waits for a limited time until the captures close, because its line belongs behind theirs.

If users have their own tenants, the agent queries each. It postpones the records of a tenant that
fails, independent of the others.
"""

import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from logshipper.errors import LogshipperError
from logshipper.fault_points import fault_point
from logshipper_ingest.config.loki_section import LokiSection
from logshipper_ingest.config.sink_config import SinkConfig
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.loki.reader import Entries
from logshipper_ingest.metrics.agent_metrics import SinkMetrics
from logshipper_ingest.metrics.job_metrics import JobMetrics
from logshipper_ingest.model.end_record import (
    JOBCOMP,
    NOT_CAPTURED,
    REFUSED,
    SECOND_NS,
    SHIPPED,
    EndRecord,
)
from logshipper_ingest.model.job import SLURM_STATES
from logshipper_ingest.model.slurm_hours import HOUR_SECS, Hours, HourSums, oldest_hour
from logshipper_ingest.servers.backoff import Backoff
from logshipper_ingest.shipping.delivery import Delivery, Stopped, StreamWaits, TenantWaits
from logshipper_ingest.shipping.entries import Chunk, StreamKey, batches
from logshipper_ingest.shipping.quarantine import Quarantine, Refusal
from logshipper_ingest.slurm import end_entries
from logshipper_ingest.slurm.intake import EndedFolder, Say
from logshipper_ingest.slurm.run_search import RunSearch
from logshipper_ingest.slurm.waiting import FILE, WaitingEnd, WaitingEnds
from logshipper_ingest.state.checkpoints import Checkpoints

# since the record was collected; after the last question, the agent drops it
ASKED_AFTER_SECS = (3, 10, 60, 600, 3600, 6 * 3600, 24 * 3600)
UNKNOWN = "unknown"  # state of a job if Slurm did not report it
BATCH = 200  # records in a question and in a push
SURE_SECS = 55  # after a job's end: until then another run may fit the record better
POLL_SECS = 0.5
TAKE_AGAIN_SECS = 10.0  # after an unusable folder
SAY_EVERY_SECS = 3600.0
_MAX_RETRY_SECS = 60.0


class SlurmStates:
    """The controller's part of an agent, for one Loki. ask_by: client for questions; jobs: metrics
    of ended jobs. The agent's main thread calls `take`; `run` needs its own thread."""

    def __init__(
        self,
        config: SinkConfig[LokiSection],
        checkpoints: Checkpoints,
        delivery: Delivery,
        quarantine: Quarantine,
        metrics: SinkMetrics,
        stop: threading.Event,
        say: Say,
        jobs: JobMetrics,
        ask_by: Entries | None = None,
    ) -> None:
        self._config = config
        self._delivery = delivery
        self._quarantine = quarantine
        self._checkpoints = checkpoints
        self._metrics = metrics
        self._jobs = jobs
        self._stop = stop
        self._say = say
        self._waiting_ends = WaitingEnds(os.path.join(config.folder, FILE))
        client = ask_by or LokiClient(config.server.access)
        self._search = RunSearch(config, client, self._waiting_ends, say)
        receiver = self._waiting_ends, self._count_outcome
        self._folder = EndedFolder(config.ended_dir, receiver, say, self._count_job, self._hours_of)
        for state in (*SLURM_STATES, UNKNOWN):  # at 0 from the start: rate() sees the first ones
            metrics.slurm_jobs.labels(state)
            metrics.slurm_node_seconds.labels(state)
        self._better_hook = False  # jobcomp has written some record
        self._shown_hour = 0  # 0 if new sums exist
        self._receivers: list[SlurmStates] = []
        self._take_due = self._say_due = 0.0
        self._take_trouble = ""
        self._round_trouble = ""
        self._homes: dict[str, str] = {}  # tenants of records being sent, by name
        self._not_captured = 0

    def close(self) -> None:
        self._waiting_ends.close()

    def give(self, receiver: "SlurmStates") -> None:
        """Pass all collected records to another Loki's states as well."""
        self._receivers.append(receiver)
        self._folder.receivers.append((receiver._waiting_ends, receiver._count_outcome))

    def _count_outcome(self, outcome: str, number: int) -> None:
        self._metrics.slurm_records.labels(outcome).inc(number)
        if outcome == "too_many" and number:
            self._say(f"too many records of ended jobs wait: the agent drops the oldest {number}")

    def _count_job(self, record: EndRecord) -> None:
        """Count a job and its node seconds, captured or not. With both hooks, each run has two
        records: count the one of jobcomp, which has more fields."""
        self._better_hook = self._better_hook or record.by == JOBCOMP
        if self._better_hook and record.by != JOBCOMP:
            return
        state = record.state or UNKNOWN
        self._metrics.slurm_jobs.labels(state).inc()
        if record.start:
            node_secs = (record.node_count or 1) * (record.end - record.start)
            self._metrics.slurm_node_seconds.labels(state).inc(node_secs)
        if record.waited_secs is not None:
            self._metrics.slurm_wait_seconds.observe(record.waited_secs)

    # ---- the main thread's

    def take(self) -> None:
        """Collect the hook's records. Log a failure once and retry later."""
        now = time.monotonic()
        if now < self._take_due:
            return
        try:
            self._folder.take()
            self._show_hours()
            self._take_trouble = ""
        except LogshipperError as error:
            self._take_due = now + TAKE_AGAIN_SECS
            if str(error) != self._take_trouble:
                self._take_trouble = str(error)
                self._say(f"can't read the ends of Slurm jobs: {error}; the agent retries")
        for states in (self, *self._receivers):
            states._metrics.slurm_waiting.set(states._waiting_ends.number())

    def _hours_of(self, records: Sequence[EndRecord]) -> Mapping[int, HourSums]:
        """Return the records' additions to the sums of hours, from the better hook."""
        better = self._better_hook or any(record.by == JOBCOMP for record in records)
        hours, now = Hours(), int(time.time())
        for record in records:
            if record.by == JOBCOMP or not better:
                hours.add(record, now)
        self._shown_hour = 0
        return hours.sums

    def _show_hours(self) -> None:
        """Update the sums of hours in the metrics after new records or a full hour."""
        now = int(time.time())
        if now // HOUR_SECS != self._shown_hour:
            self._metrics.set_slurm_hours(self._waiting_ends.hours(oldest_hour(now)))
            self._shown_hour = now // HOUR_SECS

    # ---- the thread of `run`

    def run(self) -> None:
        """Run rounds until the agent ends."""
        backoff = calm = Backoff(1.0, _MAX_RETRY_SECS)
        pause = 0.0
        while not self._stop.wait(pause):
            try:
                pause, backoff = (0.0 if self.round() else POLL_SECS), calm
            except Stopped:
                return
            except Exception as error:  # no answer, a full disk or a fault of ours: retry
                if str(error) != self._round_trouble:
                    self._round_trouble = str(error)
                    is_expected = isinstance(error, LogshipperError)
                    words = str(error) if is_expected else repr(error)
                    self._say(f"ends of Slurm jobs: {words}; everything waits")
                backoff = backoff.failed()
                pause = backoff.pause_secs(random.random())  # noqa: S311  jitter
            else:
                self._round_trouble = ""

    def round(self) -> bool:
        """Find, show and ship one batch of due records. Return whether more may be due. Raises
        Stopped, QueryError, StoreError."""
        self._search.begin_round()
        due = self._waiting_ends.due(time.time_ns(), BATCH)
        ends = [end for end in due if end.sent_note is not None]
        ends += self._decide([end for end in due if end.sent_note is None])
        if ends:
            self._show(ends)
            fault_point("slurm_told")
            self._ship(ends)
        self._say_dropped()
        return len(due) == BATCH

    def _decide(self, ends: Sequence[WaitingEnd]) -> list[WaitingEnd]:
        """Return the records that are ready to send; postpone or drop the others."""
        if not ends:
            return []
        now_ns = time.time_ns()
        longest_ns = int(self._config.delivery.max_age_hours * 3600) * SECOND_NS
        answers = self._search.find(ends, now_ns, longest_ns)
        ready: list[WaitingEnd] = []
        later: dict[str, int] = {}
        outcomes: dict[str, str] = {}
        newest_ns = self._checkpoints.streams()
        for end in ends:
            run = answers.runs.get(end.name)
            sure_ns = (end.record.end + SURE_SECS) * SECOND_NS
            if run is not None and not run.sure and now_ns < sure_ns:
                run = None
            age_ns = now_ns - end.taken_ns
            if run is None:
                after = next((secs for secs in ASKED_AFTER_SECS if secs * SECOND_NS > age_ns), 0)
                if after and end.name in answers.unanswered:
                    later[end.name] = now_ns + self._search.put_off_ns
                elif after:
                    later[end.name] = end.taken_ns + after * SECOND_NS
                else:
                    outcomes[end.name] = NOT_CAPTURED
            elif run.is_complete or now_ns >= end_entries.patient_until_ns(end.record):
                home = answers.homes[end.name]
                sent_note = end_entries.sent_note_of(end.record, run, now_ns, newest_ns, home)
                ready.append(end._replace(sent_note=sent_note))
            else:
                later[end.name] = now_ns + min(max(age_ns // 8, SECOND_NS), 10 * SECOND_NS)
        self._waiting_ends.put_off(later)
        self._finish(outcomes)
        self._waiting_ends.put_sent_notes(
            {end.name: end.sent_note for end in ready if end.sent_note is not None}
        )
        self._homes |= {end.name: answers.homes[end.name] for end in ready}
        return ready

    def _home(self, end: WaitingEnd) -> str:
        """Return the tenant of a record being sent, the same at each retry."""
        if end.name not in self._homes:
            self._homes[end.name] = self._search.tenant(end.record)
        return self._homes[end.name]

    def _ship(self, ends: Sequence[WaitingEnd]) -> None:
        """Ship lines before events, so that readers of an event find its line. Postpone the records
        that a tenant does not accept now."""
        refusals: list[Refusal] = []
        held_names: set[str] = set()  # captures, as their chunks have them
        homes = {end.name: self._home(end) for end in ends}
        self._delivery.want("slurm", set(self._homes.values()))
        for build in (end_entries.note_chunk, end_entries.event_chunk):
            streams: dict[StreamKey, list[Chunk]] = defaultdict(list)
            for end in ends:
                chunk = build(end)
                if chunk is not None:
                    key = chunk.key._replace(tenant=homes[end.name])
                    streams[key].append(replace(chunk, key=key))
            for key, stream_chunks in streams.items():
                chunks = [chunk for chunk in stream_chunks if chunk.capture not in held_names]
                chunks.sort(key=lambda chunk: chunk.times_ns[0])
                try:
                    refusals += self._deliver(key, chunks) if chunks else []
                except TenantWaits:
                    held_names |= {end.name for end in ends if homes[end.name] == key.tenant}
                except StreamWaits:
                    held_names |= {chunk.capture for chunk in chunks}
        if held_names:
            again_ns = time.time_ns() + self._search.put_off_ns
            self._waiting_ends.put_off(dict.fromkeys(held_names, again_ns))
            ends = [end for end in ends if end.name not in held_names]
            refusals = [refusal for refusal in refusals if refusal.chunk.capture not in held_names]
        fault_point("slurm_sent")
        again = end_entries.notes_behind(ends, refusals)
        for_good = [refusal for refusal in refusals if not refusal.is_behind]
        self._quarantine_all(for_good)
        self._waiting_ends.put_sent_notes(again)
        lost = {refusal.chunk.capture for refusal in for_good}
        outcomes = {end.name: REFUSED if end.name in lost else SHIPPED for end in ends}
        self._finish({name: outcomes[name] for name in outcomes if name not in again})
        self._delivery.want("slurm", set(self._homes.values()))
        fault_point("slurm_committed")

    def _show(self, ends: Sequence[WaitingEnd]) -> None:
        """Show the ends in /metrics, independent of Loki."""
        for end in ends:
            record, sent_note = end.record, end.sent_note
            if sent_note is not None and record.state:
                left_out = self._jobs.slurm_ended(
                    record.job_id,
                    sent_note.attempt,
                    record.state,
                    record.end,
                    start_secs=record.start,
                )
                self._metrics.left_out.labels("slurm_ends").inc(left_out)

    def _deliver(self, key: StreamKey, chunks: Sequence[Chunk]) -> list[Refusal]:
        """Send the chunks; refuse those that are too old for Loki."""
        hours = self._config.delivery.max_age_hours
        oldest_ns = time.time_ns() - int(hours * 3600e9)
        words = f"older than [{self._config.table}] max_age_hours, {hours:g}"
        refusals = [
            Refusal(chunk, "too_old", 0, words) for chunk in chunks if chunk.times_ns[0] < oldest_ns
        ]
        timely = [chunk for chunk in chunks if chunk.times_ns[0] >= oldest_ns]
        for batch in batches(timely, self._config.delivery.batch_max_bytes):
            refusals += self._delivery.deliver(batch)
        delivered_count = len(chunks) - len(refusals)
        self._metrics.entries.labels(key.kind).inc(delivered_count)
        if delivered_count:
            self._checkpoints.commit([], {key.text: timely[-1].times_ns[-1]})
        return refusals

    def _quarantine_all(self, refusals: Iterable[Refusal]) -> None:
        for refusal in refusals:
            self._metrics.refused_entries.labels(refusal.reason).inc()
            words = f"it is in the quarantine ({refusal.reason}): {refusal.words}"
            self._say(f"Loki refuses the end of a Slurm job, {words}")
            dropped_count = self._quarantine.put([refusal])
            if dropped_count:
                self._metrics.left_out.labels("quarantine_full").inc(dropped_count)
                self._say("the quarantine is full: the agent drops the end of a Slurm job")

    def _finish(self, outcomes: dict[str, str]) -> None:
        if not outcomes:
            return
        self._waiting_ends.done(outcomes)
        for name in outcomes:
            self._homes.pop(name, None)
        for outcome in outcomes.values():
            self._metrics.slurm_records.labels(outcome).inc()
            self._not_captured += outcome == NOT_CAPTURED

    def _say_dropped(self) -> None:
        now = time.monotonic()
        if self._not_captured and now >= self._say_due:
            words = f"{self._not_captured} Slurm jobs ended without capture"
            self._say(f"{words}: the agent sends nothing about them")
            self._not_captured = 0
            self._say_due = now + SAY_EVERY_SECS

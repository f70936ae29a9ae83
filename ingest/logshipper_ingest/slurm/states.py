"""How Slurm ended jobs, on the controller: records of the hook job-ended are taken, and for jobs
that were captured an event and a line in the log are sent to Loki. Nothing of other jobs is (R1).

A capture may still be on its way when its job is over, so Loki is asked again and again, ever more
seldom. A record of a captured job waits until its captures are closed, as its line belongs behind
theirs, but not for long.

Where users have tenants of their own, each is asked, and what isn't answered for one is put off:
its limits aren't the others'.
"""

import os
import pwd
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple

from logshipper.errors import LogshipperError, QueryError
from logshipper.fault_points import fault_point
from logshipper_ingest.config.loki_section import LokiSection
from logshipper_ingest.config.sink_config import SinkConfig
from logshipper_ingest.config.tenants import USER, tenant_of, tenant_of_uid
from logshipper_ingest.loki.account import JobAccount
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
    event_of,
    note_of,
)
from logshipper_ingest.model.job import SLURM_STATES
from logshipper_ingest.model.slurm_hours import HOUR_SECS, Hours, HourSums, oldest_hour
from logshipper_ingest.servers.backoff import Backoff
from logshipper_ingest.servers.loki_push import encode_metadata, to_utf8
from logshipper_ingest.shipping import shipper
from logshipper_ingest.shipping.delivery import Delivery, Stopped, StreamWaits, TenantWaits
from logshipper_ingest.shipping.entries import (
    Chunk,
    Metadata,
    StreamKey,
    batches,
    json_line,
    replay_hour,
)
from logshipper_ingest.shipping.quarantine import Quarantine, Refusal
from logshipper_ingest.slurm.captured import Run, ask, run_of
from logshipper_ingest.slurm.intake import EndedFolder, Say
from logshipper_ingest.slurm.waiting import FILE, SentNote, WaitingEnd, WaitingEnds
from logshipper_ingest.state.checkpoints import Checkpoints

# since the record was taken; the last time, it goes
ASKED_AFTER_SECS = (
    3,
    10,
    60,
    600,
    3600,
    6 * 3600,
    24 * 3600,
)
BY_UID_AFTER_SECS = 60  # for what a node sent that didn't know the user's name
UNKNOWN = "unknown"  # the state of a job where Slurm didn't give it
BATCH = 200  # records in a question, and in a push
SETTLE_SECS = 120  # after a job's end, for its captures to be closed: KillWait, and the way to Loki
NODE_SETTLE_SECS = 15  # where a node died, nobody closes its captures
SURE_SECS = (
    55  # after a job's end, until when another of its runs may turn out to be the one that is meant
)
POLL_SECS = 0.5
TAKE_AGAIN_SECS = 10.0  # where the folder can't be used
SAY_EVERY_SECS = 3600.0
_EVENTS = StreamKey("", "event")
_NOTES = StreamKey("stdout", "log")
_MAX_RETRY_SECS = 60.0


class _Answers(NamedTuple):
    """What tenants answered about records, by their names. runs: the run that each is about; homes:
    the tenant that has it; unanswered: records of tenants that gave no answer."""

    runs: dict[str, Run]
    homes: dict[str, str]
    unanswered: set[str]


class SlurmStates:
    """The controller's part of an agent, to one Loki, with what is the agent's. ask_by: asks Loki;
    jobs: shows how they ended. `take` is the agent's main thread's, `run` a thread's of its own."""

    def __init__(
        self,
        config: SinkConfig[LokiSection],
        checkpoints: Checkpoints,
        delivery: Delivery,
        quarantine: Quarantine,
        metrics: SinkMetrics,
        stop: threading.Event,
        say: Say,
        ask_by: Entries | None = None,
        jobs: JobMetrics | None = None,
    ) -> None:
        self._config = config
        self._client = ask_by or LokiClient(config.server.access)
        self._delivery = delivery
        self._quarantine = quarantine
        self._checkpoints = checkpoints
        self._metrics = metrics
        self._jobs = jobs
        self._stop = stop
        self._say = say
        self._waiting_ends = WaitingEnds(os.path.join(config.folder, FILE))
        self._folder = EndedFolder(
            config.ended_dir,
            self._waiting_ends,
            self._count_outcome,
            say,
            self._count_job,
            self._hours_of,
        )
        for state in (
            *SLURM_STATES,
            UNKNOWN,
        ):  # at 0 from the start: rate() sees the first ones, too
            metrics.slurm_jobs.labels(state)
            metrics.slurm_node_seconds.labels(state)
        self._better_hook = False  # has written some record
        self._shown_hour = 0  # 0 where there is more to show
        self._receivers: list[SlurmStates] = []
        self._take_due = self._say_due = 0.0
        self._take_trouble = ""
        self._round_trouble = ""
        self._silent: set[str] = set()  # tenants that gave no answer, which is logged
        self._uids: dict[str, int] = {}  # by user, of a round
        self._homes: dict[str, str] = {}  # tenants of records that are sent, by their names
        self._not_captured = 0

    def close(self) -> None:
        self._waiting_ends.close()

    def give(self, receiver: "SlurmStates") -> None:
        """What this one takes, another Loki's takes, too."""
        self._receivers.append(receiver)
        self._folder.add(receiver._waiting_ends, receiver._count_outcome)

    def _count_outcome(self, outcome: str, number: int) -> None:
        self._metrics.slurm_records.labels(outcome).inc(number)
        if outcome == "too_many" and number:
            self._say(
                f"too many records of ended jobs wait: {number} that waited the longest are dropped"
            )

    def _count_job(self, record: EndRecord) -> None:
        """Of all jobs: how many, and for how long how many nodes; nothing else of those that
        weren't captured. Where both hooks are there, each run has two records: that of the hook
        that knows more counts."""
        self._better_hook = self._better_hook or record.by == JOBCOMP
        if self._better_hook and record.by != JOBCOMP:
            return
        state = record.state or UNKNOWN
        self._metrics.slurm_jobs.labels(state).inc()
        if record.start:
            self._metrics.slurm_node_seconds.labels(state).inc(
                (record.node_count or 1) * (record.end - record.start)
            )
        if record.waited_secs is not None:
            self._metrics.slurm_wait_seconds.observe(record.waited_secs)

    # ---- the main thread's

    def take(self) -> None:
        """Takes what the hook wrote. Logs, once, where it can't, and tries again."""
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
                self._say(f"ends of Slurm jobs can't be taken: {error}; tried again")
        for states in (self, *self._receivers):
            states._metrics.slurm_waiting.set(states._waiting_ends.number())

    def _hours_of(self, records: Sequence[EndRecord]) -> Mapping[int, HourSums]:
        """What they add to the sums of hours, by the better hook."""
        better = self._better_hook or any(record.by == JOBCOMP for record in records)
        hours, now = Hours(), int(time.time())
        for record in records:
            if record.by == JOBCOMP or not better:
                hours.add(record, now)
        self._shown_hour = 0
        return hours.sums

    def _show_hours(self) -> None:
        """Sums of hours, where there are new ones, or an hour is over."""
        now = int(time.time())
        if now // HOUR_SECS != self._shown_hour:
            self._metrics.set_slurm_hours(self._waiting_ends.hours(oldest_hour(now)))
            self._shown_hour = now // HOUR_SECS

    # ---- its own thread's

    def run(self) -> None:
        """Round after round, until the agent ends."""
        backoff = calm = Backoff(1.0, _MAX_RETRY_SECS)
        pause = 0.0
        while not self._stop.wait(pause):
            try:
                pause, backoff = (0.0 if self.round() else POLL_SECS), calm
            except Stopped:
                return
            except Exception as error:  # Loki's silence, a full disk, a fault of our own: what waits is tried again
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
        """One batch: asks for, shows and ships what is due; whether more may be. Raises Stopped,
        QueryError, StoreError."""
        self._uids.clear()
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
        """Those of which it is known now what is to be sent; the others are put off, or dropped."""
        if not ends:
            return []
        now_ns = time.time_ns()
        longest_ns = int(self._config.delivery.max_age_hours * 3600) * SECOND_NS
        answers = self._find(ends, now_ns, longest_ns)
        ready: list[WaitingEnd] = []
        later: dict[str, int] = {}
        outcomes: dict[str, str] = {}
        newest_ns = self._checkpoints.streams()
        for end in ends:
            run = answers.runs.get(end.name)
            if (
                run is not None
                and not run.sure
                and now_ns < (end.record.end + SURE_SECS) * SECOND_NS
            ):
                run = None
            age_ns = now_ns - end.taken_ns
            if run is None:
                after = next((secs for secs in ASKED_AFTER_SECS if secs * SECOND_NS > age_ns), 0)
                if after and end.name in answers.unanswered:
                    later[end.name] = now_ns + self._put_off_ns
                elif after:
                    later[end.name] = end.taken_ns + after * SECOND_NS
                else:
                    outcomes[end.name] = NOT_CAPTURED
            elif run.is_complete or now_ns >= _patient_until_ns(end.record):
                sent_note = _sent_note(end.record, run, now_ns, newest_ns, answers.homes[end.name])
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

    def _find(self, ends: Sequence[WaitingEnd], now_ns: int, longest_ns: int) -> _Answers:
        """Raises QueryError where Loki itself doesn't answer."""
        answers = _Answers({}, {end.name: self._tenant(end.record) for end in ends}, set())
        self._look_for(ends, answers, now_ns, longest_ns)
        by_uid = [
            end
            for end in ends
            if end.name not in answers.runs
            and end.name not in answers.unanswered
            and USER.fullmatch(answers.homes[end.name])
            and now_ns - end.taken_ns >= BY_UID_AFTER_SECS * SECOND_NS
        ]
        uids = {end.name: self._uid(end.record.user) for end in by_uid}
        by_uid = [end for end in by_uid if uids[end.name] >= 0]
        answers.homes.update({end.name: tenant_of_uid(uids[end.name]) for end in by_uid})
        self._look_for(by_uid, answers, now_ns, longest_ns)
        return answers

    def _look_for(
        self, ends: Sequence[WaitingEnd], answers: _Answers, now_ns: int, longest_ns: int
    ) -> None:
        """Asks their tenants, and adds what they answer. Where that is an error, what was asked of
        them is put off before it is raised, and others' turn comes."""
        by_tenant: dict[str, list[WaitingEnd]] = defaultdict(list)
        for end in ends:
            by_tenant[answers.homes[end.name]].append(end)
        failed: dict[str, QueryError] = {}
        for tenant, tenant_ends in by_tenant.items():
            try:
                jobs = self._ask(tenant, [end.record for end in tenant_ends], now_ns, longest_ns)
            except QueryError as error:
                if not tenant:
                    raise
                failed[tenant] = error
                answers.unanswered.update(end.name for end in tenant_ends)
                if not error.status:
                    break
            else:
                self._silent.discard(tenant)
                runs = (
                    (end.name, run_of(end.record, jobs.get(end.record.job_id)))
                    for end in tenant_ends
                )
                answers.runs.update({name: run for name, run in runs if run is not None})
        self._say_silent(failed)
        general = _of_loki_itself(failed, len(by_tenant))
        if (
            general is not None
            and general.status
            and len(by_tenant) == 1
            and self._answers_others(ends, now_ns)
        ):
            general = None  # a tenant that alone is asked, and ails
        if general is not None:
            again_ns = now_ns + self._put_off_ns
            self._waiting_ends.put_off(dict.fromkeys(answers.unanswered, again_ns))
            raise general

    def _answers_others(self, ends: Sequence[WaitingEnd], now_ns: int) -> bool:
        """Whether Loki answers the same question for nobody's tenant."""
        try:
            self._ask("", [end.record for end in ends], now_ns, SECOND_NS)
        except QueryError:
            return False
        return True

    def _ask(
        self, tenant: str, records: Sequence[EndRecord], now_ns: int, longest_ns: int
    ) -> Mapping[str, JobAccount]:
        with ExitStack() as undo:
            client: Entries = self._client
            if tenant:
                client = undo.enter_context(
                    LokiClient(replace(self._config.server.access, tenant=tenant))
                )
            return ask(client, self._config.cluster, records, now_ns, longest_ns)

    def _say_silent(self, failed: Mapping[str, QueryError]) -> None:
        for tenant, error in failed.items():
            if error.status and tenant not in self._silent:
                self._silent.add(tenant)
                self._say(f"ends of Slurm jobs: {error}; those of the tenant {tenant} wait")

    @property
    def _put_off_ns(self) -> int:
        return int(self._config.delivery.retry_max_secs * SECOND_NS)

    def _tenant(self, record: EndRecord) -> str:
        by = self._config.delivery.tenant_by
        if not by:
            return ""
        return tenant_of(
            by, record.user, -1 if USER.fullmatch(record.user) else self._uid(record.user)
        )

    def _uid(self, user: str) -> int:
        """Looked up once a round: that may be a question to a directory."""
        if user not in self._uids:
            self._uids[user] = uid_of(user)
        return self._uids[user]

    def _home(self, end: WaitingEnd) -> str:
        """The tenant of a record that is sent: the same each time."""
        if end.name not in self._homes:
            self._homes[end.name] = self._tenant(end.record)
        return self._homes[end.name]

    def _ship(self, ends: Sequence[WaitingEnd]) -> None:
        """Lines first: who reads of the end finds them. What a tenant doesn't take now is put
        off."""
        refusals: list[Refusal] = []
        held_names: set[str] = set()  # captures, as their chunks have them
        homes = {end.name: self._home(end) for end in ends}
        self._delivery.want("slurm", set(self._homes.values()))
        for build in (_note_chunk, _event_chunk):
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
            again_ns = time.time_ns() + self._put_off_ns
            self._waiting_ends.put_off(
                {end.name: again_ns for end in ends if end.name in held_names}
            )
            ends = [end for end in ends if end.name not in held_names]
            refusals = [refusal for refusal in refusals if refusal.chunk.capture not in held_names]
        fault_point("slurm_sent")
        again = _behind(ends, refusals)
        for_good = [refusal for refusal in refusals if not _is_behind(refusal)]
        self._quarantine_all(for_good)
        self._waiting_ends.put_sent_notes(again)
        lost = {refusal.chunk.capture for refusal in for_good}
        self._finish(
            {
                end.name: REFUSED if end.name in lost else SHIPPED
                for end in ends
                if end.name not in again
            }
        )
        self._delivery.want("slurm", set(self._homes.values()))
        fault_point("slurm_committed")

    def _show(self, ends: Sequence[WaitingEnd]) -> None:
        """In /metrics, whatever Loki takes."""
        for end in ends:
            if self._jobs is None or end.sent_note is None or not end.record.state:
                continue
            record = end.record
            left_out = self._jobs.slurm_ended(
                record.job_id,
                end.sent_note.attempt,
                record.state,
                record.end,
                start_secs=record.start,
            )
            self._metrics.left_out.labels("slurm_ends").inc(left_out)

    def _deliver(self, key: StreamKey, chunks: Sequence[Chunk]) -> list[Refusal]:
        """Sends them, but for those that are too old for Loki."""
        oldest_ns = time.time_ns() - int(self._config.delivery.max_age_hours * 3600e9)
        words = f"older than [{self._config.table}] max_age_hours, {self._config.delivery.max_age_hours:g}"
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
            self._say(
                f"Loki refuses how a Slurm job ended, it is in the quarantine ({refusal.reason}): {refusal.words}"
            )
            dropped_count = self._quarantine.put([refusal])
            if dropped_count:
                self._metrics.left_out.labels("quarantine_full").inc(dropped_count)
                self._say("the quarantine is full: how a Slurm job ended is dropped")

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
            self._say(
                f"{self._not_captured} Slurm jobs ended that weren't captured: nothing is sent of them"
            )
            self._not_captured = 0
            self._say_due = now + SAY_EVERY_SECS


def _patient_until_ns(record: EndRecord) -> int:
    """Until when its captures are waited for."""
    secs = NODE_SETTLE_SECS if record.state in ("NODE_FAIL", "BOOT_FAIL") else SETTLE_SECS
    return (record.end + secs) * SECOND_NS


def _of_loki_itself(failed: Mapping[str, QueryError], tenant_count: int) -> QueryError | None:
    """The error that isn't about a tenant: Loki isn't there, or answers none. One that is alone may
    have reached its limits."""
    for error in failed.values():
        if not error.status or (
            len(failed) == tenant_count and (tenant_count > 1 or error.status >= 500)
        ):
            return error
    return None


def uid_of(user: str) -> int:
    """-1 where this machine doesn't know the user. A number is what a scheduler says that doesn't
    know the name."""
    if user.isascii() and user.isdigit():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        return -1


def _sent_note(
    record: EndRecord, run: Run, now_ns: int, newest_ns: dict[str, int], tenant: str
) -> SentNote:
    """Behind the job's last line where that is known, else when it was waited for long enough;
    never so far ahead that Loki refuses it."""
    time_ns = max(record.end * SECOND_NS, run.newest_ns + 1)
    if not run.is_complete:
        time_ns = max(time_ns, _patient_until_ns(record))
    time_ns = min(time_ns, now_ns + shipper.MAX_AHEAD_NS // 2)
    newest = (newest_ns.get(key._replace(tenant=tenant).text, 0) for key in (_EVENTS, _NOTES))
    late = [
        replay_hour(time_ns) if time_ns < one_ns - shipper.REPLAY_AFTER_NS else ""
        for one_ns in newest
    ]
    return SentNote(run.attempt, time_ns, *late)


def _is_behind(refusal: Refusal) -> bool:
    """Newer lines are in its stream already: it goes to a replay stream in the next round."""
    return refusal.reason == "too_far_behind" and not refusal.chunk.key.replay


def _behind(ends: Sequence[WaitingEnd], refusals: Sequence[Refusal]) -> dict[str, SentNote]:
    """What is sent of these in the next round."""
    again = {end.name: end.sent_note for end in ends if end.sent_note is not None}
    names = set()
    for refusal in filter(_is_behind, refusals):
        name = refusal.chunk.capture
        hour = replay_hour(again[name].time_ns)
        is_event = refusal.chunk.key.kind == _EVENTS.kind
        again[name] = (
            again[name]._replace(event_replay=hour)
            if is_event
            else again[name]._replace(note_replay=hour)
        )
        names.add(name)
    return {name: again[name] for name in names}


def _event_chunk(end: WaitingEnd) -> Chunk | None:
    if end.sent_note is None:
        return None
    return _chunk(
        end,
        end.sent_note,
        _EVENTS._replace(replay=end.sent_note.event_replay),
        json_line(event_of(end.record)),
        {},
    )


def _note_chunk(end: WaitingEnd) -> Chunk | None:
    note = note_of(end.record)
    if end.sent_note is None or not note:
        return None
    return _chunk(
        end,
        end.sent_note,
        _NOTES._replace(replay=end.sent_note.note_replay),
        to_utf8(note),
        {"note": "1"},
    )


def _chunk(
    end: WaitingEnd, sent_note: SentNote, key: StreamKey, line: bytes, more: dict[str, str]
) -> Chunk:
    pairs = {
        "job_id": end.record.job_id,
        "user": end.record.user,
        "attempt": str(sent_note.attempt),
        **more,
    }
    pairs = {name: value for name, value in pairs.items() if value}
    common = Metadata(pairs, encode_metadata(pairs), os.geteuid())
    return Chunk(end.name, key, range(sent_note.time_ns, sent_note.time_ns + 1), [line], common)

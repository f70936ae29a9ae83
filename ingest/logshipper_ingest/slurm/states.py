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
from logshipper_ingest.loki.client import Client
from logshipper_ingest.loki.reader import Entries
from logshipper_ingest.metrics.job_metrics import JobMetrics
from logshipper_ingest.metrics.metrics_server import SinkMetrics
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

ASKED_AFTER_SECS = (
    3,
    10,
    60,
    600,
    3600,
    6 * 3600,
    24 * 3600,
)  # since the record was taken; the last time, it goes
BY_UID_AFTER_SECS = 60  # for what a node sent that didn't know the user's name
UNKNOWN = "unknown"  # the state of a job of which Slurm didn't tell it
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


class _Found(NamedTuple):
    """What tenants said of records, by their names: the run that each is about, and the tenant that
    has it. unanswered: of tenants that gave no answer."""

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
        self._client = ask_by or Client(config.server.access)
        self._delivery = delivery
        self._quarantine = quarantine
        self._checkpoints = checkpoints
        self._metrics = metrics
        self._jobs = jobs
        self._stop = stop
        self._say = say
        self._waiting = WaitingEnds(os.path.join(config.folder, FILE))
        self._folder = EndedFolder(
            config.ended_dir,
            self._waiting,
            self._counted,
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
        self._better_hook = False  # has told of some job
        self._shown_hour = 0  # 0 where there is more to show
        self._others: list[SlurmStates] = []
        self._take_due = self._say_due = 0.0
        self._told_words = ""
        self._unasked_words = ""
        self._silent: set[str] = set()  # tenants that gave no answer, which is said
        self._uids: dict[str, int] = {}  # by user, of a round
        self._homes: dict[str, str] = {}  # tenants of records that are told, by their names
        self._not_captured = 0

    def close(self) -> None:
        self._waiting.close()

    def give(self, other: "SlurmStates") -> None:
        """What this one takes, another Loki's takes, too."""
        self._others.append(other)
        self._folder.add(other._waiting, other._counted)

    def _counted(self, outcome: str, number: int) -> None:
        self._metrics.slurm_records.labels(outcome).inc(number)
        if outcome == "too_many" and number:
            self._say(
                f"too many records of ended jobs wait: {number} that waited the longest are dropped"
            )

    def _count_job(self, record: EndRecord) -> None:
        """Of all jobs: how many, and for how long how many nodes; nothing else of those that
        weren't captured. Where both hooks are there, each run is told twice: the one that knows
        more counts."""
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
        """Takes what the hook wrote. Says, once, where it can't, and tries again."""
        now = time.monotonic()
        if now < self._take_due:
            return
        try:
            self._folder.take()
            self._show_hours()
            self._told_words = ""
        except LogshipperError as error:
            self._take_due = now + TAKE_AGAIN_SECS
            if str(error) != self._told_words:
                self._told_words = str(error)
                self._say(f"ends of Slurm jobs can't be taken: {error}; tried again")
        for one in (self, *self._others):
            one._metrics.slurm_waiting.set(one._waiting.number())

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
            self._metrics.set_slurm_hours(self._waiting.hours(oldest_hour(now)))
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
                if str(error) != self._unasked_words:
                    self._unasked_words = str(error)
                    known = isinstance(error, LogshipperError)
                    self._say(
                        f"ends of Slurm jobs: {error if known else repr(error)}; everything waits"
                    )
                backoff = backoff.failed()
                pause = backoff.pause_secs(random.random())  # noqa: S311  jitter
            else:
                self._unasked_words = ""

    def round(self) -> bool:
        """One batch: asks for, tells and ships what is due; whether more may be. Raises Stopped,
        QueryError, StoreError."""
        self._uids.clear()
        due = self._waiting.due(time.time_ns(), BATCH)
        told = [one for one in due if one.told is not None]
        told += self._decide([one for one in due if one.told is None])
        if told:
            self._show(told)
            fault_point("slurm_told")
            self._ship(told)
        self._say_dropped()
        return len(due) == BATCH

    def _decide(self, asked: Sequence[WaitingEnd]) -> list[WaitingEnd]:
        """Those of which it is known now what is to be sent; the others are put off, or dropped."""
        if not asked:
            return []
        now_ns = time.time_ns()
        longest_ns = int(self._config.delivery.max_age_hours * 3600) * SECOND_NS
        found = self._find(asked, now_ns, longest_ns)
        ready: list[WaitingEnd] = []
        later: dict[str, int] = {}
        dropped: dict[str, str] = {}
        newest_ns = self._checkpoints.streams()
        for one in asked:
            run = found.runs.get(one.name)
            if (
                run is not None
                and not run.sure
                and now_ns < (one.record.end + SURE_SECS) * SECOND_NS
            ):
                run = None
            age_ns = now_ns - one.taken_ns
            if run is None:
                after = next((secs for secs in ASKED_AFTER_SECS if secs * SECOND_NS > age_ns), 0)
                if after and one.name in found.unanswered:
                    later[one.name] = now_ns + self._put_off_ns
                elif after:
                    later[one.name] = one.taken_ns + after * SECOND_NS
                else:
                    dropped[one.name] = NOT_CAPTURED
            elif run.settled or now_ns >= _patient_until_ns(one.record):
                told = _told(one.record, run, now_ns, newest_ns, found.homes[one.name])
                ready.append(one._replace(told=told))
            else:
                later[one.name] = now_ns + min(max(age_ns // 8, SECOND_NS), 10 * SECOND_NS)
        self._waiting.put_off(later)
        self._finish(dropped)
        self._waiting.tell({one.name: one.told for one in ready if one.told is not None})
        self._homes |= {one.name: found.homes[one.name] for one in ready}
        return ready

    def _find(self, asked: Sequence[WaitingEnd], now_ns: int, longest_ns: int) -> _Found:
        """Raises QueryError where Loki itself doesn't answer."""
        found = _Found({}, {one.name: self._tenant(one.record) for one in asked}, set())
        self._look_for(asked, found, now_ns, longest_ns)
        by_uid = [
            one
            for one in asked
            if one.name not in found.runs
            and one.name not in found.unanswered
            and USER.fullmatch(found.homes[one.name])
            and now_ns - one.taken_ns >= BY_UID_AFTER_SECS * SECOND_NS
        ]
        uids = {one.name: self._uid(one.record.user) for one in by_uid}
        by_uid = [one for one in by_uid if uids[one.name] >= 0]
        found.homes.update({one.name: tenant_of_uid(uids[one.name]) for one in by_uid})
        self._look_for(by_uid, found, now_ns, longest_ns)
        return found

    def _look_for(
        self, asked: Sequence[WaitingEnd], found: _Found, now_ns: int, longest_ns: int
    ) -> None:
        """Asks their tenants, and adds what they say. Where that is an error, what was asked of
        them is put off before it is raised, and others' turn comes."""
        of_tenant: dict[str, list[WaitingEnd]] = defaultdict(list)
        for one in asked:
            of_tenant[found.homes[one.name]].append(one)
        failed: dict[str, QueryError] = {}
        for tenant, some in of_tenant.items():
            try:
                jobs = self._ask(tenant, [one.record for one in some], now_ns, longest_ns)
            except QueryError as error:
                if not tenant:
                    raise
                failed[tenant] = error
                found.unanswered.update(one.name for one in some)
                if not error.status:
                    break
            else:
                self._silent.discard(tenant)
                runs = ((one.name, run_of(one.record, jobs.get(one.record.job_id))) for one in some)
                found.runs.update({name: run for name, run in runs if run is not None})
        self._say_silent(failed)
        general = _of_loki_itself(failed, len(of_tenant))
        if (
            general is not None
            and general.status
            and len(of_tenant) == 1
            and self._answers_others(asked, now_ns)
        ):
            general = None  # a tenant that alone is asked, and ails
        if general is not None:
            again_ns = now_ns + self._put_off_ns
            self._waiting.put_off(dict.fromkeys(found.unanswered, again_ns))
            raise general

    def _answers_others(self, asked: Sequence[WaitingEnd], now_ns: int) -> bool:
        """Whether Loki answers the same question for nobody's tenant."""
        try:
            self._ask("", [one.record for one in asked], now_ns, SECOND_NS)
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
                    Client(replace(self._config.server.access, tenant=tenant))
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

    def _home(self, one: WaitingEnd) -> str:
        """The tenant of a record that is told: the same each time it is sent."""
        if one.name not in self._homes:
            self._homes[one.name] = self._tenant(one.record)
        return self._homes[one.name]

    def _ship(self, told: Sequence[WaitingEnd]) -> None:
        """Lines first: who reads of the end finds them. What a tenant doesn't take now is put
        off."""
        refusals: list[Refusal] = []
        held: set[str] = set()  # captures, as their chunks have them
        homes = {one.name: self._home(one) for one in told}
        self._delivery.want("slurm", set(self._homes.values()))
        for build in (_note_chunk, _event_chunk):
            streams: dict[StreamKey, list[Chunk]] = defaultdict(list)
            for one in told:
                chunk = build(one)
                if chunk is not None:
                    key = chunk.key._replace(tenant=homes[one.name])
                    streams[key].append(replace(chunk, key=key))
            for key, of_stream in streams.items():
                chunks = [chunk for chunk in of_stream if chunk.capture not in held]
                chunks.sort(key=lambda chunk: chunk.times_ns[0])
                try:
                    refusals += self._deliver(key, chunks) if chunks else []
                except TenantWaits:
                    held |= {one.name for one in told if homes[one.name] == key.tenant}
                except StreamWaits:
                    held |= {chunk.capture for chunk in chunks}
        if held:
            again_ns = time.time_ns() + self._put_off_ns
            self._waiting.put_off({one.name: again_ns for one in told if one.name in held})
            told = [one for one in told if one.name not in held]
            refusals = [refusal for refusal in refusals if refusal.chunk.capture not in held]
        fault_point("slurm_sent")
        again = _behind(told, refusals)
        for_good = [refusal for refusal in refusals if not _is_behind(refusal)]
        self._put_aside(for_good)
        self._waiting.tell(again)
        lost = {refusal.chunk.capture for refusal in for_good}
        self._finish(
            {
                one.name: REFUSED if one.name in lost else SHIPPED
                for one in told
                if one.name not in again
            }
        )
        self._delivery.want("slurm", set(self._homes.values()))
        fault_point("slurm_committed")

    def _show(self, told: Sequence[WaitingEnd]) -> None:
        """In /metrics, whatever Loki takes."""
        for one in told:
            if self._jobs is None or one.told is None or not one.record.state:
                continue
            record = one.record
            left_out = self._jobs.slurm_ended(
                record.job_id, one.told.attempt, record.state, record.end, start_secs=record.start
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
        taken = len(chunks) - len(refusals)
        self._metrics.entries.labels(key.kind).inc(taken)
        if taken:
            self._checkpoints.commit([], {key.text: timely[-1].times_ns[-1]})
        return refusals

    def _put_aside(self, refusals: Iterable[Refusal]) -> None:
        for refusal in refusals:
            self._metrics.refused_entries.labels(refusal.reason).inc()
            self._say(
                f"Loki refuses how a Slurm job ended, it is in the quarantine ({refusal.reason}): {refusal.words}"
            )
            dropped = self._quarantine.put([refusal])
            if dropped:
                self._metrics.left_out.labels("quarantine_full").inc(dropped)
                self._say("the quarantine is full: how a Slurm job ended is dropped")

    def _finish(self, outcomes: dict[str, str]) -> None:
        if not outcomes:
            return
        self._waiting.done(outcomes)
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


def _of_loki_itself(failed: Mapping[str, QueryError], asked: int) -> QueryError | None:
    """The error that isn't about a tenant: Loki isn't there, or answers none. One that is alone may
    have reached its limits."""
    for error in failed.values():
        if not error.status or (len(failed) == asked and (asked > 1 or error.status >= 500)):
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


def _told(
    record: EndRecord, run: Run, now_ns: int, newest_ns: dict[str, int], tenant: str
) -> SentNote:
    """Behind the job's last line where that is known, else when it was waited for long enough;
    never so far ahead that Loki refuses it."""
    time_ns = max(record.end * SECOND_NS, run.newest_ns + 1)
    if not run.settled:
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


def _behind(told: Sequence[WaitingEnd], refusals: Sequence[Refusal]) -> dict[str, SentNote]:
    """What is sent of these in the next round."""
    again = {one.name: one.told for one in told if one.told is not None}
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


def _event_chunk(one: WaitingEnd) -> Chunk | None:
    if one.told is None:
        return None
    return _chunk(
        one,
        one.told,
        _EVENTS._replace(replay=one.told.event_replay),
        json_line(event_of(one.record)),
        {},
    )


def _note_chunk(one: WaitingEnd) -> Chunk | None:
    note = note_of(one.record)
    if one.told is None or not note:
        return None
    return _chunk(
        one, one.told, _NOTES._replace(replay=one.told.note_replay), to_utf8(note), {"note": "1"}
    )


def _chunk(
    one: WaitingEnd, told: SentNote, key: StreamKey, line: bytes, more: dict[str, str]
) -> Chunk:
    pairs = {
        "job_id": one.record.job_id,
        "user": one.record.user,
        "attempt": str(told.attempt),
        **more,
    }
    pairs = {name: value for name, value in pairs.items() if value}
    common = Metadata(pairs, encode_metadata(pairs), os.geteuid())
    return Chunk(one.name, key, range(told.time_ns, told.time_ns + 1), [line], common)

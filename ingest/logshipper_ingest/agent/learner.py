"""The learner: follows every capture for /metrics, independent of Loki, and keeps checkpoints of
its own."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from logshipper.errors import LogshipperError
from logshipper.fault_points import fault_point
from logshipper_ingest.console.service_log import Kind, LogLine
from logshipper_ingest.metrics.agent_metrics import AgentMetrics
from logshipper_ingest.metrics.job_metrics import JobMetrics
from logshipper_ingest.metrics.job_series import CaptureView
from logshipper_ingest.model.capture_account import CaptureAccount
from logshipper_ingest.model.capture_rows import Rows
from logshipper_ingest.model.job import derived_state
from logshipper_ingest.model.ledger import STREAM_NAMES
from logshipper_ingest.shipping.followed_capture import FollowedCapture, in_turn
from logshipper_ingest.spool.capture_folder import Life
from logshipper_ingest.spool.learning import describe_fault, learn
from logshipper_ingest.spool.segment_reader import Outcome
from logshipper_ingest.state.checkpoints import Checkpoints

MAX_USERS = 500  # in the counters of lines and bytes; later users count without a name
BATCH_BYTES = 1 << 20  # of each capture in turn
LOOKS_AT_ONCE = 4  # at a capture that prints little
MUCH_BYTES = 64 << 10  # more does not wait for these
QUIET_SECS = 1.0  # longest pause between two looks at an idle capture
QUIET_LOOKS = 4  # at its size and its sidecar's lock only, between two reads of an idle capture
FAULT_SECS = 60.0  # pause after frames that triggered a fault of ours
SAVE_SECS = 2.0  # between two writes of checkpoints
TURN_SECS = 1.0  # of reading, before the main thread's other work
MAX_DAMAGES_TOLD = 20  # log lines per capture
MAX_USERS_DAMAGES_TOLD = 100  # log lines per user in TELL_AGAIN_SECS
TELL_AGAIN_SECS = 3600.0
# of accounts, for /metrics
_VIEWED = ("exit_code", "signal", "started_ns", "ended_ns", "heartbeat_ns", "mode", "lines",
           "records", "bytes_printed", "bytes_logged", "nodes", "limit_secs")  # fmt: skip


class Learner:
    """The follower of captures. say: receives log lines; names_users: put user names into the
    counters of lines and bytes."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        metrics: JobMetrics,
        agent_metrics: AgentMetrics,
        poll_secs: float,
        say: Callable[[str], None],
        *,
        names_users: bool = True,
    ) -> None:
        self._checkpoints = checkpoints
        self._metrics = metrics
        self._agent_metrics = agent_metrics
        self._poll_secs = poll_secs
        self._say = say
        self._names_users = names_users
        self._users: set[str] = set()
        self._save_due = 0.0
        self.is_behind = False  # the last turn left unread bytes
        self._damage_lines: Counter[int] = Counter()  # in the agent's log, by user
        self._damages_due = 0.0  # time of the next reset of _damage_lines
        self._gone: list[str] = []  # captures without checkpoints from the next `save` on

    def turn(self, captures: Iterable[FollowedCapture]) -> bool:
        """Read each due or grown capture, user by user. Return whether anything was new."""
        now = time.monotonic()
        has_news = self.is_behind = False
        for capture in in_turn(sorted(captures, key=lambda capture: capture.next_look)):
            if time.monotonic() > now + TURN_SECS:
                return True
            if capture.knowledge.done:
                if not capture.shown_state:
                    self._show(capture, has_news=True)  # it ended before this agent began
                continue
            grown_bytes = capture.learn_reader.grown_bytes()
            if now >= capture.next_look or _is_urgent(capture, grown_bytes):
                has_news |= self._learn_guarded(capture, grown_bytes)
            elif grown_bytes != capture.grown_bytes:
                # shippers read it now, and the learner a few looks at once
                capture.grown_bytes = grown_bytes
                has_news = True
        return has_news

    def _learn_guarded(self, capture: FollowedCapture, grown_bytes: int) -> bool:
        """Read a capture. Its errors and faults must not stop the others."""
        try:
            return self._learn(capture, grown_bytes)
        except (LogshipperError, OSError) as error:
            capture.begin_learning_again()
            self._put_off(capture, f"can't be read: {error}", QUIET_SECS)
        except Exception as error:  # hostile frames may trigger a fault of ours
            capture.learn_from_checkpoint(self._checkpoints)
            self._put_off(capture, describe_fault(error), FAULT_SECS)
        return False

    def _put_off(self, capture: FollowedCapture, words: str, secs: float) -> None:
        if words != capture.blocked:
            self._say(capture.line(f"{words}; the agent retries"))
        capture.blocked = words
        capture.pause_secs = QUIET_SECS
        capture.next_look = time.monotonic() + secs

    def _learn(self, capture: FollowedCapture, grown_bytes: int) -> bool:
        before = capture.life
        life = capture.life = capture.folder.life()  # before reading its segments
        is_same = life is before is Life.LIVE and not grown_bytes and capture.learn_reader.is_open
        is_quiet = is_same and capture.quiet_looks > 0
        capture.quiet_looks = capture.quiet_looks - 1 if is_quiet else QUIET_LOOKS
        has_news = not is_quiet and life is not Life.STARTING and self._read(capture, life)
        pause_secs = LOOKS_AT_ONCE * self._poll_secs if has_news else 2 * capture.pause_secs
        capture.pause_secs = min(max(pause_secs, self._poll_secs), QUIET_SECS)
        capture.grown_bytes = 0
        capture.next_look = time.monotonic() + capture.pause_secs
        self._show(capture, has_news)
        return has_news

    def _read(self, capture: FollowedCapture, life: Life) -> bool:
        knowledge = capture.knowledge
        batch = capture.learn_reader.read(BATCH_BYTES, alive=life is Life.LIVE)
        if batch.outcome is Outcome.MORE:
            capture.pause_secs = 0.0
            self.is_behind = True
        before = _output_counts(knowledge.account)
        result = learn(
            knowledge.account, knowledge.axis, Rows(), batch, capture.folder, life, time.time_ns()
        )
        after = _output_counts(knowledge.account)
        self._count_output(capture.identity.user, before, after)
        if result.blocked and result.blocked != capture.blocked:
            self._say(capture.line(f"waits in the spool: {result.blocked}"))
        capture.blocked = result.blocked
        self._log_damages(capture, result.damages)
        self._agent_metrics.damages.inc(len(result.damages))
        self._agent_metrics.damaged_bytes.inc(sum(damage.skipped for damage in batch.damages))
        if batch.frames:
            earliest_ns = max(batch.frames[0].time_ns, capture.begun_ns)  # the job's clock may lie
            for sink in capture.sinks_behind(batch.position):
                sink.waiting_since_ns = sink.waiting_since_ns or min(earliest_ns, time.time_ns())
        knowledge.account.host = capture.identity.host or knowledge.account.host
        capture.knowledge = knowledge._replace(position=batch.position, done=result.done)
        if not result.done:  # the shipper reports the last keys
            capture.report_keys()
        return bool(batch.frames) or result.done or batch.position != knowledge.position

    def _count_output(self, user: str, before: Mapping[str, int], now: Mapping[str, int]) -> None:
        """Add a capture's new output to its user's counters."""
        if now == before:
            return
        if not self._names_users or (user not in self._users and len(self._users) >= MAX_USERS):
            user = ""
        self._users.add(user)
        growth = {name: max(count - before[name], 0) for name, count in now.items()}
        for stream in STREAM_NAMES.values():
            self._agent_metrics.lines.labels(user, stream).inc(growth[stream])
        for kind in ("printed", "logged"):
            self._agent_metrics.bytes.labels(user, kind).inc(growth[kind])
        self._agent_metrics.lost_lines.inc(growth["lost"])

    def _log_damages(self, capture: FollowedCapture, damages: list[str]) -> None:
        """Log a limited number of damages per capture, and per user and hour. The capture's events
        have more."""
        if not damages:
            return
        now, uid = time.monotonic(), capture.identity.uid
        if now >= self._damages_due:
            self._damages_due = now + TELL_AGAIN_SECS
            self._damage_lines.clear()
        room = MAX_USERS_DAMAGES_TOLD - self._damage_lines[uid]
        for words in damages[: max(min(MAX_DAMAGES_TOLD - capture.damages_told, room), 0)]:
            self._say(LogLine(words, Kind.DAMAGED, **capture.about))
            self._damage_lines[uid] += 1
        if room > 0:
            if capture.damages_told <= MAX_DAMAGES_TOLD < capture.damages_told + len(damages):
                self._say(capture.line("the agent only counts its further damages"))
            if self._damage_lines[uid] == MAX_USERS_DAMAGES_TOLD:
                words = "the agent only counts further damages of this user's captures"
                self._say(f"uid {uid}: for up to an hour, {words}")
        capture.damages_told += len(damages)

    def _show(self, capture: FollowedCapture, has_news: bool) -> None:
        account = capture.knowledge.account
        state = derived_state(account.state, account.heartbeat_ns, time.time_ns())
        if has_news or state != capture.shown_state:
            capture.shown_state = state
            self._metrics.update(view_of(capture, state))

    def forget(self, capture: FollowedCapture) -> None:
        """Remove a capture's checkpoint with the next `save`, after its directory."""
        self._gone.append(capture.folder.key)

    def save(self, captures: Iterable[FollowedCapture], *, at_once: bool = False) -> None:
        """Write changed checkpoints, every SAVE_SECS or at once."""
        now = time.monotonic()
        if not at_once and now < self._save_due:
            return
        self._save_due = now + SAVE_SECS
        changed = [
            capture
            for capture in captures
            if capture.checkpoint is None
            or (capture.checkpoint.position, capture.checkpoint.done)
            != (capture.knowledge.position, capture.knowledge.done)
        ]
        if changed or self._gone:
            knowledge = [capture.knowledge for capture in changed]
            self._checkpoints.put_knowledge(knowledge, self._gone)
            self._gone = []
            fault_point("learnt")
            for capture, saved in zip(changed, knowledge, strict=True):
                capture.checkpoint = saved


def _is_urgent(capture: FollowedCapture, grown_bytes: int) -> bool:
    """Return whether much waits to be read, or a capture may have ended."""
    has_much = grown_bytes >= MUCH_BYTES
    return has_much or (grown_bytes > 0 and capture.folder.life() is not capture.life)


def _output_counts(account: CaptureAccount) -> dict[str, int]:
    """Return the lines by stream, the bytes `printed` and `logged`, and the lines `lost`."""
    ledger = account.settled_ledger() if account.died else account.ledger
    lines = {stream: ledger.get(stream, {}).get("read", 0) for stream in STREAM_NAMES.values()}
    sizes = {"printed": account.bytes_printed, "logged": account.bytes_logged}
    return {**lines, **sizes, "lost": account.lost()}


def view_of(capture: FollowedCapture, state: str) -> CaptureView:
    """Return the values of a capture for /metrics."""
    account, axis = capture.knowledge.account, capture.knowledge.axis
    return CaptureView(
        key=capture.folder.key,
        identity=capture.identity,
        state=state,
        ledger=account.settled_ledger(),
        axis=axis,
        latest=axis.latest(),
        over=capture.knowledge.done,
        **{name: getattr(account, name) for name in _VIEWED},
    )

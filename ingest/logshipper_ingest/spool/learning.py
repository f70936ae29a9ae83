"""Adding a batch of frames to a capture's account, in the same way for every store."""

from typing import NamedTuple

from logshipper.spool.captures import boot_id
from logshipper_ingest.model.capture_account import CAPTURE_TAKEN, CaptureAccount
from logshipper_ingest.model.capture_rows import Rows
from logshipper_ingest.model.job import MAX_NODES, RUNNING
from logshipper_ingest.model.x_axis import XAxis
from logshipper_ingest.spool.capture_folder import CaptureFolder, Identity, Life
from logshipper_ingest.spool.segment_reader import FrameBatch, Outcome

MAX_FAULT_CHARS = 500  # the error may quote the frames
TAKEN_AWAY = (
    "its files in the node's spool were far above the limits, so the agent took them away: later output isn't "
    "logged"
)


class BatchResult(NamedTuple):
    """The result of one batch."""

    done: bool  # the capture is over and fully ingested
    blocked: str  # why the next frames can't be read, or ""
    damages: list[str]  # a sentence for each skipped place


def new_account(folder: CaptureFolder, identity: Identity) -> CaptureAccount:
    """Return the account of a capture before its first frame."""
    begun_ns = folder.begun_ns()
    names = ("cluster", "name", "user", "host", "account", "partition", "limit_secs")
    return CaptureAccount(
        **{name: getattr(identity, name) for name in names},
        nodes=min(identity.nodes, MAX_NODES),
        started_ns=begun_ns,
        heartbeat_ns=begun_ns,
    )


def learn(
    account: CaptureAccount,
    axis: XAxis | None,
    rows: Rows,
    batch: FrameBatch,
    folder: CaptureFolder,
    life: Life,
    now_ns: int,
    *,
    with_counters: bool = True,
) -> BatchResult:
    """Add a batch to account, axis and rows. life: before the read. with_counters: add the
    relay's present counts, which may differ at a second read of the same frames.
    Raises OSError before it adds anything."""
    done = batch.outcome is Outcome.CLOSED or (batch.outcome is Outcome.CUT and life is Life.DEAD)
    counters = folder.counters() if with_counters or done else None
    for frame in batch.frames:
        account.take(frame, axis, rows, now_ns)
    damages, blocked = batch.damages, ""
    if batch.outcome is Outcome.BLOCKED:
        blocked = account.reason = str(damages[-1].error)
        damages = damages[:-1]
    words = [f"{damage.error}; {damage.skipped} bytes are left out" for damage in damages]
    for damage, sentence in zip(damages, words, strict=True):
        account.take_damage(sentence, damage.skipped, rows)
    if counters is not None:
        silent_ns = now_ns - (account.newest_ns or account.heartbeat_ns)
        if batch.outcome is Outcome.CLOSED:
            silent_ns = 0
        account.take_counters(counters.printed, counters.feeds, max(silent_ns, 0) / 1e9)
    if done:
        end = None if counters is None else counters.end
        was_running = account.state == RUNNING
        account.conclude(died=batch.outcome is Outcome.CUT, boot_id=boot_id(), end=end)
        if folder.is_taken and was_running:
            account.reason = TAKEN_AWAY
            event = {"event": CAPTURE_TAKEN, "message": TAKEN_AWAY}
            account.take_event(event, account.newest_ns or account.started_ns, rows)
        account.add_lines_lost(rows)
    elif life is Life.ORPHANED and account.state == RUNNING:
        account.reason = "its capture died: the job runs on, but its output isn't logged"
    return BatchResult(done, blocked, words)


def describe_fault(error: Exception) -> str:
    """Describe a fault of logshipper that a capture's frames have caused."""
    return f"a fault of logshipper's own: {error!r}"[:MAX_FAULT_CHARS]

"""The account of all lines of a node: what was read is stored, left out for a reason, or lost; what
is stored is shipped, or waits. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from logshipper_ingest.model.capture_account import STREAM_NAMES, CaptureAccount
from logshipper_ingest.model.job import RUNNING
from logshipper_ingest.model.ledger import COLUMNS, OUTCOMES
from logshipper_ingest.state.checkpoints import CaptureCheckpoint


class Ledger(TypedDict):
    """Lines, of both streams. read: the sum of those up to lost, by what captures have written
    down; shipped: of those stored, what the shipper has done with (in Loki, or in the quarantine);
    waiting: what it hasn't. balances: whether all of it adds up; differs: the sentence that says
    where it doesn't, else ""."""

    read: int
    stored: int
    collapsed: int
    blank: int
    dropped: int
    commands: int
    pending: int
    lost: int
    shipped: int
    waiting: int
    balances: bool
    differs: str


def ledger_of(captures: Iterable[tuple[CaptureAccount, CaptureCheckpoint | None]]) -> Ledger:
    """Of captures, as (what is learnt of it, how far it is shipped)."""
    return summed([_of_capture(account, shipped) for account, shipped in captures])


def summed(ledgers: Sequence[Ledger]) -> Ledger:
    """All of them as one. It balances where each of them does."""
    names = (*COLUMNS, "shipped", "waiting")
    counts = {name: sum(one[name] for one in ledgers) for name in names}  # type: ignore[literal-required]  # counts
    return _ledger(counts, next((one["differs"] for one in ledgers if one["differs"]), ""))


def _of_capture(account: CaptureAccount, shipped: CaptureCheckpoint | None) -> Ledger:
    """Until a capture has written its first ledger, its lines are what is there."""
    done = 0 if shipped is None else shipped.account.lines
    lines = max(account.lines, done)  # what the learner knows is written down now and then
    settled = account.settled_ledger()
    streams = [settled[name] for name in STREAM_NAMES.values() if name in settled]
    counts: dict[str, int] = {name: sum(stream[name] for stream in streams) for name in COLUMNS}
    if not settled:
        counts |= {"read": lines, "stored": lines}
    accounted = sum(counts[name] for name in OUTCOMES)
    differs = ""
    if counts["read"] != accounted:
        differs = f"{counts['read']} lines were read, and {accounted} are accounted for"
    elif account.state != RUNNING and counts["stored"] != lines:
        differs = f"{counts['stored']} lines were stored by its ledger, and {lines} are there"
    elif shipped is not None and shipped.done and done != lines:
        differs = f"{lines} lines are there, and {done} are shipped to the end"
    return _ledger({**counts, "shipped": done, "waiting": lines - done}, differs)


def _ledger(counts: Mapping[str, int], differs: str) -> Ledger:
    return Ledger(
        read=counts["read"],
        stored=counts["stored"],
        collapsed=counts["collapsed"],
        blank=counts["blank"],
        dropped=counts["dropped"],
        commands=counts["commands"],
        pending=counts["pending"],
        lost=counts["lost"],
        shipped=counts["shipped"],
        waiting=counts["waiting"],
        balances=not differs,
        differs=differs,
    )


def shown(ledger: Ledger) -> str:
    """In a line."""
    parts = ", ".join(f"{ledger[name]:,} {name}" for name in OUTCOMES)  # type: ignore[literal-required]  # as above
    ends = "it balances" if ledger["balances"] else "IT DOESN'T BALANCE"
    return f"{ledger['read']:,} lines read: {parts}; {ledger['shipped']:,} shipped, {ledger['waiting']:,} wait: {ends}"

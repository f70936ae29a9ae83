"""The account of all lines of a node. Each read line is stored, omitted for a reason, or lost. Each
stored line is shipped or waits. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict, cast

from logshipper_ingest.model.capture_account import CaptureAccount
from logshipper_ingest.model.job import RUNNING
from logshipper_ingest.model.ledger import COLUMNS, OUTCOMES, STREAM_NAMES
from logshipper_ingest.state.checkpoints import CaptureCheckpoint


class Ledger(TypedDict):
    """Lines of both streams."""

    read: int  # the sum of all up to `lost`, by the captures' own ledgers
    stored: int
    collapsed: int
    blank: int
    dropped: int
    commands: int
    pending: int
    lost: int
    shipped: int  # stored lines in Loki or in the quarantine
    waiting: int  # stored lines not yet shipped
    balances: bool  # all columns add up
    differs: str  # a sentence about the difference, else ""


def ledger_of(captures: Iterable[tuple[CaptureAccount, CaptureCheckpoint | None]]) -> Ledger:
    """Return the ledger of captures, given as pairs of account and shipping checkpoint."""
    return sum_ledgers([_of_capture(account, progress) for account, progress in captures])


def sum_ledgers(ledgers: Sequence[Ledger]) -> Ledger:
    """Return the sum of ledgers. It balances if each of them does."""
    names = (*COLUMNS, "shipped", "waiting")
    counts = {
        name: sum(ledger[name] for ledger in ledgers)  # type: ignore[literal-required]  # counts
        for name in names
    }
    return _ledger(counts, next((ledger["differs"] for ledger in ledgers if ledger["differs"]), ""))


def _of_capture(account: CaptureAccount, progress: CaptureCheckpoint | None) -> Ledger:
    """Return a capture's ledger. Before the capture writes its first one, count its lines."""
    done = 0 if progress is None else progress.account.lines
    lines = max(account.lines, done)  # the learner's checkpoint may be older
    ledger = account.settled_ledger()
    streams = [ledger[name] for name in STREAM_NAMES.values() if name in ledger]
    counts: dict[str, int] = {name: sum(stream[name] for stream in streams) for name in COLUMNS}
    if not ledger:
        counts |= {"read": lines, "stored": lines}
    accounted = sum(counts[name] for name in OUTCOMES)
    differs = ""
    if counts["read"] != accounted:
        differs = f"{counts['read']} lines were read, and {accounted} are accounted for"
    elif account.state != RUNNING and counts["stored"] != lines:
        differs = f"its ledger has {counts['stored']} stored lines, and {lines} are there"
    elif progress is not None and progress.done and done != lines:
        differs = f"{lines} lines are there, and {done} are shipped to the end"
    return _ledger({**counts, "shipped": done, "waiting": lines - done}, differs)


def _ledger(counts: Mapping[str, int], differs: str) -> Ledger:
    return cast(Ledger, {**counts, "balances": not differs, "differs": differs})


def ledger_line(ledger: Ledger) -> str:
    """Return the ledger as one line of text."""
    parts = ", ".join(f"{ledger[name]:,} {name}" for name in OUTCOMES)  # type: ignore[literal-required]  # as above
    ends = "it balances" if ledger["balances"] else "IT DOESN'T BALANCE"
    return f"{ledger['read']:,} lines read: {parts}; {ledger['shipped']:,} shipped, {ledger['waiting']:,} wait: {ends}"

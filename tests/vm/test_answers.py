"""Parsing and judging the machine's answers."""

import base64
import json

from logshipper_ingest.model.ledger import LEDGER_COUNTS
from tests.slurm.tools.cluster import JobEnd
from tests.vm.answers import (
    Account,
    Job,
    Result,
    accounts_of,
    event_words,
    files_of,
    jobs_of,
    ledger_faults,
    summary,
)
from tests.vm.cases import TABLE, table
from tests.vm.leftovers import figures, journal_faults

SHOW = """\
JobId=12 JobName=job.sh UserId=u101(3101) GroupId=u101(3101) JobState=OUT_OF_MEMORY Reason=OutOfMemory ExitCode=0:125
JobId=14 ArrayJobId=13 ArrayTaskId=0 UserId=u102(3102) JobState=RUNNING Reason=None ExitCode=0:0

No jobs in the system
"""
BATCH = ("1", "batch", "0", "stdout")


def entry(line: str, **more: str) -> str:
    labels = {"kind": more.pop("kind", "log"), "stream": "stdout"}
    metadata = {"job_id": "12", "attempt": "1", "step": "batch", **more}
    return json.dumps([metadata, labels, line])


def closed(**counts: int) -> str:
    ledger = {**dict.fromkeys(LEDGER_COUNTS, 0), **counts}
    return entry(json.dumps({"event": "closed", "ledger": {"stdout": ledger}}), kind="event")


def test_jobs() -> None:
    jobs = jobs_of(SHOW)
    assert jobs == [
        Job("12", "12", "u101", JobEnd("OUT_OF_MEMORY", 0, 125)),
        Job("14", "13", "u102", JobEnd("RUNNING", 0, 0)),
    ]
    assert [job.is_over for job in jobs] == [True, False]


def test_files() -> None:
    content = b"out 1\n\xff"
    text = f"u101 {base64.b64encode(content).decode()} ab c.out\nu101  empty.err\n"
    assert files_of(text) == {"u101": {"ab c.out": content, "empty.err": b""}}


def test_accounts() -> None:
    lines = [entry("out 1"), entry("ours", note="1"), entry("out 2"), closed(read=2, stored=2)]
    account = accounts_of("\n".join(lines))["12"]
    assert account.logs == {BATCH: ["out 1", "out 2"]}
    assert len(account.closed) == 1
    assert ledger_faults(account) == []
    assert event_words(account) == ["event=closed step=batch"]


def test_a_ledger_that_is_wrong() -> None:
    lines = [entry("out 1"), closed(read=5, stored=2, lost=1)]
    account = accounts_of("\n".join(lines))["12"]
    balance, stored, lost = ledger_faults(account)
    assert "doesn't balance" in balance
    assert stored.endswith("2 lines as stored, Loki 1")
    assert "1 lines are lost" in lost
    assert ledger_faults(Account({}, [], [])) == []


def test_results() -> None:
    results = [Result("array", 3.4, []), Result("pty", 5, ["exit code 0, not 3"], "1 MB")]
    assert results[0].line(1, 2) == "[1/2] array: ok, 3 s"
    assert results[1].line(2, 2) == "[2/2] pty: failed, 5 s; 1 MB\n    exit code 0, not 3"
    words = summary(results, {"disk": "900 MB"}, 12.34)
    assert words == "2 cases, 1 failed, 12.3 minutes; disk 900 MB\nfailed: pty"


def test_figures() -> None:
    files = {"memory.txt": b"2000000\n3500000\n", "cpu.txt": b"usage_usec 1500000\nuser_usec 1\n"}
    words = figures([files, {}])
    assert words == "without the plugin 2.0/3.5 MB, 1.50 s CPU; with the plugin  MB, 0.00 s CPU"


def test_the_journal() -> None:
    def text(*entries: tuple[str, str]) -> str:
        return "\n".join(
            json.dumps({"MESSAGE": words, "PRIORITY": n, "_TRANSPORT": "journal"})
            for words, n in entries
        )

    right = ("ready: /spool to Loki", "6"), ("Loki is away", "4"), ("stopped", "6")
    assert journal_faults(text(*right)) == []
    wrong = ("ready: /spool", "4"), ("Loki is away", "6"), ("<4>Loki is away", "4")
    assert len(journal_faults(text(*right, *wrong))) == 3
    by_stderr = text(*right).replace("journal", "stdout")
    assert journal_faults(by_stderr) == ["by stdout, without fields: ready: /spool to Loki"]
    assert journal_faults("") == ["the agent never said that it is ready"]


def test_the_table_has_what_is_named() -> None:
    names = [case.name for case in table()]
    assert names[: len(TABLE)] == TABLE
    assert len(names) == len(set(names))

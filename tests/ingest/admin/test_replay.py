"""`logshipper-agent replay`: entries leave the quarantine only once Loki has them. Kills of agent
or replay lose and repeat nothing."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import tests.tools.fakes.modelled_loki
from logshipper import fault_points
from logshipper.errors import QueryError, StoreError
from logshipper_ingest.admin.replay import ReplayClient, Replayer, ReplayResult, ReplaySelection
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.servers.loki_push import Entry
from logshipper_ingest.state import quarantine_files
from tests.servers.running import LokiServer
from tests.tools.captures.captured_runs import TIMEOUT_SECS
from tests.tools.captures.segment_factory import SECOND_NS
from tests.tools.fakes.modelled_loki import throttled, unreachable
from tests.tools.sources import SOURCES
from tests.tools.stores.node_agents import NodeAgent, entries_of
from tests.tools.stores.shipping_node import ShippingNode, soon_ns

LIMIT = 1000  # bytes of a line that the modelled Loki accepts
PRINTS = """
import sys
name, count = sys.argv[1], int(sys.argv[2])
for n in range(count):
    print(f"{name} {n}:" + "x" * (1500 if n % 10 == 7 else 0))
"""


class Killed(BaseException):
    """Acts like SIGKILL: none of our code runs afterwards."""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ShippingNode]:
    monkeypatch.setattr(tests.tools.fakes.modelled_loki, "MAX_LINE_BYTES", LIMIT)
    node = ShippingNode(tmp_path, settle_secs=0.01)
    yield node
    node.close()


def take_long_lines(monkeypatch: pytest.MonkeyPatch, size: int = 1 << 20) -> None:
    monkeypatch.setattr(tests.tools.fakes.modelled_loki, "MAX_LINE_BYTES", size)


def fill(node: ShippingNode, *, job_id: str = "job1", lines: int = 200) -> list[str]:
    """Print lines of which Loki refuses every tenth; return all lines."""
    capture = node.capture(job_id, soon_ns())
    printed = [f"{job_id} {n}:" + ("x" * (2 * LIMIT) if n % 10 == 3 else "") for n in range(lines)]
    for begin in range(0, lines, 50):
        capture.lines(printed[begin : begin + 50])
    capture.close()
    node.ship()
    return printed


def replay(
    node: ShippingNode, selection: ReplaySelection | None = None, **options: Any
) -> ReplayResult:
    """Any: options of Replayer."""
    return replayer(node, selection, **options).run()


def replayer(
    node: ShippingNode,
    selection: ReplaySelection | None = None,
    *,
    ask: Callable[[str], ReplayClient] | None = None,
    patience_secs: float = 60.0,
) -> Replayer:
    return Replayer(
        node.config.sinks[0],
        selection or ReplaySelection(),
        lambda: node.loki,
        ask,
        threading.Event(),
        node.messages.append,
        patience_secs=patience_secs,
    )


def logged(node: ShippingNode) -> list[str]:
    """Return lines as a query over all streams shows them, in order of time."""
    assert node.loki.doubles() == []
    entries = {
        (entry.time_ns, entry.line, entry.metadata) for entry in node.loki.find('kind="log"')
    }
    return [line.decode() for _, line, _ in sorted(entries)]


def at_fault_point(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], None]) -> None:
    monkeypatch.setattr(fault_points, "on_reached", lambda at: act() if at == name else None)


def kill() -> None:
    raise Killed


# ---- with a real Loki


def test_replay_delivers_just_what_was_refused(lokis: None, tmp_path: Path) -> None:
    """Two jobs flood a Loki whose limit refuses some lines. An admin raises the limit, and the
    first replay is killed."""
    cluster = f"c{uuid.uuid4().hex[:12]}"
    job_lines = [
        f"{name} {n}:" + "x" * (1500 if n % 10 == 7 else 0)
        for name in ("a", "b")
        for n in range(300)
    ]
    with LokiServer(limits={"max_line_size": "1KB"}) as loki, LokiClient(loki.url) as client:
        with NodeAgent(tmp_path, loki.url, cluster=cluster) as agent:
            for name in ("a", "b"):
                agent.run(sys.executable, "-c", PRINTS, name, "300")
            agent.wait_shipped()
            groups = json.loads(agent.call("replay", "--dry-run", "--json").stdout)["chosen"]
            assert [(group["reason"], group["entries"]) for group in groups] == [
                ("line_too_long", 30)
            ] * 2
            early = agent.call("replay", "--json")
            report = json.loads(early.stdout)
            assert (early.returncode, report["delivered"], report["refused"]) == (
                3,
                0,
                {"line_too_long": 60},
            ), early.stderr

            loki.stop()
            loki.set_limits({"max_line_size": "256KB"})
            loki.start()
            killed = agent.call("replay", "--job", groups[0]["job_id"], crash_at="replay_sent")
            assert killed.returncode == -signal.SIGKILL
            done = agent.call("replay")
            assert (done.returncode, done.stdout.splitlines()[0]) == (
                0, "30 entries delivered, 30 were in Loki already, 0 refused again, 0 not tried")  # fmt: skip
            assert list((agent.state / "quarantine").iterdir()) == []
        entries = entries_of(client, cluster, "log")
    assert sorted(entry.line for entry in entries) == sorted(job_lines), (
        "none is missing, none comes twice"
    )
    late = [entry for entry in entries if "replay" in entry.labels]
    assert len(late) == 60
    assert {entry.labels["replay"][0] for entry in late} == {"q"}


def test_what_loki_has_already_isnt_sent(
    loki: LokiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent was killed between quarantine and checkpoint. It sent the entries again after the
    limit was raised."""
    cluster = f"c{uuid.uuid4().hex[:12]}"
    monkeypatch.setattr(tests.tools.fakes.modelled_loki, "MAX_LINE_BYTES", LIMIT)
    agent = NodeAgent(tmp_path / "agent", loki.url, cluster=cluster, host="n1")
    node = ShippingNode(tmp_path)
    try:
        fill(node, lines=60)
    finally:
        node.close()
    (agent.state / "quarantine").mkdir(parents=True)
    for file in (node.folder / "state" / "quarantine").iterdir():
        file.rename(agent.state / "quarantine" / file.name)
    folder = str(agent.state / "quarantine")
    entries = [
        line.entry
        for name in quarantine_files.names(folder)
        for line in quarantine_files.read_lines(folder, name)
    ]
    with LokiClient(loki.url) as client:
        labels = {
            "cluster": cluster,
            "host": "n1",
            "service_name": "logshipper",
            "stream": "stdout",
            "kind": "log",
        }
        duplicates = [
            Entry(entry.time_ns, entry.line, entry.metadata)
            for entry in entries[:2]
            if entry is not None
        ]
        client.push(labels, duplicates)
        metadata = {**duplicates[0].metadata, "task": "7"}
        assert entries[2] is not None
        # another task's line is another entry
        client.push(labels, [Entry(entries[2].time_ns, entries[2].line, metadata)])
        report = json.loads(agent.call("replay", "--json").stdout)
        assert (report["chosen"], report["there"], report["delivered"], report["left"]) == (
            6,
            2,
            4,
            0,
        )
        counts = Counter(
            (entry.time_ns, entry.metadata["task"]) for entry in entries_of(client, cluster, "log")
        )
    assert counts == Counter(
        {(entry.time_ns, "0"): 1 for entry in entries if entry is not None}
    ) | Counter({(entries[2].time_ns, "7"): 1})


def test_loki_is_asked_for_sparse_entries_by_how_they_begin(
    loki: LokiServer, tmp_path: Path
) -> None:
    """The query works for any text of an entry, and with many other lines of the job in between."""
    cluster = f"c{uuid.uuid4().hex[:12]}"
    agent = NodeAgent(tmp_path, loki.url, cluster=cluster)
    begin_ns = time.time_ns() - 600 * SECOND_NS
    odd = [
        "",
        "a",
        "a\0b\tc",
        '"} |= `x` \\d (?:[',
        "\u2028\x1b[1m",
        "ü" * 100,
        "y" * 300,
        "a b-c.d",
        "a" * 60,
    ]
    records = [
        {"refused_ns": 1, "reason": "other", "status": 400, "words": "no", "stream": "stdout", "kind": "log",
         "host": "n1", "tenant": "", "capture": "c", "time_ns": begin_ns + n * 20 * SECOND_NS,
         "metadata": {"job_id": "job1", "task": "0"}, "line": line}
        for n, line in enumerate(odd)
    ]  # fmt: skip
    folder = agent.state / "quarantine"
    folder.mkdir(parents=True)
    (folder / "2026-01-01.u0.jsonl").write_text(
        "".join(json.dumps(record) + "\n" for record in records)
    )
    labels = {
        "cluster": cluster,
        "host": "n1",
        "service_name": "logshipper",
        "stream": "stdout",
        "kind": "log",
    }
    metadata = {"job_id": "job1", "task": "0"}
    flood = [Entry(begin_ns + n * SECOND_NS + 1, f"flood {n}", metadata) for n in range(200)]
    with LokiClient(loki.url) as client:
        client.push(labels, flood)
        client.push(
            labels,
            [Entry(begin_ns + n * 20 * SECOND_NS, line, metadata) for n, line in enumerate(odd)],
        )
        report = json.loads(agent.call("replay", "--json").stdout)
        assert (report["there"], report["delivered"]) == (len(odd), 0)
        assert len(entries_of(client, cluster, "log")) == 200 + len(odd)


# ---- with a modelled one


def test_all_of_it_arrives_in_order_of_time(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = fill(node) + fill(node, job_id="job2")
    assert len(node.quarantined()) == 40
    take_long_lines(monkeypatch)
    request_count = len(node.loki.requests)
    tally = replay(node)
    assert (tally.total, tally.delivered, tally.untried, tally.refusals.total()) == (40, 40, 0, 0)
    assert sorted(logged(node)) == sorted(printed)
    times = [
        entry.time_ns for _, entries in node.loki.requests[request_count:] for entry in entries
    ]
    assert times == sorted(times)
    assert node.quarantined() == []
    assert replay(node).total == 0


@pytest.mark.parametrize("place", ["replay_sent", "replay_rewritten"])
def test_who_is_killed_loses_nothing_and_doubles_nothing(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    printed = fill(node)
    take_long_lines(monkeypatch)
    with monkeypatch.context() as patch:
        at_fault_point(patch, place, kill)
        with pytest.raises(Killed):
            replay(node)
    assert len(node.quarantined()) == (20 if place == "replay_sent" else 0)
    replay(node)
    assert logged(node) == printed
    assert node.quarantined() == []


def test_what_was_put_there_before_a_kill_comes_once(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kill came after the entries reached the quarantine, and before the checkpoint recorded
    them."""
    with monkeypatch.context() as patch:
        at_fault_point(patch, "sent", kill)
        with pytest.raises(Killed):
            fill(node, lines=20)
    node.restart(save=False)
    node.ship()
    assert len(node.quarantined()) == 2
    take_long_lines(monkeypatch)
    assert replay(node).delivered == 2
    assert len(logged(node)) == 20
    assert node.quarantined() == []


def test_half_a_rewritten_file_is_cleared_away(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = fill(node) + fill(node, job_id="job2")
    take_long_lines(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", lambda *_: kill())
        with pytest.raises(Killed):
            replay(node, ReplaySelection(job_id="job1"))
    folder = node.folder / "state" / "quarantine"
    assert len(quarantine_files.leftovers(str(folder))) == 1
    replay(node)
    assert sorted(logged(node)) == sorted(printed)
    assert list(folder.iterdir()) == []


def test_what_the_agent_puts_there_meanwhile_stays(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(node)
    take_long_lines(monkeypatch)
    with monkeypatch.context() as patch:

        def more() -> None:
            take_long_lines(patch, LIMIT)
            fill(node, job_id="job2", lines=10)

        at_fault_point(patch, "replay_sent", more)
        assert replay(node).delivered == 20
    assert [entry["metadata"]["job_id"] for entry in node.quarantined()] == ["job2"]
    replay(node)
    assert len(logged(node)) == 210


def test_what_is_refused_again_stays_with_new_words(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(node, lines=40)
    before = node.quarantined()
    take_long_lines(monkeypatch, LIMIT + 1)
    tally = replay(node)
    assert (tally.delivered, tally.refusals) == (0, Counter(line_too_long=4))
    after = node.quarantined()
    assert [entry.pop("words") for entry in after] != [entry.pop("words") for entry in before]
    assert all(entry.pop("replayed_ns") >= entry["refused_ns"] for entry in after)
    assert after == before


def test_only_what_is_chosen(node: ShippingNode, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(node, lines=20)
    begin_ns = time.time_ns()
    fill(node, job_id="job2", lines=20)
    take_long_lines(monkeypatch)
    assert replay(node, ReplaySelection(job_id="job3")).total == 0
    assert replay(node, ReplaySelection(reason="too_old")).total == 0
    assert replay(node, ReplaySelection(since_ns=begin_ns, reason="line_too_long")).delivered == 2
    assert {entry["metadata"]["job_id"] for entry in node.quarantined()} == {"job1"}


def test_what_cant_be_read_is_left_where_it_is(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(node, lines=20)
    (file,) = (node.folder / "state" / "quarantine").iterdir()
    odd = [
        b"\xff\xfe\n",
        b"[1]\n",
        b'{"kind":"log","line":"x","metadata":{"a b":"c"}}\n',
        b'{"kind":"log"',
    ]
    file.write_bytes(odd[0] + file.read_bytes() + b"".join(odd[1:]))
    take_long_lines(monkeypatch)
    assert replay(node).delivered == 2
    assert file.read_bytes() == b"".join(odd)


def test_entries_of_an_earlier_version_have_no_host(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(node, lines=10)
    (file,) = (node.folder / "state" / "quarantine").iterdir()
    (entry,) = node.quarantined()
    for name in ("host", "tenant", "capture"):
        del entry[name]
    file.write_text(json.dumps(entry) + "\n")
    take_long_lines(monkeypatch)
    assert replay(node).delivered == 1
    assert {
        'host="n1"' in copy.labels for copy in node.loki.stored if copy.time_ns == entry["time_ns"]
    } == {True}


def test_a_loki_that_takes_nothing_ends_it(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(node, lines=20)
    node.loki.takes = lambda number: False
    tally = replay(node, patience_secs=0.05)
    assert (tally.untried, tally.delivered) == (2, 0)
    assert (
        tally.stop_reason
        == "Loki takes nothing for 0.05 s: HTTP 429: ingestion rate limit exceeded"
    )
    assert len(node.quarantined()) == 2


def test_a_loki_that_falters_is_tried_again(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = fill(node)
    take_long_lines(monkeypatch)
    node.loki.script = [throttled(), unreachable(), throttled(0.01)]
    assert replay(node).delivered == 20
    assert logged(node) == printed


def test_users_tenants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tests.tools.fakes.modelled_loki, "MAX_LINE_BYTES", LIMIT)
    node = ShippingNode(tmp_path, tenant_by="user")
    try:
        fill(node, lines=20)
        take_long_lines(monkeypatch)
        node.loki.script = [throttled()]
        assert replay(node).delivered == 2
        assert all('tenant="me"' in entry.labels for entry in node.loki.stored)
        assert node.loki.doubles() == []
    finally:
        node.close()


class Unanswering:
    """A Loki that refuses queries."""

    def __init__(self, status: int) -> None:
        self.status = status

    def entries(self, logql: str, begin_ns: int, end_ns: int) -> Iterator[Entry]:
        raise QueryError("Loki", self.status, "no")


def test_who_may_not_ask_is_told_how_to_go_on(node: ShippingNode) -> None:
    fill(node, lines=20)
    with pytest.raises(QueryError, match=r"HTTP 403: no .*--no-query sends them without asking"):
        replay(node, ask=lambda tenant: Unanswering(403))
    assert len(node.quarantined()) == 2


def test_one_at_a_time(node: ShippingNode) -> None:
    with (
        quarantine_files.rewriter_lock(str(node.folder / "state")),
        pytest.raises(StoreError, match="another `logshipper-agent replay`"),
    ):
        replay(node)


def test_the_agent_waits_for_who_rewrites(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(node, lines=10)
    folder = str(node.folder / "state" / "quarantine")
    (name,) = quarantine_files.names(folder)
    put = threading.Thread(target=fill, args=(node,), kwargs={"job_id": "job2", "lines": 10})

    def while_rewriting(line: quarantine_files.QuarantineLine, raw: bytes) -> bytes:
        put.start()
        return raw

    quarantine_files.rewrite(folder, name, while_rewriting)
    put.join()
    jobs: Sequence[str] = [entry["metadata"]["job_id"] for entry in node.quarantined()]
    assert jobs == ["job1", "job2"], "what it appended meanwhile isn't in the file that went"


def test_the_shell_completes_jobs_and_reasons(node: ShippingNode, tmp_path: Path) -> None:
    fill(node, lines=10)
    fill(node, job_id="job2", lines=10)
    config = NodeAgent(tmp_path, "http://loki.invalid", cluster="c").config
    assert completed(f"replay --config {config} --job jo") == ["job1", "job2"]
    assert completed(f"purge --config {config} --job job2") == ["job2 "]
    assert completed("replay --reason line") == ["line_too_long "]
    assert completed(f"replay --config {tmp_path}/none --job jo") == []
    assert "--fixed" in completed("purge --f")[0]


def completed(words: str) -> list[str]:
    """Return argcomplete's suggestions at the end of a command line."""
    with tempfile.NamedTemporaryFile() as out:
        line = f"logshipper-agent {words}"
        variables = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": out.name, "COMP_LINE": line,
                 "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n", "PYTHONPATH": SOURCES}  # fmt: skip
        command = [sys.executable, "-m", "logshipper_ingest"]
        subprocess.run(command, env={**os.environ, **variables}, check=True, timeout=TIMEOUT_SECS)
        return Path(out.name).read_text().split("\n") if Path(out.name).stat().st_size else []


def test_a_state_that_no_agent_has_made_is_said(tmp_path: Path) -> None:
    with (
        pytest.raises(
            StoreError, match=r"isn't there: no agent has run with this \[agent\] state_dir"
        ),
        quarantine_files.rewriter_lock(str(tmp_path / "none")),
    ):
        pass

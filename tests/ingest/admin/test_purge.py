"""Purging a job's secret from every place that holds it, without losing other jobs' lines."""

import json
import sys
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import tests.tools.fakes.modelled_loki
from logshipper.errors import ConfigError, LogshipperError, StoreError, UnknownJob
from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.admin import purge_command
from logshipper_ingest.agent.user_agent import take_lock
from logshipper_ingest.cli import build_parser
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.servers.loki_push import Entry
from logshipper_ingest.spool.purge_pattern import pattern_of
from logshipper_ingest.store.local_store import LocalStore
from tests.servers.running import LokiServer
from tests.tools.captures.segment_factory import CaptureWriter
from tests.tools.stores.node_agents import NodeAgent, entries_of
from tests.tools.stores.shipping_node import NodeCapture, ShippingNode, soon_ns

SECRET = "hunter2"  # noqa: S105  nobody's
PRINTS = """
import json, sys
for n in range(200):
    print(f"line {n}" + (" password=hunter2" if n % 10 == 7 else ""))
print("the same", "hunter2", file=sys.stderr)
print(json.dumps({"step": 1, "token": "hunter2"}))
print(json.dumps({"step": 2, "token": "none"}))
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ShippingNode]:
    node = ShippingNode(tmp_path)
    yield node
    node.close()


def purge(node: ShippingNode, *words: str) -> int:
    options = build_parser().parse_args(["purge", "--no-loki", "--yes", "--wait", "1s", *words])
    return purge_command.call_node(options, node.config)


def purge_store(root: Path, *words: str) -> int:
    options = build_parser().parse_args(["purge", "--yes", *words])
    return purge_command.call_store(options, str(root))


def print_lines(node: ShippingNode, job_id: str = "job1", *, close: bool = True) -> NodeCapture:
    """Print 30 lines, a record, an event and a bar. Three of the lines and all others hold the
    secret."""
    capture = node.capture(job_id, soon_ns())
    capture.start()
    capture.lines([f"{job_id} {n}" + (f" {SECRET}" if n % 10 == 4 else "") for n in range(30)])
    capture.metadata({"step": 1, "token": SECRET}, {"step": 2})
    capture.event("odd", f"the word was {SECRET}")
    capture.status(f"50% {SECRET}")
    if close:
        capture.end()
        capture.close()
    return capture


def holding(folder: Path, secret: str = SECRET) -> list[str]:
    """Return the names of files whose bytes hold the secret."""
    return [
        path.name
        for path in folder.rglob("*")
        if path.is_file() and secret.encode() in path.read_bytes()
    ]


# ---- with a real Loki


def test_what_is_purged_is_gone_from_loki_and_nothing_else(lokis: None, tmp_path: Path) -> None:
    """Purge one word of the first job, all of the second and nothing of the third."""
    cluster = f"c{uuid.uuid4().hex[:12]}"
    with (
        LokiServer(deletes=True) as loki,
        LokiClient(loki.url) as client,
        NodeAgent(tmp_path, loki.url, cluster=cluster) as agent,
    ):
        for _ in range(3):
            agent.run(sys.executable, "-c", PRINTS)
        agent.wait_shipped()
        first_id, second_id, _ = [job["job_id"] for job in agent.status()["jobs"]]
        before = entries_of(client, cluster)
        assert (
            sum(entry.metadata["job_id"] == first_id and SECRET in entry.line for entry in before)
            == 22
        )

        dry_run = agent.call(
            "purge", "--job", first_id, "--fixed", SECRET, "--since", "1h", "--dry-run", "--json"
        )
        assert json.loads(dry_run.stdout)["lines"] == {"spool": 0, "quarantine": 0, "loki": 22}
        refusal = agent.call("purge", "--job", first_id, "--fixed", SECRET, "--since", "1h")
        assert (refusal.returncode, "give --yes" in refusal.stderr) == (2, True)
        done = agent.call(
            "purge", "--job", first_id, "--fixed", SECRET, "--yes", "--wait", "1s", "--since", "1h"
        )
        # Loki got a query shortly before, and caches for 5 minutes that there were no delete
        # requests
        assert (done.returncode, "still shows 22 lines" in done.stderr) == (3, True), done.stderr
        assert (
            agent.call(
                "purge", "--job", second_id, "--yes", "--wait", "1s", "--since", "1h"
            ).returncode
            == 3
        )
        loki.stop()
        loki.start()
        again = agent.call(
            "purge",
            "--job",
            first_id,
            "--fixed",
            SECRET,
            "--yes",
            "--wait",
            "30s",
            "--since",
            "1h",
            "--json",
        )
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout)["shown"] == 0

        after = entries_of(client, cluster)
    rest = [entry for entry in before if entry.metadata["job_id"] != second_id]
    rest = [
        entry for entry in rest if entry.metadata["job_id"] != first_id or SECRET not in entry.line
    ]
    assert len(rest) < len(before) - 200
    assert keyed(after) == keyed(rest), "all that isn't meant is there, once"


def keyed(entries: Iterable[Entry]) -> list[tuple[int, str, str]]:
    return sorted((entry.time_ns, entry.line, entry.metadata["job_id"]) for entry in entries)


def test_a_loki_that_deletes_nothing_is_told_of(loki: LokiServer, tmp_path: Path) -> None:
    agent = NodeAgent(tmp_path, loki.url, cluster="nobody")
    agent.state.mkdir()
    result = agent.call("purge", "--job", "4711", "--yes", "--since", "1h")
    assert (result.returncode, result.stdout) == (
        3,
        "Purged: 0 lines in spool, 0 lines in quarantine\n",
    )
    assert "HTTP 404" in result.stderr
    for setting in (
        "retention_enabled: true",
        "delete_request_store",
        "deletion_mode: filter-and-delete",
    ):
        assert setting in result.stderr


# ---- a node's files


def test_lines_in_the_spool_are_overwritten(
    node: ShippingNode, capsys: pytest.CaptureFixture[str]
) -> None:
    print_lines(node)
    print_lines(node, "job2")
    assert purge(node, "--job", "job1", "--fixed", SECRET) == 0
    assert "6 lines in spool" in capsys.readouterr().out
    assert holding(node.folder / "spool") == ["0000000001.seg"], "the neighbour's"
    node.ship()
    logged = node.loki.lines('kind="log"')
    assert sorted(line for line in logged if line.startswith("job2")) == sorted(
        f"job2 {n}" + (f" {SECRET}" if n % 10 == 4 else "") for n in range(30)
    )
    of_job = [line for line in logged if not line.startswith("job2")]
    assert of_job == [
        f"job1 {n}" if n % 10 != 4 else "*" * len(f"job1 {n} {SECRET}") for n in range(30)
    ]
    (closed,) = (event for event in node.events("job1") if event["event"] == "closed")
    assert (closed["lost"], closed["lines"]) == (0, 32), "lines are there, and count"
    odd = [event["message"] for event in node.events("job1") if event["event"] == "odd"]
    assert odd == ["*" * len(f"the word was {SECRET}")]


def test_a_job_may_print_on(node: ShippingNode) -> None:
    with print_lines(node, close=False) as capture:
        assert purge(node, "--job", "job1", "--grep", "hunter[0-9]") == 0
        assert holding(node.folder / "spool") == []
        capture.lines(["later"])
        capture.end()
        capture.close()
    node.ship()
    assert node.loki.lines('kind="log"')[-1] == "later"
    assert [event for event in node.events("job1") if event["event"] == "segment_damaged"] == []


def test_what_a_bar_shows_is_overwritten(node: ShippingNode) -> None:
    with print_lines(node, close=False) as capture:
        capture.live(f"the word is {SECRET}")
        assert sorted(holding(node.folder / "spool")) == ["0000000001.seg", "live"]
        assert purge(node, "--job", "job1", "--fixed", SECRET) == 0
        assert holding(node.folder / "spool") == []
        capture.end()
        capture.close()


def test_the_agent_goes_on_where_it_was(node: ShippingNode) -> None:
    """Offsets in a segment stay valid: the agent repeats and skips nothing."""
    with print_lines(node, close=False) as capture:
        node.ship()
        lines_before = node.loki.lines('kind="log"')
        capture.lines([f"later {n}" + (f" {SECRET}" if n % 2 else "") for n in range(10)])
        node.restart()
        assert purge(node, "--job", "job1", "--fixed", SECRET) == 0
        capture.end()
        capture.close()
    node.ship()
    lines_after = node.loki.lines('kind="log"')
    assert lines_after[: len(lines_before)] == lines_before
    later = [f"later {n}" + (f" {SECRET}" if n % 2 else "") for n in range(10)]
    assert lines_after[len(lines_before) :] == [
        "*" * len(line) if SECRET in line else line for line in later
    ]
    assert node.loki.doubles() == []


def test_half_a_frame_of_a_running_job_is_left_alone(node: ShippingNode) -> None:
    with print_lines(node, close=False) as capture:
        whole = capture.segment.read_bytes()
        capture.lines([SECRET, "more"])
        frame = capture.segment.read_bytes()[len(whole) :]
        capture.segment.write_bytes(whole + frame[:-3])
        assert purge(node, "--job", "job1", "--fixed", SECRET) == 0
        capture.append(frame[-3:])
        capture.close()
    node.ship()
    assert node.loki.lines('kind="log"')[-2:] == [SECRET, "more"]


def test_damaged_places_are_overwritten(node: ShippingNode) -> None:
    capture = print_lines(node)
    content = bytearray(capture.segment.read_bytes())
    content[60] ^= 0xFF
    capture.segment.write_bytes(bytes(content) + f"rest {SECRET}".encode())
    assert purge(node, "--job", "job1", "--fixed", SECRET) == 0
    assert holding(node.folder / "spool") == []


def test_hostile_files_are_left_alone(node: ShippingNode, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text(f"{SECRET}\n")
    capture = print_lines(node)
    (capture.segments / "0000000002.seg").symlink_to(outside)
    (capture.segments / "0000000003.seg").mkdir()
    assert purge(node, "--job", "job1", "--fixed", SECRET) == 0
    assert outside.read_text() == f"{SECRET}\n"


def test_all_of_a_job(node: ShippingNode, capsys: pytest.CaptureFixture[str]) -> None:
    print_lines(node)
    print_lines(node, "job2")
    node.learn()
    node.round()  # checkpoints of both jobs
    assert purge(node, "--job", "job1") == 0
    assert {checkpoint.identity.job_id for checkpoint in node.checkpoints.shipped()} == {"job2"}
    assert [path.name.split("@")[0] for path in (node.folder / "spool").glob("*@*")] == ["job2"]
    with (
        print_lines(node, "job3", close=False),
        pytest.raises(StoreError, match="job3 runs: it can be purged when"),
    ):
        purge(node, "--job", "job3")


def test_while_the_agent_runs_it_ships_first(
    node: ShippingNode, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = print_lines(node, close=False)
    lock = take_lock(str(node.folder / "state"))
    assert lock is not None
    with capture:
        assert purge(node, "--job", "job1", "--fixed", SECRET) == 3
    words = capsys.readouterr().err
    assert "6 lines stand in" in words
    assert f"{capture.segment}: its capture goes on" in words


def test_the_quarantine(node: ShippingNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tests.tools.fakes.modelled_loki, "MAX_LINE_BYTES", 900)
    for job_id in ("job1", "job2"):
        capture = node.capture(job_id, soon_ns())
        capture.lines(["short", SECRET + "x" * 1000, "y" * 1000])
        capture.close()
    node.ship()
    assert len(node.quarantined()) == 4
    assert purge(node, "--job", "job1", "--fixed", SECRET, "--dry-run") == 0
    assert len(node.quarantined()) == 4
    assert purge(node, "--job", "job1", "--fixed", SECRET) == 0
    entries = [(entry["metadata"]["job_id"], entry["line"][:1]) for entry in node.quarantined()]
    assert sorted(entries) == [("job1", "y"), ("job2", "h"), ("job2", "y")]


# ---- a user's own store


def test_a_store(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with LocalStore(str(root), create=True) as store:
        for job_id in ("job1", "job2"):
            capture = CaptureWriter(root / "spool", job_id)
            capture.start()
            capture.lines([f"{n} {SECRET}" if n % 3 else str(n) for n in range(300)])
            capture.metadata({"a": SECRET}, {"a": "b"})
            capture.event("odd", f"was {SECRET}")
            capture.status(f"50% {SECRET}")
            if job_id == "job2":
                capture.end()
            capture.close()
        store.ingest()
    assert purge_store(root, "--job", "job1", "--fixed", SECRET) == 0
    assert [name for name in holding(root) if not name.startswith("job2")] == []
    with LocalStore(str(root)) as store:
        with store.open("job1") as reader:
            lines = [line.text for line in reader.lines(streams=tuple(Stream), kinds=tuple(Kind))]
            assert (len(lines), sum(SECRET in line for line in lines)) == (302, 0)
            assert [line for line in lines if line.isdigit()] == [str(n) for n in range(0, 300, 3)]
            assert not any(SECRET in json.dumps(event.event) for event in reader.events())
            assert SECRET not in str(reader.status())
            assert [record.line for record in reader.records() if "*" not in record.line] == [
                '{"a": "b"}'
            ]
        with store.open("job2") as reader:
            texts = [line.text for line in reader.lines(streams=tuple(Stream), kinds=tuple(Kind))]
            assert (len(texts), sum(SECRET in line for line in texts)) == (302, 201)
    with pytest.raises(UnknownJob):
        purge_store(root, "--job", "job3", "--fixed", SECRET)
    assert purge_store(root, "--job", "job2") == 0
    assert holding(root) == []


def test_a_key_that_has_it_is_gone(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with LocalStore(str(root), create=True) as store:
        capture = CaptureWriter(root / "spool", "job1")
        capture.metadata({SECRET: 1})
        capture.close()
        store.ingest()
    assert purge_store(root, "--job", "job1", "--fixed", SECRET) == 0
    assert holding(root) == []


# ---- selection by pattern and job


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a(?=b)", "look-ahead"),
        (r"(a)\1", "reference"),
        ("(?x)a b", "flags other"),
        ("(?i)ü", "aren't ASCII"),
        ("[[:alpha:]]+", "Python reads differently"),
        (r"a\Z", "RE2 lacks"),
        ("a{,3}b", "write {0,n}"),
        ("a++b", "possessive"),
        ("(", "isn't a regular expression"),
        (r"\pL", "isn't a regular expression"),
        ("x*", "matches every line"),
        ("", "is empty"),
        ("a\nb", "unprintable"),
        ("a" * 1001, "longer than"),
    ],
)
def test_what_python_and_re2_read_differently_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match="--grep") as caught:
        pattern_of(text, None)
    assert words in str(caught.value)


def test_hostile_text_stays_one_string(loki: LokiServer) -> None:
    """Hostile text stays within its quotes: it matches no other job's line, and Loki accepts the
    query."""
    hostile = '"} or {x="y\\" |= `a`'
    assert pattern_of(None, hostile).logql == r' |= "\"} or {x=\"y\\\" |= `a`"'
    with LokiClient(loki.url) as client:
        for grep, fixed in (
            (None, hostile),
            (r'"\} `\d{3}\x41(?i:abc)', None),
            (r"(?P<n>a|b)\bc", None),
        ):
            query = f'sum(count_over_time({{service_name="logshipper"}}{pattern_of(grep, fixed).logql} [1h]))'
            assert client.query(query) == []


@pytest.mark.parametrize("job_id", ['x" or "', "../job1", "", "a" * 65])
def test_what_is_no_job_id_is_refused(node: ShippingNode, job_id: str) -> None:
    with pytest.raises(LogshipperError, match="--job"):
        purge(node, "--job", job_id)

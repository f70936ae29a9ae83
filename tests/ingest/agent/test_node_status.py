"""`logshipper-agent status --config`: it shows each job once, waiting and refused entries, and no
forged text."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logshipper_ingest.agent import node_status
from logshipper_ingest.agent.node_status import SCHEMA, status
from logshipper_ingest.cli import main
from logshipper_ingest.config import agent_config
from tests.tools.captures.segment_factory import make_ledger
from tests.tools.fakes.modelled_loki import rejection
from tests.tools.stores.shipping_node import ShippingNode, soon_ns

SECOND_NS = 10**9
HOUR_NS = 3600 * SECOND_NS
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ShippingNode]:
    shipping_node = ShippingNode(tmp_path)
    yield shipping_node
    shipping_node.close()


def document(node: ShippingNode, captured: Captured) -> dict[str, Any]:  # Any: JSON
    captured.readouterr()
    assert status(node.config, as_json=True) == 0
    status_document: dict[str, Any] = json.loads(captured.readouterr().out)
    return status_document


def printed(node: ShippingNode, captured: Captured) -> str:
    captured.readouterr()
    assert status(node.config, as_json=False) == 0
    return captured.readouterr().out


def test_before_anything_has_run(tmp_path: Path, capsys: Captured) -> None:
    node = ShippingNode(tmp_path)
    node.close()
    for file in (tmp_path / "state").glob("state.db*"):
        file.unlink()
    (tmp_path / "spool").rmdir()
    assert status(node.config, as_json=True) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["schema"], answer["jobs"], answer["agent_pid"]) == (SCHEMA, [], None)
    assert status(node.config, as_json=False) == 0
    text = capsys.readouterr().out
    assert "not running" in text
    assert "no jobs" in text
    assert not list((tmp_path / "state").glob("state.db*")), "looking makes nothing"


def test_a_job_on_its_way_and_when_it_has_arrived(node: ShippingNode, capsys: Captured) -> None:
    capture = node.capture("job1", soon_ns(), user="ann", name="train.py")
    with capture:
        capture.start()
        capture.lines(["one", "two"])
        size = capture.segment.stat().st_size
        (job,) = document(node, capsys)["jobs"]
        assert (job["job_id"], job["user"], job["name"], job["spooled_bytes"]) == (
            "job1",
            "ann",
            "train.py",
            size,
        )
        assert (job["lines"], job["entries"], job["captures"], job["over"]) == (0, {}, 1, 0)
        node.ship()
        capture.metadata({"a": 1})
        (job,) = document(node, capsys)["jobs"]
        assert job["spooled_bytes"] == capture.segment.stat().st_size - size
        assert (job["lines"], job["entries"], job["state"]) == (
            2,
            {"event": 1, "log": 2},
            "UNRESPONSIVE",
        )
        assert 500 < job["lag_secs"] < 700
        capture.end()
        capture.close()
    node.ship()
    (job,) = document(node, capsys)["jobs"]
    assert (job["state"], job["spooled_bytes"], job["lag_secs"], job["over"]) == (
        "COMPLETED",
        0,
        0.0,
        1,
    )
    assert (job["lines"], job["records"], job["entries"]["metadata"]) == (3, 1, 1)


def test_a_job_of_many_tasks_is_one_job(node: ShippingNode, capsys: Captured) -> None:
    for task in range(3):
        with node.capture("job1", soon_ns(), task=task) as capture:
            capture.lines(["one"])
    (unread,) = document(node, capsys)["jobs"]
    assert (unread["job_id"], unread["captures"]) == ("job1", 3)
    node.ship()
    (job,) = document(node, capsys)["jobs"]
    assert (job["captures"], job["over"], job["lines"]) == (3, 3, 3)
    with node.capture("job1", soon_ns(), task=7) as capture:
        capture.lines(["late"])
    jobs = document(node, capsys)["jobs"]
    assert [(job["job_id"], job["captures"]) for job in jobs] == [("job1", 4)]


def test_the_state_is_that_of_the_last_attempt(node: ShippingNode, capsys: Captured) -> None:
    for attempt, state in ((1, "FAILED"), (2, "COMPLETED")):
        with node.capture("job1", soon_ns() + attempt, attempt=attempt) as capture:
            capture.start()
            capture.end(state, 0 if state == "COMPLETED" else 1)
            capture.close()
    node.ship()
    (job,) = document(node, capsys)["jobs"]
    assert (job["state"], job["captures"]) == ("COMPLETED", 2)


def test_the_ledger_balances_or_says_where_it_doesnt(node: ShippingNode, capsys: Captured) -> None:
    """The command compares the captures' ledgers with the stored lines."""
    with node.capture("job1", soon_ns()) as first:
        first.lines(["one", "two"])
        node.learn()
        ledger = document(node, capsys)["ledger"]
        assert (ledger["read"], ledger["stored"], ledger["shipped"], ledger["waiting"]) == (
            2,
            2,
            0,
            2,
        )
        node.ship()
        account = make_ledger({"stored": 2, "collapsed": 3, "blank": 1, "lost": 4})
        first.end(ledger=account)
        first.close()
    node.ship()
    answer = document(node, capsys)
    (job,) = answer["jobs"]
    assert job["ledger"] == answer["ledger"]
    assert job["ledger"] == {
        "read": 10, "stored": 2, "collapsed": 3, "blank": 1, "dropped": 0, "commands": 0, "pending": 0, "lost": 4,
        "shipped": 2, "waiting": 0, "balances": True, "differs": ""}  # fmt: skip
    assert "10 lines read: 2 stored, 3 collapsed" in printed(node, capsys)
    assert "2 shipped, 0 wait: it balances" in printed(node, capsys)

    forged = make_ledger({"stored": 2})
    forged["stdout"]["read"] = 7
    for job_id, account in (("job2", forged), ("job3", make_ledger({"stored": 5}))):
        with node.capture(job_id, soon_ns()) as capture:
            capture.lines(["one", "two"])
            capture.end(ledger=account)
            capture.close()
    node.ship()
    text = printed(node, capsys)
    assert "IT DOESN'T BALANCE" in text
    assert "job job2: 7 lines were read, and 2 are accounted for" in text
    assert "job job3: its ledger has 5 stored lines, and 2 are there" in text
    assert "job job1:" not in text


def test_what_lies_in_the_quarantine(
    node: ShippingNode, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.lines(["old", "older"], time_ns=time.time_ns() - 165 * HOUR_NS)
        node.ship()
        assert document(node, capsys)["quarantine"]["reasons"] == {"too_old": 2}
        assert "in quarantine: 2 entries (2 too_old); `logshipper-agent replay` sends" in printed(
            node, capsys
        )
        monkeypatch.setattr(node_status, "_COUNTED_BYTES", 10)
        assert document(node, capsys)["quarantine"]["entries"] == -1
        assert "`logshipper-agent replay --dry-run` counts them" in printed(node, capsys)


def test_refusals_are_counted_by_reason(node: ShippingNode, capsys: Captured) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.lines(["old", "older"], time_ns=time.time_ns() - 165 * HOUR_NS)
        capture.lines(["young"])
        node.ship()
        (job,) = document(node, capsys)["jobs"]
        # with the events of a late heartbeat and of the next one
        assert (job["refused"], job["entries"]["log"]) == ({"too_old": 3}, 1)
        row = printed(node, capsys).splitlines()[-1].split()
        assert row[5:7] == ["2", "3"], "shipped, refused"


def test_trouble_with_loki_is_said_in_its_words(node: ShippingNode, capsys: Captured) -> None:
    since_ns = 1_750_000_000 * SECOND_NS
    trouble = {"since_ns": since_ns, "status": 401, "words": "no org id"}
    node.checkpoints.put_notes(
        {"loki": {"url": "http://modelled", **trouble}, "last_refusal": trouble}
    )
    answer = document(node, capsys)
    assert answer["loki"] == {
        "url": "http://modelled", "waiting": True,
        "trouble": {"since": "2025-06-15T15:06:40Z", "status": 401, "words": "no org id"},
    }  # fmt: skip
    assert "since 2025-06-15T15:06:40Z: HTTP 401: no org id" in printed(node, capsys)
    node.checkpoints.put_notes({"loki": {"url": "http://other", **trouble}})
    text = printed(node, capsys)
    assert "no trouble known" in text, "at this address"
    assert "its last refusal" in text


def test_what_the_sink_tells_fits_what_status_reads(node: ShippingNode, capsys: Captured) -> None:
    states = []

    def answer(labels: str) -> None:
        node.checkpoints.put_notes(
            {"loki": {"url": "http://modelled", **node.delivery.state._asdict()}}
        )
        states.append(document(node, capsys)["loki"])

    node.loki.script = [rejection(403, "not you"), answer]
    with node.capture("job1", soon_ns()) as capture:
        capture.lines(["one"])
        node.ship()
    assert [(state["waiting"], state["trouble"]["status"]) for state in states] == [(True, 403)]


def test_hostile_names_stay_in_their_cells(node: ShippingNode, capsys: Captured) -> None:
    with node.capture(
        "job1", soon_ns(), name="x\nforged  COMPLETED\x1b[2J\x9b", user="me"
    ) as capture:
        capture.lines(["one"])
    before = printed(node, capsys)
    node.ship()
    for text in (before, printed(node, capsys)):
        assert "\x1b" not in text
        assert "\x9b" not in text
        assert not any(line.startswith("forged") for line in text.splitlines())


def test_what_is_no_capture_in_the_spool_is_passed_over(
    node: ShippingNode, capsys: Captured
) -> None:
    spool = node.folder / "spool"
    (spool / "rubbish").mkdir()
    (spool / "file").write_text("x")
    (spool / "link").symlink_to("/")
    broken = spool / "job9@1.aaaa"
    broken.mkdir()
    (broken / "identity.json").write_text("{")
    with node.capture("job1", soon_ns()) as capture:
        capture.lines(["one"])
    (job,) = document(node, capsys)["jobs"]
    assert job["job_id"] == "job1"


def test_jobs_with_something_in_the_spool_come_first(node: ShippingNode, capsys: Captured) -> None:
    with node.capture("older", soon_ns()) as older:
        older.lines(["one"])
        node.ship()
        with node.capture("newer", soon_ns()) as newer:
            newer.lines(["one"])
        node.ship()
        over = next(
            capture for capture in node.captures.values() if capture.identity.job_id == "newer"
        )
        over.folder.remove()
        jobs = document(node, capsys)["jobs"]
        assert [job["job_id"] for job in jobs] == ["older", "newer"]
        del node.captures[over.folder.name]
        over.close()


# ---- without --config


@pytest.fixture
def place(root_user: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the deployed configuration. Root has a store and no agent; for an ordinary
    user, `status` would choose the store."""
    monkeypatch.setattr(agent_config, "DEFAULT_PATH", str(tmp_path / "agent.toml"))
    monkeypatch.setenv("LOGSHIPPER_AGENT_SOCKET", str(tmp_path / "agent.sock"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("LOGSHIPPER_STORE", raising=False)
    (tmp_path / "data" / "logshipper" / "spool").mkdir(parents=True, mode=0o700)
    return tmp_path / "agent.toml"


def configured(place: Path) -> None:
    folders = "".join(f'{name} = "{place.parent / name}"\n' for name in ("spool_dir", "state_dir"))
    place.write_text(f'[agent]\ncluster = "alpha"\n{folders}[loki]\nurl = "http://127.0.0.1:1"\n')


def schema_of(captured: Captured, *arguments: str) -> str:
    assert main(["status", "--json", *arguments]) == 0
    return str(json.loads(captured.readouterr().out)["schema"])


def test_root_means_the_nodes_agent(
    place: Path, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(place)
    assert schema_of(capsys) == SCHEMA
    store = str(tmp_path / "data" / "logshipper")
    assert schema_of(capsys, "--store", store) == "logshipper-agent.status/1"
    monkeypatch.setenv("LOGSHIPPER_STORE", store)
    assert schema_of(capsys) == "logshipper-agent.status/1"
    monkeypatch.delenv("LOGSHIPPER_STORE")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(
        "logshipper_ingest.agent.store_status.status",
        lambda root, as_json: print(f'{{"schema": "{root}"}}') or 0,
    )
    assert schema_of(capsys) == store


def test_wrong_configuration_in_its_place_is_told(place: Path, capsys: Captured) -> None:
    place.write_text("[agent]\nclutser = 1\n")
    assert main(["status"]) == 1
    assert f"{place}: [agent] clutser" in capsys.readouterr().err


def test_root_is_told_what_to_give_where_it_is_elsewhere(place: Path, capsys: Captured) -> None:
    assert main(["status"]) == 0
    assert capsys.readouterr().err == ""
    (place.parent / "agent.sock").touch()
    assert main(["status"]) == 0
    output = capsys.readouterr()
    assert f"configuration elsewhere than in {place}: give --config FILE" in output.err
    assert output.out.startswith("store ")

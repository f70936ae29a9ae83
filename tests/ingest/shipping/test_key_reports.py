"""Reports of a capture's keys, which the agent sends next to its lines."""

import json
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from logshipper.classify.classifier import Classifier
from logshipper.classify.logged import LoggedLines
from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.model.ranks import alphabetical_code, rank
from logshipper_ingest.shipping.followed_capture import FIRST_REPORT_NS, REPORT_NS
from tests.tools.captures.segment_factory import SECOND_NS, CaptureWriter
from tests.tools.stores.shipping_node import ShippingNode, soon_ns


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ShippingNode]:
    with closing(ShippingNode(tmp_path)) as node:
        yield node


def reports(node: ShippingNode, *, final: bool) -> list[list[dict[str, Any]]]:  # Any: JSON
    """Return reports in order of time."""
    by_time: dict[int, list[dict[str, Any]]] = {}
    for entry in node.loki.find('kind="value"'):
        if (("final", "1") in entry.metadata) is final:
            by_time.setdefault(entry.time_ns, []).append(json.loads(entry.line))
    return [by_time[time_ns] for time_ns in sorted(by_time)]


def record(capture: CaptureWriter, *steps: int) -> None:
    capture.metadata(*({"step": step, "loss": abs(step - 5)} for step in steps))


def of_loss(
    last: int, least: int, largest: int, count: int, *, rule: int
) -> dict[str, Any]:  # Any: JSON
    values = {"last": abs(last - 5), "least": abs(least - 5), "largest": abs(largest - 5)}
    at = {"last_at": last, "least_at": least, "largest_at": largest}
    of_graphs = {"rank": rank(rule, alphabetical_code("loss"), 0), "own_x": "step"}
    return {"key": "loss", "count": count, "x": "step", **values, **at, **of_graphs}


def test_a_capture_s_values_are_there_when_it_is_closed(node: ShippingNode) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.start()
        record(capture, 1, 3, 5, 7)
        capture.end()
        capture.close()
    node.ship()
    ((loss, step),) = reports(node, final=True)
    assert loss == of_loss(7, 5, 1, 4, rule=7)
    assert (step["key"], step["x"], step["last_at"]) == ("step", None, 4)
    assert reports(node, final=False) == []
    (closed,) = (entry for entry in node.loki.find('kind="event"') if b'"closed"' in entry.line)
    (value, _) = node.loki.find('kind="value"')
    assert value.time_ns == closed.time_ns
    assert {name for name, _ in value.metadata} == {name for name, _ in closed.metadata} | {"final"}


def test_a_young_capture_reports_every_ten_seconds(node: ShippingNode) -> None:
    with node.capture("job1", soon_ns(20)) as capture:
        capture.start()
        for step in range(1, 100):
            capture.now_ns += FIRST_REPORT_NS
            record(capture, step)
            node.ship()
        last = [loss["last_at"] for loss, _ in reports(node, final=False)]
        assert last[:9] == list(range(1, 10))
        assert {after - before for before, after in pairwise(last[-5:])} == {6}


def test_a_capture_that_runs_reports_what_is_new(node: ShippingNode) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.start()
        begin_ns = capture.now_ns
        record(capture, 1, 2)
        node.ship()
        assert reports(node, final=False) == []
        capture.now_ns = begin_ns + FIRST_REPORT_NS
        record(capture, 3)
        node.ship()
        record(capture, 4)
        node.ship()
        assert [loss for loss, _ in reports(node, final=False)] == [of_loss(3, 3, 1, 3, rule=5)]
        capture.now_ns += REPORT_NS
        capture.heartbeat()
        node.ship()
        newest = of_loss(4, 4, 1, 4, rule=5)
        assert [loss for loss, _ in reports(node, final=False)][1:] == [newest]
        capture.now_ns += 3 * REPORT_NS
        capture.heartbeat()
        node.ship()
        assert len(reports(node, final=False)) == 2


@pytest.mark.parametrize("save", [True, False])
def test_a_restart_changes_no_value(save: bool, node: ShippingNode) -> None:
    with node.capture("job1", soon_ns(20)) as capture:
        capture.start()
        for step in range(1, 10):
            record(capture, step)
            capture.now_ns += REPORT_NS
            node.ship()
            if step % 4 == 0:
                node.restart(save=save)
        capture.end()
        capture.close()
    node.ship()
    assert [loss for loss, _ in reports(node, final=True)] == [of_loss(9, 5, 1, 9, rule=7)]
    times = sorted({entry.time_ns for entry in node.loki.find('kind="value"')})
    assert all(after - before >= REPORT_NS for before, after in pairwise(times[:-1]))
    assert len(times) > 5


def test_the_same_is_sent_again_after_the_agent_was_killed(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.start()
        record(capture, 1, 2, 3)
        capture.end()
        capture.close()
    node.learn(save=False)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(node.checkpoints, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            node.ship()
    before = node.loki.find('kind="value"')
    assert before
    node.restart(save=False)
    node.ship()
    assert node.loki.find('kind="value"') == before


def test_what_wasn_t_sent_yet_is_no_report(node: ShippingNode) -> None:
    """The learner goes on while Loki accepts nothing. A report of its newest records would be ahead
    of the log."""
    with node.capture("job1", soon_ns()) as capture:
        capture.start()
        record(capture, 1)
        node.ship()
        capture.now_ns += REPORT_NS
        record(capture, 2)
        node.learn()
        report = node.only_capture().report
        assert report is not None
        node.only_capture().report = report._replace(time_ns=report.time_ns + SECOND_NS)
        node.ship()
        assert reports(node, final=False) == []


def test_a_capture_without_numbers_has_no_values(node: ShippingNode) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.start()
        capture.lines(["no numbers"])
        capture.metadata({"model": "small"})
        capture.now_ns += REPORT_NS
        capture.heartbeat()
        node.ship()
        capture.end()
        capture.close()
    node.ship()
    assert node.loki.find('kind="value"') == []


def test_reports_are_counted_as_all_entries_are(node: ShippingNode) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.start()
        record(capture, 1, 2)
        capture.end()
        capture.close()
    node.ship()
    (progress,) = node.checkpoints.shipped()
    assert progress.counts.entries["value"] == len(node.loki.find('kind="value"')) == 2
    assert progress.counts.entries == {
        kind: len(node.loki.find(f'kind="{kind}"')) for kind in progress.counts.entries
    }


def test_what_a_mode_leaves_out_is_no_value(node: ShippingNode) -> None:
    """Records of mode `disabled` are in no segment, so the learner never sees them."""
    switch = b'/LOGCOMMAND {"mode":"%s"}\n'
    classifier = Classifier("enabled")
    printed = [
        b'{"step": 1, "loss": 4}\n',
        switch % b"disabled",
        b'{"step": 2, "loss": 99, "secret": 7}\n',
        switch % b"enabled",
        b'{"step": 3, "loss": 2}\n',
    ]
    classifier.feed(Stream.STDOUT, b"".join(printed), 1.0)
    classifier.end(Stream.STDOUT, 2.0)
    with node.capture("job1", soon_ns()) as capture:
        capture.start()
        for item in classifier.take():
            if isinstance(item, LoggedLines) and item.kind is Kind.METADATA:
                capture.metadata(*item.text.decode().splitlines())
        capture.end()
        capture.close()
    node.ship()
    ((loss, _),) = reports(node, final=True)
    assert (loss["count"], loss["largest"], loss["last"]) == (2, 4, 2)
    assert not [
        line for line in node.loki.lines('kind="value"') if "99" in line or "secret" in line
    ]

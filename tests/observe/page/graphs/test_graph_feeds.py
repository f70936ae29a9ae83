"""Feeds of graphs: incremental reading of a running job gives the same graphs as one pass over all
records."""

import json
import time
from pathlib import Path

import pytest

from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.graphs.series import Graph, GraphRequest, graphs
from logshipper_observe.page.data.cache import Cache
from logshipper_observe.page.data.graph_feeds import Feed, FeedQuery
from logshipper_observe.query.asked import UnknownKey
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.fakes.loki_fake import FakeLoki
from tests.tools.stores.loki_job import push_spool
from tests.tools.stores.loki_pushing import open_store
from tests.tools.stores.reading_store import SpooledCapture

JOB = "k3f9x2"


def points(feed_graphs: list[Graph]) -> list[object]:
    def series(graph: Graph) -> list[object]:
        return [
            (curve.label, curve.total, list(curve.xs), list(curve.ys)) for curve in graph.series
        ]

    return [
        (graph.key, graph.x, graph.own_x, graph.without_x, series(graph)) for graph in feed_graphs
    ]


class StoreFeed:
    """A feed of a store, and the graphs of one pass over all records."""

    def __init__(self, root: Path, *keys: str, x: str | None = None) -> None:
        self._root = root
        self._request = GraphRequest(x, keys)
        self.feed = Feed(FeedQuery(JOB, x, keys))

    def read(self) -> list[Graph]:
        with LocalStore(str(self._root)) as store:
            assert store.ingest(deadline_secs=60).complete
            with store.open(JOB) as reader:
                feed_graphs = self.feed.read_on(reader)
                assert points(feed_graphs) == points(graphs(reader, self._request, 99)[0])
                assert self.feed.reading.records == reader.summary.records
                return feed_graphs


def test_reading_on(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with SpooledCapture(root) as job:
        job.metadata({"step": 1, "loss": 1.0})
        store_feed = StoreFeed(root, "loss")
        assert store_feed.read()[0].total == 1
        assert store_feed.read()[0].total == 1, "nothing is read twice"
        for step in range(2, 50, 7):
            job.metadata(*({"step": at, "loss": 1 / at} for at in range(step, step + 7)))
            store_feed.read()
        job.end()
        assert store_feed.read()[0].total == 50


def test_another_x_is_chosen_as_records_come(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with SpooledCapture(root) as job:
        job.metadata({"a": 1, "loss": 1.0}, {"a": 2, "loss": 0.9})
        store_feed = StoreFeed(root, "loss")
        assert store_feed.read()[0].x.key == "a"
        job.metadata({"a": 1, "epoch": 3, "loss": 0.5})
        graph = store_feed.read()[0]
        assert (graph.x.key, graph.total, graph.without_x) == ("epoch", 1, 2)
        job.end()


def test_a_key_gets_and_loses_an_x_of_its_own(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with SpooledCapture(root) as job:
        job.metadata({"epoch": 1, "loss": 1.0}, {"step": 1, "lr": 0.1}, {"step": 2, "lr": 0.2})
        store_feed = StoreFeed(root, "loss", "lr")
        assert [graph.x.key for graph in store_feed.read()] == ["epoch", "step"]
        job.metadata({"step": 3, "lr": 0.3})
        assert store_feed.read()[1].total == 3
        job.metadata({"epoch": 2, "lr": 0.4})
        assert [graph.x.key for graph in store_feed.read()] == ["epoch", "epoch"]
        job.end()


def test_records_that_come_late_from_another_task(tmp_path: Path) -> None:
    """The records of an earlier attempt arrive after the second attempt's."""
    root = tmp_path / "store"
    with SpooledCapture(root, attempt=2) as job:
        job.metadata({"step": 1, "loss": 1.0}, {"step": 2, "loss": 0.5})
        store_feed = StoreFeed(root, "loss")
        store_feed.read()
        with SpooledCapture(root, attempt=1, started_ns=time.time_ns() - 3600 * NS) as earlier:
            earlier.metadata({"step": 1, "loss": 3.0})
            store_feed.read()
            earlier.metadata({"step": 2, "loss": 2.0})
            graph = store_feed.read()[0]
            assert [curve.total for curve in graph.series] == [2, 2]
            earlier.end()
        job.end()
        store_feed.read()


def test_unknown_keys_and_the_cap_of_feeds(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with SpooledCapture(root) as job:
        job.metadata({"step": 1, "loss": 1.0})
        job.end()
    with pytest.raises(UnknownKey):
        StoreFeed(root, "lost").read()
    feeds = Cache(Feed, 2)
    queries = [FeedQuery(JOB, None, (key,)) for key in "abc"]
    first = feeds.get(queries[0])
    assert feeds.get(queries[0]) is first
    feeds.get(queries[1])
    feeds.get(queries[2])
    assert feeds.get(queries[0]) is not first, "the one that was asked for longest ago is gone"


def test_smoothing_goes_on_where_it_was(tmp_path: Path) -> None:
    root = tmp_path / "store"
    feed = Feed(FeedQuery(JOB, None, ("loss",), 0.5))
    losses = [8.0, 4.0, 2.0, 1.0]
    with SpooledCapture(root) as job:
        for step, loss in enumerate(losses):
            job.metadata(json.dumps({"step": step, "loss": loss}))
            with LocalStore(str(root)) as store:
                store.ingest(deadline_secs=60)
                with store.open(JOB) as reader:
                    feed_graphs = feed.read_on(reader)
        job.end()
    assert list(feed_graphs[0].series[0].ys) == [8.0, 6.0, 4.0, 2.5]


def test_debiased_smoothing_goes_on_where_it_was(tmp_path: Path) -> None:
    """Expected values, calculated by hand: 8, (0.5*8 - 1) / 1.5, (0.25*8 - 0.5*1 + 2) / 1.75."""
    root = tmp_path / "store"
    feed = Feed(FeedQuery(JOB, None, ("loss",), 0.5, debias=True))
    with SpooledCapture(root) as job:
        for step, loss in enumerate((8.0, -1.0, 2.0)):
            job.metadata({"step": step, "loss": loss})
            with LocalStore(str(root)) as store:
                store.ingest(deadline_secs=60)
                with store.open(JOB) as reader:
                    feed_graphs = feed.read_on(reader)
        job.end()
    assert list(feed_graphs[0].series[0].ys) == pytest.approx([8.0, 2.0, 2.0])


def test_a_long_job_is_read_by_and_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    feed = Feed(FeedQuery(JOB, None, ("loss", "lr")))
    with SpooledCapture(root) as job:
        job.metadata(*(json.dumps({"epoch": step, "loss": step}) for step in range(700)))
        job.metadata(*(json.dumps({"step": step, "lr": step}) for step in range(700)))
        job.end()
    with LocalStore(str(root)) as store:
        assert store.ingest(deadline_secs=60).complete
        with store.open(JOB) as reader:
            all_points = points(graphs(reader, GraphRequest(None, ("loss", "lr")), 9)[0])
            record_counts = []
            for _ in range(50):
                # the clock allows two looks
                monkeypatch.setattr(
                    "time.monotonic", iter([0.0, *([0.5] * 2), *([9.0] * 99)]).__next__
                )
                feed_graphs = feed.read_on(reader, secs=1.0)
                monkeypatch.undo()
                record_counts.append(feed.reading.records)
                if feed.complete:
                    break
                assert not any(graph.own_x for graph in feed_graphs[:1])
            assert points(feed_graphs) == all_points
            assert len(record_counts) > 3
            assert record_counts == sorted(record_counts)


def test_tags_are_series_while_a_job_runs(tmp_path: Path) -> None:
    """Labels name the tags as soon as their values differ."""
    root = tmp_path / "store"

    def measurement(step: int, host: str, phase: str) -> dict[str, object]:
        tags = {"host": host, "phase": phase, "user": "x"}
        return {"loss": {"step": step, "value": step / 4}, "tags": tags}

    with SpooledCapture(root) as job:
        job.metadata(measurement(1, "n1", "train"), measurement(2, "n1", "train"))
        store_feed = StoreFeed(root, "loss.value", x="loss.step")
        assert [curve.label for curve in store_feed.read()[0].series] == [""]
        job.metadata(measurement(1, "n2", "train"), measurement(1, "n1", "test"))
        labels = ["host n1, phase test", "host n1, phase train", "host n2, phase train"]
        assert [curve.label for curve in store_feed.read()[0].series] == labels
        job.metadata(measurement(2, "n1", "test"))
        curves = store_feed.read()[0].series
        assert [list(curve.xs) for curve in curves] == [[1, 2], [1, 2], [1]]
        job.end()


def test_the_same_from_loki(tmp_path: Path) -> None:
    fake = FakeLoki()
    with SpooledCapture(tmp_path / "store") as job:
        job.metadata(
            *(json.dumps({"epoch": step, "loss": 1 / step}) for step in range(1, 9)),
            {"step": 1, "lr": 0.1},
        )
        job.end()
    push_spool(fake, tmp_path / "store" / "spool")
    local = StoreFeed(tmp_path / "store", "loss", "lr")
    with open_store(fake).open(JOB) as reader:
        feed = Feed(local.feed.query)
        feed_graphs = feed.read_on(reader)
        assert points(feed_graphs) == points(
            graphs(reader, GraphRequest(None, ("loss", "lr")), 9)[0]
        )
        assert points(feed.read_on(reader)) == points(feed_graphs), "nothing is read twice"
        assert points(feed_graphs) == points(local.read())

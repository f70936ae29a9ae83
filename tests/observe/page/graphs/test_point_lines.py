"""The server's answers for points of graphs, compared with the lines that it returns by number."""

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from logshipper.spool.segment import Kind, Stream
from logshipper_observe.page.api import points
from logshipper_observe.page.data import cache
from logshipper_observe.page.server import PageServer
from tests.observe.page.graphs.graph_jobs import LONG, LONG_RECORDS, PEAK_AT, long_line
from tests.observe.page.test_access import Client
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.stores.reading_store import SpooledCapture

JOB = "k3f9x2"
BEGAN_NS = time.time_ns() - 3600 * NS
Serve = Callable[[Path], PageServer]
Json = dict[str, Any]  # Any: JSON


class GraphClient:
    """Requests a job's graphs, and the lines of their points like the page."""

    def __init__(self, server: PageServer, job_id: str = JOB) -> None:
        self.client = Client(server)
        self._job_id = job_id

    def ask(self, path: str, **words: object) -> Json:
        answer = self.client.ask(f"api/jobs/{self._job_id}/{path}?{urlencode(words)}")
        assert answer.status == 200, answer.body
        return dict(json.loads(answer.body))

    def graph(self, key: str, **words: object) -> Json:
        while not (answer := self.ask("graphs", y=json.dumps([key]), **words))["complete"]:
            pass
        (graph,) = answer["graphs"]
        return dict(graph)

    def point(self, graph: Json, series: Json, x: float, y: float, /, **words: object) -> Json:
        """Return the final answer for a point."""
        place = {"at_x": repr(x), "at_y": repr(y)}
        curve = {} if series["curve"] is None else {"curve": series["curve"]}
        of = {"origin": series["origin"], "tags": json.dumps(series["tags"]), **curve}
        words |= {"y": json.dumps([graph["key"]]), "own_x": int(graph["own_x"]), **of, **place}
        while not (answer := self.ask("point", **words))["complete"]:
            assert answer["line"] is None
        return answer

    def text(self, number: int) -> str:
        """Return the text of the line with this number, as in the console."""
        (line,) = self.ask("lines", **{"from": number, "count": 1})["lines"]
        return str(line[3])

    def lines_of(self, key: str, **words: object) -> list[list[tuple[int, str]]]:
        """Return, per series, numbers and texts of the lines of all its points."""
        graph = self.graph(key, **words)
        asked = {"x": words["x"]} if "x" in words else {}

        def line_of(series: Json, x: float, y: float) -> tuple[int, str]:
            number = self.point(graph, series, x, y, **asked)["line"]
            return number, self.text(number)

        return [
            [line_of(series, x, y) for x, y in zip(series["x"], series["y"], strict=True)]
            for series in graph["series"]
        ]


def record(**values: object) -> str:
    return json.dumps(values)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.mark.parametrize("x", ["", "step", "time", "other"])
def test_both_streams_and_equal_values(store: Path, serve: Serve, x: str) -> None:
    """Each step has the same loss, between other lines of both streams."""
    lines = [record(step=step, loss=0.5, other=9 - step) for step in range(1, 9)]
    with SpooledCapture(store, started_ns=BEGAN_NS) as job:
        for line in lines:
            job.lines(f"before {line}", "and more")
            job.metadata(line)
            job.stderr(line)
        job.end()
    (found,) = GraphClient(serve(store)).lines_of("loss", x=x)
    assert sorted(found) == [(4 * at + 2, line) for at, line in enumerate(lines)]


def test_attempts_and_tasks_at_equal_times(store: Path, serve: Serve) -> None:
    """Two tasks of each of two attempts print the same records, at the same nanoseconds within an
    attempt."""
    places = [(1, 0), (1, 1), (2, 0), (2, 1)]
    for attempt, task in places:
        began_ns = BEGAN_NS + attempt * NS
        with SpooledCapture(
            store, JOB, attempt, started_ns=began_ns, task=task, suffix=f"t{task}"
        ) as job:
            job.lines(f"attempt {attempt}, task {task}")
            for step in (1, 2, 3):
                job.metadata(record(step=step, loss=1.5))
            job.end()
    client = GraphClient(serve(store))
    found = client.lines_of("loss")
    assert len({number for series in found for number, _ in series}) == 12
    rows = client.ask("lines", count=100)["lines"]
    captures = [[rows[number][5] for number, _ in series] for series in found]
    assert [len({*numbers}) for numbers in captures] == [1] * 4
    texts = {row[5]: row[3] for row in rows if row[3].startswith("attempt")}
    labels = [series["label"] for series in client.graph("loss")["series"]]
    assert [texts[numbers[0]] for numbers in captures] == labels


def test_a_thinned_graph_and_one_that_is_zoomed(graph_server: PageServer) -> None:
    client = GraphClient(graph_server, LONG)
    graph = client.graph("loss", points=50)
    (series,) = graph["series"]
    assert PEAK_AT in series["x"]
    for at in (0, series["x"].index(PEAK_AT), -1):
        x, y = series["x"][at], series["y"][at]
        assert client.text(client.point(graph, series, x, y)["line"]) == long_line(int(x))
    zoomed = client.graph("loss", x="step", low=LONG_RECORDS / 2, high=LONG_RECORDS / 2 + 3)
    (series,) = zoomed["series"]
    numbers = [
        client.point(zoomed, series, x, y, x="step")["line"]
        for x, y in zip(series["x"], series["y"], strict=True)
    ]
    assert [client.text(number) for number in numbers] == [
        long_line(LONG_RECORDS // 2 + at) for at in range(4)
    ]


def test_a_long_job_is_searched_by_and_by(
    graph_store: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = GraphClient(serve(graph_store), LONG)
    graph = client.graph("loss")
    monkeypatch.setattr(points, "READ_SECS", 0.0)
    (series,) = graph["series"]
    of = {"origin": "", "tags": "{}", "y": '["loss"]', "at_x": PEAK_AT, "at_y": 99.5}
    answers = [client.ask("point", **of)]
    while not answers[-1]["complete"]:
        answers.append(client.ask("point", **of))
    read = [answer["records"] for answer in answers]
    assert read == sorted(read)
    assert len({*read}) > 10
    assert read[-1] == PEAK_AT + 1, "no more than up to the record"
    assert {answer["total"] for answer in answers} == {LONG_RECORDS}
    assert client.text(answers[-1]["line"]) == long_line(PEAK_AT)
    assert client.point(graph, series, PEAK_AT, 1.0) == {
        "line": None,
        "complete": True,
        "records": LONG_RECORDS,
        "total": LONG_RECORDS,
        "words": points.CHANGED,
    }


def test_curves_that_begin_again_and_records_by_number(store: Path, serve: Serve) -> None:
    folds = [record(epoch=epoch, loss=0.25) for _ in range(3) for epoch in (1, 2, 3)]
    with SpooledCapture(store) as job:
        job.metadata(*folds)
        job.end()
    with SpooledCapture(store, "one") as job:
        for _ in range(4):
            job.metadata(record(loss=7), record(loss=8))
        job.end()
    server = serve(store)
    client = GraphClient(server)
    assert [series["label"] for series in client.graph("loss")["series"]] == [
        f"curve {number}" for number in (1, 2, 3)
    ]
    found = client.lines_of("loss")
    assert [[number for number, _ in series] for series in found] == [
        [0, 1, 2], [3, 4, 5], [6, 7, 8]
    ]  # fmt: skip
    (numbered,) = GraphClient(server, "one").lines_of("loss")
    assert [number for number, _ in numbered] == list(range(8))


def test_an_x_of_its_own_gaps_and_tags(store: Path, serve: Serve) -> None:
    with SpooledCapture(store) as job:
        for step in (1, 2, 3):
            job.metadata(record(step=step, lr=1 / step))
            job.metadata(record(epoch=step, loss=math.nan if step == 2 else 1 / step))
        for host in ("n1", "n2"):
            for at in (1, 2):
                job.metadata(record(gpu={"step": at, "power": 300}, tags={"host": host, "on": "x"}))
        job.end()
    client = GraphClient(serve(store))
    assert client.graph("lr")["own_x"]
    assert [[number for number, _ in series] for series in client.lines_of("lr")] == [[0, 2, 4]]
    assert [[number for number, _ in series] for series in client.lines_of("loss")] == [[1, 5]]
    power = client.lines_of("gpu.power", x="gpu.step")
    assert [[number for number, _ in series] for series in power] == [[6, 7], [8, 9]]


def test_in_mode_metadata_the_records_are_the_lines(store: Path, serve: Serve) -> None:
    lines = [record(step=step, loss=1 / step) for step in (1, 2, 3)]
    with SpooledCapture(store) as job:
        job.lose(3, account="dropped")
        job.metadata(*lines)
        job.end()
    assert GraphClient(serve(store)).lines_of("loss") == [list(enumerate(lines))]


class TextCapture(SpooledCapture):
    """A capture whose records may also come from lines that aren't JSON."""

    def __enter__(self) -> "TextCapture":
        return self

    def chunk(self, *texts: str, records: list[str], origin: str = "pairs") -> None:
        """Write lines, and their records behind them, like a chunk of the sidecar: 1 ns apart."""
        attrs = {
            f"at{len(texts) + at}": {"n": 1, "origin": origin, "copy": 1}
            for at in range(len(records))
        }
        lines = [
            *((Kind.LOG, text) for text in texts),
            *((Kind.METADATA, line) for line in records),
        ]
        self._writer.mixed(lines, stream=Stream.STDOUT, **attrs)
        self._writer.now_ns += len(texts) + len(records)


def chunk_lines(store: Path, serve: Serve) -> list[Json]:
    """Return the page's answer for each point of `loss`."""
    client = GraphClient(serve(store))
    graph = client.graph("loss")
    return [
        client.point(graph, series, x, y)
        for series in graph["series"]
        for x, y in zip(series["x"], series["y"], strict=True)
    ]


def test_lines_that_are_not_json(store: Path, serve: Serve) -> None:
    """Records stand beside their lines: each origin has as many lines as records."""
    with TextCapture(store) as job:
        job.lines("loss=1 at the beginning")
        job.chunk(
            "Training", "step=1 loss=0.5", "a word", "step=2 loss=0.5", "the end",
            records=[record(step=1, loss=0.5), record(step=2, loss=0.5)],
        )  # fmt: skip
        job.stderr("in between")
        job.chunk("step=3, loss=0.25", records=[record(step=3, loss=0.25)])
        job.chunk("{'step': 4, 'loss': 0.125}", records=[record(step=4, loss=0.125)], origin="dict")
        job.end()
    answers = chunk_lines(store, serve)
    assert [answer["line"] for answer in answers] == [2, 4, 7, 8]


def test_a_line_whose_epoch_stands_in_another(store: Path, serve: Serve) -> None:
    records = [record(epoch=epoch, loss=0.5) for epoch in (1, 2)]
    with TextCapture(store) as job:
        job.chunk("Epoch 1/2", "9/9 - 1s - loss: 0.5", records=records[:1], origin="keras")
        job.lines("Epoch 2/2")
        job.chunk("9/9 - 1s - loss: 0.5", records=records[1:], origin="keras")
        job.end()
    assert [answer["line"] for answer in chunk_lines(store, serve)] == [1, 3]


def test_no_line_rather_than_a_wrong_one(store: Path, serve: Serve) -> None:
    with TextCapture(store) as job:
        # the second record is a repeat: the first line may be either's
        job.chunk("step=1 loss=2", records=[record(step=1, loss=2), record(step=1, loss=2)])
        # the line is a repeat of the one before
        job.chunk("other words", records=[record(step=2, loss=2)])
        # origin: the user's own pattern
        job.chunk("loss 3 in 3", records=[record(step=3, loss=3)], origin="mine")
        job.end()
    answers = chunk_lines(store, serve)
    assert [answer["line"] for answer in answers] == [None] * 4
    assert all(answer["complete"] for answer in answers)
    assert "can't tell which line of the log that is" in answers[0]["words"]
    assert "isn't JSON (mine)" in answers[-1]["words"]


def test_while_the_job_runs(store: Path, serve: Serve) -> None:
    """Late lines of another attempt change the other lines' numbers."""
    with SpooledCapture(store, attempt=2) as job:
        job.metadata(record(step=1, loss=1), record(step=2, loss=0.5))
        job.beat()
        client = GraphClient(serve(store))
        assert [[number for number, _ in series] for series in client.lines_of("loss")] == [[0, 1]]
        with SpooledCapture(store, started_ns=BEGAN_NS) as earlier:
            earlier.lines("an earlier line")
            earlier.metadata(record(step=1, loss=1))
            earlier.end()
        job.metadata(record(step=3, loss=0.5))
        job.beat()
        while len(client.graph("loss")["series"]) < 2:
            pass
        found = client.lines_of("loss")
        assert [[number for number, _ in series] for series in found] == [[1], [2, 3, 4]]
        job.end()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({}, "y: must be a JSON list of texts"),
        ({"y": '["loss"]'}, "at_x"),
        ({"y": '["loss"]', "at_x": "1", "at_y": "x"}, "at_y"),
        ({"y": '["loss"]', "at_x": "1", "at_y": "1", "tags": "[]"}, "tags"),
        ({"y": '["loss"]', "at_x": "1", "at_y": "1", "tags": "{"}, "tags"),
        ({"y": '["loss"]', "at_x": "1", "at_y": "1", "curve": "-3"}, "curve"),
        ({"y": '["lost"]', "at_x": "1", "at_y": "1"}, "did you mean loss?"),
    ],
)
def test_wrong_questions(graph_server: PageServer, words: dict[str, str], message: str) -> None:
    answer = Client(graph_server).ask(f"api/jobs/{LONG}/point?{urlencode(words)}")
    assert answer.status in (400, 404)
    assert message in json.loads(answer.body)["error"]


def test_the_last_searches_are_kept() -> None:
    latest = cache.Cache[int, list[int]](lambda number: [number], 2)
    first = latest.get(1)
    assert latest.get(1) is first
    latest.get(2)
    latest.get(3)
    assert latest.get(1) is not first

"""The HTTP interface for graphs, metadata and comparison: it rejects wrong requests with a
reason."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import pytest

from logshipper_observe.page.server import PageServer
from tests.observe.page.graphs.graph_jobs import CURVES, HOSTILE, LONG, OTHER
from tests.observe.page.test_access import Client
from tests.tools.stores.reading_store import SpooledCapture


@pytest.fixture(scope="module")
def client(graph_server: PageServer) -> Client:
    return Client(graph_server)


def ask_api(client: Client, path: str, **words: str) -> tuple[int, dict[str, object]]:
    answer = client.ask(f"{client.root}api/{path}?{urlencode(words)}")
    return answer.status, json.loads(answer.body)


@pytest.mark.parametrize(
    ("path", "words", "status", "message"),
    [
        (f"jobs/{CURVES}/graphs", {}, 400, "y: must be a JSON list of texts"),
        (f"jobs/{CURVES}/graphs", {"y": "loss"}, 400, "y: must be a JSON list of texts"),
        (f"jobs/{CURVES}/graphs", {"y": "[1]"}, 400, "y: must be a JSON list of texts"),
        (f"jobs/{CURVES}/graphs", {"y": json.dumps(["loss"] * 33)}, 400, "at most 32"),
        (f"jobs/{CURVES}/graphs", {"y": '["lost"]'}, 404, "did you mean loss?"),
        (f"jobs/{CURVES}/graphs", {"y": '["loss"]', "x": "epocs"}, 404, "did you mean epoch?"),
        (f"jobs/{CURVES}/graphs", {"y": '["loss"]', "smooth": "1"}, 400, "from 0 to below 1"),
        (f"jobs/{CURVES}/graphs", {"y": '["loss"]', "smooth": "nan"}, 400, "isn't a number"),
        (f"jobs/{CURVES}/graphs", {"y": '["loss"]', "debias": "x"}, 400, "debias"),
        (f"jobs/{CURVES}/graphs", {"y": '["loss"]', "low": "x"}, 400, "low: 'x' isn't a number"),
        (f"jobs/{CURVES}/graphs", {"y": '["loss"]', "points": "99999"}, 400, "points"),
        (f"jobs/{CURVES}/axes", {"x": "nothing"}, 404, "no key 'nothing'"),
        (f"jobs/{CURVES}/graph.csv", {"y": '["lost"]'}, 404, "did you mean loss?"),
        (f"jobs/{CURVES}/point", {"y": '["lost"]', "at_x": "1", "at_y": "1"}, 404, "did you mean"),
        ("groups", {"jobs": f'["{CURVES}"]', "y": '["loss"]', "x": "no"}, 404, "no key 'no'"),
        (
            f"jobs/{CURVES}/search",
            {"q": "(", "regex": "1"},
            400,
            "isn't a regular expression of RE2",
        ),
        (
            f"jobs/{CURVES}/marks",
            {"q": "(", "regex": "1"},
            400,
            "isn't a regular expression of RE2",
        ),
        (
            f"jobs/{CURVES}/lines",
            {"q": "(", "regex": "1", "only": "1"},
            400,
            "isn't a regular expression of RE2",
        ),
        (f"jobs/{CURVES}/records", {"order": "random"}, 400, "order"),
        (f"jobs/{CURVES}/records", {"limit": "0"}, 400, "limit"),
        (f"jobs/{CURVES}/records", {"from": "-1"}, 400, "from"),
        ("jobs/nosuchjob/graphs", {"y": '["loss"]'}, 404, "nosuchjob"),
        ("jobs/nosuchjob/records.csv", {}, 404, "nosuchjob"),
        ("compare", {"jobs": CURVES}, 400, "jobs: must be a JSON list of texts"),
        ("compare", {"jobs": json.dumps([str(n) for n in range(17)])}, 400, "at most 16"),
    ],
)
def test_wrong_questions(
    client: Client, path: str, words: dict[str, str], status: int, message: str
) -> None:
    answer_status, document = ask_api(client, path, **words)
    assert (answer_status, message in str(document["error"])) == (status, True), document


def test_csv_of_a_graph_has_the_tags_of_measurements(
    serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    with SpooledCapture(tmp_path / "store", "tagged") as job:
        for host in ("n1", "n2"):
            for step in (1, 2):
                measured = {"step": step, "value": step / 4}
                job.metadata({"loss": measured, "tags": {"host": host, "phase": "a, b"}})
        job.end()
    client = Client(serve(tmp_path / "store"))
    words = urlencode({"y": '["loss.value"]', "x": "loss.step"})
    answer = client.ask(f"{client.root}api/jobs/tagged/graph.csv?{words}")
    head, *rows = csv.reader(io.StringIO(answer.body.decode()))
    assert head == ["_time", "_attempt", "_tags", "loss.step", "loss.value"]
    assert [row[2:] for row in rows] == [
        [f"host={host} phase=a, b", str(step), str(step / 4)]
        for host in ("n1", "n2")
        for step in (1, 2)
    ]


def test_what_has_not_changed_is_not_sent_again(client: Client) -> None:
    for path in (
        f"jobs/{CURVES}/graphs?" + urlencode({"y": '["loss"]'}),
        f"jobs/{CURVES}/axes",
        f"jobs/{CURVES}/records",
        "compare?" + urlencode({"jobs": json.dumps([CURVES, OTHER])}),
    ):
        first = client.ask(f"{client.root}api/{path}")
        second = client.ask(f"{client.root}api/{path}", If_None_Match=str(first.headers["ETag"]))
        assert (first.status, second.status, second.body) == (200, 304, b"")


def test_pages_of_records_meet_without_gap_or_overlap(client: Client) -> None:
    for order in ("newest", "oldest"):
        place: dict[str, str] = {}
        steps: list[str] = []
        while len(steps) < 1500:
            _, page = ask_api(client, f"jobs/{LONG}/records", order=order, limit="499", **place)
            rows: list[dict[str, list[str]]] = page["rows"]  # type: ignore[assignment]
            steps += [row["cells"][0] for row in rows]
            place = {name: str(value) for name, value in page["next"].items()}  # type: ignore[attr-defined]
        numbers = [int(step) for step in steps]
        begin, by = (19_999, -1) if order == "newest" else (0, 1)
        assert numbers == list(range(begin, begin + by * len(numbers), by))


def test_records_of_one_moment_are_turned_over_too(client: Client) -> None:
    """Pages hold one record each."""
    place: dict[str, str] = {}
    lines: list[str] = []
    while True:
        _, page = ask_api(client, f"jobs/{HOSTILE}/records", limit="1", **place)
        lines += [row["line"] for row in page["rows"]]  # type: ignore[attr-defined]
        if page["next"] is None:
            break
        place = {name: str(value) for name, value in page["next"].items()}  # type: ignore[attr-defined]
    assert [json.loads(line)["step"] for line in lines] == [4, 3, 2, 1]

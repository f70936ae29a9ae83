"""The page of jobs in Loki: its answers equal those of a local store with the same captures."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from logshipper.spool.segment import Kind
from logshipper_ingest.loki.client import LokiClient
from logshipper_observe.page.log import log_copy
from logshipper_observe.page.log.log_copy import Copy
from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import Browsing
from tests.observe.page.conftest import options
from tests.observe.page.graphs.test_point_lines import GraphClient, record
from tests.observe.page.test_access import Client
from tests.servers.running import LokiServer
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.stores.loki_job import push_spool
from tests.tools.stores.reading_store import SpooledCapture, training
from tests.tools.waiting import scaled

JOB, LONG = "page-same", "page-long"
LINES = 12_000
DEADLINE_SECS = scaled(60.0)

Documents = tuple[dict[str, Any], dict[str, Any]]  # Any: JSON


@pytest.fixture(scope="module")
def clients(
    loki: LokiServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Client, Client]]:
    """Yield clients of two pages with the same jobs: of Loki and of a local store."""
    store = tmp_path_factory.mktemp("both") / "store"
    training(store, job_id=JOB, name="same.py")
    with SpooledCapture(
        store, JOB, 2, name="same.py", started_ns=time.time_ns() - 20 * NS
    ) as second:
        second.metadata({"epoch": 1, "loss": 0.25})
        second.lines("part one", "part two", attrs={0: {"part": "1"}, 1: {"part": "2/2"}})
        second.stderr("Warnung: größer \x1b[31mrot\x1b[0m")
        second.lines("[the line above 12 times more]", kind=Kind.NOTE, attrs={0: {"repeat": 12}})
        second.end(3)
    with SpooledCapture(store, LONG, name="long") as long:
        long.lines(*(f"step {number}" for number in range(LINES)))
        long.stderr("the end")
        long.end()
    push_spool(LokiClient(loki.url), store / "spool", max_line_bytes=100_000)
    from_loki = options(None, source="loki", loki_url=loki.url)
    with PageServer(from_loki) as remote, PageServer(options(store)) as local:
        yield Client(remote), Client(local)


def document(client: Client, path: str) -> dict[str, Any]:  # Any: JSON
    answer = client.ask(f"api/{path}")
    assert answer.status == 200, answer.body
    return dict(json.loads(answer.body))


def until(
    client: Client, path: str, holds: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:  # Any: JSON
    """Return the first answer for which `holds` is true."""
    deadline = time.monotonic() + DEADLINE_SECS
    while not holds(answer := document(client, path)):
        assert time.monotonic() < deadline, f"{path}: {answer}"
        time.sleep(0.05)
    return answer


def wait_for_all_lines(client: Client, job: str, lines: int) -> None:
    until(
        client,
        f"jobs/{job}/lines?count=1",
        lambda answer: answer["complete"] and answer["total"] == lines,
    )


@pytest.mark.parametrize(
    "view", ["", "streams=stderr", "streams=stdout", "attempt=2", "attempt=1&streams=stderr"]
)
def test_lines(clients: tuple[Client, Client], view: str) -> None:
    remote, local = clients
    local_answer = document(local, f"jobs/{JOB}/lines?{view}")
    assert local_answer["total"] == len(local_answer["lines"]) > 0
    answer = until(
        remote, f"jobs/{JOB}/lines?{view}", lambda answer: answer["total"] == local_answer["total"]
    )
    assert [line[1:] for line in answer["lines"]] == [line[1:] for line in local_answer["lines"]]
    for times in zip(answer["lines"], local_answer["lines"], strict=True):
        assert times[0][0] == pytest.approx(times[1][0], abs=1)


def test_any_place_of_a_long_log(clients: tuple[Client, Client]) -> None:
    for client in clients:
        wait_for_all_lines(client, LONG, LINES + 1)
        for begin in (0, 4_999, 5_000, 11_990):
            lines = document(client, f"jobs/{LONG}/lines?from={begin}&count=20")["lines"]
            texts = [f"step {number}" for number in range(begin, min(begin + 20, LINES))] + [
                "the end"
            ]
            assert [line[3] for line in lines] == texts[:20]
        tail = document(client, f"jobs/{LONG}/lines?from=-2&count=2")
        assert (tail["from"], [line[3] for line in tail["lines"]]) == (
            LINES - 1,
            [f"step {LINES - 1}", "the end"],
        )


def test_searches_and_times(clients: tuple[Client, Client]) -> None:
    for client in clients:
        wait_for_all_lines(client, LONG, LINES + 1)
        answer = document(client, f"jobs/{LONG}/search?q=STEP+11&near=5000")
        assert (answer["hits"], answer["line"], answer["complete"]) == (1111, 11_000, True)
        assert document(client, f"jobs/{LONG}/search?q=STEP+11&exact=1")["hits"] == 0
    remote, local = clients
    ends = [
        document(client, f"jobs/{LONG}/lines?from=-1&count=1")["lines"][0][0] for client in clients
    ]
    for end, client in zip(ends, clients, strict=True):
        assert document(client, f"jobs/{LONG}/at?time={int(end) + 1}")["line"] == LINES + 1
        assert document(client, f"jobs/{LONG}/at?time={int(end) - 3_600_000}")["line"] == 0
    assert remote.ask(f"api/jobs/{JOB}/text").body == local.ask(f"api/jobs/{JOB}/text").body


def test_the_list_and_the_head(clients: tuple[Client, Client]) -> None:
    """Answers differ only in their place: the cluster's name."""
    lists = [document(client, "jobs?q=page-")["jobs"] for client in clients]
    assert [job | {"cluster": ""} for job in lists[0]] == lists[1]
    heads = [document(client, f"jobs/{JOB}") for client in clients]
    differences = {name for name in heads[0] if heads[0][name] != heads[1][name]}
    assert differences <= {"now_ns", "poll_secs", "cluster"}
    last = [document(client, f"last?jobs={JOB},{LONG},nobody")["last"] for client in clients]
    assert last[0] == last[1] == {JOB: [["loss", "0.25"], ["epoch", "1"]], LONG: []}


def test_in_the_browser(clients: tuple[Client, Client], browse: Browsing) -> None:
    page = browse.open(f"job/{LONG}/console", server=clients[0].server)
    expect(page.get_by_text("the end", exact=True)).to_be_visible()
    expect(page.get_by_text("12,001 lines", exact=True)).to_be_visible()
    page.get_by_label("Search in the log").fill("step 7777")
    expect(page.locator("output.hits")).to_have_text("1 of 1 line")
    expect(page.locator(".row.found")).to_contain_text("7,778")
    browse.picture(page)


def test_lines_of_points_while_a_job_runs(
    loki: LokiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A point is newer than the copy of the log, and lines come late."""
    store, job_id = tmp_path / "store", "page-points"
    loki_client = LokiClient(loki.url)
    began_ns = time.time_ns() - 20 * NS
    pause, may_read, waits = Copy._pause, threading.Event(), threading.Event()
    may_read.set()

    def pause_until_it_may_read(copy: Copy, secs: float) -> None:
        pause(copy, secs)
        if not may_read.is_set():
            waits.set()
        may_read.wait()

    monkeypatch.setattr(Copy, "_pause", pause_until_it_may_read)
    from_loki = options(None, source="loki", loki_url=loki.url)
    with PageServer(from_loki) as server, SpooledCapture(store, job_id, started_ns=began_ns) as job:
        client = GraphClient(server, job_id)

        def numbers(points: int) -> list[int]:
            """Wait for this many points; return their lines' numbers after checking each text."""
            push_spool(loki_client, store / "spool")
            until(
                client.client,
                f'jobs/{job_id}/graphs?y=["loss"]',
                lambda answer: (
                    answer["complete"] and answer["graphs"][0]["series"][0]["seen"] == points
                ),
            )
            (series,) = client.lines_of("loss")
            assert [json.loads(text)["step"] for _, text in series] == list(range(points))
            return [number for number, _ in series]

        job.metadata(record(step=0, loss=1), record(step=1, loss=0.5))
        job.beat()
        assert numbers(2) == [0, 1]
        wait_for_all_lines(client.client, job_id, 2)
        may_read.clear()
        assert waits.wait(DEADLINE_SECS)
        job.metadata(record(step=2, loss=0.25))
        job.beat()
        push_spool(loki_client, store / "spool")
        words = urlencode({"y": '["loss"]', "tags": "{}", "at_x": 2, "at_y": 0.25})
        answer = until(
            client.client, f"jobs/{job_id}/point?{words}", lambda answer: answer["records"] == 3
        )
        assert (answer["line"], answer["complete"]) == (None, False)
        may_read.set()
        assert numbers(3) == [0, 1, 2]
        with SpooledCapture(
            store, job_id, started_ns=began_ns - NS, task=1, suffix="t1"
        ) as earlier:
            earlier.stderr("an earlier line")
            earlier.beat()
            push_spool(loki_client, store / "spool")
            wait_for_all_lines(client.client, job_id, 4)
            assert numbers(3) == [1, 2, 3]
            earlier.end()
        job.end()


def test_a_point_behind_the_end_of_a_copy(
    clients: tuple[Client, Client], loki: LokiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer names the reason why the copy lacks the line."""
    monkeypatch.setattr(log_copy, "MAX_BYTES", 0)
    with PageServer(options(None, source="loki", loki_url=loki.url)) as server:
        client = GraphClient(server, JOB)
        graph = client.graph("loss")
        series = graph["series"][0]
        answer = client.point(graph, series, series["x"][-1], series["y"][-1])
        assert answer["line"] is None
        assert answer["words"].endswith("the page shows only the first 2 lines")


def test_a_server_that_is_away(browse: Browsing) -> None:
    browse.harmless_texts = ("502", "ERR_CONNECTION")
    away = options(None, source="loki", loki_url="http://127.0.0.1:9")
    with PageServer(away) as server:
        answer = Client(server).ask("api/jobs")
        assert answer.status == 502
        page = browse.open(server=server)
        expect(page.locator("#connection")).to_contain_text("127.0.0.1:9")

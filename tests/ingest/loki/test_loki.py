"""The Loki client against a real Loki: it reads exactly the pushed entries, in pages of any
size."""

import re
import time
import uuid
from collections.abc import Iterator

import pytest

from logshipper.errors import QueryError, RejectedPushError, RetryablePushError
from logshipper_ingest.loki.client import MAX_RANGE_NS, Entry, LokiClient
from logshipper_ingest.servers.loki_push import assemble, compress, encode_block, encode_metadata
from logshipper_ingest.servers.server_access import ServerAccess
from tests.servers.running import LokiServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.sources import ROOT

HOUR_NS = 3600 * 10**9
PAGE = ROOT / "docs" / "loki-client.md"


@pytest.fixture
def client(loki: LokiServer) -> Iterator[LokiClient]:
    with LokiClient(ServerAccess(url=loki.url, timeout_secs=20)) as client:
        yield client


@pytest.fixture
def run() -> str:
    """Return a label value for this test alone."""
    return uuid.uuid4().hex


def push_block(
    client: LokiClient, labels: dict[str, str], lines: list[bytes], begin_ns: int, **metadata: str
) -> None:
    client.push_body(
        compress(assemble(labels, [encode_block(lines, begin_ns, encode_metadata(metadata))]))
    )


def test_what_was_pushed_is_what_is_read(client: LokiClient, run: str) -> None:
    odd = {"host": 'n"1\\\n\t\x01ü', "kind": "log", "run": run, "service_name": "logshipper"}
    metadata = {"job_id": "7", "user": 'q"uo\\te\nä\x01', "step": "", "detected_level": "x"}
    lines = [
        "",
        " ",
        "plain",
        "umlauts äöü, emoji 😀",
        "null \0 byte",
        '{"loss":0.1}',
        "\x1b[31mred",
        "x" * 256_000,
    ]
    second_ns = time.time_ns() // 10**9 * 10**9 - 4  # the next second begins within the lines
    entries = [Entry(second_ns + at, line, metadata) for at, line in enumerate(lines)]
    answer = client.push(odd, entries)
    assert answer.status == 204
    assert answer.date_ns is not None
    assert abs(answer.date_ns - time.time_ns()) < 10 * 10**9
    expected_metadata = {name: value for name, value in metadata.items() if value}
    result = list(client.entries(f'{{run="{run}"}}', second_ns, second_ns + 100))
    assert result == [entry._replace(metadata=expected_metadata, labels=odd) for entry in entries]
    (series,) = client.series(f'{{run="{run}"}}')
    assert series == odd


def test_pages_in_both_directions(client: LokiClient, run: str) -> None:
    """Read 7,500 entries of three streams, in page sizes that split them anywhere. Three entries
    share each time."""
    begin_ns = time.time_ns() - 60 * 10**9
    lines = [b"%d" % at for at in range(2500)]
    for host in ("a", "b", "c"):
        push_block(
            client, {"run": run, "host": host, "service_name": "x"}, lines, begin_ns, job_id="7"
        )
    all_entries = {(begin_ns + at, str(at), host) for at in range(2500) for host in "abc"}
    for page in (5000, 997):
        forward = list(
            client.entries(f'{{run="{run}"}}', begin_ns - HOUR_NS, begin_ns + HOUR_NS, page=page)
        )
        assert [entry.time_ns for entry in forward] == sorted(entry.time_ns for entry in forward)
        assert len(forward) == len(all_entries)
        assert {
            (entry.time_ns, entry.line, entry.labels["host"]) for entry in forward
        } == all_entries
        selector = f'{{run="{run}"}} | job_id="7"'
        backward = list(
            client.entries(
                selector, begin_ns - HOUR_NS, begin_ns + 2500, direction="backward", page=page
            )
        )
        assert [entry.time_ns for entry in backward] == sorted(
            (entry.time_ns for entry in backward), reverse=True
        )
        assert {
            (entry.time_ns, entry.line, entry.labels["host"]) for entry in backward
        } == all_entries
        assert len(backward) == len(all_entries)
    part = list(client.entries(f'{{run="{run}",host="b"}}', begin_ns + 10, begin_ns + 20))
    assert [entry.line for entry in part] == [str(at) for at in range(10, 20)], (
        "the end doesn't belong to it"
    )


def test_range_longer_than_a_question_may_be(client: LokiClient, run: str) -> None:
    begin_ns = time.time_ns() - 10**9
    old_ns = begin_ns - 32 * 24 * HOUR_NS  # the composed Loki accepts 31 days
    with pytest.raises(QueryError, match="exceeds the limit"):
        client.query_range(f'{{run="{run}"}}', old_ns, begin_ns + 2)
    assert MAX_RANGE_NS < 721 * HOUR_NS, "what a Loki takes that nobody has set up"


def test_range_in_parts(client: LokiClient, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client splits a range that is too long for Loki. The parts are short here, since an empty
    month takes Loki seconds."""
    monkeypatch.setattr("logshipper_ingest.loki.client.MAX_RANGE_NS", 7)
    begin_ns = time.time_ns() - 10**9
    push_block(client, {"run": run}, [b"%d" % at for at in range(30)], begin_ns)
    forward = list(client.entries(f'{{run="{run}"}}', begin_ns - 5, begin_ns + 29, page=3))
    assert [entry.line for entry in forward] == [str(at) for at in range(29)]
    backward = list(
        client.entries(
            f'{{run="{run}"}}', begin_ns + 1, begin_ns + 31, direction="backward", page=3
        )
    )
    assert [entry.line for entry in backward] == [str(at) for at in range(29, 0, -1)]


def test_pages_of_two(client: LokiClient, run: str) -> None:
    begin_ns = time.time_ns() - 10**9
    push_block(client, {"run": run}, [b"%d" % at for at in range(7)], begin_ns)
    client.push({"run": run}, [Entry(begin_ns + 3, f"shares its time {at}") for at in range(5)])
    for direction in ("forward", "backward"):
        entries = list(
            client.entries(f'{{run="{run}"}}', begin_ns, begin_ns + 7, direction=direction, page=2)
        )
        lines = sorted(entry.line for entry in entries)
        assert lines == sorted([*map(str, range(7)), *(f"shares its time {at}" for at in range(5))])


def test_one_time_for_many(client: LokiClient, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of entries with one time can't be split. Fewer than the limit come at once; more are
    an error."""
    # a small page, since Loki takes seconds for 5,000 of them
    monkeypatch.setattr("logshipper_ingest.loki.client.MAX_PAGE", 200)
    at_ns = time.time_ns() - 10**9
    selector = f'{{run="{run}"}}'
    client.push({"run": run}, [Entry(at_ns, f"{at}") for at in range(199)])
    client.push({"run": run}, [Entry(at_ns - 1, "before"), Entry(at_ns + 1, "behind")])
    for direction in ("forward", "backward"):
        result = list(client.entries(selector, at_ns - 5, at_ns + 5, direction=direction, page=20))
        assert sorted(entry.line for entry in result) == sorted(
            ["before", "behind", *map(str, range(199))]
        )
    client.push({"run": run}, [Entry(at_ns, "one more")])
    with pytest.raises(QueryError, match=f"share the time {at_ns} ns: narrow the query"):
        list(client.entries(selector, at_ns - 5, at_ns + 5, page=20))
    (narrowed,) = client.entries(selector + ' |= "before"', at_ns - 5, at_ns + 5)
    assert narrowed.line == "before"


def test_long_lines_come_in_small_pages(client: LokiClient, run: str) -> None:
    """An answer with 5,000 such entries would have 12 MB and never arrive, since Loki's parts send
    each other at most 4."""
    begin_ns = time.time_ns() - 60 * 10**9
    lines = [b"%d " % at + b"x" * 4000 for at in range(3000)]
    for at in range(0, 3000, 250):
        labels = {"run": run, "part": str(at // 1000)}  # three streams, each below Loki's limit
        wait_until(
            lambda at=at, labels=labels: pushed(  # type: ignore[misc]
                client, labels, lines[at : at + 250], begin_ns + at
            ),
            "a push",
        )
    begin = time.monotonic()
    result = list(client.entries(f'{{run="{run}"}}', begin_ns, begin_ns + 3000))
    assert time.monotonic() - begin < 20, "without an answer that never came"
    assert [entry.line.encode() for entry in result] == lines


def pushed(client: LokiClient, labels: dict[str, str], lines: list[bytes], begin_ns: int) -> bool:
    """Push a block; return False if it was too fast for Loki."""
    try:
        push_block(client, labels, lines, begin_ns)
    except RetryablePushError:
        return False
    return True


def test_resending_adds_nothing(client: LokiClient, run: str) -> None:
    begin_ns = time.time_ns() - 10**9
    for _ in range(3):
        push_block(client, {"run": run}, [b"%d" % at for at in range(500)], begin_ns, job_id="7")
    assert len(list(client.entries(f'{{run="{run}"}}', begin_ns, begin_ns + 500))) == 500


def test_refusals_have_lokis_words_and_spare_the_others(client: LokiClient, run: str) -> None:
    now_ns = time.time_ns()
    with pytest.raises(RejectedPushError, match="max entry size") as caught:
        client.push({"run": run}, [Entry(now_ns, "good"), Entry(now_ns + 1, "x" * 300_000)])
    assert caught.value.status == 400
    assert [entry.line for entry in client.entries(f'{{run="{run}"}}', now_ns, now_ns + 5)] == [
        "good"
    ]
    with pytest.raises(RejectedPushError, match="timestamp too old"):
        client.push({"run": run}, [Entry(now_ns - 30 * 24 * HOUR_NS, "old")])
    with pytest.raises(QueryError, match="parse error") as refusal:
        client.query("{")
    assert refusal.value.status == 400


def test_questions(client: LokiClient, run: str) -> None:
    begin_ns = time.time_ns() - 10 * 10**9
    push_block(
        client,
        {"run": run, "kind": "metadata"},
        [b'{"loss":%d}' % at for at in range(10)],
        begin_ns,
        job_id="7",
    )
    selector = f'{{run="{run}"}}'
    now_ns = time.time_ns()
    (count,) = client.query(f"sum by (job_id) (count_over_time({selector}[1h]))")
    assert (count.labels, [sample.value for sample in count.samples], count.entries) == (
        {"job_id": "7"},
        [10.0],
        [],
    )
    assert abs(count.samples[0].time_ns - now_ns) < 60 * 10**9
    (over,) = client.query_range(
        f"sum(count_over_time({selector}[1h]))", now_ns, now_ns + 60 * 10**9, step_secs=20
    )
    assert {sample.value for sample in over.samples} == {10.0}
    assert over.samples[1].time_ns - over.samples[0].time_ns == 20 * 10**9
    (vector,) = client.query("vector(2)", time_ns=now_ns // 10**6 * 10**6)
    assert vector == ({}, [], [(now_ns // 10**6 * 10**6, 2.0)])
    (scalar,) = client.query("1+1")
    assert (scalar.labels, [sample.value for sample in scalar.samples]) == ({}, [2.0])
    newest = client.query_range(selector, begin_ns, now_ns, limit=2, direction="backward")
    assert sorted(entry.line for result in newest for entry in result.entries) == [
        '{"loss":8}',
        '{"loss":9}',
    ]
    parsed = next(client.entries(selector + " | json", begin_ns, begin_ns + 10))
    assert (parsed.parsed["loss"], parsed.metadata["job_id"]) == ("0", "7")
    assert client.query_range(selector, begin_ns - HOUR_NS, begin_ns) == []


def test_labels(client: LokiClient, run: str) -> None:
    begin_ns = time.time_ns()
    for host in ("n1", "n2"):
        client.push({"run": run, "host": host}, [Entry(begin_ns, "x")])
    assert {"run", "host"} <= set(client.labels(begin_ns - HOUR_NS, begin_ns + HOUR_NS))
    series = client.series(
        f'{{run="{run}",host="n1"}}', f'{{run="{run}",host="n2"}}', begin_ns=begin_ns - HOUR_NS
    )
    assert sorted(labels["host"] for labels in series) == ["n1", "n2"]


def test_about_the_server(client: LokiClient, loki: LokiServer) -> None:
    assert client.name == f"Loki at {loki.url}"
    assert client.ready() is True
    assert "version" in client.build_info()
    assert client.config()["limits_config"]["allow_structured_metadata"] is True


def test_example_in_the_documentation(loki: LokiServer, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the example unchanged: it prints the page's output."""
    (code, output) = re.findall(
        r"^```(?:python|text)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )[:2]
    assert "http://127.0.0.1:3100" in code
    exec(code.replace("http://127.0.0.1:3100", loki.url), {})  # noqa: S102  our own page
    assert capsys.readouterr().out == output

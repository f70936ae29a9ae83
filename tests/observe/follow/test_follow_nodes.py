"""Following a job of several nodes: labels of lines, keys that switch nodes, and places to resume
from; on both stores."""

import dataclasses
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logshipper_observe.commands.reading.log_reading
import logshipper_observe.follow.follow_nodes
from logshipper.spool.segment import Kind, Stream
from logshipper.start.cli import main
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.model.job import Capture, LogLine, Position
from logshipper_ingest.servers.loki_push import Entry
from logshipper_observe.commands.options import seconds_number
from logshipper_observe.follow.follow_nodes import Nodes, NodeView
from logshipper_observe.follow.log_place import LogPlace
from tests.observe.commands.reading.test_reading import DEADLINE_SECS, command
from tests.observe.commands.reading.test_reading_terminal import start
from tests.servers.running import LokiServer
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.sources import SOURCES
from tests.tools.stores.reading_store import SpooledCapture

ONE = Capture(1, 1, "", 0, "gpu1", "RUNNING", None, 0, 1, None, "enabled", "", {}, 160, 50, True)


def capture(number: int, **fields: Any) -> Capture:
    return dataclasses.replace(ONE, capture=number, **fields)


def line(number: int, text: str = "x", time_ns: int = 5, stream: Stream = Stream.STDOUT) -> LogLine:
    return LogLine(Position(0, 0, time_ns, 0), time_ns, stream, Kind.LOG, text, {}, 1, number)


# ---- whose lines


@pytest.mark.parametrize(
    ("captures", "labels"),
    [
        ([ONE], [""]),
        ([ONE, capture(2, attempt=2, host="gpu2")], ["", ""]),
        ([ONE, capture(2, step="0")], ["", ""]),
        ([ONE, capture(2, host="gpu2", task=1)], ["node0", "node1"]),
        ([ONE, capture(2, task=1)], ["task 0", "task 1"]),
        (
            [ONE, capture(2, task=1), capture(3, host="gpu2", task=2)],
            ["node0 task 0", "node0 task 1", "node1"],
        ),
    ],
)
def test_only_what_tells_captures_apart_is_named(
    captures: list[Capture], labels: list[str]
) -> None:
    nodes = Nodes()
    nodes.learn(captures)
    assert [nodes.label(capture.capture) for capture in captures] == labels


def test_changes_are_said_once() -> None:
    nodes = Nodes()
    captures = [ONE, capture(2, host="gpu2", task=1)]
    assert nodes.learn([ONE]) == ([], [])
    assert nodes.learn(captures) == (["node1: on gpu2"], [])
    assert nodes.learn(captures) == ([], [])
    captures_at_end = [capture(1, state="FAILED", exit_code=3), captures[1]]
    assert nodes.learn(captures_at_end) == ([], ["node0: FAILED, exit code 3"])
    assert nodes.learn([*captures_at_end, capture(3, attempt=2)]) == (["attempt 2 on gpu1"], [])


def test_nodes_are_numbered_by_their_tasks_and_have_hosts() -> None:
    """The order of starts does not matter; a node gets a new name if another one precedes it."""
    nodes = Nodes()
    late = [capture(1, host="gpu2", task=4), capture(2, host="gpu3", task=8)]
    assert nodes.learn(late) == (["node0: on gpu2", "node1: on gpu3"], [])
    first = capture(3, host="gpu1", task=0)
    assert nodes.learn([*late, first]).began == [
        "node1: on gpu2",
        "node2: on gpu3",
        "node0: on gpu1",
    ]
    assert [nodes.title(label) for label in nodes.labels] == [
        "node0 (gpu1)", "node1 (gpu2)", "node2 (gpu3)",
    ]  # fmt: skip
    assert turn(NodeView(nodes), 1)[0] == ["switching to node0 (gpu1)"]


def test_a_node_that_another_one_comes_before_is_not_taken_for_it() -> None:
    nodes = Nodes()
    late = [capture(1, host="gpu2", task=4), capture(2, host="gpu3", task=8)]
    nodes.learn(late)
    view = NodeView(nodes)
    view.turn(1)
    view.takes(line(2, "held"))
    nodes.learn([*late, capture(3, host="gpu1", task=0)])
    assert [line.text for line in view.show_all_if_renamed()] == ["held"]
    assert view.node == "", "what was node0 is node1 now"


def test_nodes_are_in_order_of_their_numbers() -> None:
    nodes = Nodes()
    nodes.learn([capture(number, host=f"gpu{number}", task=number) for number in range(1, 13)])
    assert nodes.labels == [f"node{number}" for number in range(12)]


@pytest.fixture
def view() -> NodeView:
    nodes = Nodes()
    nodes.learn([ONE, capture(2, host="gpu2", task=1), capture(3, host="gpu3", task=2)])
    return NodeView(nodes)


def turn(view: NodeView, steps: int) -> tuple[list[str], list[str]]:
    notes, held_lines = view.turn(steps)
    return notes, [held_line.text for held_line in held_lines]


def test_each_node_keeps_its_place(view: NodeView) -> None:
    assert view.takes(line(1))
    assert turn(view, 1) == (["switching to node0 (gpu1)"], [])
    assert [view.takes(line(number, str(number))) for number in (1, 2, 3, 2)] == [
        True,
        False,
        False,
        False,
    ]
    assert turn(view, 1) == (["switching to node1 (gpu2)"], ["2", "2"])
    assert turn(view, -2) == (["switching to all nodes"], ["3"])
    assert turn(view, -1) == (["switching to node2 (gpu3)"], []), "nothing twice"


def test_a_node_that_tasks_join_is_called_something_else() -> None:
    nodes = Nodes()
    captures = [ONE, capture(2, host="gpu2", task=1)]
    nodes.learn(captures)
    view = NodeView(nodes)
    view.turn(1)
    view.takes(line(2, "held"))
    assert view.show_all_if_renamed() == []
    nodes.learn([*captures, capture(3, task=2)])
    assert [held_line.text for held_line in view.show_all_if_renamed()] == ["held"]
    assert view.node == ""


def test_one_node_has_nothing_to_switch_to() -> None:
    assert turn(NodeView(Nodes()), 1) == (["there is one node only"], [])


def test_what_is_held_has_a_cap(view: NodeView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logshipper_observe.follow.follow_nodes, "MAX_HELD_LINES", 3)
    monkeypatch.setattr(logshipper_observe.follow.follow_nodes, "MAX_HELD_CHARS", 10)
    view.turn(1)
    for number in range(5):
        view.takes(line(2, str(number)))
    notes, texts = turn(view, 1)
    assert notes[1] == "not kept, too many were held: 2 lines; `logshipper logs` has them"
    assert texts == ["2", "3", "4"]
    view.takes(line(3, "long" * 3))
    note = "not kept, too many were held: 1 line; `logshipper logs` has them"
    assert turn(view, 1) == (["switching to node2 (gpu3)", note], [])


@given(
    st.lists(
        st.tuples(st.integers(1, 70), st.sampled_from(list(Stream)), st.integers(1, 2**62)),
        max_size=30,
    )
)
def test_a_place_goes_through_a_command_line(lines: list[tuple[int, Stream, int]]) -> None:
    place = LogPlace()
    for number, stream, time_ns in lines:
        place.note(line(number, time_ns=time_ns, stream=stream))
    if not lines:
        assert str(place) == ""
        return
    text = str(place)
    assert shlex.quote(text) == text
    parsed_place = LogPlace.parse(text)
    assert str(parsed_place) == text
    for number, stream, time_ns in lines:
        newest = max(
            at
            for capture_id, capture_stream, at in lines
            if (capture_id, capture_stream) == (number, stream)
        )
        assert parsed_place.is_printed(line(number, time_ns=time_ns, stream=stream))
        assert not parsed_place.is_printed(line(number, time_ns=newest + 1, stream=stream))
        assert parsed_place.begin_ns <= newest
    newest = max(at for _, _, at in lines)
    assert not parsed_place.is_printed(line(71, time_ns=newest))


def test_what_the_other_stream_had_drawn_before_a_place_comes_behind_it() -> None:
    """A bar's last state has the time of its drawing, and appears later."""
    place = LogPlace()
    place.note(line(1, time_ns=10**15, stream=Stream.STDOUT))
    late = line(1, time_ns=10**15 - 10**9, stream=Stream.STDERR)
    assert place.begin_ns <= late.time_ns
    assert not place.is_printed(late)
    assert place.is_printed(line(2, time_ns=late.time_ns, stream=Stream.STDERR))
    place.note(late)
    assert place.begin_ns == late.time_ns


@pytest.mark.parametrize(
    "text", ["", "x", "5", "5-", "5-1o", "5-1x3", "5-1o3-", "5-1o3;ls", "g-1o3"]
)
def test_what_is_no_place(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["logs", "x", f"--after={text}"])
    assert error.value.code == 2
    assert "isn't a place" in capsys.readouterr().err


def test_spans_of_following() -> None:
    assert (seconds_number("30"), seconds_number("1.5"), seconds_number("10m")) == (30, 1.5, 600)


# ---- on a terminal


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def two(store: Path) -> Iterator[tuple[SpooledCapture, SpooledCapture]]:
    """Yield a job that runs on two nodes."""
    with (
        SpooledCapture(store, "4711", name="train", host="gpu1") as first,
        SpooledCapture(store, "4711", name="train", host="gpu2", task=1, suffix="bbbb") as second,
    ):
        first.lines("first of gpu1")
        second.lines("first of gpu2")
        first.beat()
        second.beat()
        yield first, second


def test_keys_switch_nodes_and_esc_leaves(
    store: Path, two: tuple[SpooledCapture, SpooledCapture]
) -> None:
    child = start(store, "logs", "4711", "-f", columns=200, NO_COLOR="1")
    child.expect_exact("node0: first of gpu1\r\n")
    child.expect_exact("node1: first of gpu2\r\n")
    child.expect_exact(
        "following train (4711), RUNNING: stdout and stderr of node0 (gpu1), node1 (gpu2); "
        "+ and - switch node, ESC leaves\r\n"
    )
    child.send("+")
    child.expect_exact("switching to node0 (gpu1)\r\n")
    two[1].lines("second of gpu2")
    two[0].lines("second of gpu1")
    child.expect_exact("node0: second of gpu1\r\n")
    assert "second of gpu2" not in str(child.before)
    child.send("\x1b[A")  # an arrow doesn't leave
    child.send("-")
    child.expect_exact("switching to all nodes\r\n")
    child.expect_exact("node1: second of gpu2\r\n")
    two[1].end(3)
    child.expect_exact("node1: FAILED, exit code 3\r\n")
    child.send("\x1b")
    child.expect_exact("the job runs on; this goes on from here: ")
    child.expect(r"logshipper logs 4711 --follow --after \S+\r\n")
    child.expect_exact("to cancel it: scancel 4711\r\n")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


@pytest.mark.parametrize(("action", "code"), [("esc", 0), ("int", 130), ("term", 143)])
def test_the_terminal_is_left_as_it_was(
    action: str, code: int, store: Path, two: tuple[SpooledCapture, SpooledCapture]
) -> None:
    """The command ends by ESC, by Ctrl-C and by a signal."""
    script = f"trap : INT; stty -g; {sys.executable} -m logshipper logs 4711 -f; echo =$?; stty -g"
    environment = {
        **os.environ,
        "LOGSHIPPER_STORE": str(store),
        "TERM": "xterm",
        "PYTHONPATH": SOURCES,
    }
    options: dict[str, Any] = {"encoding": "utf-8", "timeout": DEADLINE_SECS}  # Any: pexpect
    child = pexpect.spawn("sh", ["-c", script], env=environment, **options)
    before = child.readline()
    child.expect_exact("ESC leaves")
    if action == "esc":
        child.send("\x1b")
    elif action == "int":
        child.sendintr()
    else:
        (pid,) = (
            int(pid)
            for pid in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        )
        os.kill(pid, signal.SIGTERM)
    child.expect(r"=(\d+)\r\n")
    assert isinstance(child.match, re.Match)
    assert int(child.match[1]) == code
    assert child.readline() == before
    child.close()


def test_going_on_from_a_place_misses_nothing_and_repeats_nothing(store: Path) -> None:
    """Following ends again and again, by --for, with lines of both streams and of two nodes in
    between."""
    with (
        SpooledCapture(store, "4711", name="train", host="gpu1") as first,
        SpooledCapture(store, "4711", name="train", host="gpu2", task=1, suffix="bbbb") as second,
    ):
        output_lines: list[str] = []
        words = ["logs", "4711", "--follow", "--for", "0.2"]
        for at in range(4):
            first.lines(f"{at} a", f"{at} b")
            second.stderr(f"{at} c")
            if at % 2:
                first.stderr(f"{at} d")
            first.beat()
            second.beat()
            process = subprocess_of(store, *words)
            output_lines += process.stdout.splitlines()
            words = [
                *shlex.split(process.stderr.splitlines()[0].partition("from here: ")[2])[1:],
                "--for",
                "0.2",
            ]
        first.lines("last")
        first.end()
        second.end()
        process = subprocess_of(store, *words)
    output_lines += process.stdout.splitlines()
    expected_lines = [
        f"node0: {at} {letter}" for at in range(4) for letter in "abd" if letter != "d" or at % 2
    ]
    expected_lines += [f"node1: {at} c" for at in range(4)] + ["node0: last"]
    assert sorted(output_lines) == sorted(expected_lines)
    assert (process.returncode, process.stderr) == (0, "")


def subprocess_of(store: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    with command(store, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        out, err = process.communicate(timeout=DEADLINE_SECS)
    return subprocess.CompletedProcess(words, process.returncode, out.decode(), err.decode())


def test_ctrl_c_says_how_to_go_on_with_the_same_options(store: Path) -> None:
    with SpooledCapture(store, "k3f9x2") as job:
        job.lines("error 1", "fine", "error 2")
        job.beat()
        words = ["logs", "last", "-f", "--grep", "err|or", "--stream", "stdout", "--times"]
        with command(store, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert [process.stdout.readline().split()[2:] for _ in range(2)] == [
                [b"error", b"1"],
                [b"error", b"2"],
            ]
            process.send_signal(signal.SIGINT)
            message = process.stderr.read().decode()
            assert process.wait(DEADLINE_SECS) == 130
        assert re.fullmatch(
            r"logshipper: the job runs on; this goes on from here: logshipper logs k3f9x2 --follow --stream stdout "
            r"--grep 'err\|or' --times --after [0-9a-f]+-1o0\n",
            message,
        )


# ---- tasks


def test_tasks_alone(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for task, suffix in enumerate(("aaaa", "bbbb", "cccc")):
        with SpooledCapture(store, "array", task=task, suffix=suffix) as job:
            job.lines(*[f"{number} of {task}" for number in range(3)])
            job.end()
    place = ("--store", str(store))
    assert main(["logs", "array", "--task", "1", *place]) == 0
    assert capsys.readouterr().out.splitlines() == ["0 of 1", "1 of 1", "2 of 1"]
    assert main(["logs", "array", "--task", "0,2", "--tail", "2", *place]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["logs", "array", "--task", "7", *place]) == 1
    assert "the job has no task 7; it has 0, 1, 2" in capsys.readouterr().err
    assert main(["logs", "array", "--for", "5", *place]) == 2
    assert "--for: ends following: it needs --follow" in capsys.readouterr().err


# ---- Loki


def test_nodes_and_places_in_a_real_loki(
    loki: LokiServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Following ends after all lines, and resumes: two nodes, each line once."""
    client = LokiClient(loki.url)
    began_ns, job = time.time_ns() - 30 * NS, "follow-nodes"

    def push(task: int, at_ns: int, text: str, kind: str = "log") -> None:
        labels = {
            "cluster": "local",
            "host": f"gpu{task}",
            "service_name": "logshipper",
            "kind": kind,
        }
        metadata = {"job_id": job, "user": "me", "task": str(task), "attempt": "1"}
        client.push(
            labels | ({"stream": "stdout"} if kind == "log" else {}), [Entry(at_ns, text, metadata)]
        )

    for task in range(2):
        start_event = {"event": "started", "name": "x", "user": "me", "started_ns": began_ns + task}
        push(task, began_ns + task, json.dumps(start_event), "event")
        push(
            task, began_ns + 25 * NS, json.dumps({"event": "heartbeat", "mode": "enabled"}), "event"
        )
        push(task, began_ns + 10 * NS + task, f"first of {task}")

    def interrupt(poll: "select.poll", secs: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(logshipper_observe.commands.reading.log_reading, "_pause", interrupt)
    words = ["logs", job, "--follow", "--from", "loki", "--loki-url", loki.url]
    assert main(words) == 130
    out, err = capsys.readouterr()
    assert out.splitlines() == ["node0: first of 0", "node1: first of 1"]
    words = shlex.split(err.splitlines()[-1].partition("from here: ")[2])[1:]
    push(1, began_ns + 9 * NS, "late of 1, out of order")
    for task in range(2):
        push(task, began_ns + 12 * NS + task, f"second of {task}")
        end_event = {
            "event": "closed",
            "state": "COMPLETED",
            "exit_code": 0,
            "ended_ns": began_ns + 13 * NS,
        }
        push(task, began_ns + 13 * NS + task, json.dumps(end_event), "event")
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines() == ["node0: second of 0", "node1: second of 1"]

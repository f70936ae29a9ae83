"""`logshipper events --follow`: it prints each event when it comes, and once only."""

import json
import signal
from pathlib import Path

from tests.tools.captures.captured_runs import TIMEOUT_SECS, Home, wait_until
from tests.tools.stores.reading_store import SpooledCapture

JOB = """
import sys
import logshipper
for step in range(3):
    sys.stdin.readline()
    logshipper.event("step", number=step)
sys.stdin.readline()
"""


def test_a_jobs_events_are_followed_to_its_end(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with home.start("run", "--job-id", "f1", "--", "python3", "-c", JOB, stdin=-1) as job:
        wait_until(lambda: home.call("events", "f1").returncode == 0, "the job is there")
        assert job.stdin is not None
        with home.start("events", "f1", "--follow", "--json") as follower:
            assert follower.stdout is not None
            events = [json.loads(follower.stdout.readline())]
            for _ in range(3):
                job.stdin.write(b"\n")
                job.stdin.flush()
                events.append(json.loads(follower.stdout.readline()))
            job.stdin.write(b"\n")
            job.stdin.flush()
            rest = follower.stdout.read().splitlines()
            assert follower.wait(TIMEOUT_SECS) == 0, "it ends when the job does"
        job.wait(TIMEOUT_SECS)
    events += map(json.loads, rest)
    assert [(event["kind"], event["to_state"], event["data"].get("number")) for event in events] == [
        ("state", "RUNNING", None), ("user_event", "", 0), ("user_event", "", 1), ("user_event", "", 2),
        ("state", "COMPLETED", None),
    ]  # fmt: skip
    assert {event["schema"] for event in events} == {"logshipper.events/1"}
    changes = home.call("events", "f1", "--follow", "--changes").stdout.decode().splitlines()
    assert [line.split()[2:6] for line in changes] == [
        ["state", "QUEUED", "->", "RUNNING"],
        ["state", "RUNNING", "->", "COMPLETED"],
    ]


def test_older_events_than_the_last_ones_are_not_taken_for_late(tmp_path: Path) -> None:
    home = Home(tmp_path)
    calls = "; ".join(f"logshipper.event('step', n={n})" for n in range(8))
    home.run("python3", "-c", f"import logshipper; {calls}")
    output_lines = (
        home.call("events", "last", "--follow", "--limit", "3", "--json")
        .stdout.decode()
        .splitlines()
    )
    assert [json.loads(line)["data"].get("n") for line in output_lines] == [6, 7, None]


def test_a_clock_that_is_ahead_hides_nothing_that_comes(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with SpooledCapture(home.store, "ahead") as job:
        job.sleep(30 * 86_400)
        job.event("user_event", "of next month", data={"n": 0})
        job.end()
    with home.start("events", "--follow", "--kind", "user_event", "--json") as follower:
        assert follower.stdout is not None
        events = [json.loads(follower.stdout.readline())]
        home.run("python3", "-c", "import logshipper; logshipper.event('now', n=1)")
        events.append(json.loads(follower.stdout.readline()))
        follower.terminate()
    assert [event["data"]["n"] for event in events] == [0, 1]


def test_without_a_job_ctrl_c_ends_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.run("true")
    with home.start("events", "--follow") as follower:
        assert follower.stdout is not None
        assert b"RUNNING" in follower.stdout.readline()
        follower.send_signal(signal.SIGINT)
        assert follower.wait(TIMEOUT_SECS) == 130

"""`import balsam`: exports in every form, recorded from Balsam's own classes and launcher
(tests/imports/make_balsam.py)."""

import csv
import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import logshipper
from logshipper_ingest.model.capture_id import JobKey
from logshipper_ingest.model.job import Allocation
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.model.overlay import Overlay
from tests.tools.stores.import_tools import RECORDED, Import, contents, store, take

SITE = RECORDED / "balsam"
NS = 10**9
IMPORTS = ("balsam",)
__all__ = ["store", "take"]  # fixtures


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a copy of the site, which tests may change."""
    return Path(shutil.copytree(SITE, tmp_path / "site"))


EVENTS: list[dict[str, Any]] = json.loads((SITE / "events.json").read_text())[
    "results"
]  # Any: JSON
JOBS: list[dict[str, Any]] = [
    json.loads(line) for line in (SITE / "jobs.jsonl").read_text().splitlines()
]


def history(job_id: int) -> list[tuple[str, str]]:
    return [
        (event["from_state"], event["to_state"])
        for event in EVENTS[::-1]
        if event["job_id"] == job_id
    ]


def test_jobs_have_states_tags_nodes_and_packing(take: Import, store: Path) -> None:
    assert take(SITE)[:2] == (0, "52 entries: 6 new jobs, 0 known, 3 allocations\n")
    jobs = {job["summary"].job_id: job for job in contents(store).values()}
    facts = {
        job_id: (job["summary"].state, job["summary"].exit_code, job["summary"].attempts)
        for job_id, job in jobs.items()
    }
    assert facts == {
        "balsam-101": ("COMPLETED", 0, 1), "balsam-102": ("COMPLETED", 0, 1), "balsam-103": ("FAILED", 3, 1),
        "balsam-104": ("COMPLETED", 0, 2), "balsam-105": ("RUNNING", None, 1), "balsam-106": ("QUEUED", None, 1),
    }  # fmt: skip
    packed = jobs["balsam-102"]["summary"]
    assert (packed.nodes, packed.packing, packed.cores, packed.allocation) == (
        1,
        8,
        2,
        "balsam-batch-5",
    )
    assert jobs["balsam-104"]["summary"].nodes == 4
    with LocalStore(str(store)) as local_store:
        assert local_store.resolve("104") == local_store.resolve("sweep/job104") == "balsam-104"
        marks = Overlay.of_local(local_store).of(JobKey("balsam-101"))
        assert marks.tags == {"experiment": "foo", "n": "101"}


@pytest.mark.parametrize("job", JOBS, ids=lambda job: str(job["id"]))
def test_histories_are_balsams_own(take: Import, store: Path, job: dict[str, Any]) -> None:
    take(SITE)
    events = contents(store)[job["workdir"]]["events"]
    assert [(event["source_from"], event["source_to"]) for _, event in events] == history(job["id"])
    times = [event["timestamp"] for event in EVENTS[::-1] if event["job_id"] == job["id"]]
    source_secs = [datetime.fromisoformat(time).replace(tzinfo=UTC).timestamp() for time in times]
    assert [time_ns / NS for time_ns, _ in events] == pytest.approx(source_secs, abs=1e-6)
    data = [event["data"] for event in EVENTS[::-1] if event["job_id"] == job["id"]]
    assert [event.get("data", {}) for _, event in events] == data


def test_what_is_one_state_here_ends_at_the_first_of_them(take: Import, store: Path) -> None:
    take(SITE)
    done = next(
        event for event in EVENTS if event["job_id"] == 101 and event["to_state"] == "RUN_DONE"
    )
    ended = datetime.fromisoformat(done["timestamp"]).replace(tzinfo=UTC)
    assert contents(store)["sweep/job101"]["summary"].ended_ns / NS == pytest.approx(
        ended.timestamp(), abs=1e-6
    )


def test_logs(take: Import, store: Path) -> None:
    take(SITE)
    job = contents(store)["sweep/job101"]
    assert job["lines"] == ["epoch of job 101", '{"epoch": 1, "loss": 0.5}', "100%"]
    assert job["records"] == ['{"epoch": 1, "loss": 0.5}']


def test_allocations(take: Import, store: Path) -> None:
    take(SITE)
    with LocalStore(str(store)) as local_store:
        allocations = local_store.allocations()
    began = datetime(2026, 5, 4, 9, 30, tzinfo=UTC).timestamp() * NS
    assert [allocation[:7] for allocation in allocations] == [
        ("balsam-batch-5", "balsam", "456", "COMPLETED", 8, began, began + 3600 * NS),
        ("balsam-batch-6", "balsam", "457", "RUNNING", 4, began + 1800 * NS, None),
        ("balsam-batch-7", "balsam", "", "QUEUED", 2, None, None),
    ]
    assert isinstance(allocations[0], Allocation)
    assert allocations[0].details["filter_tags"] == {"experiment": "foo"}


def test_again_adds_nothing(take: Import, store: Path) -> None:
    take(SITE)
    first = contents(store)
    assert take(SITE)[1] == "52 entries: 0 new jobs, 6 known, 3 allocations\n"
    assert contents(store) == first


@pytest.mark.parametrize("seed", range(6))
def test_a_site_that_goes_on(take: Import, store: Path, site: Path, seed: int) -> None:
    """Exports at any time, newest first like Balsam's, and a later import give the same as a single
    import."""
    begin = len(EVENTS) * (5 - seed) // 6
    (site / "events.json").write_text(json.dumps({"count": 1, "results": EVENTS[begin:]}))
    log = site / "data" / "sweep" / "job101" / "job.out"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[: seed // 2]))
    assert take(site / "events.json", site / "jobs.jsonl", site / "data")[0] == 0
    shutil.copy(SITE / "events.json", site)
    log.write_bytes((SITE / log.relative_to(site)).read_bytes())
    take(site)
    grown = contents(store)
    shutil.rmtree(store)
    take(site)
    assert grown == contents(store)


def as_array(path: Path) -> None:
    path.write_text(json.dumps(EVENTS))


def as_indented(path: Path) -> None:
    path.write_text(json.dumps({"count": len(EVENTS), "results": EVENTS}, indent=2))


def as_lines(path: Path) -> None:
    path.write_text("".join(json.dumps(event) + "\n" for event in EVENTS))


def as_csv(path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(EVENTS[0]))
        writer.writeheader()
        writer.writerows(EVENTS)


def as_csv_of_json(path: Path) -> None:
    with path.open("w", newline="", encoding="utf-16") as file:
        writer = csv.DictWriter(file, list(EVENTS[0]))
        writer.writeheader()
        writer.writerows({**event, "data": json.dumps(event["data"])} for event in EVENTS)


def as_python_prints(path: Path) -> None:
    """Write events like `balsam queue ls -v`."""
    path.write_text("".join(f"{event}\n" for event in EVENTS))


@pytest.mark.parametrize(
    "write", [as_array, as_indented, as_lines, as_csv, as_csv_of_json, as_python_prints]
)
def test_forms_of_exports(
    take: Import, store: Path, site: Path, write: Callable[[Path], None]
) -> None:
    take(SITE)
    reference = contents(store)
    shutil.rmtree(store)
    write(site / "events.json")
    assert take(site)[0] == 0
    assert contents(store) == reference


@pytest.mark.parametrize(
    "first", ["garbage", '{"id": 1, "job_id": ', "id,name", "-" * 60_000 + "1", "{" + "-" * 60_000]
)
def test_a_first_line_that_is_broken(take: Import, store: Path, site: Path, first: str) -> None:
    lines = "".join(json.dumps(event) + "\n" for event in EVENTS)
    (site / "events.json").write_text(f"{first}\n{lines}")
    code, out, errors = take(site)
    assert (code, out) == (1, "52 entries: 6 new jobs, 0 known, 3 allocations\n")
    assert "events.json:1: isn't a JSON object" in errors


def test_only_events(take: Import, store: Path) -> None:
    take(SITE / "events.json")
    jobs = {job["summary"].job_id: job["summary"] for job in contents(store).values()}
    assert jobs["balsam-104"].state == "COMPLETED"
    # from the events of running
    assert (jobs["balsam-104"].nodes, jobs["balsam-102"].packing) == (4, 8)


def test_only_jobs(take: Import, store: Path) -> None:
    take(SITE / "jobs.jsonl")
    jobs = contents(store)
    assert jobs["sweep/job103"]["summary"].state == "FAILED"
    assert [event["seen"] for _, event in jobs["sweep/job103"]["events"]] == [True]
    take(SITE / "events.json")
    assert not any(event.get("seen") for _, event in contents(store)["sweep/job103"]["events"])


def test_only_folders_and_launchers_logs(take: Import, store: Path, site: Path) -> None:
    (site / "logs").mkdir()
    (site / "logs" / "serial_mode_5.log.master").write_text("2026 | INFO | started\n")
    (site / "logs" / "service_2026-05-04.log").write_text("2026 | INFO | processed job 101\n")
    assert take(site / "data", site / "logs")[:2] == (0, "4 new jobs, 0 known\n")
    jobs = contents(store)
    assert jobs["service_2026-05-04.log"]["details"] == {"mode": "service"}
    assert jobs["sweep/job101"]["lines"][0] == "epoch of job 101"
    assert jobs["serial_mode_5.log.master"]["details"] == {"mode": "serial"}
    assert jobs["serial_mode_5.log.master"]["lines"] == ["2026 | INFO | started"]


def test_a_log_without_a_history_ends_with_its_file_and_nobody_knows_how(
    take: Import, store: Path, site: Path
) -> None:
    """Its system may have been off for years, so the job must not look like a running one."""
    log = site / "data" / "sweep" / "job101" / "job.out"
    (site / "logs").mkdir()
    launcher = site / "logs" / "mpi_mode_5.log"
    for secs in (1_700_000_000, 1_700_000_600):
        for path in (log, launcher):
            with path.open("a") as file:
                file.write(f"\nat {secs}\n")
            os.utime(path, (secs, secs))
        assert take(site / "data", site / "logs")[0] == 0
        for name in ("sweep/job101", launcher.name):
            found = contents(store)[name]
            summary = found["summary"]
            assert (summary.state, summary.ended_ns) == ("UNKNOWN", secs * NS)
            assert summary.started_ns == 1_700_000_000 * NS
            assert (summary.exit_code, found["lines"][-1]) == (None, f"at {secs}")
    assert {job["summary"].state for job in contents(store).values()} == {"UNKNOWN"}


def test_events_keep_their_numbers_and_their_data(take: Import, store: Path) -> None:
    take(SITE)
    changes = [event for event in EVENTS if event["from_state"] != event["to_state"]]
    with logshipper.Store.local(store) as opened:
        events = {event.source_id: event for event in logshipper.EventLog(opened)}
        assert events.keys() == {str(event["id"]) for event in changes}
        for event in changes:
            found = events[str(event["id"])]
            assert dict(found.source_data) == event["data"]
            assert (found.from_state, found.to_state) == (event["from_state"], event["to_state"])
        number = changes[0]["id"]
        assert logshipper.EventLog(opened).get(id=number) == events[str(number)]


def test_two_sites_are_told_apart(take: Import, store: Path) -> None:
    take(SITE)
    take(SITE, "--as", "theta")
    with LocalStore(str(store)) as local_store:
        assert {"balsam-101", "balsam-theta-101"} <= {job.job_id for job in local_store.jobs()}
        assert len(local_store.allocations()) == 6


# ---- invalid input


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ("garbage", "isn't a JSON object"),
        ('{"job_id": 1}', "is no event, job or batch job of Balsam 0.7"),
        (
            '{"job_id": "x", "from_state": "READY", "to_state": "RUNNING"}',
            "the job's id is missing, or no number",
        ),
        (
            '{"job_id": -1, "from_state": "READY", "to_state": "RUNNING"}',
            "the job's id is missing, or no number",
        ),
        (
            '{"job_id": 101, "from_state": "READY", "to_state": "WARP"}',
            "'WARP' is no state of Balsam 0.7",
        ),
        (
            '{"job_id": 101, "from_state": "READY", "to_state": "RUNNING", "timestamp": 1e300}',
            "is no time",
        ),
        (
            '{"num_nodes": 1, "wall_time_min": 5, "id": 9, "state": "lost"}',
            "is no state of a batch job",
        ),
        (
            '{"num_nodes": 1, "wall_time_min": 5, "state": "queued"}',
            "the batch job's id is missing",
        ),
        ('{"workdir": "x", "id": null}', "the job's id is missing"),
    ],
)
def test_bad_entries_are_said_and_the_others_imported(
    take: Import, store: Path, site: Path, event: str, words: str
) -> None:
    lines = [json.dumps(event) for event in EVENTS]
    (site / "events.json").write_text("\n".join([*lines[:3], event, *lines[3:]]) + "\n")
    code, _, errors = take(site)
    assert code == 1
    assert f"{site}/events.json:4: " in errors
    assert words in errors
    jobs = contents(store)
    assert len(jobs) == 6
    assert jobs["sweep/job101"]["summary"].state == "COMPLETED"


def test_a_broken_element_of_an_array(take: Import, store: Path, site: Path) -> None:
    """The import takes all elements before and after it, even if all stand in one line."""
    texts = [json.dumps(event) for event in EVENTS]
    (site / "events.json").write_text(
        "[" + ", ".join([*texts[:20], '{"id": oops}', *texts[20:]]) + "]"
    )
    code, out, _ = take(site)
    assert (code, out) == (1, "52 entries: 6 new jobs, 0 known, 3 allocations\n")


@pytest.mark.parametrize("bytes_left", [0, 1, 100, 3000])
def test_a_truncated_page(take: Import, store: Path, site: Path, bytes_left: int) -> None:
    whole = (SITE / "events.json").read_bytes()
    (site / "events.json").write_bytes(whole[:bytes_left])
    code, _, errors = take(site / "events.json", site / "jobs.jsonl")
    assert len(contents(store)) == 6
    assert (code, "cut short" in errors) == ((1, True) if bytes_left else (0, False))


@pytest.mark.parametrize("workdir", ["../../../etc", "/etc", "a\0b", "..", ""])
def test_hostile_work_directories(
    take: Import, store: Path, site: Path, tmp_path: Path, workdir: str
) -> None:
    secret = tmp_path / "etc" / "job.out"
    secret.parent.mkdir()
    secret.write_text("secret\n")
    (site / "jobs.jsonl").write_text(json.dumps({**JOBS[0], "workdir": workdir}) + "\n")
    take(site)
    assert "secret" not in [line for job in contents(store).values() for line in job["lines"]]


def test_links_are_not_followed(take: Import, store: Path, site: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")
    log = site / "data" / "sweep" / "job101" / "job.out"
    log.unlink()
    log.symlink_to(tmp_path / "secret")
    os.mkfifo(site / "data" / "sweep" / "mpi_mode.log")
    code, _, errors = take(site)
    assert code == 1
    assert "job.out: is a link, or no file" in errors
    assert "mpi_mode.log: is a link, or no file" in errors
    assert contents(store)["sweep/job101"]["lines"] == []


def test_tags_that_are_none(take: Import, store: Path, site: Path) -> None:
    tags = {"good": "1", "a b": "2", "": "3", "x" * 100: "4", "ok": "\x1b[31m"}
    (site / "jobs.jsonl").write_text(json.dumps({**JOBS[0], "tags": tags}) + "\n")
    code, _, errors = take(site / "jobs.jsonl")
    assert code == 0
    assert errors.count("is left out") == 3
    with LocalStore(str(store)) as local_store:
        assert Overlay.of_local(local_store).of(JobKey("balsam-101")).tags == {
            "good": "1",
            "ok": "\ufffd[31m",
        }


def test_nothing_of_balsam(take: Import, tmp_path: Path) -> None:
    code, _, errors = take(tmp_path)
    assert code == 1
    assert "nothing of Balsam" in errors


def test_what_is_called_like_a_secret_in_parameters_is_masked(
    take: Import, store: Path, tmp_path: Path
) -> None:
    job = {
        **JOBS[0],
        "parameters": {"api_key": "s3cr3t", "n": 3},
        "launch_params": {"args": ["--token", "s3cr3t"]},
    }
    (tmp_path / "jobs.jsonl").write_text(json.dumps(job) + "\n")
    take(tmp_path / "jobs.jsonl")
    details = contents(store)[job["workdir"]]["details"]
    assert details["parameters"] == {"api_key": "***", "n": 3}
    assert details["launch_params"] == {"args": ["--token", "***"]}
    assert not [
        path for path in store.rglob("*") if path.is_file() and b"s3cr3t" in path.read_bytes()
    ]

"""Balsam's and QCG-PilotJob's published code on the same events as ours
(tests/tools/stores/analytics_oracle.py).

Each case names the reason for a difference, and docs/analytics.md has their counts. Cases are
random, but the same each time. The other programs have environments of their own:
requirements/tool.sh.
"""

import json
import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from logshipper_observe.analytics.analytics import (
    Report,
    available_nodes,
    throughput_report,
    utilization_report,
)
from logshipper_observe.analytics.task_analytics import (
    Span,
    Statistics,
    Task,
    busy_share,
    core_name,
    efficiency,
    gantt,
    gaps,
    launch_overheads,
    statistics_of,
)
from tests.tools.sources import ROOT
from tests.tools.tools_of_others import python_of
from tests.tools.waiting import scaled

CASES = 400  # of each kind
TIMEOUT_SECS = 90
T0 = 1_777_636_800.0
STATES = ("READY", "PREPROCESSED", "RUNNING", "RUN_DONE", "POSTPROCESSED", "STAGED_OUT", "JOB_FINISHED", "RUN_ERROR",
          "RUN_TIMEOUT", "RESTART_READY", "FAILED")  # fmt: skip

Json = Any  # Any: JSON


def oracle_answers(program: str, cases: list[Json]) -> list[Json]:
    """Return the answers of Balsam's or QCG-PilotJob's code."""
    command = [
        str(python_of(program)),
        "-I",
        str(ROOT / "tests" / "tools" / "stores" / "analytics_oracle.py"),
        program,
    ]
    process = subprocess.run(
        command,
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=scaled(TIMEOUT_SECS),
    )
    assert process.returncode == 0, process.stderr
    answers: list[Json] = json.loads(process.stdout)
    assert len(answers) == len(cases)
    return answers


class Comparison:
    """Counts cases, equal results, and differences for each reason."""

    def __init__(self) -> None:
        self.cases = self.equal = 0
        self.reasons: Counter[str] = Counter()

    def take(self, case: Json, *, equal: bool, reason: str) -> None:
        """Count a case. reason: why the two may differ; "" forbids a difference."""
        self.cases += 1
        self.equal += equal
        if not equal:
            assert reason, case
            self.reasons[reason] += 1

    def assert_as_documented(self, name: str) -> None:
        """Check that the page's table has exactly these numbers."""
        page = (ROOT / "docs" / "analytics.md").read_text()
        row = re.search(rf"^\| {re.escape(name)} \| (\d+) \| (\d+) \| (.*) \|$", page, re.M)
        reasons = "; ".join(f"{number} {reason}" for reason, number in sorted(self.reasons.items()))
        cells = (str(self.cases), str(self.equal), reasons or "–")
        assert (row and row.groups()) == cells, f"| {name} | {' | '.join(cells)} |"


# ---- Balsam


def moment(secs: float | None) -> datetime | None:
    return None if secs is None else datetime.fromtimestamp(secs, UTC)


def a_workflow(chance: random.Random) -> list[Json]:
    """Return events of some jobs in Balsam's form: restarts, parts of nodes, many at the same time.
    One workflow in four lacks something."""
    is_whole = chance.random() < 0.75
    events: list[Json] = []
    for job in range(chance.randint(1 if is_whole else 0, 8)):
        at = T0 + chance.randint(0, 20)
        nodes, packing = chance.choice([1, 2, 16]), chance.choice([1, 1, 2, 3, 8])
        before = "PREPROCESSED"
        for attempt in range(chance.choice([1, 1, 1, 2, 3])):
            if attempt:
                events.append([job, at, before, "RESTART_READY", {}])
                before = "RESTART_READY"
                if not is_whole:
                    nodes = chance.choice([1, 4])
            events.append([job, at, before, "RUNNING", {"num_nodes": nodes / packing}])
            at += chance.randint(0, 12)
            before = chance.choice(["RUN_DONE", "RUN_ERROR", "RUN_TIMEOUT"])
            events.append([job, at, "RUNNING", before, {}])
            if before == "RUN_DONE":
                for state in ("POSTPROCESSED", "STAGED_OUT", "JOB_FINISHED"):
                    at += chance.randint(0, 2)
                    events.append([job, at, before, state, {}])
                    before = state
                break
        if before == "RUN_ERROR":
            events.append([job, at + 1, before, "FAILED", {}])
    if not is_whole:
        for event in events:
            if "num_nodes" in event[4] and chance.random() < 0.1:
                event[4] = {}
        events = [event for event in events if chance.random() < 0.9]
    chance.shuffle(events)
    return events


def ours_of_events(case: Json) -> Report[datetime, Any]:
    events = [
        SimpleNamespace(
            job_id=job, timestamp=moment(at), from_state=before, to_state=after, data=data
        )
        for job, at, before, after, data in case["events"]
    ]
    if case["ask"] == "throughput":
        return throughput_report(events, to_state=case["to_state"])
    return utilization_report(events, node_weighting=case["ask"] == "utilization")


def is_same(report: Report[datetime, Any], answer: Json) -> bool:
    if isinstance(answer, dict):
        return False
    times, counts = answer
    return [time.timestamp() for time in report[0]] == times and report[1] == pytest.approx(
        counts, abs=1e-9
    )


def why_running_differs(case: Json) -> str:
    starts = [event for event in case["events"] if event[3] == "RUNNING"]
    ends = [event for event in case["events"] if event[2] == "RUNNING"]
    if not starts and not ends:
        return "of nothing: ValueError"
    is_weighted = case["ask"] == "utilization"
    if is_weighted and any("num_nodes" not in event[4] for event in starts):
        return "without a node count: KeyError"
    run_counts: Counter[int] = Counter()
    for job, _, _, after, _ in sorted(
        starts + ends, key=lambda event: (event[1], event[3] != "RUNNING")
    ):
        run_counts[job] += 1 if after == "RUNNING" else -1
        if run_counts[job] < 0:
            return "with an end without a start: counted as 1"
    weights = {(event[0], event[4]["num_nodes"]) for event in starts} if is_weighted else set()
    if len(weights) > len({job for job, _ in weights}):
        return "begun again with other nodes: the last that was read counts for all"
    return ""


def why_throughput_differs(case: Json) -> str:
    return ""


@pytest.fixture(scope="module")
def balsam() -> tuple[list[Json], list[Json]]:
    chance = random.Random(7)
    cases: list[Json] = []
    for _ in range(CASES):
        events = a_workflow(chance)
        cases += [{"ask": ask, "events": events} for ask in ("utilization", "jobs")]
        cases.append({"ask": "throughput", "events": events, "to_state": chance.choice(STATES)})
        allocations = []
        for _ in range(chance.randint(0, 6)):
            start = chance.choice([None, *[T0 + chance.randint(0, 30)] * 5])
            end = None if start is None or chance.random() < 0.15 else start + chance.randint(0, 30)
            allocations.append([start, end, chance.choice([1, 2, 64])])
        cases.append({"ask": "nodes", "allocations": allocations})
    return cases, oracle_answers("balsam", cases)


@pytest.mark.parametrize(
    ("ask", "name", "reason_of"),
    [
        ("throughput", "Balsam `throughput_report`", why_throughput_differs),
        ("utilization", "Balsam `utilization_report`", why_running_differs),
        ("jobs", "Balsam `utilization_report(node_weighting=False)`", why_running_differs),
    ],
)
def test_balsams_reports_of_events(
    balsam: tuple[list[Json], list[Json]], ask: str, name: str, reason_of: Callable[[Json], str]
) -> None:
    comparison = Comparison()
    for case, answer in zip(*balsam, strict=True):
        if case["ask"] == ask:
            comparison.take(
                case, equal=is_same(ours_of_events(case), answer), reason=reason_of(case)
            )
    comparison.assert_as_documented(name)


def test_balsams_report_of_allocations(balsam: tuple[list[Json], list[Json]]) -> None:
    comparison = Comparison()
    for case, answer in zip(*balsam, strict=True):
        if case["ask"] == "nodes":
            report = available_nodes(
                SimpleNamespace(start_time=moment(start), end_time=moment(end), num_nodes=nodes)
                for start, end, nodes in case["allocations"]
            )
            runs = any(start is not None and end is None for start, end, _ in case["allocations"])
            reason = "with one that runs: left out" if runs else ""
            comparison.take(case, equal=is_same(report, answer), reason=reason)
    comparison.assert_as_documented("Balsam `available_nodes`")


# ---- QCG-PilotJob


def a_pilot(chance: random.Random) -> Json:
    """Return tasks on the cores of some nodes, one after the other on each. One case in five has an
    oddity, named by `odd`."""
    odd = chance.choice(
        ["", "", "", "", chance.choice(["cancelled", "alone", "no time", "overlapping"])]
    )
    nodes, cores = chance.randint(1, 3), chance.randint(1, 4)
    free = {(f"n{node}", str(core)): 0.0 for node in range(nodes) for core in range(cores)}
    tasks: list[Json] = []
    for number in range(1 if odd == "alone" else chance.randint(3, 12)):
        places = sorted(chance.sample(sorted(free), chance.randint(1, min(4, len(free)))))
        scheduled = max(free[place] for place in places) + chance.choice([0, 0, 0.5, 3])
        # exact in binary, because the test compares sums
        launched = scheduled + chance.choice([0.0625, 0.25])
        start = launched + chance.choice([0.125, 0.375])
        secs = 0.0 if odd == "no time" and not number else chance.choice([0.75, 2, 7.125])
        finished = start + secs + chance.choice([0, 0.25])
        for place in places:
            free[place] = max(0.0, finished - 2) if odd == "overlapping" else finished
        tasks.append({
            "name": f"t{number}", "places": places, "scheduled": scheduled, "launched": launched, "start": start,
            "end": start + secs, "finished": finished, "cancelled": odd == "cancelled" and not number,
        })  # fmt: skip
    return {"odd": odd, "tasks": tasks}


def qcg_reports(tasks: list[Json]) -> Json:
    """Return jobs.report and rtimes_*.log of a run, as QCG-PilotJob writes them."""

    def date(secs: float) -> str:
        return (datetime(2026, 5, 1, 12) + timedelta(seconds=secs)).isoformat()

    report, rtimes = [], {}
    for task in tasks:
        nodes: dict[str, list[str]] = {}
        for node, core in task["places"]:
            nodes.setdefault(node, []).append(core)
        history = [("QUEUED", 0.0), ("SCHEDULED", task["scheduled"])]
        runtime = {}
        if task["cancelled"]:
            history.append(("CANCELED", task["scheduled"]))
        else:
            history += [("EXECUTING", task["launched"]), ("SUCCEED", task["finished"])]
            runtime["allocation"] = ",".join(
                f"{node}[{':'.join(cores)}]" for node, cores in nodes.items()
            )
            runtime["rtime"] = str(timedelta(seconds=task["end"] - task["start"]))
            rtimes[task["name"]] = {"s": date(task["start"]), "f": date(task["end"])}
        states = [{"state": state, "date": date(secs)} for state, secs in history]
        report.append(
            {"name": task["name"], "state": history[-1][0], "history": states, "runtime": runtime}
        )
    return {"report": report, "rtimes": rtimes}


def our_tasks(tasks: list[Json]) -> list[Task]:
    task_objects = []
    for task in tasks:
        cores: dict[str, list[str]] = {}
        for node, core in task["places"]:
            cores.setdefault(node, []).append(core)
        name, scheduled = task["name"], task["scheduled"]
        if task["cancelled"]:
            task_objects.append(Task(name, scheduled=scheduled))
        else:
            task_objects.append(
                Task(
                    name,
                    task["start"],
                    task["end"],
                    cores,
                    scheduled,
                    task["launched"],
                    task["finished"],
                )
            )
    return task_objects


def secs_of(text: str) -> float:
    return (datetime.fromisoformat(text) - datetime(2026, 5, 1, 12)).total_seconds()


def bars(spans: list[Span], gap_name: str = "") -> list[list[Any]]:
    return sorted(
        [core_name(span.place), span.start, span.end, span.task or gap_name] for span in spans
    )


def same_statistics(statistics: Statistics | None, answer: Mapping[str, float] | None) -> bool:
    if statistics is None or answer is None or statistics.stdev is None:
        return statistics is None and answer is None
    names = ("min", "max", "mean", "median", "stdev", "pstdev")
    return [getattr(statistics, name) for name in names] == pytest.approx(
        [answer.get(name) for name in names], abs=1e-6
    )


def same_shares(report: Report[str, float], answer: Json) -> bool:
    shares = {
        f"{node}:{core}": part["utilization"] / 100
        for node, cores in answer.get("nodes", {}).items()
        for core, part in cores.items()
    }
    return dict(zip(*report, strict=True)) == pytest.approx(shares, abs=1e-6)


def same_overheads(tasks: list[Task], answer: Json) -> bool:
    overheads = launch_overheads(tasks)
    if overheads.start is None or overheads.finish is None or overheads.share is None:
        return False
    averages = (overheads.tasks, overheads.start.mean, overheads.finish.mean, 100 * overheads.share)
    names = ("analyzed_jobs", "job_start_avg", "job_finish_avg", "job_avg_per_rt")
    return averages == pytest.approx([answer.get(name) for name in names], abs=1e-6)


def same_chart(rows: list[list[Any]], answer: Json) -> bool:
    if isinstance(answer, dict):
        return False
    return rows == sorted(
        [core, secs_of(start), secs_of(end), job] for core, start, end, job in answer
    )


PARTS: dict[str, tuple[str, Callable[[list[Task], Json], bool]]] = {
    "run_times": ("run times", lambda tasks, answer: same_statistics(
        statistics_of(task.run_time for task in tasks if task.run_time is not None), answer)),
    "launch": ("launch times", lambda tasks, answer: same_statistics(launch_overheads(tasks).launch, answer)),
    "overheads": ("launch overheads", same_overheads),
    "gantt": ("gantt", lambda tasks, answer: same_chart(bars(gantt(tasks)), answer)),
    "gaps": ("gaps", lambda tasks, answer: same_chart(bars(gaps(tasks), "gap"), answer)),
    "busy": ("busy shares", lambda tasks, answer: same_shares(busy_share(tasks), answer)),
    "efficiency": ("efficiency", lambda tasks, answer: same_shares(efficiency(tasks), answer)),
}  # fmt: skip


def why_qcg_differs(part: str, case: Json, answer: Json) -> str:
    if case["odd"] == "cancelled":
        return "with a cancelled task: AssertionError"
    if case["odd"] == "alone":
        return "of a single task: StatisticsError"
    if case["odd"] == "no time" and part == "run_times":
        return "with a task of 0 s: left out"
    if case["odd"] == "no time" and part == "overheads":
        return "with a task of 0 s: ZeroDivisionError"
    if case["odd"] == "overlapping" and part in ("gaps", "busy", "efficiency"):
        return "with tasks that share a core at a time: gaps below 0"
    if (
        part == "gaps"
        and isinstance(answer, list)
        and any(start == end for _, start, end, _ in answer)
    ):
        return "with gaps of 0 s"
    return ""


@pytest.fixture(scope="module")
def qcg() -> tuple[list[Json], list[Json]]:
    chance = random.Random(11)
    cases = [a_pilot(chance) for _ in range(CASES)]
    return cases, oracle_answers("qcg", [qcg_reports(case["tasks"]) for case in cases])


@pytest.mark.parametrize("part", PARTS)
def test_qcgs_reports(qcg: tuple[list[Json], list[Json]], part: str) -> None:
    name, is_equal = PARTS[part]
    comparison = Comparison()
    for case, answer in zip(*qcg, strict=True):
        part_answer = answer if "error" in answer else answer[part]
        is_error = isinstance(part_answer, dict) and "error" in part_answer
        reason = why_qcg_differs(part, case, part_answer)
        assert not is_error or reason.endswith(part_answer["error"]), (case, part_answer)
        comparison.take(
            case,
            equal=not is_error and is_equal(our_tasks(case["tasks"]), part_answer),
            reason=reason,
        )
    comparison.assert_as_documented(f"QCG-PilotJob {name}")

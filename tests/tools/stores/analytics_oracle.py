"""`python analytics_oracle.py balsam|qcg < cases > answers`: compute analytics with Balsam's or
QCG-PilotJob's own code.

It runs in the environment that has them (requirements/tool.sh), and imports none of our code. Cases
and answers are JSON lists. An answer is `{"error": NAME}` if their code raised.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any  # Any: other programs' values


def moment(secs: float | None) -> datetime | None:
    return None if secs is None else datetime.fromtimestamp(secs, UTC)


class Query(list[Any]):
    """The part of a query's interface that Balsam's functions use."""

    def filter(self, **values: str) -> "Query":
        return Query(
            event
            for event in self
            if all(getattr(event, name) == value for name, value in values.items())
        )

    def order_by(self, _: object) -> "Query":
        return Query(sorted(self, key=lambda event: event.timestamp))


def balsam(case: dict[str, Any]) -> Any:
    from balsam.analytics import available_nodes, throughput_report, utilization_report  # type: ignore[import-not-found]  # in an environment of its own

    ask = case["ask"]
    if ask == "nodes":
        times, counts = available_nodes(
            SimpleNamespace(id=at, start_time=moment(start), end_time=moment(end), num_nodes=nodes)
            for at, (start, end, nodes) in enumerate(case["allocations"])
        )
    else:
        events = Query(
            SimpleNamespace(
                job_id=job, timestamp=moment(at), from_state=before, to_state=after, data=data
            )
            for job, at, before, after, data in case["events"]
        )
        if ask == "throughput":
            times, counts = throughput_report(events, to_state=case["to_state"])
        else:
            times, counts = utilization_report(events, node_weighting=ask == "utilization")
    return [[time.timestamp() for time in times], list(counts)]


def qcg(case: dict[str, Any]) -> Any:
    """Return each part of the report separately, so that one failure does not hide the others."""
    from qcg.pilotjob.utils.reportstats import JobsReportStats  # type: ignore[import-not-found]  # likewise

    with tempfile.TemporaryDirectory() as folder:
        report, times = os.path.join(folder, "jobs.report"), os.path.join(folder, "rtimes.log")
        with open(report, "w") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in case["report"])
        with open(times, "w") as file:
            json.dump({"node": "n", "rt": case["rtimes"]}, file)
        statistics = JobsReportStats([report], rt_files=[times])

    def chart(document: dict[str, Any]) -> Any:
        return sorted(
            [bar["Core"], str(bar["Start"]), str(bar["Finish"]), bar["Job"]]
            for bar in document["chart_data"]
        )

    parts: dict[str, Callable[[], Any]] = {
        "run_times": lambda: statistics.job_stats().get("rstats"),
        "launch": lambda: statistics.job_stats().get("launchstats"),
        "overheads": lambda: statistics.job_start_finish_launch_overheads(details=True),
        "gantt_as_told": lambda: chart(statistics._generate_gantt_dataframe("s_time", "f_time")),
        "gantt": lambda: chart(statistics._generate_gantt_dataframe("real_start", "real_finish")),
        "gaps": lambda: chart(
            statistics._generate_gantt_gaps_dataframe("real_start", "real_finish")
        ),
        "busy": lambda: statistics.resource_usage(from_first_job=True, details=True),
        "efficiency": lambda: statistics.efficiency(details=True),
    }
    return {name: answer_of(part) for name, part in parts.items()}


def answer_of(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception as error:
        return {"error": type(error).__name__}


if __name__ == "__main__":
    program = {"balsam": balsam, "qcg": qcg}[sys.argv[1]]
    cases = json.load(sys.stdin)
    out, sys.stdout = sys.stdout, sys.stderr  # their code prints
    answers = [answer_of(lambda case=case: program(case)) for case in cases]  # type: ignore[misc]
    json.dump(answers, out)

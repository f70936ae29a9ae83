"""Names that XT's own code calls, implemented by our library.

They let snippets from XT's documents about logs, metrics and runs work on captured jobs. The job
itself stands for a run's log records, a task for a node.
"""

import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import logshipper
from logshipper_observe.graphs.plot_runs import XT_KEYS

ESCAPE = "\x1b"
CONTROL_C = "\x03"


class Frame:
    """The part of pandas' DataFrame that XT uses.

    pandas removed `append` in version 2.0, so current versions cannot run these snippets.
    """

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self.columns = list(records[0])
        self._rows = [dict(record) for record in records]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._rows), len(self.columns)

    def __setitem__(self, column: str, values: list[Any]) -> None:
        self.columns.append(column)
        for row, value in zip(self._rows, values, strict=True):
            row[column] = value

    def __getitem__(self, column: str) -> list[Any]:
        return [row[column] for row in self._rows]

    def append(self, frame: "Frame") -> "Frame":
        return Frame([*self._rows, *frame._rows])


def metric_sets(job: logshipper.Job) -> list[dict[str, Any]]:
    """`run_helper.build_metrics_sets`: records that were logged together, by their keys."""
    sets = []
    for columns in job.metric_sets():
        keys = [name for name in columns if not name.startswith("_")]
        rows = zip(*(columns[key] for key in keys), strict=True)
        sets.append({"keys": keys, "records": [dict(zip(keys, row, strict=True)) for row in rows]})
    return sets


def actual_x(sets: list[dict[str, Any]], x: str | None, y: list[str]) -> str | None:
    """Return the first of XT's names that a record contains beside Y, as XT does."""
    beside = [keys for keys in (metric_set["keys"] for metric_set in sets) if not y or y[0] in keys]
    return x or next((name for name in XT_KEYS if any(name in keys for keys in beside)), None)


def run_record(job: logshipper.Job, workspace: str) -> dict[str, Any]:
    """Return a run in the form of XT's database."""
    return {
        "_id": job.job_id, "node_index": 0, "job_id": job.tags.get("job", ""), "exper_name": job.name, "ws": workspace,
        "search_style": "single", "log_records": job,
    }  # fmt: skip


class Console:
    """`console`: keeps the printed text."""

    def __init__(self) -> None:
        self.text = ""

    def print(self, *words: str, end: str = "\n", flush: bool = False) -> None:
        self.text += " ".join(words) + end


class Backend:
    """A job's service: the log of each node from an offset on, and its state."""

    STATES: ClassVar[Mapping[bool, str]] = {True: "completed", False: "running"}

    def __init__(self, store: logshipper.Store, job_id: str) -> None:
        self._store = store
        self._job_id = job_id

    def get_name(self) -> str:
        return "logshipper"

    def get_service_queue_entries(self, _: Mapping[str, str]) -> None:
        return None

    def read_log_file(
        self, node: Mapping[str, Any], *, log_name: str | None, start_offset: int
    ) -> dict[str, Any]:
        job = self._store.job(self._job_id)
        over = not job.is_running  # read before the lines, so that no last line is missing
        numbers = {capture.capture for capture in job.captures() if capture.task == node["task"]}
        text = "".join(f"{line.text}\n" for line in job.lines() if line.capture in numbers)
        return {
            "new_text": text[start_offset:], "next_offset": len(text), "log_name": "console",
            "simple_status": self.STATES[over], "service_status": job.state,
        }  # fmt: skip


class Keys:
    """`KeyPressChecker`: pressed keys, one for each check, None for none."""

    typed: ClassVar[list[str | None]] = []

    def __enter__(self) -> "Keys":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def getch_nowait(self) -> str | None:
        return self.typed.pop(0) if self.typed else None


class RunStore:
    """`store`: XT's records at the end of runs, with our knowledge of the job."""

    def __init__(self, store: logshipper.Store) -> None:
        self.ended: list[dict[str, Any]] = []
        self._store = store

    def wrapup_run(
        self, ws: str, run: str, dest: str, name: str, status: str, exit_code: int, primary_metric: str,
        maximize_metric: bool, *_: Any, **more: Any,
    ) -> None:  # fmt: skip
        jobs = self._store.info(run)[run]
        best = jobs.best(primary_metric, maximize=maximize_metric)
        self.ended.append(
            {
                "run": run,
                "status": status,
                "exit_code": exit_code,
                "best": best,
                "known": jobs,
                **more,
            }
        )

    def end_run(self, ws: str, run: str, status: str, exit_code: int, *_: Any, **more: Any) -> None:
        self.ended.append({"run": run, "status": status, "exit_code": exit_code, **more})

    update_mongo_run_at_end = end_run


def names(store: logshipper.Store, console: Console) -> dict[str, Any]:
    """Return the globals of XT's modules."""

    def job_backend(_: Any, __: Any, job_id: str) -> tuple[Backend, dict[str, Any]]:
        tasks = [capture.task for capture in store.job(job_id).captures()]
        return Backend(store, job_id), {
            "service_info_by_node": {f"node{task}": {"task": task} for task in tasks}
        }

    sleep: Callable[[float], None] = lambda secs: time.sleep(min(secs, 0.005))  # noqa: E731  its pause between keys
    return {
        "utils": SimpleNamespace(
            node_id=lambda number: f"node{number}", safe_value=lambda fields, key: fields.get(key),
            dict_to_object=lambda fields: SimpleNamespace(**fields), get_time=lambda: "2020-01-01 00:00:00",
        ),
        "run_helper": SimpleNamespace(build_metrics_sets=metric_sets),
        "qfe": SimpleNamespace(get_explicit_options=dict),
        "pd": SimpleNamespace(DataFrame=Frame),
        "job_helper": SimpleNamespace(get_job_backend=job_backend),
        "constants": SimpleNamespace(ESCAPE=ESCAPE, CONTROL_C=CONTROL_C),
        "time": SimpleNamespace(sleep=sleep, time=time.time),
        "KeyPressChecker": Keys,
        "console": console,
    }  # fmt: skip

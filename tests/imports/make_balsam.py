"""Make tests/imports/balsam: events, jobs and batch jobs by Balsam's own classes (0.7.0a24), and
the files of a job by its launcher's LocalAppRun. Run it by hand, with the packages of
requirements/balsam.lock, and psutil:

    sh requirements/tool.sh balsam
    .venv/balsam/bin/python tests/imports/make_balsam.py tests/imports/balsam

events.json is a page of the server's answer. jobs.jsonl has one job per line. batchjobs.csv is a
table of `display_dict()`s. The history of each job follows the order of Balsam's launchers.
"""

import csv
import importlib
import json
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

BEGAN = datetime(2026, 5, 4, 9, 30)
READY = ("AWAITING_PARENTS", "READY", "STAGED_IN", "PREPROCESSED")
DONE = ("RUN_DONE", "POSTPROCESSED", "STAGED_OUT", "JOB_FINISHED")
JOBS = {  # number of nodes, packing, and the states after PREPROCESSED
    101: (2, 1, ("RUNNING", *DONE)),
    102: (1, 8, ("RUNNING", *DONE)),
    103: (1, 8, ("RUNNING", "RUN_ERROR", "FAILED")),
    104: (4, 1, ("RUNNING", "RUN_TIMEOUT", "RESTART_READY", "RUNNING", *DONE)),
    105: (1, 1, ("RUNNING",)),
    106: (1, 1, ()),
}


def main(target: Path) -> None:
    schemas: Any = importlib.import_module("balsam.schemas")  # Any: Balsam's own classes
    events: list[Any] = []
    jobs: list[Any] = []
    for number, (nodes, packing, later) in JOBS.items():
        at, before = BEGAN + timedelta(minutes=number - 101), "CREATED"
        for state in (*READY, *later):
            at += timedelta(seconds=7 * packing, microseconds=1000 * number)
            data: dict[str, Any] = {}  # Any: JSON
            if state == "RUNNING":
                data = {"num_nodes": nodes / packing}
            elif state == "RUN_ERROR":
                data = {"returncode": 3, "error": "Traceback: the tail of job.out"}
            event = {"id": len(events) + 1, "job_id": number, "timestamp": at, "data": data}
            events.append(schemas.LogEventOut(**event, from_state=before, to_state=state))
            before = state
        jobs.append(
            schemas.JobOut(
                id=number, app_id=1, parent_ids=[], batch_job_id=5 if later else None, last_update=at, state=before,
                pending_file_cleanup=False, serialized_parameters="", serialized_return_value="",
                serialized_exception="", workdir=f"sweep/job{number}", num_nodes=nodes, node_packing_count=packing,
                tags={"experiment": "foo", "n": str(number)}, ranks_per_node=2,
                return_code={"JOB_FINISHED": 0, "FAILED": 3}.get(before),
            )
        )  # fmt: skip
    events.sort(key=lambda event: event.timestamp, reverse=True)
    target.mkdir(parents=True, exist_ok=True)
    page = schemas.PaginatedLogEventOut(count=len(events), results=events)
    (target / "events.json").write_text(page.json() + "\n")
    (target / "jobs.jsonl").write_text("".join(f"{job.json()}\n" for job in jobs))
    write_batch_jobs(schemas, target / "batchjobs.csv")
    for number in (101, 103):
        run_app(target / "data" / "sweep" / f"job{number}", f"epoch of job {number}")


def write_batch_jobs(schemas: Any, path: Path) -> None:  # Any: Balsam's own classes
    common = {
        "site_id": 1,
        "project": "foo",
        "queue": "default",
        "wall_time_min": 60,
        "job_mode": "mpi",
    }
    rest = {**common, "status_info": {}, "filter_tags": {"experiment": "foo"}}
    row = [
        (5, 456, 8, "finished", BEGAN, BEGAN + timedelta(minutes=60)),
        (6, 457, 4, "running", BEGAN + timedelta(minutes=30), None),
        (7, None, 2, "queued", None, None),
    ]
    names = ("id", "scheduler_id", "num_nodes", "state", "start_time", "end_time")
    batch_jobs = [
        schemas.BatchJobOut(**dict(zip(names, values, strict=True)), **rest) for values in row
    ]
    rows = [json.loads(batch_job.json()) for batch_job in batch_jobs]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def run_app(folder: Path, words: str) -> None:
    """Run a command as Balsam's launcher does, which leaves its output in job.out."""
    app_run: Any = importlib.import_module("balsam.platform.app_run")  # Any: Balsam's own classes
    launcher: Any = importlib.import_module("balsam.site.launcher")
    folder.mkdir(parents=True, exist_ok=True)
    spec = launcher.NodeSpec(node_ids=["0"], hostnames=["localhost"], cpu_ids=[[0]], gpu_ids=[[]])
    script = f"import json; print('{words}'); print(json.dumps({{'epoch': 1, 'loss': 0.5}})); print('50%\\r100%')"
    run = app_run.LocalAppRun(
        cmdline=f'python3 -c "{script}"', preamble=None, envs={}, cwd=folder, outfile_path=folder / "job.out",
        node_spec=spec, ranks_per_node=1, threads_per_rank=1, threads_per_core=1, launch_params={}, gpus_per_rank=0,
    )  # fmt: skip
    run.start()
    run.wait(60)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())

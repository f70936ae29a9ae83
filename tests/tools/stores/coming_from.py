"""A store with the jobs that docs/coming-from-*.md name."""

import time
from pathlib import Path
from typing import Any

import logshipper
from logshipper.spool.segment import Kind, Stream
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.stores.reading_store import SpooledCapture

EPOCHS = 4


def prepare(store: Path) -> None:
    """Write jobs of users of MLO, Balsam, QCG and XT, newest last."""
    began_ns = time.time_ns() - 3000 * NS
    for at, (job_id, options) in enumerate(_jobs().items()):
        _write(store, job_id, started_ns=began_ns + at * 20 * NS, **options)
    for task in range(4):
        for job_id in ("job201", "mlo3"):
            with SpooledCapture(
                store,
                job_id,
                name=job_id,
                task=task,
                suffix=f"t{task}",
                started_ns=began_ns - 100 * NS,
            ) as job:
                job.lines(f"worker {task} of {job_id}")
                job.end()
    for attempt, code in ((1, 1), (2, 0)):
        _write(
            store,
            "mlo2",
            attempt=attempt,
            name="mlo2",
            lr=0.2,
            code=code,
            started_ns=began_ns - (300 - attempt * 50) * NS,
        )
    with logshipper.Store.local(store) as local_store:
        for pattern, tags in _TAGS.items():
            for match in local_store.jobs(pattern):
                match.tag(*tags)


_TAGS = {
    "run2264.*": ("job=job2264", "keep"),
    "run2264.6": ("good", "node_index=0"),
    "12?": ("experiment=foo",),
    "456": ("experiment=ffn-1", "scale_nodes=512"),
    "job5535": ("description=old",),
    "job3341": ("description=first",),
}


def _jobs() -> dict[str, dict[str, Any]]:  # Any: options of _write
    jobs: dict[str, dict[str, Any]] = {"mlo1": {"name": "mlo1", "lr": 0.1}}
    jobs |= {job_id: {"name": "balsam"} for job_id in ("123", "124", "126", "456")}
    jobs["125"] = {"name": "balsam", "code": 1, "says": "Error: no input"}
    jobs |= {"t1": {"name": "t1"}, "t2": {"name": "t2"}}
    jobs |= {
        f"sim{number}": {"name": f"sim:{number}", "code": 3 if number == 1 else 0}
        for number in range(3)
    }
    jobs |= {job_id: {"name": job_id} for job_id in ("job3341", "job3342", "job5535", "job3321")}
    jobs |= {
        f"run{number}": {"name": f"george{number}", "lr": 0.03} for number in (23, 26, 68, 69, 153)
    }
    jobs |= {f"run302.{number}": {"name": "children"} for number in (1, 2)}
    jobs |= {
        f"run2264.{number}": {"name": "sweep", "lr": number / 100, "epochs": 200}
        for number in range(1, 7)
    }
    jobs["run74"] = {"name": "george74", "code": 1}
    return jobs


def _write(
    store: Path,
    job_id: str,
    *,
    lr: float = 0.5,
    code: int = 0,
    says: str = "done",
    epochs: int = 10,
    **options: Any,
) -> None:
    with SpooledCapture(store, job_id, **options) as job:
        job.event(
            "context",
            "started as: train",
            command=["train", f"--lr={lr}"],
            cwd="/data/run",
            cores=[0, 1],
        )
        job.lines("begun")
        job.metadata(
            {"lr": lr, "epochs": epochs, "discount_factor": 0.9, "model": "mlp", "repeat": None}
        )
        for epoch in range(1, EPOCHS + 1):
            job.metadata({"epoch": epoch, "steps": 1000 * epoch, "loss": lr / epoch, "train-acc": 0.8 - lr / epoch,
                          "test-acc": 0.7 - lr / epoch, "test-f1": 0.95})  # fmt: skip
        job.lines(says, stream=Stream.STDERR)
        job.lines("a note", kind=Kind.NOTE)
        job.end(code)

"""Realistic jobs for pictures of the list and the console."""

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from logshipper_ingest.model.capture_id import JobKey
from logshipper_observe.model.overlay import MarkChange, Overlay
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.stores.reading_store import SpooledCapture

RUNNING = "4713"
_OPTIONS = {"4710": {"lr": 0.1, "batch": 32}, "4711": {"lr": 0.05, "batch": 64}}
_PAST_JOBS = (
    ("4709", "prepare_data.sh", 1, 0, 5200), ("4710", "train.py", 0, 0, 4600), ("4711", "train.py", 0, 0, 3900),
    ("4712", "evaluate.py", 0, 15, 2000),
)  # fmt: skip


@contextmanager
def pictured_jobs(root: Path) -> Iterator[None]:
    """Make five jobs, one of which runs as long as the context."""
    now_ns = time.time_ns()
    for job_id, name, exit_code, signal, secs_ago in _PAST_JOBS:
        with SpooledCapture(root, job_id, name=name, started_ns=now_ns - secs_ago * NS) as job:
            job.lines(*(f"file {number:05} is ready" for number in range(1, 400)))
            if name == "train.py":
                job.metadata(
                    _OPTIONS[job_id],
                    *(
                        {"epoch": epoch, "loss": round(2 / (epoch + int(job_id) % 7 + 1), 4)}
                        for epoch in range(90)
                    ),
                )
            if exit_code:
                job.stderr("prepare_data.sh: line 12: /data/images: No such file or directory")
            job.end(exit_code=None if signal else exit_code, signal=signal)
    with ExitStack() as stack:
        job = stack.enter_context(
            SpooledCapture(root, RUNNING, name="train.py --lr 0.02", started_ns=now_ns - 560 * NS)
        )
        _train(job)
        overlay = Overlay(str(root / "overlay.db"))
        overlay.tag(JobKey("4710"), [MarkChange("baseline", "")])
        overlay.tag(JobKey("4711"), [MarkChange("dataset", "cifar10"), MarkChange("paper", "")])
        overlay.annotate(JobKey("4711"), "best so far; lr was halved after epoch 60")
        overlay.star(JobKey("4711"), True)
        yield
        job.end()


def _train(job: SpooledCapture) -> None:
    noise = random.Random(7)
    job.lines(
        "\x1b[1mtraining resnet50\x1b[0m on cifar10: 50,000 samples, 391 batches an epoch", ""
    )
    job.metadata({"batch": 32})
    for epoch in range(1, 31):
        loss = 2.1 / epoch**0.5 + noise.gauss(0, 0.02)
        job.lines(
            f"epoch {epoch:2}: \x1b[32m100%\x1b[0m|██████████| 391/391 [00:17<00:00, 22.31batch/s]"
        )
        job.metadata(
            {"epoch": epoch, "loss": round(loss, 5), "acc": round(1 - loss / 2.5, 4), "lr": 0.02}
        )
        if epoch % 7 == 0:
            job.stderr(
                f"\x1b[33mWARNING\x1b[0m gradient norm {noise.uniform(9, 20):.2f} was clipped to 5.0"
            )
        if epoch % 10 == 0:
            job.lines(f"checkpoint written to runs/4713/epoch{epoch}.pt")
    job.status("epoch 31:  61%|██████    | 239/391 [00:10<00:06, 22.40batch/s]")
    job.printed(1_482_000, 9_000)
    job.beat()

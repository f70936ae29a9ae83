"""`--reread` over a local store, and over a real Loki: the same records of series."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from logshipper.start.cli import main
from tests.servers.running import LokiServer, PrometheusServer
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.stores.reading_store import SpooledCapture
from tests.tools.stores.two_stores import TwoStores, source, two_stores

__all__ = ["source"]  # fixtures
STEPS = list(range(1, 9))


def write_job(store: Path) -> None:
    with SpooledCapture(store, "plain") as job:
        job.metadata({"epoch": 1, "acc": 0.5})
        for step in STEPS:
            job.lines(f"step {step} loss: {1 / step:.3f}")
            job.stderr(f"grad norm = {step / 7:.4f}, lr = 1e-{step}")
        job.end()


@pytest.fixture(scope="module")
def stores(
    tmp_path_factory: pytest.TempPathFactory, loki: LokiServer, prometheus: PrometheusServer
) -> Iterator[TwoStores]:
    folder = tmp_path_factory.mktemp("reread")
    yield from two_stores(folder, loki, prometheus, f"t{uuid.uuid4().hex[:10]}", write_job)


def test_both_stores_have_the_series(
    source: str, stores: TwoStores, capsys: pytest.CaptureFixture[str]
) -> None:
    options = stores.options(source)
    assert main(["metadata", "plain", "--reread", "--json", *options]) == 0
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["record"] for line in documents if line["stream"] == "stdout"] == [
        {"epoch": 1, "acc": 0.5},
        *({"step": step, "loss": float(f"{1 / step:.3f}")} for step in STEPS),
    ]
    errors = [line["record"] for line in documents if line["stream"] == "stderr"]
    assert [record["lr"] for record in errors] == [float(f"1e-{step}") for step in STEPS]
    times = [int(line["time_ns"]) for line in documents]
    assert times == sorted(times)
    assert times[-1] - times[0] >= len(STEPS) * NS // 100
    assert main(["plot", "plain", "--reread", "--y", "loss", "--json", *options]) == 0
    (graph,) = json.loads(capsys.readouterr().out)["graphs"]
    assert (graph["x_axis"]["key"], graph["series"][0]["x"]) == ("step (auto)", STEPS)

"""Documented code of earlier systems runs here unchanged: the cluster's page on logging (Pegasus),
and XT's code on metrics, monitoring and ends of runs.

XT's code is in tests/snippets (xtlib 1.0.0, MIT licence, Copyright Microsoft). tests/coverage.md
names the tests of Balsam's events and analytics, and of pytelegraf's metrics of MLO.
"""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import logshipper
from tests.tools.captures.captured_runs import Home
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.sources import ROOT
from tests.tools.stores.coming_from import EPOCHS, prepare
from tests.tools.stores.reading_store import SpooledCapture
from tests.tools.xt_names import (
    CONTROL_C,
    ESCAPE,
    Console,
    Keys,
    RunStore,
    actual_x,
    names,
    run_record,
)

METADATA = """{"epoch": 1, "loss": 7.2355865, "acc": 0.00123}
{"step": 151100, "lr": 0.07938926, "flops": 789773523480.1762, "time": 16520}
{"size": "big", "speed": "slow", "lr": 0.1}
"""


# ---- the cluster's page on logging


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def in_shell(home: Home, line: str) -> None:
    subprocess.run(["sh", "-c", line], env=home.environment, check=True)


def jobs_of(home: Home) -> int:
    return len(json.loads(home.call("ls", "--json").stdout)["jobs"])


def test_pegasus_opting_in_and_out(home: Home) -> None:
    opt_in = ("--if-opted-in",)
    home.run("echo", "before", options=opt_in)
    in_shell(home, "touch ~/.logoptin")
    home.run("echo", "logged", options=opt_in)
    in_shell(home, "rm ~/.logoptin")
    home.run("echo", "after", options=opt_in)
    assert jobs_of(home) == 1
    assert home.logs() == ["logged"]


def test_pegasus_an_empty_file_is_mode_enabled(home: Home) -> None:
    meanings = []
    for content in (b"", b"mode: enabled\n"):
        home.opt_in(content)
        meanings.append(json.loads(home.call("check", "--json").stdout)["config"])
    assert meanings[0] == meanings[1]
    assert meanings[0]["mode"] == "enabled"


def test_pegasus_a_command_changes_what_is_logged(home: Home) -> None:
    home.opt_in()
    script = (
        """echo seen; echo '/LOGCOMMAND {"mode":"metadata"}'; echo secret; echo '{"epoch": 1}'"""
    )
    home.run("sh", "-c", script)
    assert home.logs() == ["seen", '/LOGCOMMAND {"mode":"metadata"}', '{"epoch": 1}']


def test_pegasus_metadata_lines_are_metadata_exactly(home: Home) -> None:
    home.opt_in()
    home.run("printf", "%s", METADATA + ' {"epoch": 2}\n{\'epoch\': 3}\ntext {"epoch": 4}\n')
    assert home.call("metadata", "last", "--format", "jsonl").stdout.decode() == METADATA
    table = home.call("metadata", "last").stdout.decode().splitlines()
    assert [name for name in table[0].split() if not name.startswith("_")] == [
        "epoch",
        "loss",
        "acc",
        "step",
        "lr",
        "flops",
        "time",
        "size",
        "speed",
    ]
    assert "big" in table[1], "newest first"
    assert "789773523480.1762" in table[2]
    assert "7.2355865" in table[3]


# ---- XT


@pytest.fixture(scope="module")
def xt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[logshipper.Store]:
    folder = tmp_path_factory.mktemp("xt") / "store"
    prepare(folder)
    with logshipper.Store.local(folder) as store:
        yield store


def snippet(
    name: str, store: logshipper.Store, console: Console, **more: Any
) -> Callable[..., Any]:
    """Return a function of XT; only the names of its modules are ours."""
    namespace = {**names(store, console), **more}
    path = ROOT / "tests" / "snippets" / f"xt_{name}.txt"
    exec(compile(path.read_text(), str(path), "exec"), namespace)  # noqa: S102  the documents' own code
    function: Callable[..., Any] = namespace[name]
    return function


def test_xt_metric_sets_become_frames_by_their_columns(xt: logshipper.Store) -> None:
    console = Console()
    jobs = [*xt.jobs("run2264.1-run2264.3", "job201", sort="id")]
    builder = SimpleNamespace(
        run_log_records=[run_record(job, "ws5") for job in jobs], max_runs=10, x_col=None, col_names=[],
        get_actual_x_column=actual_x,
        get_default_y_columns=lambda sets, x: [key for key in sets[-1]["keys"] if key != x],
    )  # fmt: skip
    frames = snippet("build_data_frames", xt, console)(builder)
    assert builder.x_col == "epoch"
    assert builder.col_names == ["loss", "steps", "test-acc", "test-f1", "train-acc"]
    (frame,) = frames.values()
    assert frame.shape == (3 * EPOCHS, 11)
    assert frame["run"] == [f"run2264.{number}" for number in (1, 2, 3) for _ in range(EPOCHS)]
    assert set(frame["job"]) == {"job2264"}
    assert frame["loss"][:2] == [0.01, 0.005]
    assert "skipped (currently have no logged metrics): \n    job201" in console.text
    assert "plotting 3 runs..." in console.text


def test_xt_at_most_so_many_runs(xt: logshipper.Store) -> None:
    console = Console()
    builder = SimpleNamespace(
        run_log_records=[run_record(job, "ws5") for job in xt.jobs("run2264.*")], max_runs=2, x_col=None,
        col_names=["loss"], get_actual_x_column=actual_x,
    )  # fmt: skip
    snippet("build_data_frames", xt, console)(builder)
    assert len(builder.run_names) == 2
    assert "plotting first 2 runs (use --max-runs to override)" in console.text


def monitor(store: logshipper.Store, job: str, keys: list[str | None], **more: Any) -> str:
    """Return the output of XT's monitor for a job while a user presses these keys."""
    console = Console()
    Keys.typed = list(keys)
    owner = SimpleNamespace(store=None, core=None, cancel_job=more.pop("cancel_job", None))
    options = {
        "jupyter": None,
        "sleep": 0.1,
        "node_index": None,
        "log_name": "console",
        "escape": 0,
        **more,
    }
    options.pop("single_char_input", None)
    extra = {name: more[name] for name in ("single_char_input",) if name in more}
    snippet("monitor_job_node", store, console, **extra)(owner, job, **options)
    return console.text


def test_xt_monitor_of_a_job_that_has_ended(xt: logshipper.Store) -> None:
    assert monitor(xt, "run26", []).splitlines() == [
        "==> monitoring: run26, node0 [logshipper] (press escape or control-c to exit, +/- to change node)",
        "==> node0 status: COMPLETED (completed)",
        *(line.text for line in xt.job("run26").lines()),
        "==> node0 status: COMPLETED (completed)",
    ]


def test_xt_monitor_switches_nodes_and_keeps_each_ones_place(tmp_path: Path) -> None:
    root = tmp_path / "store"
    began = time.time_ns() - NS
    options: dict[str, Any] = {"name": "two", "started_ns": began}
    with (
        SpooledCapture(root, "two", task=0, suffix="t0", **options) as first,
        SpooledCapture(root, "two", task=1, suffix="t1", **options) as second,
        logshipper.Store.local(root) as store,
    ):
        first.lines("a")
        second.lines("b")
        first.beat()
        second.beat()
        # each second turn reads a node: node 0, then 1, then 0 again from its last place
        output = monitor(store, "two", [None, None, "+", None, None, "-", None, None, ESCAPE])
    assert [line for line in output.splitlines() if not line.startswith("==> node")][1:] == [
        "node0: a", "node0: ==> switching to: node1", "node1: b", "node1: ==> switching to: node0",
        "==> monitoring cancelled (escape key detected)",
    ]  # fmt: skip


def test_xt_monitor_asks_before_it_cancels(tmp_path: Path) -> None:
    root = tmp_path / "store"
    cancellations: list[str] = []
    with SpooledCapture(root, "one") as job, logshipper.Store.local(root) as store:
        job.lines("a")
        job.beat()
        for answer in ("n", "y"):
            output = monitor(store, "one", [None, None, None, CONTROL_C], cancel_job=cancellations.append,
                           single_char_input=lambda _, answer=answer: answer)  # fmt: skip
            assert "==> monitoring cancelled (control-c detected)" in output
    assert cancellations == ["one"]


def test_xt_the_end_record_of_a_cancelled_run(xt: logshipper.Store) -> None:
    runs = RunStore(xt)
    context = {
        "node_index": 3, "ws": "ws5", "aggregate_dest": "job", "dest_name": "job2264", "primary_metric": "test-acc",
        "maximize_metric": True, "report_rollup": False, "after_files_list": [], "job_id": "job2264",
    }  # fmt: skip
    snippet("wrapup_run_with_context", xt, Console())(
        runs, {"run_index": 2, "run_name": "run2264.2"}, context
    )
    (end,) = runs.ended
    assert (end["run"], end["status"], end["exit_code"]) == ("run2264.2", "cancelled", 0)
    assert (end["node_id"], end["run_index"], end["job_id"]) == ("node3", 2, "job2264")
    assert end["best"] == pytest.approx(0.695), (
        "the greatest of its metric, as the context wants it"
    )
    assert [job.job_id for job in xt.jobs("run2264.2", state=end["status"])] == [], (
        "its name of a state is understood"
    )


@pytest.mark.parametrize("is_aml", [False, True], ids=["direct", "aml"])
def test_xt_the_end_record_of_a_run_that_closes_itself(xt: logshipper.Store, is_aml: bool) -> None:
    """`close` of its Run reports an end that matches ours."""
    runs = RunStore(xt)
    closed_writers: list[str] = []
    writers = {
        name: SimpleNamespace(close=lambda name=name: closed_writers.append(name))
        for name in ("train_writer", "test_writer", "train_writer2", "test_writer2")
    }
    context = SimpleNamespace(
        node_index=0, ws="ws5", aggregate_dest="job", dest_name="job2264", primary_metric="test-acc",
        maximize_metric=True, report_rollup=False, after_files_list=[], after_omit_list=[], log=True,
        after_upload=True, job_id="job2264",
    )  # fmt: skip
    run = SimpleNamespace(
        xt_logging=True, direct_run=True, store=runs, context=context, run_name="run2264.3", ws_name="ws5",
        is_aml=is_aml, **writers,
    )  # fmt: skip
    snippet("close", xt, Console())(run)
    assert sorted(closed_writers) == sorted(writers)
    end, *at_end = runs.ended
    info = end["known"]
    assert (
        (end["status"].upper(), end["exit_code"])
        == (info.status, info.exit_code)
        == ("COMPLETED", 0)
    )
    assert (end["node_id"], end["job_id"], end["run_index"]) == ("node0", "job2264", None)
    assert end["best"] == pytest.approx(0.6925)
    assert info.metrics["test-acc"].max == end["best"]
    assert [(record["run"], record["status"], record["exit_code"]) for record in at_end] == (
        [("run2264.3", "completed", 0)] * 2 if is_aml else []
    )


def test_xt_a_jobs_node(xt: logshipper.Store) -> None:
    backend = names(xt, Console())["job_helper"].get_job_backend(None, None, "job201")[1]
    assert snippet("get_service_node_info", xt, Console())(backend, 3) == {"task": 3}

"""Every example in a reading command's --help runs unchanged, on jobs with its names."""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pexpect
import pytest

from logshipper.start.cli import main
from logshipper_observe.commands.upkeep.completion import SHELLS
from tests.servers.running import LokiServer, PrometheusServer
from tests.tools.captures.captured_runs import TIMEOUT_SECS, wait_until
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.sources import SOURCES
from tests.tools.stores.import_tools import RECORDED
from tests.tools.stores.node_agents import NodeAgent
from tests.tools.stores.reading_store import SpooledCapture

COMMANDS = ("ls", "show", "info", "status", "logs", "grep", "monitor", "metadata", "export", "plot", "events", "open",
            "serve", "wait", "diff", "tag", "annotate", "url", "rm", "render", "analyze", "allocations",
            "import")  # fmt: skip
JOB = """
import json, sys
print("training")
for epoch in (1, 2, 3): print(json.dumps({"epoch": epoch, "loss": 1 / epoch, "val_loss": 2 / epoch}))
print("warning: done", file=sys.stderr)
"""
# minimal versions of other programs in examples; jq must get JSON
OTHERS = {
    "jq": f'exec {sys.executable} -c "import json, sys; print(json.load(sys.stdin))"',
    "less": "exec cat",
    "tail": 'shift; exec cat "$@"',
    "notify-send": "exec true",
    "xdg-open": 'case "$1" in http*) exit 0;; esac; exit 1',
    "ssh": "exec true",
}
# with the packages of other trackers behind all others
_PACKAGES = next(Path(sys.prefix, "trackers").glob("lib/python3*/site-packages"), Path())
_WITH_TRACKERS = (
    f"import runpy, sys; sys.path.append('{_PACKAGES}'); sys.path.remove(''); "
    "runpy.run_module('logshipper', run_name='__main__', alter_sys=True)"
)
SERVES = re.compile(r"logshipper (open|serve)\b")


def output(*words: str) -> str:
    """Return the command line's output."""
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(io.StringIO()) as out,
        suppress(SystemExit),
    ):
        patch.setenv("COLUMNS", "100")
        main(list(words))
    return out.getvalue()


def examples_of(command: str) -> list[str]:
    """Return the examples without their descriptions."""
    lines = output(command, "--help").partition("examples:\n")[2].partition("\n\n")[0].splitlines()
    return [re.split(r"\s{5,}", line.strip())[0] for line in lines]


EXAMPLES = [(command, example) for command in COMMANDS for example in examples_of(command)]


class Place:
    """Place for examples to run: a store and a site's Loki, with jobs in both, and files."""

    def __init__(self, folder: Path, loki: LokiServer, prometheus: PrometheusServer) -> None:
        self.folder = folder
        self._store = folder / "store"
        self._bin = folder / "bin"
        self._loki = loki
        self._bin.mkdir()
        python_folder = Path(sys.executable).parent
        for name, text in {
            **OTHERS,
            "logshipper": f'exec {python_folder / "python"} -c "{_WITH_TRACKERS}" "$@"',
        }.items():
            (self._bin / name).write_text(f"#!/bin/sh\n{text}\n")
            (self._bin / name).chmod(0o755)
        (folder / "site.toml").write_text(
            f'[loki]\nurl = "{loki.url}"\n[prometheus]\nurl = "{prometheus.url}"\n'
            '[grafana]\nurl = "https://grafana.example.org"\n'
        )
        for number in range(3, 10):
            self._train(f"a{number}", started_secs=3000 - number)
        self._train("4711", started_secs=600)
        self._train("4711", started_secs=600, task=3, host="gpu2", suffix="bbbb")
        self._train("k3f9x2", started_secs=60)
        with NodeAgent(folder / "node", loki.url, cluster="alpha") as agent:
            for job_id in ("4711", "4712"):
                options = ("--job-id", job_id, "--name", "train.py")
                assert agent.run(sys.executable, "-c", JOB, options=options).returncode == 0
            agent.wait_shipped()

    def _train(
        self, job_id: str, started_secs: int, **place: Any
    ) -> None:  # Any: of SpooledCapture
        started_ns = time.time_ns() - started_secs * NS
        with SpooledCapture(
            self._store, job_id, name="train.py", started_ns=started_ns, **place
        ) as job:
            job.lines("training")
            job.metadata(
                *({"epoch": epoch, "loss": 1 / epoch, "val_loss": 2 / epoch} for epoch in (1, 2, 3))
            )
            job.stderr("warning: done")
            job.end()

    def fresh(self, folder: Path) -> Mapping[str, str]:
        """Make a copy of the store, and files, for one example; return its environment."""
        shutil.copytree(self._store, folder / "store", symlinks=True)
        for name in ("slurm-4711.out", "typescript"):
            (folder / name).write_bytes(b"start\r\n 10%\r 20%\r100%\r\n\x1b[31mred\x1b[0m\r\n")
        for system, to in (
            ("qcg", ".qcgpjm-service-n1.8303"),
            ("qcg", "copy"),
            ("xt", "runs"),
            ("balsam", "site"),
            ("tracked/tensorboard", "tb"),
        ):
            shutil.copytree(RECORDED / system, folder / to)
        (folder / "run.log").write_text("start\n")
        (folder / "results.csv").write_text("step,loss\n1,0.5\n")
        for name in ("logs", "wandb"):
            (folder / name).mkdir()
        (folder / "logs" / "big_4711.txt").write_text("start\n")
        shutil.copy(RECORDED / "tracked" / "run-abcd1234.wandb", folder / "wandb")
        for name in ("events.json", "jobs.jsonl", "batchjobs.csv"):
            (folder / "site" / name).rename(folder / name)
        return {
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            "PYTHONPATH": SOURCES,
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "BROWSER": "true",
            "LOGSHIPPER_STORE": str(folder / "store"),
            "LOGSHIPPER_SITE": str(self.folder / "site.toml"),
            "SLURM_JOB_ID": "4711",
            "SLURM_CLUSTER_NAME": "alpha",
        }

    def with_local_addresses(self, example: str) -> str:
        """Replace names of other machines only."""
        return example.replace("http://loki.example.org:3100", self._loki.url)


@pytest.fixture(scope="module")
def place(
    lokis: None, prometheuses: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    with LokiServer() as loki, PrometheusServer() as prometheus:
        yield Place(tmp_path_factory.mktemp("place"), loki, prometheus)


def test_every_command_has_examples() -> None:
    command_names = set(re.findall(r"^  ([a-z]+)  ", output("--help"), re.M))
    assert command_names - {"run", "check", "completion"} == set(COMMANDS)
    assert {command for command, _ in EXAMPLES} == set(COMMANDS)


@pytest.mark.parametrize(("command", "example"), EXAMPLES, ids=[example for _, example in EXAMPLES])
def test_example_of_help(place: Place, tmp_path: Path, command: str, example: str) -> None:
    environment = place.fresh(tmp_path)
    line = place.with_local_addresses(example)
    if SERVES.match(line):
        serve(line, tmp_path, environment)
    elif command == "rm" and "--yes" not in line:
        confirm(line, tmp_path, environment)
    else:
        process = shell(line, tmp_path, environment)
        finds_nothing = command == "grep" and not process.stderr
        assert process.returncode in ((0, 1) if finds_nothing else (0,)), process.stderr
        assert "Traceback" not in process.stderr


def shell(
    line: str, folder: Path, environment: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECS,
    )


def serve(line: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Run the example until it prints the link, then press Ctrl-C."""
    line = re.sub(r"--port \d+", "--port 0", line)  # another process may use the port
    with (folder / "said").open("wb") as output_file:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=folder,
            env=environment,
            stdout=output_file,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(
            lambda: "http://127.0.0.1:" in (folder / "said").read_text(), "the link is printed"
        )
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(TIMEOUT_SECS)
    assert code in (0, 130), (folder / "said").read_text()


def confirm(line: str, folder: Path, environment: Mapping[str, str]) -> None:
    child = pexpect.spawn(
        "bash", ["-c", line], cwd=str(folder), env=dict(environment), timeout=TIMEOUT_SECS
    )
    child.expect(r"\? |\[y/N\]")
    child.sendline("y")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0, child.before


@pytest.mark.parametrize("shell", SHELLS)
def test_example_of_completion(shell: str) -> None:
    assert "logshipper" in output("completion", shell)

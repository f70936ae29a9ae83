"""docs/coming-from-*.md: each right-hand command runs, on jobs with its names, and prints the
documented output."""

import ast
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import logshipper
from logshipper.start.cli import main
from tests.servers.running import free_port
from tests.tools.captures.captured_runs import TIMEOUT_SECS
from tests.tools.sources import ROOT, SOURCES
from tests.tools.stores.coming_from import prepare
from tests.tools.stores.import_tools import RECORDED
from tests.tools.tools_of_others import needs_program_of_others, python_of

DOCS = {name: ROOT / "docs" / f"coming-from-{name}.md" for name in ("xt", "qcg", "balsam", "mlo")}
_ROW = re.compile(r"^\| (?P<theirs>.+?) \| `(?P<ours>.+)` \| (?P<note>.*?)\|$", re.MULTILINE)
SERVES = ("logshipper open",)
# commands that change the store
CHANGES = ("logshipper tag", "logshipper rm", "logshipper run", "logshipper import")

# each command's output: a regular expression of it, or of the file that it writes ("FILE: RE");
# "\Z" for nothing
SAYS = {
    "logshipper run -- python miniMnist.py": r"^trained$",
    "logshipper monitor job3321": r"begun\n.*ended: COMPLETED",
    "logshipper monitor job3321 --for 600": r"begun\n.*ended: COMPLETED",
    "logshipper monitor job201 --task 3": r"\Atask 3: worker 3 of job201\n.*ended: COMPLETED",
    "logshipper ls --by-state": r"COMPLETED +\d\d",
    "logshipper status run68": r"^run68  COMPLETED  0  george68$",
    "logshipper logs run26": r"^begun\n.*^done",
    "logshipper logs job201 --task 3": r"^worker 3 of job201$",
    "logshipper show run26": r"State +COMPLETED.*train-acc",
    "logshipper events run26 --oldest-first": r"started as: train",
    "logshipper show run23 --json": r'"job_id": "run23"',
    "logshipper metadata run153": r"epoch.*train-acc",
    "logshipper metadata run153 --sets": r"discount_factor.*\n\n.*epoch +loss",
    "logshipper metadata run153 --by epoch": r"\A_time +epoch .*\n(.*\n){4}\Z",
    "logshipper ls --columns='id,metrics.*'": r"\Aid +epoch +loss +steps +test-acc +train-acc\nrun74 +4 +0.125 ",
    "logshipper ls --columns=id,hparams.lr,metrics.test-acc.max --sort metrics.test-acc.max":
        r"\Aid +hparams.lr +metrics.test-acc.max\n\S+ +0.5 +0.575\n",
    "logshipper ls --columns 'id,*'": r"\Aid +discount_factor +epoch +epochs +loss +lr +model ",
    "logshipper ls last": r"\A.*\nrun74 .*\n\Z",
    "logshipper metadata run153 --summary": r"^loss +0.0075 +0.0075 +0.03 +0.015625 ",
    "logshipper metadata run153 --keys epoch,train-acc": r"^.*epoch +train-acc\n.*4 +0.79",
    "logshipper ls run153 --columns id,hparams.lr,metrics.train-acc": r"^run153 +0.03 +0.79",
    "logshipper export run153 --what metadata --output run153.tsv": r"run153.tsv: _job_id\t.*\nrun153\t",
    "logshipper plot run2264.1-run2264.6 --y train-acc,test-acc --break-on run --layout 2x3 --png runs.png":
        r"6 graphs",
    "logshipper plot 'run2264.*' --y train-acc --group-by experiment --aggregate mean --shade std --png mean.png":
        r"1 graph\.",
    "logshipper plot run2264.1 --y train-acc --smooth .9 --png smooth.png": r"1 graph\.",
    "logshipper ls --tag job=job2264 --sort test-acc --reverse --columns id,hparams.lr,test-acc=accuracy:.3f":
        r"accuracy\nrun2264.1 +0.01 +0.698\n",
    "logshipper plot 'run2264.*' --y test-acc --facet lr --png facets.png": r"6 graphs",
    "logshipper ls": r"^run74 ",
    "logshipper ls 'run302.*'": r"\A.*\nrun302\.2 .*\nrun302\.1 .*\n\Z",
    "logshipper ls --tag job=job2264 --filter tags.node_index=0": r"\A.*\nrun2264\.6 .*\n\Z",
    "logshipper ls --tag job=job2264 --limit 10 --sort metrics.test-acc": r"\A.*\nrun2264.6 .*(\nrun2264.*){5}\n\Z",
    "logshipper ls --state error": r"^run74 +FAILED",
    "logshipper ls --filter 'epochs > 100'": r"\A.*\n(run2264\.\d .*\n){6}\Z",
    'logshipper ls --filter "train-acc>.75"': r"^run2264.1 ",
    'logshipper ls --filter="lr=.03" --filter="test-f1>=.95"': r"^run153 ",
    "logshipper ls --filter='repeat!=$none'": r"no job matches",
    'logshipper ls --columns="id,discount_factor=factor,steps:,,train-acc=accuracy:.5f"':
        r"factor +steps +accuracy\nrun74 +0.9 +4,000 +0\.67500",
    "logshipper ls --tag keep --tag good": r"\A.*\nrun2264\.6 .*\n\Z",
    r"logshipper ls --filter 'tags:regex:\b(keep|good)\b'": r"\A.*\n(run2264\.\d .*\n){6}\Z",
    "logshipper ls --all --json > runs.json": r'runs.json: "job_id": "run26"',
    "logshipper ls 'run2264.*' --state completed --limit 4 --columns id | tail -n +2 | "
    "xargs logshipper plot --y train-acc": r"train-acc",
    "logshipper ls --limit 5": r"\A(.*\n){6}.*older jobs",
    "logshipper ls --name 'george*' --columns name": r"^george26$",
    "logshipper info 'george*'": r"george153  run153.*george23  run23",
    "logshipper events": r"RUNNING +COMPLETED",
    "logshipper open run23 --no-browser": r"http://127\.0\.0\.1:\d+/.*run23",
    "logshipper open run68 --no-browser": r"http://127\.0\.0\.1:\d+/.*run68",
    "logshipper tag job3341-job3356 description='explore effects of 5 hidden layers'":
        r"job3342\n.*description=explore effects.*job3341\n.*description=explore effects|"
        r"job3341\n.*description=explore effects.*job3342\n.*description=explore effects",
    "logshipper tag job3341 -description": r"Tags +-\n",
    "logshipper ls job3341 job5535 --columns id,tags": r"job5535 +description=old",
    "logshipper export run26 --output run26_files/": r"run26_files/run26/logs.csv: begun",
    "logshipper export run68 run69 --what logs --output collected/": r"collected/run69/logs.csv: begun",
    "logshipper export 'run*' --what all --output ws5/": r"ws5/run2264.6/metadata.csv: 0.06",
    "logshipper import xt xt/": r"2 new jobs, 0 known$",
    # QCG-PilotJob
    "logshipper ls --all": r"^sim1 +FAILED",
    "logshipper status t1 nope": r"^t1  COMPLETED  0  t1$.*no job has the id or name 'nope'",
    'store.status("t1", "nope")': r"\{'t1': 'COMPLETED'\}",
    "logshipper info t1 --json": r'"wdir": "/data/run".*"state": "COMPLETED"',
    "logshipper info sim": r"3 total, 3 finished, 1 failed.*sim:1 +FAILED +3",
    'store.info("sim")': r"Iterations\(total=3, finished=3, failed=1\)",
    'store.info("t1")["t1"].is_finished': r"True",
    "logshipper wait --all t1 t2 --timeout 60": r"^t1  COMPLETED  0  t1\nt2  COMPLETED",
    'store.wait_all("t1", "t2", timeout_secs=60)': r"\{'t1': 'COMPLETED', 't2': 'COMPLETED'\}",
    "logshipper wait sim": r"^sim0  COMPLETED  0  sim:0\nsim1  FAILED  3  sim:1\nsim2",
    "logshipper wait --all '*' --timeout 60": r"sim1  FAILED  3",
    'store.wait_any("t1", "sim:*", timeout_secs=60)': r"\('t1', 'COMPLETED'\)",
    "logshipper wait --any t1 sim --timeout 60": r"\At1  COMPLETED  0  t1\n\Z",
    "logshipper rm --yes t1": r"t1",
    "logshipper events sim --oldest-first": r"sim0 +state +QUEUED +RUNNING +sim:0\n.*sim1 +state +RUNNING +FAILED",
    "logshipper status sim": r"^sim  FAILED  3  sim  3 total, 3 finished, 1 failed$",
    "logshipper monitor sim:1": r"begun\n.*ended: FAILED, exit code 3",
    "logshipper logs sim:1 --stream stderr": r"\Adone\n\Z",
    "logshipper export 'sim:*' --what logs --output logs.tsv": r"logs.tsv: sim1\t.*done",
    "logshipper allocations": r"no allocation runs; --history has those that did",
    "logshipper import qcg .qcgpjm-service-n1.8303": r"^30 entries: 6 new jobs, 0 known$",
    "logshipper analyze gantt --svg gantt.svg": r"gantt.svg: <svg.*node",
    "logshipper analyze overheads": r"Captured jobs: \d+ runs.*^run time +\d+",
    # Balsam
    "logshipper import balsam balsam/": r"6 new jobs, 0 known, 3 allocations$",
    "logshipper allocations --history": r"^run74 +FAILED +1 ",
    "logshipper analyze throughput --to-state RUN_DONE": r"that became RUN_DONE: \d\d in",
    "logshipper analyze utilization": r"^Nodes that ran captured jobs: \d at most",
    "logshipper analyze utilization --no-node-weighting --tag experiment=foo": r"1 at most",
    "logshipper analyze nodes --svg nodes.svg": r"nodes.svg: <svg",
    "logshipper ls --tag experiment=foo": r"\A.*\n(12[3-6] .*\n){4}\Z",
    "logshipper ls --state RUN_ERROR": r"^run74 +FAILED",
    "logshipper info 123": r"State +COMPLETED",
    "logshipper rm --yes 126": r"126",
    "logshipper logs 123": r"^begun\n",
    "logshipper logs 125 --grep '(?i)error'": r"\AError: no input\n\Z",
    "EventLog.objects.all()": r"\A\[StateEvent\(id='run74/1/FAILED'",
    'EventLog.objects.filter(tags={"experiment": "foo"})': r"(?:to_state='(?:FAILED|RUNNING|COMPLETED)'.*){8}",
    "EventLog.objects.filter(job_id=[123, 124, 125])": r"job_id='125'.*job_id='124'.*job_id='123'",
    "logshipper events 123 124 125": r"\A==> balsam 123 <==\n.*\n(.* 123 .*\n){2}\n==> balsam 124 <==\n",
    "EventLog.objects.filter(scheduler_id=456)": r"\A\[StateEvent\(id='456/1/COMPLETED'",
    "logshipper events --batch-job-id 123 --changes": r"\A.*\n(.* 123 .*\n){2}\Z",
    "logshipper events --to-state RUNNING": r"QUEUED +RUNNING +george74",
    "logshipper events --from-state RESTART_READY --to-state RUNNING": r"\A.*\n.* mlo2 +state +REQUEUED +RUNNING",
    'logshipper events --after "$(date -d yesterday +%FT%T)"': r"RUNNING +FAILED +george74",
    "logshipper events --tag experiment=ffn-1 --tag scale_nodes=512": r"\A.*\n(.* 456 .*\n){2}\Z",
    "logshipper tag 123": r"experiment=foo",
    # MLO
    "logshipper.emit(training_loss=0.46)": r'\A\{"training_loss": ?0.46\}\n',
    "logshipper.emit(iteration=1, training_loss=0.45)": r'\A\{"iteration": ?1, ?"training_loss": ?0.45\}\n',
    "logshipper run --telegraf-port 8092 -- python train.py": r"^trained$",
    "logshipper ls --columns id,state,lr,model,loss=Loss:.4f --sort loss": r"run2264.1 +COMPLETED +0.01 +mlp +0.0025",
    "logshipper tag mlo1 dataset=cifar10": r"dataset=cifar10",
    "logshipper plot mlo1 mlo2 --y loss": r"mlo1.*mlo2",
    "logshipper plot mlo1 mlo2 --y loss --facet auto --png facets.png": r"2 graphs",
    "logshipper diff mlo1 mlo2": r"! +command .*! +lr +0.1 +0.2",
    "logshipper monitor mlo1": r"ended: COMPLETED",
    "logshipper logs mlo3 --task 1 --tail 1": r"\Aworker 1 of mlo3\n\Z",
    "logshipper info mlo3": r"4 total, 4 finished, 0 failed.*mlo3:3 +COMPLETED",
    "logshipper ls --state unresponsive": r"no job matches",
    "logshipper events mlo2 --to-state REQUEUED": r"FAILED +REQUEUED +mlo2",
    "logshipper metadata mlo1 --keys epoch,loss --format csv": r"epoch,loss\n.*,1,0.1\n",
    "logshipper info mlo1 --primary loss": r"Best +loss 0.025\n",
    "logshipper open mlo1 --no-browser": r"http://127\.0\.0\.1:\d+/.*mlo1",
}  # fmt: skip
TROUBLE = {"logshipper status t1 nope": 1}  # exit codes other than 0

# xtlib 1.0.0's commands: first those about logs, metrics, plots, runs and jobs, then all others
XT_COMMANDS = """
cancel all, cancel job, cancel run, clear tags, collect logs, explore, export workspace, extract, import workspace,
list experiments, list jobs, list runs, list tags, monitor, plot, rerun, restart controller, run, set tags,
start tensorboard, stop tensorboard, view console, view controller log, view controller status, view events,
view experiment, view log, view metrics, view mongo, view portal, view run, view status, view tensorboard
"""
XT_OTHERS = """
addr, clear credentials, config, create demo, create services template, create share, create workspace, delete blobs,
delete share, delete workspace, docker login, docker logout, download, generate help, help, help internals, help topics,
hex, keygen, keysend, list blobs, list boxes, list shares, list targets, list workspaces, repl, scp, ssh, unzip, upload,
view blob, view team, view workspace, wget, zip
"""


def rows(page: Path) -> list[tuple[str, str]]:
    """Return left and right of each row whose right side is code, with `|` unescaped."""
    pairs = [
        (row["theirs"], row["ours"].replace("\\|", "|")) for row in _ROW.finditer(page.read_text())
    ]
    prefixes = ("logshipper", "store.", "EventLog")
    return [row for row in pairs if row[1].startswith(prefixes)]


COMMANDS = sorted({command for page in DOCS.values() for _, command in rows(page)})


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("coming")
    (folder / "bin").mkdir()
    for name, text in {
        "logshipper": f'exec {sys.executable} -m logshipper "$@"',
        "python": "echo trained",
    }.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / "bin" / name).chmod(0o755)
    prepare(folder / "store")
    return folder


@pytest.fixture
def place(installation: Path, tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder; a command that changes the store gets a copy of it."""
    store = installation / "store"
    if line.startswith(CHANGES):
        store = Path(shutil.copytree(store, tmp_path / "store", symlinks=True))
    shutil.copytree(RECORDED / "qcg", tmp_path / "here" / ".qcgpjm-service-n1.8303")
    for name in ("xt", "balsam"):
        shutil.copytree(RECORDED / name, tmp_path / "here" / name)
    monkeypatch.chdir(tmp_path / "here")
    for name, value in {
        "PATH": f"{installation / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": SOURCES, "HOME": str(tmp_path),
        "LOGSHIPPER_STORE": str(store), "LOGSHIPPER_AGENT": "off",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    return tmp_path / "here"


def output_of(line: str, capfd: pytest.CaptureFixture[str]) -> str:
    """Return a right-hand side's result: Python's value, or a command's output and then its
    stderr."""
    if line.startswith("logshipper."):
        eval(line, {"logshipper": logshipper})  # noqa: S307  the documentation's own words
        return capfd.readouterr().out
    if not line.startswith("logshipper "):
        with logshipper.Store.default() as store:
            value = eval(line, {"store": store, "EventLog": logshipper.EventLog})  # noqa: S307
            return repr(list(value) if line.startswith("EventLog") else value)
    if not line.startswith((*SERVES, "logshipper run")) and not any(
        mark in line for mark in ("|", ">", "$(")
    ):
        code = main(shlex.split(line)[1:])
        output = "".join(capfd.readouterr())
        assert code == TROUBLE.get(line, 0), output
        return output
    line = line.replace("8092", str(free_port()))  # other processes of this machine may use 8092
    words = ["sh", "-c", f"exec {line}" if line.startswith(SERVES) else line]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    first = ""
    if line.startswith(SERVES):
        while "http" not in first:
            read = process.stdout.readline()
            assert read, "it ends without a link"
            first += read
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_SECS)
    if not line.startswith(SERVES):
        assert process.returncode == TROUBLE.get(line, 0), err
    return first + out + err


@pytest.mark.parametrize("line", COMMANDS)
def test_right_hand_sides_run(line: str, place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    output = output_of(line, capfd)
    file, colon, pattern = SAYS[line].partition(": ")
    if colon and (place / file).is_file():
        output = (place / file).read_text()
    else:
        pattern = SAYS[line]
    assert re.search(pattern, output, re.MULTILINE | re.DOTALL), output


def test_each_expectation_belongs_to_a_row() -> None:
    assert set(SAYS) == set(COMMANDS)


def test_every_row_is_read() -> None:
    """The pattern matches each row of the tables."""
    for page in DOCS.values():
        table = page.read_text().split("\n\n## ")[0]
        lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
        assert len(rows(page)) == len(lines), page.name


def test_each_of_xts_commands_is_on_the_page() -> None:
    text = DOCS["xt"].read_text()
    assert [
        name
        for name in command_names(XT_COMMANDS)
        if f"`xt {name}`" not in text and f"`xt {name} " not in text
    ] == []


@needs_program_of_others
def test_these_are_all_of_xts_commands() -> None:
    """xtlib's own source lists them: functions with the decorator `@command`, which can set another
    name."""
    (package,) = python_of("xtlib").parents[1].glob("lib/python*/site-packages/xtlib")
    commands = set()
    for path in package.rglob("*.py"):
        with warnings.catch_warnings(action="ignore"):  # written for an older Python
            functions = [
                node
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.FunctionDef)
            ]
        for function in functions:
            for call in function.decorator_list:
                if (
                    isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Name)
                    and call.func.id == "command"
                ):
                    names = {
                        keyword.arg: ast.literal_eval(keyword.value)
                        for keyword in call.keywords
                        if keyword.arg == "name"
                    }
                    commands.add(names.get("name", function.name.replace("_", " ")))
    assert commands == {*command_names(XT_COMMANDS), *command_names(XT_OTHERS)}


def command_names(names: str) -> list[str]:
    return [name.strip() for name in names.replace("\n", " ").split(",")]

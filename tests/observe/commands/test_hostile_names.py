"""No command prints names chosen by users and jobs raw on a terminal."""

import argparse
import json
import os
import re
from pathlib import Path

import pytest

from logshipper.spool.segment import Kind
from logshipper.start.cli import build_parser
from logshipper_ingest.cli import build_parser as agent_parser
from logshipper_ingest.cli import main as agent
from logshipper_ingest.model.capture_id import JobKey
from logshipper_ingest.state import quarantine_files
from logshipper_ingest.store.marks_file import FILE
from logshipper_observe.model.overlay import MarkChange, Overlay
from tests.observe.commands.reading.test_reading_terminal import SGR
from tests.tools.captures.forked_commands import on_a_terminal
from tests.tools.sources import SOURCES
from tests.tools.stores.reading_store import SpooledCapture
from tests.tools.stores.shipping_node import ShippingNode, soon_ns

# a title, a cleared screen, C1's CSI, a newline, right-to-left text, a line separator
HOSTILE = "a\x1b]0;title\x07b\x1b[2Jc\x9b2Jd\x08e\x00f\ng\u202eh\u2066i\u2028j\x85k"
# file names can have any bytes but NUL, including invalid UTF-8
NAME = HOSTILE.replace("\x00", "") + "\udcff\udc9b"
OBEYED = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
# sequences of our own bars and pages
OWN = re.compile(r"\r?\x1b\[\d*[KJA]|\r\x1b\[K|\x1b\[\?25[lh]|\r\n|\x1b\[6n")

SERVED = "its page is looked at by tests/observe/page/test_hostile.py"
NOT_TRIED = {"open": SERVED, "serve": SERVED, "run": "prints what CMD prints, unchanged"}
ESCAPED = json.dumps(HOSTILE)
COMMANDS: dict[str, list[list[str]]] = {
    "check": [[], ["--json"]],
    "ls": [[], ["--json"], ["--columns", "*"], ["--by-state"], ["--all", "--columns", "id,name,tags.k,host"], [NAME],
           ["--filter", f"{NAME}<3"], ["--sort", NAME], ["--name", NAME]],
    "show": [["last"], ["last", "--json"], [NAME]],
    "info": [["last"], ["last", "--json"], [NAME]],
    "status": [["last"], ["last", "--json"], [NAME]],
    "logs": [["last"], ["last", "--json"], ["last", "--times"], ["last", "--color", "always"], ["last", "--grep", "a"],
             [NAME]],
    "grep": [["a"], ["a", "last", "--json"], ["a", NAME], ["-c", "."], ["-l", ".", "--color", "always"]],
    "monitor": [["last"]],
    "metadata": [["last"], ["last", "--format", "jsonl"], ["last", "--format", "csv"], ["last", "--json"],
                 ["last", "--summary"], ["last", "--keys", NAME], [NAME]],
    "export": [["last", "--output", "{out}/"], ["last", "--output", "{out}/" + NAME.replace("/", "") + ".csv"],
               [NAME, "--output", "{out}/"]],
    "plot": [["last"], ["last", "--y", NAME], ["last", "--json"], ["last", "--png", "{out}/" + NAME], [NAME]],
    "events": [[], ["--json"], ["last"], [NAME]],
    "allocations": [[], ["--json"]],
    "analyze": [["throughput"], ["utilization"], ["nodes"], ["overheads"], ["gantt"], ["throughput", NAME],
                ["nodes", "--csv", "-"]],
    "wait": [["last", "--timeout", "0"], [NAME]],
    "diff": [["last", "other"], ["last", "other", "--json"], ["last", NAME]],
    "tag": [["last"], ["last", "+" + NAME], ["last", f"k={NAME}"], [NAME]],
    "annotate": [["last"], [NAME, "x"], ["last", NAME]],
    "url": [["last"], [NAME]],
    "import": [[system, "{out}/" + NAME] for system in ("qcg", "balsam", "xt")]
    + [["balsam", "{out}/jobs.json"], ["balsam", "{out}/none" + NAME]],
    "render": [["{out}/" + NAME], ["{out}/none" + NAME], ["{out}/raw"], ["--screen", "{out}/raw"]],
    "completion": [[NAME]],
    "rm": [["last", "--yes"], [NAME, "--yes"]],
}  # fmt: skip
LINES = [[command, *words] for command, lines in COMMANDS.items() for words in lines]
AGENT_LINES: dict[str, list[list[str]]] = {
    "status": [[], ["--json"], ["--store"]],
    "validate": [[], ["--config", NAME]],
    "check": [[], ["--json"]],
    "replay": [["--dry-run"], ["--dry-run", "--json"], [], ["--sink", NAME]],
    "purge": [["--job", NAME, "--no-loki", "--dry-run"], ["--job", "job1", "--no-loki", "--dry-run"],
              ["--job", "job1", "--no-loki", "--yes", "--grep", NAME]],
    "fsck": [[], ["--json"], ["--store"], ["--repair"]],
    "drain": [["--timeout", "0"], ["--json", "--timeout", "0"]],
    "forget": [[NAME]],
    "prepare": [["--job-id", NAME, "--user", "root"], ["--job-id", "job7", "--user", NAME],
                ["--job-id", "job8", "--user", "root", "--name", NAME, "--json"]],
    "run": [["--store", "{out}/none" + NAME, "--idle-secs", "0"]],
}  # fmt: skip


def _commands(parser: argparse.ArgumentParser) -> set[str]:
    (choices,) = [
        action.choices
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    return set(choices)


def test_every_command_is_tried() -> None:
    assert _commands(build_parser()) == {*COMMANDS, *NOT_TRIED}
    assert _commands(agent_parser()) == set(AGENT_LINES)


def check_safe(text: str, words: list[str]) -> None:
    plain_text = SGR.sub("", OWN.sub("\n", text))
    match = OBEYED.search(plain_text)
    assert match is None, (words, plain_text[max(0, match.start() - 200) : match.end() + 50])


# ---- a user's own


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store of hostile names: of a job, its metadata keys, tags, note, host and step, of
    files in the spool, and of input files."""
    root = tmp_path_factory.mktemp("hostile") / "store"
    for job_id in ("other", "k3f9x2"):
        with SpooledCapture(
            root, job_id, name=HOSTILE, host=HOSTILE.replace("\x00", ""), step=HOSTILE
        ) as job:
            job.lines(HOSTILE)
            job.stderr(HOSTILE, kind=Kind.NOTE)
            for epoch in (1, 2):
                job.metadata(
                    f'{{"epoch": {epoch}, {ESCAPED}: {epoch}, "s{job_id}": {ESCAPED}, "\u202e\x9b": "\x7f\x9b"}}'
                )
            job.event("odd", message=HOSTILE, more=HOSTILE)
            job.event(HOSTILE, message=HOSTILE)
            job.status(HOSTILE)
            job.end()
    for folder in (root / "spool", root / "spool" / NAME):
        folder.mkdir(exist_ok=True)
        (folder / f"file{NAME}").write_text("x")
    segments = next((root / "spool").glob("k3f9x2*")) / "segments"
    (segments / f"00{NAME}.seg").write_text("x")
    (root / "jobs").mkdir(exist_ok=True)
    (root / "jobs" / f"{NAME}.db").write_text("x")
    overlay = Overlay(str(root / FILE))
    for job_id in ("k3f9x2", "other"):
        overlay.tag(JobKey(job_id), [MarkChange("k", HOSTILE), MarkChange(HOSTILE, "")])
        overlay.annotate(JobKey(job_id), HOSTILE)
    out = root.parent / "out"
    out.mkdir()
    (out / NAME).write_text(HOSTILE + "\n")
    (out / "raw").write_text(HOSTILE + "\n")
    (out / "jobs.json").write_text(
        json.dumps([{"id": 1, HOSTILE: HOSTILE, "state": HOSTILE, "workdir": HOSTILE}])
    )
    return root


@pytest.mark.parametrize("words", LINES, ids=[" ".join(map(ascii, line))[:60] for line in LINES])
def test_commands_of_users(store: Path, words: list[str]) -> None:
    arguments = [
        word.replace("{out}", str(store.parent / "out")).replace("\x00", "") for word in words
    ]
    environment = {**os.environ, "TERM": "xterm-256color", "LOGSHIPPER_STORE": str(store), "PYTHONPATH": SOURCES,
                   "HOME": str(store.parent), "LC_ALL": "C.UTF-8"}  # fmt: skip
    output, code = on_a_terminal(arguments, environment, rows=40, columns=200)
    check_safe(output.decode("utf-8", "surrogateescape"), words)
    assert code in (0, 1, 2, 3, 4, 124), (words, output)


# ---- a node's


@pytest.fixture
def node(tmp_path: Path) -> ShippingNode:
    """Return a node whose jobs chose hostile names, and made files with such names in all writable
    places."""
    (tmp_path / "node").mkdir()
    node = ShippingNode(tmp_path / "node")
    capture = node.capture("job1", soon_ns(), name=HOSTILE, user="u\u202ex\u2066", step="s")
    capture.lines([HOSTILE, "b"])
    capture.event(HOSTILE, message=HOSTILE)
    spool = Path(node.config.agent.spool_dir)
    (spool / NAME).mkdir()
    (spool / NAME / "identity.json").write_text(json.dumps({"job_id": HOSTILE, "user": HOSTILE}))
    (spool / f"file{NAME}").write_text("x")
    (capture.segments / f"00{NAME}.seg").write_text("x")
    (capture.segments / "0000000000000009.seg").write_bytes(b"x" * 100)
    os.symlink(NAME, capture.segments / "0000000000000010.seg")
    (capture.path / f"more{NAME}").write_text("x")
    state = Path(node.config.agent.state_dir)
    for folder in (state / "quarantine", state / "sinks" / NAME / "quarantine"):
        folder.mkdir(parents=True, exist_ok=True)
        for name in (f".rewritten-{NAME}", f"2026-01-01.u0{NAME}.jsonl", "2026-01-01.u0.jsonl"):
            (folder / name).write_text(
                json.dumps({"job_id": HOSTILE, "words": HOSTILE, "reason": HOSTILE}) + "\n"
            )
    (state / "sinks" / NAME / "state.db").write_text("x")
    (state / f"state{NAME}.db").write_text("x")
    return node


AGENT_COMMANDS = [[command, *words] for command, lines in AGENT_LINES.items() for words in lines]


@pytest.mark.parametrize(
    "words", AGENT_COMMANDS, ids=[" ".join(map(ascii, line))[:60] for line in AGENT_COMMANDS]
)
def test_commands_of_admins(
    node: ShippingNode,
    store: Path,
    words: list[str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    config = tmp_path / "agent.toml"
    agent_table = {"cluster": "testing", "host": "n1", "spool_dir": node.config.agent.spool_dir,
                   "state_dir": node.config.agent.state_dir, "socket": str(tmp_path / "socket")}  # fmt: skip
    lines = [f"{name} = {json.dumps(value)}" for name, value in agent_table.items()]
    config.write_text(
        "\n".join(["[agent]", *lines, "[loki]", 'url = "http://127.0.0.1:9"', "timeout_secs = 1"])
    )
    arguments = [word.replace("{out}", str(tmp_path)) for word in words]
    if arguments[-1] == "--store":
        arguments.append(str(store))
    elif "--config" not in arguments and arguments[0] != "run":
        arguments += ["--config", str(config)]
    node.end()
    try:
        try:
            code = agent(arguments)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else -1
    finally:
        node.begin()
        node.close()
    assert code in (0, 1, 2, 3), words
    out, err = capfd.readouterr()
    check_safe(out + err, words)


def test_the_quarantine_s_names_are_hostile_ones_of_its_own(node: ShippingNode) -> None:
    """The tests above depend on it: the quarantine's listing covers such files."""
    folder = str(Path(node.config.agent.state_dir) / "quarantine")
    assert quarantine_files.leftovers(folder) != []
    node.close()

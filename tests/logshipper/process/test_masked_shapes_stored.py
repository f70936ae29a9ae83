"""A store contains no secrets of well-known shapes (R33).

The tests use `logshipper run` as a user with a store of their own, and search each file of spool
and store. Tests of single places in one process: tests/logshipper/masks/test_masked_shapes.py.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.logshipper.masks.test_masked_shapes import ONE_LINE, coloured_lines, nearly_records, told
from tests.logshipper.sidecar.test_context_by_hand import git
from tests.tools.captures.captured_runs import Home, kill, sidecar_of, wait_until
from tests.tools.captures.shaped_secrets import OF_ISSUE, PRINTED, WORDS, Printed, Words, revealed
from tests.tools.stress.secret_oracle import stored_texts

ANSWER = "harmless: 0123456789abcdef0123456789abcdef01234567"
PRINT = "import sys; sys.{}.buffer.write(open({!r}, 'rb').read())"
BYTES = "import os, sys\nfor byte in open({!r}, 'rb').read(): os.write(1, bytes([byte]))"
BAR = """
import os, sys, time
text = open({!r}).read()
for n in range(10**6):
    os.write({fd}, f"\\r{{n}} {{text}}".encode())
    time.sleep(0.05)
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.environment["LOGSHIPPER_CONTEXT"] = "on"
    return home


def left(home: Home, secrets: "tuple[Printed | Words, ...]" = PRINTED) -> list[str]:
    """Return the secrets in the store, after commands have read it and so ingested everything."""
    read = [home.call(*words, "last").stdout.decode() for words in (("logs",), ("metadata",))]
    read.append(json.dumps(home.show()))
    return revealed(secrets, [*read, *stored_texts(home.store)])


def each(make: Callable[[Printed], bytes]) -> bytes:
    return b"\n".join([*map(make, PRINTED), ANSWER.encode()]) + b"\n"


OUTPUTS: dict[str, tuple[bytes, bytes]] = {  # the printed output, and the user's file
    "lines": (each(lambda secret: secret.text.encode()), b""),
    "colours": (each(coloured_lines), b""),
    "kept colours": (each(coloured_lines), b"colors: keep\n"),
    "records": (each(lambda secret: json.dumps({"n": 1, "k": secret.text}).encode()), b""),
    "keys": (each(lambda secret: json.dumps({secret.text: [1, {secret.text: 2}]}).encode()), b""),
    "dicts": (
        each(lambda secret: repr({"loss": 0.5, "k": secret.text}).encode()),
        b"metadata: [json, dict, pairs]\n",
    ),
    "nearly records": (each(lambda secret: b"\n".join(nearly_records(secret))), b""),
    "repeats": (each(lambda secret: b"\n".join([secret.text.encode()] * 5)), b""),
    "user events": (each(told), b""),
    "metadata mode": (
        each(lambda secret: json.dumps({"n": 1, "k": secret.text}).encode()),
        b"mode: metadata\n",
    ),
}


@pytest.mark.parametrize("place", OUTPUTS)
def test_no_printed_secret_is_stored(home: Home, place: str) -> None:
    output, settings = OUTPUTS[place]
    home.opt_in(settings)
    source = home.folder / "source"
    source.write_bytes(output)
    done = home.run(sys.executable, "-c", PRINT.format("stdout", str(source)))
    assert (done.returncode, done.stdout) == (0, output), "the job's own output is untouched"
    assert left(home) == []
    if place not in ("metadata mode", "keys", "records"):
        assert ANSWER in "\n".join(home.logs())


def test_no_secret_of_stderr_is_stored(home: Home) -> None:
    source = home.folder / "source"
    source.write_bytes(OUTPUTS["lines"][0])
    done = home.run(sys.executable, "-c", PRINT.format("stderr", str(source)))
    assert done.stderr == source.read_bytes()
    assert left(home) == []


def test_no_secret_is_stored_that_comes_in_single_bytes(home: Home) -> None:
    source = home.folder / "source"
    source.write_bytes(OUTPUTS["lines"][0])
    done = home.run(sys.executable, "-c", BYTES.format(str(source)))
    assert done.stdout == source.read_bytes()
    assert left(home) == []


@pytest.mark.parametrize(("fd", "victim"), [(1, "sidecar"), (2, "job")])
def test_no_secret_of_a_running_bar_is_stored(home: Home, fd: int, victim: str) -> None:
    """The process dies between two states of the bar, so the file of the live status remains."""
    home.opt_in(b"snapshots: 10s\n")
    secrets = tuple(secret for secret in ONE_LINE if len(secret.text) < 120)
    source = home.folder / "source"
    for at in range(0, len(secrets), 12):  # as many as fit into a status
        source.write_text("\r\n".join(secret.text for secret in secrets[at : at + 12]))
        command = (sys.executable, "-c", BAR.format(str(source), fd=fd))
        nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with home.start("run", "--", *command, **nowhere) as run:
            try:
                wait_until(lambda: any(_live(home)), "a live status")
                shown = list(stored_texts(home.store))
                if victim == "sidecar":
                    kill(sidecar_of(run.pid))
                    shown += stored_texts(home.store)
            finally:
                run.terminate()
        assert revealed(secrets, [*shown, *stored_texts(home.store)]) == []
    assert left(home) == []


def _live(home: Home) -> list[bytes]:
    return [
        data
        for path in (home.store / "spool").glob("*/segments/live")
        if (data := path.read_bytes().strip(b"\0"))
    ]


def test_no_secret_of_a_command_line_is_stored(home: Home) -> None:
    """Copies of `true` replace the programs: only their names matter."""
    programs = home.folder / "bin"
    programs.mkdir()
    home.environment["PATH"] = f"{programs}:{home.environment['PATH']}"
    words = tuple(words for words in WORDS if words.argv[0] not in ("python", "sh", "bash", "env"))
    words = tuple({os.path.basename(secret.argv[0]): secret for secret in words}.values())
    for program in {os.path.basename(words.argv[0]) for words in words}:
        shutil.copy("/bin/true", programs / program)
    for secret in words:
        argv = (os.path.basename(secret.argv[0]), *secret.argv[1:])
        assert home.run(*argv).returncode == 0
    document = json.loads(home.call("ls", "--all", "--json").stdout)
    assert len(document["jobs"]) == len(words)
    texts = list(stored_texts(home.store))
    assert revealed(words, texts) == []
    assert '"ping"' in "".join(texts), "command lines are stored"


def test_no_secret_of_a_jobs_name_is_stored(home: Home) -> None:
    secrets = tuple(secret for secret in OF_ISSUE if len(secret.lines) == 1)
    for secret in secrets[::3]:
        home.run("true", options=("--name", secret.text))
    assert revealed(secrets, [*stored_texts(home.store), home.call("ls").stdout.decode()]) == []


def test_no_secret_of_the_folder_the_branch_or_the_changes_is_stored(home: Home) -> None:
    """With `context: true`, logshipper also records the changes."""
    home.opt_in(b"context: true\n")
    github, hugging = (
        secret for secret in OF_ISSUE if secret.name in ("GitHub ghp", "Hugging Face")
    )
    tokens = [secret.text.split()[-1] if secret is hugging else "ghp_" + secret.secret
              for secret in (github, hugging)]  # fmt: skip
    folder = home.folder / f"run-{tokens[0]}"
    folder.mkdir()
    (folder / "train.py").write_text("lr = 0.1\n")
    git(folder, "init", "-q", "-b", f"try/{tokens[1]}")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    git(folder, "remote", "add", "origin", f"https://ann:{tokens[0]}@git.example.org/x.git")
    (folder / "train.py").write_text("\n".join(secret.text for secret in PRINTED) + "\n")
    assert home.run("true", cwd=folder).returncode == 0
    assert home.show()["state"] == "COMPLETED"
    context = [event for event in home.show()["events"] if event["event"] == "context"]
    assert "commit" in json.dumps(context), "git answered"
    assert left(home) == []


def test_no_secret_of_a_refused_configuration_is_stored(home: Home) -> None:
    secrets = tuple(secret for secret in OF_ISSUE if len(secret.lines) == 1)
    forms = ("{0}: {0}\n", "mode: {0}\n", "metadata: [{0}]\n", "{0}", "mode: enabled\n x: {0}\n\t")
    for secret, form in zip(secrets[::3], itertools.cycle(forms)):
        home.opt_in(form.format(json.dumps(secret.text)).encode())
        home.run("true")
    assert revealed(secrets, stored_texts(home.store)) == []


MEASURE = """
import os, socket, sys
host, port = os.environ["LOGSHIPPER_TELEGRAF"].split(":")
for line in open({!r}, "rb"):
    with socket.create_connection((host, int(port))) as stream:
        stream.sendall(line)
        stream.shutdown(socket.SHUT_WR)
        stream.recv(1)
"""


def test_no_secret_of_a_measurement_is_stored(home: Home) -> None:
    escape = str.maketrans({" ": "\\ ", ",": "\\,", "=": "\\="})
    source = home.folder / "source"
    with source.open("w") as file:
        for secret in ONE_LINE:
            tag = secret.text.translate(escape)
            field = secret.text.replace("\\", "\\\\").replace('"', '\\"')
            file.write(f'loss,where={tag} value=0.5,text="{field}"\n')
        file.write("loss,where=here value=0.25\n")
    done = home.run(sys.executable, "-c", MEASURE.format(str(source)), options=("--telegraf",))
    assert done.returncode == 0, done.stderr
    assert '"here"' in home.call("metadata", "last", "--format", "jsonl").stdout.decode()
    assert left(home) == []

"""Users' modules with names of ours or of our requirements, next to scripts and on PYTHONPATH: only
users' code imports them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.captures.captured_runs import Home, wait_until

OF_OTHERS = ("typing_extensions", "yaml", "requests", "orjson", "urllib3", "argcomplete")
NAMES = ("ingest", "observe", "grafana", "tests", "dashboards", "search_path", *OF_OTHERS)
COMMANDS = (
    ("logshipper", "ls"),
    ("logshipper", "show", "last", "--json"),
    ("logshipper", "logs", "last"),
    ("logshipper", "metadata", "last", "--format", "jsonl"),
    ("logshipper", "check"),
    ("logshipper", "--version"),
    ("logshipper_ingest", "status"),
    ("logshipper_ingest", "--version"),
    ("logshipper_grafana", "--version"),
)
SCRIPT = """
try:
    import observe
except RuntimeError as error:
    print(error)
print('{"epoch": 1, "loss": 2}')
"""


@pytest.fixture(params=["next to the script", "on PYTHONPATH", "both"])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Return a user with a project of such modules, in each place."""
    project = tmp_path / "project"
    project.mkdir()
    for name in NAMES:
        (project / f"{name}.py").write_text(f"raise RuntimeError('{name} of their own')\n")
    (project / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path if request.param == "on PYTHONPATH" else project)
    home = Home(tmp_path, agent=True)
    ours = home.environment.pop("PYTHONPATH")
    if request.param != "next to the script":
        home.environment["PYTHONPATH"] = f"{project}{os.pathsep}{ours}"
    return home


def test_nobody_imports_them_but_their_own_code(home: Home) -> None:
    train = home.folder / "project" / "train.py"
    done = home.run(sys.executable, str(train), options=("--name", "train"))
    printed = b'observe of their own\n{"epoch": 1, "loss": 2}\n'
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, b"")
    wait_until(lambda: home.captures() == [], "the agent has taken it in")
    assert home.show()["records"] == 1
    for module, *words in COMMANDS:
        command = [sys.executable, "-m", module, *words]
        ran = subprocess.run(
            command, env=home.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert (ran.returncode, ran.stderr) == (0, ""), command
    assert "Traceback" not in (home.store / "agent.log").read_text()


@pytest.mark.parametrize("name", ["logshipper", "logshipper-agent", "logshipper-grafana"])
def test_console_scripts_start(home: Home, name: str) -> None:
    script = Path(sys.executable).with_name(name)
    ran = subprocess.run(
        [script, "--version"],
        env=home.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith(f"{name} ")


def test_the_library_is_one_import(home: Home) -> None:
    """Users' code has its own `ingest`, `observe` and `grafana`."""
    for name in OF_OTHERS:
        (home.folder / "project" / f"{name}.py").unlink()
    home.run("echo", '{"loss": 1}')
    code = (
        "from logshipper import emit, event, Store, Job, EventLog\nwith "
        "Store.local() as s: print(len(list(s.jobs())))"
    )
    script = home.folder / "project" / "reads.py"
    script.write_text(code)
    ran = subprocess.run(
        [sys.executable, str(script)], env=home.environment, capture_output=True, text=True
    )
    assert (ran.stdout, ran.stderr) == ("1\n", "")

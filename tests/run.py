"""Run the tests of a tier (tests/tiers.py) for `make check`, `make test` and the last part of `make
test-all`: `tests/run.py check|core|all`.

Several workers share the tests, because many tests wait. Failed tests run once more, alone, because
a busy machine can cause time-outs. The command prints the names of those that pass then.

As root, skipped tests and all tests of bad input run again after the last tier, as an ordinary
user. Many faults (an unreadable file, a read-only folder) don't exist for root. This run changes
neither the system nor the clone.

Further arguments go to pytest. Exit code: that of the first failed pytest.
"""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.servers.loki import HOW_TO_NAME  # noqa: E402
from tests.tiers import ALL, CHECK, CORE, places  # noqa: E402
from tests.tools.outcomes import AWAITING, FAILED, OPTION, SKIPPED, TIMES  # noqa: E402

OUTCOMES = ROOT / "build" / "tests"  # one folder per tier
RUNS = {CHECK: (CHECK,), CORE: (CHECK, CORE), ALL: (ALL,)}  # tiers in each command's own run
LEFT_OUT = {
    CHECK: "Left out here: all that runs processes, servers or a browser. `make test` runs most of it.",
    CORE: "Left out here: real servers, schedulers, others' programs, what root must do. `make test-all` runs them.",
}
WORKERS = {CHECK: 4, CORE: 4, ALL: 3}  # many tests wait; servers and clusters need more
# tests of bad input, all of which depend on an ordinary user
AS_ORDINARY_USER = ("tests/logshipper/start/test_capture.py", "tests/logshipper/test_config.py")
MAX_AGAIN = 10  # a busy machine does not cause more failures than this
TESTS_FAILED = 1  # pytest's exit code
GATE = "LOGSHIPPER_TEST_SLURM"  # see tests/slurm/tools/gate.py
NOBODY = 65534  # the ordinary user: owns no file, and exists on every Linux
NOT_COPIED = (
    ".venv",
    ".git",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
    "build",
    "dist",
    "demo-out",
)


def main(arguments: Sequence[str]) -> int:
    group = _as_from_a_shell()
    tier, *options = arguments or [""]
    if tier not in RUNS:
        return _run(arguments, group)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", "")  # it makes thousands of processes compile
    status = _run_tier(tier, options, group)
    if status == TESTS_FAILED:
        status = _run_alone(_ids_with(tier, FAILED), group)
    if not status and tier == ALL and os.geteuid() == 0:
        status = _run_as_ordinary_user(_for_ordinary_user())
    if tier in LEFT_OUT:
        print(LEFT_OUT[tier], flush=True)
    awaiting = _ids_with(tier, AWAITING)
    if awaiting:
        print(
            f"{len(awaiting)} tests await a Loki: {HOW_TO_NAME} (docs/development.md)", flush=True
        )
    return status


def _run_tier(tier: str, options: Sequence[str], group: int | None) -> int:
    for outcome in (SKIPPED, AWAITING, FAILED, TIMES):
        (OUTCOMES / tier / outcome).unlink(missing_ok=True)
    plugins = [
        "-p",
        "tests.tools.outcomes",
        OPTION,
        str(OUTCOMES / tier),
        "-p",
        "tests.tools.workers",
    ]
    workers = ["-n", str(WORKERS[tier]), "--dist", "loadscope", "--no-loadscope-reorder"]
    tests = ["-m", " or ".join(RUNS[tier]), *(["tests"] if tier == ALL else places(RUNS[tier]))]
    status = _run(["-q", *plugins, *workers, *options, *tests], group)
    print(f"Where the time went: {(OUTCOMES / tier / TIMES).relative_to(ROOT)}", flush=True)
    return status


def _run(arguments: Sequence[str], group: int | None) -> int:
    """Run pytest and return its exit code. An interrupt here goes to pytest, which then stops its
    servers and clusters."""
    with subprocess.Popen(
        _pytest(sys.executable, arguments), cwd=ROOT, stdin=subprocess.DEVNULL, process_group=group
    ) as process:
        try:
            return process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise


def _ids_with(tier: str, outcome: str) -> list[str]:
    """Return the ids of the tests with an outcome in the last run of a tier."""
    file = OUTCOMES / tier / outcome
    return file.read_text().splitlines() if file.exists() else []


def _run_alone(failed: Sequence[str], group: int | None) -> int:
    if not 0 < len(failed) <= MAX_AGAIN:
        return TESTS_FAILED
    print(f"{len(failed)} failed (above); they run once more, alone", flush=True)
    status = _run(failed, group)
    if not status:
        print("Failed next to the others, passed alone:", *failed, sep="\n    ", flush=True)
    return status


def _for_ordinary_user() -> list[str]:
    skipped = [test for tier in (CORE, ALL) for test in _ids_with(tier, SKIPPED)]
    return [*AS_ORDINARY_USER, *(test for test in skipped if not test.startswith(AS_ORDINARY_USER))]


def _as_from_a_shell() -> int | None:
    """Restore a shell's defaults: undo the ignored and blocked signals of nohup, `&` or a CI
    runner.

    Return the process group for the tests. Without a terminal they get a new one, because Ctrl-Z
    has no effect on an orphaned group.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stopping = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
    for signo in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD, *stopping):
        signal.signal(signo, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
    except OSError:
        return 0
    return None


def _pytest(python: str, arguments: Sequence[str]) -> list[str]:
    return [python, "-m", "pytest", *arguments]


def _run_as_ordinary_user(tests: Sequence[str]) -> int:
    scratch = Path(tempfile.mkdtemp(prefix="logshipper-test-", dir="/tmp"))
    try:
        scratch.chmod(0o755)
        tree, python = ROOT, sys.executable
        if not _may_run(python, "import logshipper, pytest", tree):
            print(
                f"An ordinary user can't read {ROOT}: copying it to {scratch} for the tests below",
                flush=True,
            )
            base = os.path.realpath(sys.executable)
            if not _may_run(base, "import sqlite3", Path("/")):
                print(
                    f"{len(tests)} tests are left out: an ordinary user can't run {base}. Try PYTHON=...."
                )
                return 0
            tree = scratch / "tree"
            python = _copy_tree(tree, base)
        print(
            f"Running {len(tests)} tests and files once more, as an ordinary user (uid {NOBODY})",
            flush=True,
        )
        home = scratch / "home"
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "USER": "nobody",
            "LOGNAME": "nobody",
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            # the user may not write to this clone, which is compiled; the copy is not
            **({"PYTHONDONTWRITEBYTECODE": "1"} if tree == ROOT else {}),
            **({GATE: "off"} if os.environ.get(GATE) == "off" else {}),  # `required` is for root
            "HYPOTHESIS_STORAGE_DIRECTORY": str(home / "hypothesis"),
        }
        options = ["-p", "no:cacheprovider", "--basetemp", str(home / "pytest")]
        return _as_nobody(_pytest(python, [*options, *tests]), tree, environment)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _as_nobody(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> int:
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    ).returncode


def _may_run(python: str, code: str, folder: Path) -> bool:
    """Return whether an ordinary user can run python with this code, and list and read the folder."""
    code += "; import os; [open(path).close() for path in ('pyproject.toml',) if os.path.exists('tests')]; os.listdir()"
    try:
        return (
            _as_nobody([python, "-c", code], folder, {"PYTHONDONTWRITEBYTECODE": "1", "HOME": "/"})
            == 0
        )
    except OSError:
        return False


def _copy_tree(tree: Path, base: str) -> str:
    """Copy the clone and its environment for an ordinary user; return the copy's Python."""
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
    subprocess.run([base, "-m", "venv", "--without-pip", str(tree / ".venv")], check=True)
    python = tree / ".venv" / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.check_output([python, "-c", ask], text=True).strip())
    shutil.copytree(sysconfig.get_path("purelib"), packages, dirs_exist_ok=True, symlinks=True)
    for entry in packages.glob("__editable__*logshipper*.pth"):
        entry.write_text(entry.read_text().replace(str(ROOT), str(tree)))
    for name in ("logshipper", "logshipper-agent"):
        script = Path(sys.executable).with_name(name)
        if script.exists():
            copy = python.with_name(name)
            copy.write_text(f"#!{python}\n" + script.read_text().split("\n", 1)[1])
            copy.chmod(0o755)
    for folder, names, files in os.walk(tree):
        for name in (*names, *files):
            os.chown(os.path.join(folder, name), NOBODY, NOBODY, follow_symlinks=False)
            if not os.path.islink(os.path.join(folder, name)):
                os.chmod(
                    os.path.join(folder, name), os.stat(os.path.join(folder, name)).st_mode | 0o444
                )
    os.chown(tree, NOBODY, NOBODY)
    return str(python)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Runs the test-suite (`make test`) in two halves beside each other, as most tests wait for something: what takes a
cluster or a package, and the rest. What fails there runs once more, alone, as what waits for something may fail on a
machine that is too busy: where it passes then, that is said, with its name. As root, what was skipped, and all that bad
input does, runs once more as an ordinary user: many faults (an unreadable file, a read-only folder) don't exist for
root. Nothing of the system or of the clone is changed for it.

Arguments go to pytest, in one run. Exit code: pytest's, of the first that failed.
"""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
AS_ORDINARY_USER = ("tests/test_capture.py", "tests/test_config.py")  # bad input: an ordinary user's, so all of it
BESIDE = ("tests/slurm", "tests/sge", "tests/grafana", "tests/gateway", "tests/test_packages.py")  # the second half
MAX_AGAIN = 10  # more failures aren't a busy machine's
TESTS_FAILED = 1  # pytest's exit code
NOBODY = 65534  # the ordinary user: owns nothing, and is there on every Linux
NOT_COPIED = (".venv", ".git", "__pycache__", ".*_cache", ".hypothesis", "build", "dist", "demo-out")


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        print(f"Beside the tests below run those of {', '.join(BESIDE)}; what they say follows at the end", flush=True)
    halves = [list(arguments)] if arguments else [[f"--ignore={path}" for path in BESIDE], list(BESIDE)]
    scratch = Path(tempfile.mkdtemp(prefix="logshipper-test-"))
    try:
        group = _as_from_a_shell()
        status = _run_halves(halves, scratch, group)
        if status == TESTS_FAILED and not arguments:
            status = _run_alone(_noted(scratch, "failed"), group)
        if status or os.geteuid() != 0:
            return status
        skipped = _noted(scratch, "skipped")
    finally:
        shutil.rmtree(scratch)
    if not arguments:
        skipped = [*AS_ORDINARY_USER, *(test for test in skipped if not test.startswith(AS_ORDINARY_USER))]
    return _run_as_ordinary_user(skipped) if skipped else 0


def _run_halves(halves: Sequence[Sequence[str]], scratch: Path, group: int | None) -> int:
    """Only the first is seen while it runs."""
    running: list[tuple[subprocess.Popen[bytes], Path | None]] = []
    with ExitStack() as stack:
        for number, arguments in enumerate(halves):
            output = scratch / f"output{number}" if number else None
            process = subprocess.Popen(
                _pytest(sys.executable, [*arguments, *(["-o", "cache_dir=.pytest_cache/beside"] if number else [])]),
                cwd=ROOT,
                env={**os.environ, "LOGSHIPPER_TEST_OUTCOMES": str(scratch / str(number))},
                stdin=subprocess.DEVNULL,
                stdout=stack.enter_context(output.open("wb")) if output else None,
                stderr=subprocess.STDOUT if output else None,
                process_group=group,
            )
            stack.callback(_end, process)
            running.append((process, output))
        for process, output in running:
            process.wait()
            if output:
                print(f"Beside them: {' '.join(BESIDE)}", flush=True)
                sys.stdout.buffer.write(output.read_bytes())
                sys.stdout.flush()
    return max(
        (process.returncode for process, _ in running), key=lambda status: (status not in (0, TESTS_FAILED), status)
    )


def _noted(scratch: Path, outcome: str) -> list[str]:
    """The ids of the tests with an outcome, as tests/conftest.py writes them."""
    return [test for file in sorted(scratch.glob(f"*.{outcome}")) for test in file.read_text().splitlines()]


def _run_alone(failed: Sequence[str], group: int | None) -> int:
    if not 0 < len(failed) <= MAX_AGAIN:
        return TESTS_FAILED
    print(f"{len(failed)} failed (above); they run once more, alone", flush=True)
    command = _pytest(sys.executable, failed)
    status = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, process_group=group).returncode
    if not status:
        print("Failed beside the others, passed alone:", *failed, sep="\n    ", flush=True)
    return status


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupted here, a half ends as pytest does: servers and clusters that it started are stopped."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        process.wait()


def _as_from_a_shell() -> int | None:
    """Undoes what nohup, `&` or a CI runner leave behind and a shell would not: ignored and blocked signals.

    Returns the process group for the tests: without a terminal one of their own, since Ctrl-Z does nothing to a group
    that is orphaned.
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
            print(f"An ordinary user can't read {ROOT}: copying it to {scratch} for the tests below", flush=True)
            base = os.path.realpath(sys.executable)
            if not _may_run(base, "import sqlite3", Path("/")):
                print(f"{len(tests)} tests are left out: an ordinary user can't run {base}. Try PYTHON=....")
                return 0
            tree = scratch / "tree"
            python = _copy_tree(tree, base)
        print(f"Running {len(tests)} tests and files once more, as an ordinary user (uid {NOBODY})", flush=True)
        home = scratch / "home"
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "USER": "nobody",
            "LOGNAME": "nobody",
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "PYTHONDONTWRITEBYTECODE": "1",
            **{name: value for name, value in os.environ.items() if name == "LOGSHIPPER_TEST_SLURM"},
            "HYPOTHESIS_STORAGE_DIRECTORY": str(home / "hypothesis"),
        }
        options = ["-p", "no:cacheprovider", "--basetemp", str(home / "pytest")]
        return _as_nobody(_pytest(python, [*options, *tests]), tree, environment)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _as_nobody(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> int:
    return subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, user=NOBODY, group=NOBODY, extra_groups=[]
    ).returncode


def _may_run(python: str, code: str, folder: Path) -> bool:
    """Whether an ordinary user can run python with this code, and list and read what is in the folder."""
    code += "; import os; [open(path).close() for path in ('pyproject.toml',) if os.path.exists('tests')]; os.listdir()"
    try:
        return _as_nobody([python, "-c", code], folder, {"PYTHONDONTWRITEBYTECODE": "1", "HOME": "/"}) == 0
    except OSError:
        return False


def _copy_tree(tree: Path, base: str) -> str:
    """Copies the clone and its environment for an ordinary user; returns the copy's Python."""
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
    subprocess.run([base, "-m", "venv", "--without-pip", str(tree / ".venv")], check=True)
    python = tree / ".venv" / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.check_output([python, "-c", ask], text=True).strip())
    shutil.copytree(sysconfig.get_path("purelib"), packages, dirs_exist_ok=True, symlinks=True)
    for entry in packages.glob("__editable__*logshipper*.pth"):
        entry.write_text(f"{tree}\n")
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
                os.chmod(os.path.join(folder, name), os.stat(os.path.join(folder, name)).st_mode | 0o444)
    os.chown(tree, NOBODY, NOBODY)
    return str(python)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

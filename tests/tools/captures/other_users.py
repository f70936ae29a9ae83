"""Act as other real users, in forked processes. The kernel itself decides about their rights."""

import atexit
import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tools.sources import INGEST, LOGSHIPPER, SOURCES

ANN, BEN = 65534, 12345  # neither owns any files; the second has no entry in the user database
NOT_FOR_JOBS = "__pycache__ mypy* ruff* numpy* matplotlib* mpl_toolkits PIL pillow* fontTools hypothesis* pip*".split()
# fixture in tests/conftest.py; such tests belong to `make test-all`
needs_root = pytest.mark.usefixtures("root_user")


class Forked:
    """A process in which a user calls act. before: called first, by root. `result` must be
    called."""

    def __init__(
        self, uid: int, act: Callable[[], Any], before: Callable[[], None] | None = None
    ) -> None:
        sys.stdout.flush()
        self._receive, send = os.pipe()
        with (
            warnings.catch_warnings()
        ):  # about threads of other tests, since 3.12: the child needs none of them
            warnings.simplefilter("ignore", DeprecationWarning)
            self._child = os.fork()
        if self._child == 0:
            try:
                if before is not None:
                    before()
                if uid != os.getuid():
                    os.setgroups([])
                    os.setresgid(uid, uid, uid)
                    os.setresuid(uid, uid, uid)
                answer = {"returned": act()}
            except BaseException:
                answer = {"raised": traceback.format_exc()}
            os.write(send, json.dumps(answer).encode())
            os._exit(0)
        os.close(send)

    def result(self) -> Any:  # Any: JSON
        """Return act's result, or raise if act raised."""
        with os.fdopen(self._receive, "rb") as file:
            answer = json.loads(file.read())
        os.waitpid(self._child, 0)
        assert "raised" not in answer, answer["raised"]
        return answer["returned"]


def as_user(
    uid: int, act: Callable[[], Any], before: Callable[[], None] | None = None
) -> Any:  # Any: JSON
    """Return act's result from a process of that user."""
    return Forked(uid, act, before).result()


def error_names(acts: Iterable[Callable[[], object]]) -> list[str]:
    """Return the names of the errors that acts raise, "" for each success."""
    names = []
    for act in acts:
        try:
            act()
            names.append("")
        except OSError as error:
            names.append(type(error).__name__)
    return names


@contextlib.contextmanager
def public_folder(prefix: str) -> Iterator[Path]:
    """Yield a folder that other users can enter.

    They cannot enter pytest's own folders: each start of pytest makes their parents private.
    """
    path = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    with public_folder("logshipper-test-") as path:
        yield path


@functools.cache
def ordinary_python(*, copied: bool = False) -> tuple[str, str] | None:
    """Return a Python that ordinary users can run with our packages, and its PYTHONPATH.

    Return None if there is no such Python. copied: if they cannot enter the packages' folders, copy
    the packages for them until this process ends.
    """
    path = os.pathsep.join((SOURCES, sysconfig.get_path("purelib")))
    interpreter = _runs_with(path)
    if interpreter is None and copied and os.geteuid() == 0:
        site = Path(tempfile.mkdtemp(prefix="logshipper-test-", dir="/tmp"))
        atexit.register(shutil.rmtree, site, ignore_errors=True)
        copy_packages(site)
        path = str(site)
        interpreter = _runs_with(path)
    return (interpreter, path) if interpreter else None


def _runs_with(path: str) -> str | None:
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for python in (
        sys.executable,
        os.path.realpath(sys.executable),
        f"/usr/bin/{version}",
        "/usr/bin/python3",
    ):
        command = [python, "-c", "import logshipper.sidecar.sidecar, orjson, yaml"]
        try:
            result = subprocess.run(
                command,
                env={"PYTHONPATH": path},
                cwd="/",
                user=ANN,
                group=ANN,
                extra_groups=[],
                capture_output=True,
            )
        except OSError:
            continue
        if result.returncode == 0:
            return python
    return None


def copy_packages(site: Path) -> None:
    """Copy the packages that a capture needs into a folder, readable for everybody."""
    for package in (LOGSHIPPER, INGEST):
        shutil.copytree(package, site / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    ignored = shutil.ignore_patterns(*NOT_FOR_JOBS)
    shutil.copytree(
        sysconfig.get_path("purelib"), site, dirs_exist_ok=True, symlinks=True, ignore=ignored
    )
    subprocess.run(["chmod", "-R", "a+rX", str(site)], check=True)

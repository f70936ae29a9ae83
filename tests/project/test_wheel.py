"""The built wheel outside the clone: in an environment of its own, with only its declared
requirements."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.sources import GRAFANA, OBSERVE, PACKAGES, ROOT
from tests.tools.waiting import scaled

COPIED = ("pyproject.toml", "README.md", "LICENSE", "logshipper", "ingest", "observe", "grafana")
BUILD_SECS = RUN_SECS = scaled(100)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the sources, because a build leaves folders behind; return its
    path."""
    tree = tmp_path_factory.mktemp("tree")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(source, tree / name)
    out = tmp_path_factory.mktemp("dist")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
    ]
    done = subprocess.run(
        [*pip, "--wheel-dir", str(out), str(tree)],
        capture_output=True,
        text=True,
        timeout=BUILD_SECS,
    )
    assert done.returncode == 0, done.stderr
    (built,) = out.glob("*.whl")
    return built


def runtime_closure(requirements: list[str]) -> Iterator[importlib.metadata.Distribution]:
    """Yield the distributions that the requirements need here, without extras, each once."""
    names: set[str] = set()
    pending = [line for line in requirements if "extra ==" not in line]
    while pending:
        name = re.split(r"[^A-Za-z0-9._-]", pending.pop(), maxsplit=1)[0]
        if name.lower() not in names:
            names.add(name.lower())
            try:
                distribution = importlib.metadata.distribution(name)
            except importlib.metadata.PackageNotFoundError:
                continue  # only needed on other platforms or Pythons
            pending += [line for line in distribution.requires or [] if "extra ==" not in line]
            yield distribution


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return bin/ of a new environment with the wheel and copies of its locked requirements,
    without a download."""
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(environment)],
        check=True,
        timeout=BUILD_SECS,
    )
    python = str(environment / "bin" / "python")
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.check_output([python, "-c", ask], text=True).strip())
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("dist-info/METADATA"))
        text = archive.read(metadata).decode()
    for distribution in runtime_closure(re.findall(r"^Requires-Dist: (.*)$", text, re.MULTILINE)):
        for file in distribution.files or []:
            source, target = Path(str(file.locate())), packages / file
            if ".." not in file.parts and source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index"]
    done = subprocess.run([*pip, str(wheel)], capture_output=True, text=True, timeout=BUILD_SECS)
    assert done.returncode == 0, (
        f"its requirements aren't met by the locked packages: {done.stderr}"
    )
    return environment / "bin"


def test_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        package.name for package in PACKAGES
    }
    for package in PACKAGES:
        assert f"{package.name}/py.typed" in names
        sources = {str(path.relative_to(package.parent)) for path in package.rglob("*.py")}
        assert sources <= set(names)
    for package, kind in (
        (GRAFANA, "dashboards/*.json"), (GRAFANA, "provisioning/*/*.yaml"), (OBSERVE, "page/assets/*")
    ):  # fmt: skip
        files = {str(path.relative_to(package.parent)) for path in package.glob(kind)}
        assert files
        assert files <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_captures_and_shows_outside_of_the_clone(installed: Path, tmp_path: Path) -> None:
    # numpy and tqdm belong to the job: it runs with another Python than logshipper, as on a cluster
    shutil.copy(ROOT / "examples" / "train.py", tmp_path / "train.py")
    environment = {
        "PATH": f"{installed}{os.pathsep}{os.defpath}",
        "HOME": str(tmp_path / "home"),
        "LOGSHIPPER_STORE": str(tmp_path / "store"),
        "JOB_PYTHON": sys.executable,
    }
    (tmp_path / "home").mkdir()
    script = 'logshipper run -- "$JOB_PYTHON" train.py --fast >printed.txt && logshipper show last --json'
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_SECS,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["name"], document["state"], document["exit_code"]) == (
        "train.py",
        "COMPLETED",
        0,
    )
    assert document["x_axis"]["key"] == "epoch"
    assert '{"epoch": 24,' in (tmp_path / "printed.txt").read_text()


def test_serves_its_page(installed: Path, tmp_path: Path) -> None:
    """The wheel has all files that a browser requests."""
    environment = {"PATH": os.defpath, "HOME": str(tmp_path)}
    command = [str(installed / "logshipper"), "serve", "--store", str(tmp_path / "store")]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            link = server.stdout.readline().strip()
            browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with browser.open(link, timeout=RUN_SECS) as entered:
                assert entered.status == 200
            for path in ("", "app.js", "style.css", "api/jobs"):
                with browser.open(link.partition("?")[0] + path, timeout=RUN_SECS) as answer:
                    assert answer.read()
        finally:
            server.terminate()


def test_all_commands_start(installed: Path, tmp_path: Path) -> None:
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    for command in project["scripts"]:
        help_text = subprocess.check_output(
            [installed / command, "--help"], cwd=tmp_path, text=True, timeout=RUN_SECS
        )
        assert command in help_text
    version = subprocess.check_output(
        [installed / "logshipper", "--version"], cwd=tmp_path, text=True
    )
    assert version.split()[-1] == project["version"]


def test_grafana_says_what_it_lacks(installed: Path, tmp_path: Path) -> None:
    """The command's library comes with an extra, which this environment lacks."""
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o600)
    words = ["apply", "--url", "http://127.0.0.1:9", "--token-file", str(token)]
    done = subprocess.run(
        [installed / "logshipper-grafana", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_SECS,
    )
    assert done.returncode == 1
    assert "pip install 'grafana-client>=3.11.2,<4'" in done.stderr

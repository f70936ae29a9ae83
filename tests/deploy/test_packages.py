"""The Debian packages and RPMs: reproducible builds, contents, and the packaged environment.

The environment runs at its installed path, in its own mount namespace. tests/slurm/test_install.py
tests installation and removal.
"""

import base64
import concurrent.futures
import email.parser
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from docs.tools.manual import pages as pages_of_manual
from logshipper_ingest.config import site
from logshipper_ingest.config.agent_config import AgentConfig, read
from tests.slurm.tools import gate
from tests.tools.debs import build, built_debs, copy_of_clone
from tests.tools.sources import ROOT
from tests.tools.waiting import scaled

pytestmark = pytest.mark.timeout(400)  # the first test waits for the builds

PACKAGES = ROOT / "deploy" / "packages"
UNIT = ROOT / "deploy" / "systemd" / "logshipper-agent.service"
RUN_SECS = 60.0
NOBODY = 65534
PROGRAMS = {"dpkg-deb": "dpkg", "rpmbuild": "rpm", "rpm2archive": "rpm", "gcc": "gcc", "make": "make",
            "unshare": "util-linux", "setpriv": "util-linux"}  # fmt: skip
DOC = "usr/share/doc/logshipper"
LINKING = "usr/libexec/logshipper/link-slurm-plugin"
OF_DEBIAN = {f"{DOC}/changelog.Debian.gz", "usr/share/lintian/overrides/logshipper"}
HOOK_FOLDERS = (ROOT / "deploy" / "slurm" / "hooks", ROOT / "deploy" / "launchers")
HOOKS = {path.name: path for folder in HOOK_FOLDERS for path in folder.iterdir() if path.is_file()}
OLDEST = (3, 11)
SCRIPTS = ("postinst", "prerm", "postrm")
PLUGIN = ("logshipper.so", "logshipper-identity.so", "logshipper-keeper")
RPM_TARGETS = {"3.11": "el9", "3.12": "el10"}  # by the Python whose byte code they need
GLIBC = {"el8": (2, 28), "el9": (2, 34), "el10": (2, 39)}
MAGIC_UNCHECKED = 1  # PEP 552: hash-based, not checked against the source


def own_python() -> str:
    """Return the version of this distribution's packaged Python, such as 3.11, or ""."""
    show = "import sys; print(*sys.version_info[:2])"
    for name in ("python3", *(f"python3.{minor}" for minor in range(14, 10, -1))):
        if os.path.exists(f"/usr/bin/{name}"):
            version = subprocess.check_output([f"/usr/bin/{name}", "-c", show], text=True).split()
            if tuple(map(int, version)) >= OLDEST:
                return ".".join(version)
    return ""


PYTHON = own_python()
SITE = f"opt/logshipper/lib/python{PYTHON}/site-packages"
TAG = f"cpython-{PYTHON.replace('.', '')}"
RPM_TARGET = RPM_TARGETS.get(PYTHON, "")


class Built(NamedTuple):
    """folders: one per build, each with all packages. marks: paths whose appearance in a package
    would reveal the build machine."""

    folders: tuple[Path, Path]
    marks: tuple[str, ...]

    def package(self, pattern: str, folder: int = 0) -> Path:
        (path,) = self.folders[folder].glob(pattern)
        return path


@pytest.fixture(scope="session")
def tools(root_user: None) -> None:
    """Check for the tools that build and run packages."""
    gate.skip_if_off()
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            gate.lacking(
                f"{program} isn't installed; requirements/system.sh does it (Debian: {package})"
            )
    if not Path("/usr/include/slurm/spank.h").exists():
        gate.lacking("Slurm's headers aren't here; requirements/system.sh installs libslurm-dev")
    if not PYTHON:
        gate.lacking("there is no Python 3.11 or newer in /usr/bin (Debian: python3)")


@pytest.fixture(scope="session")
def built(tools: None, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build both kinds of packages twice, with different folders, umask, time zone and hash seed."""
    debs = built_debs(tmp_path_factory)
    folder = tmp_path_factory.mktemp("packages")
    first, second, elsewhere = folder / "first", folder / "second-build", folder / "clone-elsewhere"
    shutil.copytree(debs.folder, first)
    copy_of_clone(elsewhere, debs.clone)
    odd = {"TZ": "Asia/Tokyo", "LANG": "de_DE.UTF-8", "PYTHONHASHSEED": "7"}
    rpm = {"TARGET": RPM_TARGET}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        rest = [pool.submit(build, "deb", elsewhere, second, debs.wheels, 0o077, odd)]
        if RPM_TARGET:
            rest += [
                pool.submit(build, "rpm", debs.clone, first, debs.wheels, 0o022, rpm),
                pool.submit(build, "rpm", elsewhere, second, debs.wheels, 0o077, odd | rpm),
            ]
        for done in rest:
            done.result()
    return Built((first, second), (str(folder), str(debs.clone.parent), f"{ROOT}/.venv"))


class Entry(NamedTuple):
    """content: of a file, else the link's target, or empty."""

    member: tarfile.TarInfo
    content: bytes


def entries(archive: bytes) -> dict[str, Entry]:
    """Return a package's members by path, without the leading `/`."""
    by_path = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isreg() else None
            content = file.read() if file else member.linkname.encode()
            if name := member.name.removeprefix(".").strip("/"):
                by_path[name] = Entry(member, content)
    return by_path


def read_deb(path: Path) -> dict[str, Entry]:
    return entries(subprocess.check_output(["dpkg-deb", "--fsys-tarfile", path]))


def read_rpm(path: Path) -> dict[str, Entry]:
    with path.open("rb") as file:
        return entries(subprocess.check_output(["rpm2archive", "-"], stdin=file))


@pytest.fixture(scope="session")
def deb(built: Built) -> dict[str, Entry]:
    return read_deb(built.package("logshipper_*.deb"))


@pytest.fixture(scope="session")
def control(built: Built, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with the control files of both Debian packages, by the package's name."""
    folder = tmp_path_factory.mktemp("control")
    names = {"logshipper": "logshipper_*.deb", "logshipper-slurm": "logshipper-slurm-*.deb"}
    for name, pattern in names.items():
        subprocess.run(["dpkg-deb", "--control", built.package(pattern), folder / name], check=True)
    return {name: folder / name for name in names}


@pytest.fixture(scope="session")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the unpacked files of the packages."""
    folder = tmp_path_factory.mktemp("installed")
    for package in built.folders[0].glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
    yield folder
    shutil.rmtree(folder)


def run_inside(
    installed: Path, *command: str, as_nobody: bool = False, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run a command in a namespace whose /opt contains only the package's /opt/logshipper."""
    become = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups -- " if as_nobody else ""
    script = (
        "mount -t tmpfs -o mode=755 none /opt && mkdir /opt/logshipper && "
        f'mount --bind "$0/opt/logshipper" /opt/logshipper && cd / && exec {become}"$@"'
    )
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, installed, *command],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environment},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=scaled(RUN_SECS),
    )  # fmt: skip


# ---- common to all packages


def test_a_second_build_is_the_same_to_the_byte(built: Built) -> None:
    names = [sorted(path.name for path in folder.iterdir()) for folder in built.folders]
    assert names[0] == names[1]
    rpms = {"logshipper.rpm", "logshipper-slurm.src.rpm"} if RPM_TARGET else set()
    assert {re.sub(r"[-_][0-9].*?(\.src)?\.(deb|rpm)$", r"\1.\2", name) for name in names[0]} == {
        "logshipper.deb", "logshipper-slurm.deb", *rpms,
    }  # fmt: skip
    for name in names[0]:
        first, second = (folder / name for folder in built.folders)
        assert first.read_bytes() == second.read_bytes(), name


@pytest.mark.parametrize(
    "pattern", ["logshipper_*.deb", "logshipper-slurm-*.deb", "logshipper-0*.x86_64.rpm"]
)
def test_all_is_roots_and_nobody_elses_to_write(built: Built, pattern: str) -> None:
    if pattern.endswith(".rpm"):
        need_rpm()
    path = built.package(pattern)
    files = read_deb(path) if path.suffix == ".deb" else read_rpm(path)
    for name, entry in files.items():
        member = entry.member
        assert (member.uid, member.gid) == (0, 0), name
        assert member.isdir() or member.isreg() or member.issym(), name
        if not member.issym():
            assert member.mode & 0o7777 == (
                0o755 if member.isdir() or is_program(name) else 0o644
            ), name
    if path.suffix == ".rpm":
        owners = subprocess.check_output(
            ["rpm", "-qp", "--qf", "[%{FILEUSERNAME}:%{FILEGROUPNAME}\n]", path], text=True
        )
        assert set(owners.split()) == {"root:root"}


def need_rpm() -> None:
    if not RPM_TARGET:
        pytest.skip(f"no Enterprise Linux has Python {PYTHON}, whose byte code is made here")


def is_program(name: str) -> bool:
    folder, _, base = name.rpartition("/")
    if name == LINKING:
        return True
    if folder == "usr/libexec/logshipper":
        return bool(HOOKS[base].stat().st_mode & 0o100)
    return name.startswith("opt/logshipper/bin/") or "/logshipper/slurm-" in folder


def test_nothing_tells_where_it_was_built(
    built: Built, control: dict[str, Path], installed: Path
) -> None:
    unpacked = [path for folder in (installed, *control.values()) for path in folder.rglob("*")]
    files = [path for path in unpacked if path.is_file() and not path.is_symlink()]
    assert len(files) > 1000
    for path in files:
        content = path.read_bytes()
        for mark in built.marks:
            assert mark.encode() not in content, path
    for path in built.folders[0].glob("*.rpm"):
        header = subprocess.check_output(["rpm", "-qp", "--xml", path], text=True)
        assert not [mark for mark in built.marks if mark in header], path.name
        assert "<string>localhost</string>" in header


def test_rpm_and_deb_install_the_same(built: Built, deb: dict[str, Entry]) -> None:
    need_rpm()
    rpm = read_rpm(built.package("logshipper-0*.x86_64.rpm"))
    as_deb = {
        name.replace("zsh/site-functions", "zsh/vendor-completions"): entry
        for name, entry in rpm.items()
    }
    assert {name for name in deb if not deb[name].member.isdir()} - OF_DEBIAN == {
        name for name in as_deb if not as_deb[name].member.isdir()
    }
    for name, entry in as_deb.items():
        if not entry.member.isdir():
            assert entry.content == deb[name].content, name


def refusal(kind: str, **environment: str) -> str:
    """Return the message with which build.sh refuses to begin."""
    done = subprocess.run(
        [PACKAGES / "build.sh", kind, "/nowhere"],
        env={**os.environ, "PATH": "/usr/bin:/bin", **environment},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=scaled(RUN_SECS),
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    assert done.stdout == ""
    return done.stderr


def test_what_cant_be_built_is_refused_with_the_fix(tools: None, tmp_path: Path) -> None:
    assert "usage: deploy/packages/build.sh deb|rpm" in refusal("tar")
    assert "there are el8, el9, el10 and all" in refusal("rpm", TARGET="el7")
    for target, python in {"el9": "3.11", "el10": "3.12"}.items():
        if python != PYTHON and not os.path.exists(f"/usr/bin/python{python}"):
            told = refusal("rpm", TARGET=target)
            assert f"byte code for {target} needs Python {python}" in told
            assert "pyenv" in told
    assert "apt install libslurm-dev" in refusal("deb", SLURM_INCLUDE=str(tmp_path))
    (tmp_path / "slurm").mkdir()
    for name in ("spank.h", "slurm.h"):
        (tmp_path / "slurm" / name).write_text("")
    assert "don't say which release they are of" in refusal("deb", SLURM_INCLUDE=str(tmp_path))


# ---- the environment


def test_its_files_are_the_wheels(deb: dict[str, Entry]) -> None:
    """The environment contains exactly the files of each wheel's RECORD, byte by byte, and byte
    code."""
    records = set()
    for name, entry in list(deb.items()):
        if name.endswith(".dist-info/RECORD"):
            for line in entry.content.decode().splitlines():
                path, digest, _ = line.rsplit(",", 2)
                records.add(f"{SITE}/{path}")
                if digest and ".data/" not in path:
                    kind, _, record_hash = digest.partition("=")
                    content_hash = base64.urlsafe_b64encode(
                        hashlib.new(kind, deb[f"{SITE}/{path}"].content).digest()
                    )
                    assert content_hash.decode().rstrip("=") == record_hash, path
    site_files = {
        name for name, entry in deb.items() if name.startswith(SITE) and entry.member.isreg()
    }
    code = {name for name in site_files if "/__pycache__/" in name}
    assert site_files - code == {name for name in records if ".data/" not in name}
    sources = {name for name in site_files if name.endswith(".py")}
    assert {re.sub(rf"/__pycache__/(.+)\.{TAG}\.pyc$", r"/\1.py", name) for name in code} == sources


def test_its_packages_are_those_locked_for_run_time(deb: dict[str, Entry]) -> None:
    locked = dict(
        re.findall(
            r"^([a-z][\w.-]*)==(\S+)", (ROOT / "requirements/dev.lock").read_text(), re.MULTILINE
        )
    )
    infos = [email.parser.HeaderParser().parsestr(entry.content.decode())
             for name, entry in deb.items() if name.endswith(".dist-info/METADATA")]  # fmt: skip
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = {info["Name"].lower().replace("_", "-"): info["Version"] for info in infos}
    assert versions.pop("logshipper") == project["version"]
    assert {name: locked[name] for name in versions} == versions
    assert {
        re.split(r"[<>=\[]", name)[0].lower() for name in project["dependencies"]
    } <= versions.keys()
    assert not {"matplotlib", "numpy", "tqdm", "setuptools", "pip", "pytest"} & versions.keys()


def test_byte_code_is_found_valid_and_has_the_places_it_is_installed_at(
    deb: dict[str, Entry],
) -> None:
    checked = 0
    for name, entry in deb.items():
        if name.endswith(".pyc"):
            assert int.from_bytes(entry.content[4:8], "little") == MAGIC_UNCHECKED, name
            checked += 1
    assert checked > 500
    show = "import marshal, sys; sys.stdout.write(marshal.load(sys.stdin.buffer).co_filename)"
    code = deb[f"{SITE}/logshipper/sidecar/__pycache__/sidecar.{TAG}.pyc"].content[16:]
    process = subprocess.run(
        [f"/usr/bin/python{PYTHON}", "-c", show], input=code, capture_output=True, check=True
    )
    assert process.stdout.decode() == f"/{SITE}/logshipper/sidecar/sidecar.py"


def test_environment_and_programs(deb: dict[str, Entry]) -> None:
    config = dict(
        line.split(" = ") for line in deb["opt/logshipper/pyvenv.cfg"].content.decode().splitlines()
    )
    assert config["home"] == "/usr/bin"
    assert config["include-system-site-packages"] == "false"
    assert deb["opt/logshipper/bin/python"].content.decode() == f"/usr/bin/python{PYTHON}"
    for name in ("logshipper", "logshipper-agent", "logshipper-grafana"):
        first = deb[f"opt/logshipper/bin/{name}"].content.decode().splitlines()[0]
        assert first.split() == ["#!/opt/logshipper/bin/python", "-I"]
        assert deb[f"usr/bin/{name}"].content.decode() == f"/opt/logshipper/bin/{name}"


def test_every_bundled_package_has_its_licence(deb: dict[str, Entry]) -> None:
    infos = {name.split("/")[5] for name in deb if name.startswith(SITE) and name.split("/")[5:6] and
             name.split("/")[5].endswith(".dist-info")}  # fmt: skip
    copyright_file = deb["usr/share/doc/logshipper/copyright"].content.decode()
    for info in infos:
        texts = [
            name
            for name in deb
            if f"/{info}/" in name and re.search("licen[sc]e|copying", name, re.IGNORECASE)
        ]
        assert [name for name in texts if deb[name].content], info
        assert info in copyright_file or info.startswith("logshipper-")
    assert deb["usr/share/doc/logshipper/LICENSE"].content == (ROOT / "LICENSE").read_bytes()


def test_the_commands_run_where_they_are_installed(installed: Path, tmp_path: Path) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for program in ("logshipper", "logshipper-agent", "logshipper-grafana"):
        done = run_inside(installed, f"/opt/logshipper/bin/{program}", "--version", as_nobody=True)
        assert done.stdout.split() == [program, version], done.stderr
    config = tmp_path / "agent.toml"
    config.write_text('[loki]\nurl = "http://loki.example.org:3100"\n')
    done = run_inside(
        installed, "/opt/logshipper/bin/logshipper-agent", "validate", "--config", str(config)
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_of_it_can_be_imported_and_nothing_is_missing(installed: Path) -> None:
    """The user's PYTHONPATH contains other packages with the same names."""
    script = """
import importlib, pkgutil, re, sys
from importlib import metadata
import logshipper, logshipper_grafana, logshipper_ingest, logshipper_observe
# these need the extras `parquet`, `tensorboard` and `mlflow`
EXTRAS = ("__main__", ".export_parquet", ".record_columns", ".tensorboard_run", ".mlflow_run")
for package in (logshipper, logshipper_ingest, logshipper_observe, logshipper_grafana):
    assert package.__file__.startswith("/opt/logshipper/"), package.__file__
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not found.name.endswith(EXTRAS):
            importlib.import_module(found.name)
for name in ("orjson", "yaml", "cramjam", "re2", "rich", "requests", "plotext", "argcomplete", "prometheus_client",
             "grafana_client"):
    assert importlib.import_module(name).__file__.startswith("/opt/logshipper/"), name
there = {re.sub("[-_.]+", "-", found.metadata["Name"]).lower() for found in metadata.distributions()}
for found in metadata.distributions():
    for needed in found.requires or ():
        if ";" not in needed:
            assert re.sub("[-_.]+", "-", re.match(r"[\\w.-]+", needed)[0]).lower() in there, needed
print(sys.version_info[:2], sys.flags.isolated)
"""
    done = run_inside(
        installed,
        "/opt/logshipper/bin/python",
        "-I",
        "-c",
        script,
        as_nobody=True,
        PYTHONPATH="/nowhere",
    )
    assert done.stdout.split("\n")[0] == f"({PYTHON.replace('.', ', ')}) 1", done.stderr


def test_a_users_own_packages_dont_get_in(installed: Path, open_folder: Path) -> None:
    (open_folder / "logshipper.py").write_text("raise SystemExit('the wrong one')")
    plain = run_inside(
        installed,
        "/opt/logshipper/bin/python",
        "-m",
        "logshipper",
        as_nobody=True,
        PYTHONPATH=str(open_folder),
    )
    assert "wrong" in plain.stderr
    done = run_inside(installed, "/opt/logshipper/bin/logshipper", "check", as_nobody=True,
                      PYTHONPATH=str(open_folder), HOME=str(open_folder))  # fmt: skip
    assert "wrong" not in done.stdout + done.stderr
    assert done.returncode == 0, done.stderr


# ---- the rest of logshipper's package


def test_configuration_is_the_admins(
    deb: dict[str, Entry], control: dict[str, Path], built: Built
) -> None:
    conffiles = (control["logshipper"] / "conffiles").read_text().split()
    assert conffiles == ["/etc/logshipper/agent.toml", "/etc/logshipper/site.toml"]
    assert {
        f"/{name}" for name in deb if name.startswith("etc/") and deb[name].member.isreg()
    } == set(conffiles)
    need_rpm()
    rpm = built.package("logshipper-0*.x86_64.rpm")
    assert (
        subprocess.check_output(["rpm", "-qp", "--configfiles", rpm], text=True).split()
        == conffiles
    )
    flags = subprocess.check_output(
        ["rpm", "-qp", "--qf", "[%{FILENAMES} %{FILEFLAGS:fflags}\n]", rpm], text=True
    )
    assert all(f"{name} cn" in flags.splitlines() for name in conffiles), "config(noreplace)"


def test_configuration_says_what_must_be_set(installed: Path) -> None:
    _, problems = read(str(installed / "etc/logshipper/agent.toml"))
    assert [problem.partition(":")[0] for problem in problems] == ["[loki] url"]
    config, problems = site.read(str(installed / "etc/logshipper/site.toml"))
    assert problems == []
    assert config.loki.url == config.prometheus.url == config.grafana.url == ""


def test_hooks_and_documentation_are_there(deb: dict[str, Entry]) -> None:
    assert {
        name.rpartition("/")[2] for name in deb if name.startswith("usr/libexec/logshipper/")
    } == {*HOOKS, Path(LINKING).name}
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert {
        Path(name).name for name in deb if re.fullmatch(f"{DOC}/docs/[^/]+[.]md", name)
    } == pages
    assert f"{DOC}/deploy/slurm/README.md" in deb
    manual = {f"usr/share/man/man1/{name}.1.gz" for name, _ in pages_of_manual("2026-11-30")}
    assert {name for name in deb if name.startswith("usr/share/man/man1/")} == manual


def test_no_link_of_the_documentation_is_dead(deb: dict[str, Entry]) -> None:
    checked = 0
    for name, entry in deb.items():
        if name.startswith(f"{DOC}/") and name.endswith(".md"):
            for link in re.findall(r"\]\(([^)\s]+)\)", entry.content.decode()):
                target = os.path.normpath(
                    os.path.join(os.path.dirname(name), link.partition("#")[0])
                )
                if not re.match(r"[a-z]+:|#", link):
                    assert target in deb, f"{name}: {link}"
                    checked += 1
    assert checked > 100


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_files_are_valid(installed: Path, shell: str) -> None:
    share = installed / "usr/share"
    places = {
        "bash": "bash-completion/completions/logshipper", "zsh": "zsh/vendor-completions/_logshipper",
        "fish": "fish/vendor_completions.d/logshipper.fish",
    }  # fmt: skip
    text = (share / places[shell]).read_text()
    if shell == "zsh":
        assert text.splitlines()[0] == "#compdef logshipper logshipper-agent logshipper-grafana"
    if shell == "bash":
        programs = "logshipper logshipper-agent logshipper-grafana"
        line = f". {shlex.quote(str(share / places[shell]))}; complete -p {programs}"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        functions = re.findall(r"-F (\S+)", done.stdout)
        assert functions == ["__logshipper_complete", *["_python_argcomplete"] * 2]
    elif shutil.which(shell):
        assert subprocess.run([shell, "-n", share / places[shell]]).returncode == 0
    assert "logshipper" in text


def test_completion_answers(installed: Path) -> None:
    """The completion answers on fd 8, as the shell expects."""
    ask = "_ARGCOMPLETE=1 COMP_LINE='logshipper sh' COMP_POINT=13 COMP_TYPE=9 /opt/logshipper/bin/logshipper 8>&1 9>&2"
    done = run_inside(installed, "sh", "-c", ask)
    assert "show" in done.stdout, done.stderr


# ---- the unit


def unit_lines(key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.MULTILINE)


def test_the_unit_is_one_for_systemd(installed: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        gate.lacking("systemd-analyze isn't installed (Debian: systemd)")
    unit = installed / "usr/lib/systemd/system/logshipper-agent.service"
    done = run_inside(installed, "systemd-analyze", "verify", "--man=no", str(unit))
    ours = [line for line in done.stderr.splitlines() if "logshipper" in line]
    assert ours == []
    assert done.returncode == 0, done.stderr


def test_the_units_folders_are_the_configurations() -> None:
    agent = AgentConfig().agent
    assert unit_lines("RuntimeDirectory") == [Path(agent.socket).parent.name]
    assert unit_lines("StateDirectory") == [Path(agent.state_dir).name]
    assert unit_lines("RequiresMountsFor") == [f"{agent.spool_dir} {agent.state_dir}"]
    assert unit_lines("Before") == ["slurmd.service"]
    tmpfiles = [
        line.split() for line in (UNIT.with_name("logshipper.tmpfiles")).read_text().splitlines()
    ]
    modes = {words[1]: words[2] for words in tmpfiles if words[0] == "d"}
    assert modes == {agent.spool_dir: "0711", agent.state_dir: "0700"}


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ((ROOT / "deploy/agent.toml").read_text(), False),
        ('[loki]\nurl = "http://loki.example.org:3100"\n', True),
        ("[loki]\n  url='http://loki.example.org:3100'\n", True),
        ('[loki]\n# url = "http://loki.example.org:3100"\n', False),
        ('[loki]\nurl = ""\n', False),
        ('[loki]\nurl = "not an address"\n', True),
    ],
)
def test_the_agent_starts_where_something_is_configured(
    text: str, starts: bool, tmp_path: Path
) -> None:
    """An invalid configuration starts, fails and reports its error. Without a configuration the
    unit stays down silently."""
    (condition,) = unit_lines("ExecCondition")
    config = tmp_path / "agent.toml"
    config.write_text(text)
    words = [
        str(config) if word == "/etc/logshipper/agent.toml" else word
        for word in shlex.split(condition)
    ]
    assert str(config) in words
    assert (subprocess.run(words).returncode == 0) is starts
    pattern = shlex.split(condition)[2]
    (by_postinst,) = re.findall(
        r"grep -Eq (\".*\") /etc", (PACKAGES / "deb/logshipper/postinst").read_text()
    )
    assert shlex.split(by_postinst) == [pattern], "the package's script asks the same"


def test_the_agent_does_its_work_with_the_units_capabilities(
    installed: Path, open_folder: Path
) -> None:
    """The agent starts, answers at its socket, and gives a user a directory with the user as its
    owner."""
    (names,) = unit_lines("CapabilityBoundingSet")
    bounds = ",".join(
        ["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in names.split())]
    )
    config = open_folder / "agent.toml"
    config.write_text(
        f'[agent]\nspool_dir = "{open_folder}/spool"\n'
        f'state_dir = "{open_folder}/state"\nsocket = "{open_folder}/agent.sock"\n'
        '[loki]\nurl = "http://127.0.0.1:9"\n[metrics]\nlisten = ""\n'
    )
    script = (
        f"setpriv --bounding-set={bounds} /opt/logshipper/bin/logshipper-agent run --config {config} & agent=$!\n"
        f"for i in $(seq {scaled(1000):.0f}); do [ -S {open_folder}/agent.sock ] && break; sleep 0.05; done\n"
        f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups "
        f"env HOME=/ LOGSHIPPER_AGENT_SOCKET={open_folder}/agent.sock"
        " /opt/logshipper/bin/logshipper run -- echo captured\n"
        f"/opt/logshipper/bin/logshipper-agent status --config {config} --json\n"
        "kill $agent; wait $agent"
    )
    done = run_inside(installed, "sh", "-c", script)
    printed, _, status = done.stdout.partition("\n")
    assert printed == "captured", done.stderr
    (capture,) = json.loads(status)["jobs"]
    assert capture["user"] == "nobody", done.stderr
    (segments,) = (open_folder / "spool").glob("*@*/segments")
    assert segments.stat().st_uid == NOBODY
    assert done.returncode == 0, done.stderr


# ---- maintainers' scripts, dependencies


def test_scripts_are_shell(control: dict[str, Path], built: Built) -> None:
    scripts = [
        path for folder in control.values() for path in folder.iterdir() if path.name in SCRIPTS
    ]
    assert {path.name for path in scripts} == set(SCRIPTS)
    texts = {str(path): path.read_text() for path in scripts}
    for path in built.folders[0].glob("*.x86_64.rpm"):
        scriptlets = subprocess.check_output(
            ["rpm", "-qp", "--scripts", "--filetriggers", path], text=True
        )
        parts = re.split(
            r"^\w+ scriptlet \(using /bin/sh\)(?:| -- .*):?\n", scriptlets, flags=re.MULTILINE
        )[1:]
        texts |= {f"{path.name} {number}": part for number, part in enumerate(parts)}
    assert len(texts) == len(SCRIPTS) + 5 * bool(RPM_TARGET)
    for name, text in texts.items():
        for shell in ("sh", "bash"):
            done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True)
            assert done.returncode == 0, f"{name}: {done.stderr}"
        assert "@" not in re.sub(r"'\*@\*'", "", text), f"{name}: something wasn't filled in"


def slurm_release() -> str:
    """Return the release of the installed Slurm headers, such as 22.05."""
    text = Path("/usr/include/slurm/slurm_version.h").read_text()
    number = int(re.findall(r"SLURM_VERSION_NUMBER (0x[0-9a-f]+)", text)[0], 16)
    return f"{number >> 16}.{number >> 8 & 255:02}"


def test_debian_dependencies(control: dict[str, Path]) -> None:
    fields = {name: email.parser.HeaderParser().parsestr((folder / "control").read_text())
              for name, folder in control.items()}  # fmt: skip
    assert f"python{PYTHON}" in fields["logshipper"]["Depends"].split(", ")
    version = fields["logshipper"]["Version"]
    assert re.fullmatch(r"[0-9.]+-1\+(deb|ubuntu)[0-9.]+", version), (
        "of this distribution's release"
    )
    upstream = version.partition("-")[0]
    plugin = fields["logshipper-slurm"]
    assert plugin["Package"] == f"logshipper-slurm-{slurm_release()}"
    assert plugin["Version"] == version
    assert plugin["Provides"] == "logshipper-slurm"
    assert plugin["Depends"].split(", ")[:2] == [
        f"logshipper (>= {upstream})",
        f"logshipper (<< {upstream}+)",
    ]
    for relation in (f"{version} ge {upstream}", f"{version} lt {upstream}+", f"{upstream}.1-1 gt {upstream}+",
                     f"{upstream}-1+deb13 gt {upstream}-1+deb12", f"{upstream}-2+deb12 gt {upstream}-1+deb13",
                     f"{upstream}-1+ubuntu24.04 gt {upstream}-1+ubuntu22.04"):  # fmt: skip
        assert subprocess.run(["dpkg", "--compare-versions", *relation.split()]).returncode == 0, (
            relation
        )
    own_libc = tuple(map(int, (os.confstr("CS_GNU_LIBC_VERSION") or "").split()[1].split(".")))
    for field in fields.values():
        (libc,) = re.findall(r"libc6 \(>= ([0-9.]+)\)", field["Depends"])
        assert tuple(map(int, libc.split("."))) <= own_libc
        assert (
            field["Architecture"]
            == subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()
        )


def test_rpm_dependencies(built: Built) -> None:
    need_rpm()
    path = built.package("logshipper-0*.x86_64.rpm")
    assert f"-1.{RPM_TARGET}." in path.name
    listed = subprocess.check_output(["rpm", "-qp", "--requires", path], text=True)
    assert f"/usr/bin/python{PYTHON}" in listed.splitlines()
    libc = {
        tuple(map(int, version.split(".")))
        for version in re.findall(r"\(GLIBC_([0-9.]+)\)", listed)
    }
    assert max(libc) <= GLIBC[RPM_TARGET], f"{RPM_TARGET} has no newer one"
    provided = subprocess.check_output(["rpm", "-qp", "--provides", path], text=True)
    assert not re.findall(r"\.so", provided), "what is bundled is nobody else's"


def test_the_source_package_builds_the_plugin_for_the_slurm_at_hand(
    built: Built, tmp_path: Path
) -> None:
    need_rpm()
    defined = ["--define", f"_topdir {tmp_path}", "--define", "dist .el9"]
    command = ["rpmbuild", "--rebuild", "--nodeps", *defined, str(built.package("*.src.rpm"))]
    done = subprocess.run(
        command, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    release = slurm_release()
    (rebuilt,) = tmp_path.glob("RPMS/*/*.rpm")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert rebuilt.name == f"logshipper-slurm-{release}-{version}-1.el9.x86_64.rpm"
    folder = f"usr/lib64/logshipper/slurm-{release}"
    assert own_files(read_rpm(rebuilt), release) == {f"{folder}/{name}" for name in PLUGIN}
    listed = subprocess.check_output(["rpm", "-qp", "--provides", "--requires", rebuilt], text=True)
    assert {f"logshipper-slurm = {version}-1.el9", f"logshipper = {version}"} <= set(
        listed.splitlines()
    )


def own_files(files: Mapping[str, Entry], release: str) -> set[str]:
    """Return the files of a plugin's package without its documentation. Packages for two releases
    share no path, so both can be installed."""
    documentation = f"usr/share/doc/logshipper-slurm-{release}/"
    own = {
        name for name, entry in files.items() if entry.member.isreg() and not name.startswith(documentation)
    }  # fmt: skip
    assert all(f"/logshipper/slurm-{release}/" in name for name in own), own
    return own


def test_the_plugin_has_a_folder_of_its_releases_own(built: Built) -> None:
    files = read_deb(built.package("logshipper-slurm-*.deb"))
    multiarch = subprocess.check_output(["gcc", "-print-multiarch"], text=True).strip()
    release = slurm_release()
    folder = f"usr/lib/{multiarch}/logshipper/slurm-{release}"
    assert own_files(files, release) == {f"{folder}/{name}" for name in PLUGIN}
    assert all(files[f"{folder}/{name}"].content[:4] == b"\x7fELF" for name in PLUGIN)


def test_the_line_in_plugstack_is_the_agents(deb: dict[str, Entry]) -> None:
    line = deb["usr/share/logshipper/plugstack.conf"].content.decode().splitlines()[-1].split()
    assert line == [
        "optional",
        "logshipper.so",
        f"spool={AgentConfig().agent.spool_dir}",
        "cluster=local",
    ]

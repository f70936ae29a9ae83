"""deploy/ansible: ansible-lint's verdict, and the role in use: applied, repeated, in check mode,
and removed.

The host is this machine's own root below an overlay, without a running systemd. Tiny packages with
the names of ours replace the real ones.
"""

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from logshipper_ingest.config import agent_config
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.other_users import needs_root
from tests.tools.sources import ROOT
from tests.tools.tools_of_others import needs_program_of_others, python_of

pytestmark = [needs_program_of_others, needs_root, pytest.mark.timeout(900)]

FOLDER = ROOT / "deploy" / "ansible"
UNIT = "usr/lib/systemd/system/logshipper-agent.service"
ENABLED = "etc/systemd/system/multi-user.target.wants/logshipper-agent.service"
SECS = 300
CONTROL = """Package: {name}
Version: 0.1.0-1
Architecture: all
Depends: {depends}
Provides: {provides}
Maintainer: nobody <nobody@localhost>
Description: stands for the package of that name
"""
AGENT = """#!/bin/sh
[ "$1 $2" = "validate --config" ] && grep -q '^url = "http' "$3"
"""
# $1: a folder for memory; further arguments: folders of this machine that the host sees
SCRIPT = """set -e
folder=$1
shift
mount -t tmpfs -o mode=755 none "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root"
mount -t overlay -o lowerdir=/,upperdir="$folder/upper",workdir="$folder/work" overlay "$folder/root"
for place in dev proc sys; do mount --rbind "/$place" "$folder/root/$place"; done
for place in run tmp; do mount -t tmpfs -o mode=1777 none "$folder/root/$place"; done
for place in "$@"; do mkdir -p "$folder/root/$place"; mount --bind "$place" "$folder/root/$place"; done
rm -rf "$folder/root/etc/slurm" "$folder/root/etc/logshipper"
rm -rf "$folder/root/var/lib/apt/lists"  # apt would read all of them at each call
touch "$folder/ready"
exec sleep infinity
"""
PLUGIN = "logshipper-slurm-22.05"
OTHER_PLUGIN = "logshipper-slurm-24.11"
SLURM_CONF = "ClusterName=hpc\nJobCompType=jobcomp/none\nNodeName=n1\n"
LINE = "optional logshipper.so spool=/var/spool/logshipper cluster=hpc\n"
CONFIG = {
    "loki": {
        "url": "http://loki.example.org:3100",
        "national": {"url": "https://logs.example.org", "tenant": "site-a"},
    },
    "metrics": {"listen": ":9310", "job_values": True},
}


class Run(NamedTuple):
    output: str
    changed: int
    failed: int


class Host:
    """pid: a process in the host's namespace; folder: its mount point; packages: files that the
    role installs."""

    def __init__(self, pid: int, folder: Path, packages: list[Path], plays: Path) -> None:
        self._folder = folder
        self._pid = pid
        self._packages = packages
        self._plays = plays

    def path(self, place: str) -> Path:
        return Path(f"/proc/{self._pid}/root{self._folder}/root/{place}")

    def text(self, place: str) -> str:
        return self.path(place).read_text()

    def apply(self, *options: str, **variables: object) -> Run:
        """Run the role."""
        values = {
            "logshipper_cluster": "hpc",
            "logshipper_slurm_user": "daemon",
            "logshipper_agent_config": CONFIG,
            "logshipper_package_files": [str(path) for path in self._packages],
            **variables,
        }
        document = [
            {"hosts": "all", "gather_subset": ["min"], "roles": [{"role": "logshipper", **values}]}
        ]
        (self._plays / "play.yml").write_text(json.dumps(document))
        done = self.call(
            str(python_of("ansible").with_name("ansible-playbook")),
            *("-i", "host,", "-c", "local", "-e", "ansible_python_interpreter=/usr/bin/python3"),
            *(*options, str(self._plays / "play.yml")),
        )
        recap = re.search(r"host +: ok=\d+ +changed=(\d+).* failed=(\d+)", done)
        assert recap is not None, done
        return Run(done, int(recap[1]), int(recap[2]))

    def call(self, *command: str) -> str:
        enter = ["nsenter", "--mount", f"--target={self._pid}"]
        done = subprocess.run(
            [*enter, "chroot", str(self._folder / "root"), *command],
            env={
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME": "/root",
                "LC_ALL": "C.UTF-8",
                "ANSIBLE_PIPELINING": "1",
                "SYSTEMD_OFFLINE": "1",  # enables units without starting them
                "ANSIBLE_NOCOLOR": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECS,
        )
        return done.stdout

    def packages(self) -> list[str]:
        names = ("logshipper", "logshipper-slurm-*")
        text = self.call("dpkg-query", "-W", "-f", "${Package} ${Status}\n", *names)
        return [line.split()[0] for line in text.splitlines() if line.endswith(" installed")]

    def has_repository(self, packages: list[Path]) -> None:
        """Make these packages the only repository of its apt."""
        index = self.path("srv/packages")
        index.mkdir(parents=True)
        (index / "Packages").write_text("".join(map(entry_of, packages)))
        for package in packages:
            shutil.copy(package, index)
        for place in self.path("etc/apt").glob("sources.list*"):
            place.unlink() if place.is_file() else shutil.rmtree(place)
        self.path("etc/apt/sources.list").write_text("deb [trusted=yes] file:/srv/packages ./\n")
        told = self.call("apt-get", "update", "--error-on=any")
        assert "E: " not in told, told


def entry_of(package: Path) -> str:
    """Return a package's entry in a repository's list of packages."""
    content = package.read_bytes()
    control = subprocess.run(
        ["dpkg-deb", "--field", package], check=True, capture_output=True, text=True
    ).stdout
    digest = hashlib.sha256(content).hexdigest()
    return f"{control}Filename: ./{package.name}\nSize: {len(content)}\nSHA256: {digest}\n\n"


def make_package(folder: Path, name: str, depends: str, files: dict[str, str]) -> Path:
    tree = folder / name
    for place, text in {
        **files,
        "DEBIAN/control": CONTROL.format(
            name=name, depends=depends, provides=name.rpartition("-")[0] or "logshipping"
        ),
    }.items():
        path = tree / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)
    package = folder / f"{name}_0.1.0-1_all.deb"
    command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(tree), str(package)]
    subprocess.run(command, check=True, capture_output=True)
    return package


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    if shutil.which("dpkg-deb") is None or not Path("/usr/lib/python3/dist-packages/apt").exists():
        pytest.skip("the role is applied on Debian only, with python3-apt")
    folder = tmp_path_factory.mktemp("packages")
    first = {
        "opt/logshipper/bin/logshipper-agent": AGENT,
        UNIT: (ROOT / "deploy/systemd/logshipper-agent.service").read_text(),
        "etc/logshipper/agent.toml": '[loki]\nurl = ""\n',
        "DEBIAN/conffiles": "/etc/logshipper/agent.toml\n",
        "usr/libexec/logshipper/job-ended": "#!/bin/sh\n",
    }
    second = {"usr/lib/slurm/logshipper.so": ""}
    return [
        make_package(folder, "logshipper", "libc6", first),
        make_package(folder, PLUGIN, "logshipper", second),
    ]


@pytest.fixture
def host(packages: list[Path], tmp_path: Path) -> Iterator[Host]:
    folder, plays = tmp_path / "host", tmp_path / "plays"
    folder.mkdir()
    shutil.copytree(FOLDER / "roles", plays / "roles")
    places = [str(ROOT), str(plays), str(packages[0].parent)]
    command = ["unshare", "--mount", "sh", "-c", SCRIPT, "sh", str(folder), *places]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        inside = Path(f"/proc/{process.pid}/root{folder}/ready")
        wait_until(lambda: inside.exists() or process.poll() is not None, "the host is there")
        if process.poll() is not None:
            assert process.stderr is not None
            pytest.skip(f"no overlay may be mounted here: {process.stderr.read()}")
        yield Host(process.pid, folder, packages, plays)
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def test_ansible_lint_has_nothing_to_say(tmp_path: Path) -> None:
    program = python_of("ansible").with_name("ansible-lint")
    folder = shutil.copytree(FOLDER, tmp_path / "ansible")
    done = subprocess.run(
        [program, "--offline", "--profile", "production"],
        cwd=folder,
        env={"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=SECS,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_node(host: Host, tmp_path: Path) -> None:
    node = {"logshipper_plugin": True, "logshipper_secrets": {"national.token": "s3cret"}}
    trial = host.apply("--check", "--diff", **node)
    assert (trial.failed, host.packages()) == (0, []), trial.output
    assert not host.path("etc/logshipper").exists()

    first = host.apply(**node)
    assert (first.failed, host.packages()) == (0, ["logshipper", PLUGIN]), first.output
    assert "s3cret" not in first.output
    assert host.path("etc/logshipper/national.token").stat().st_mode & 0o777 == 0o600
    config, problems = agent_config.read(str(host.path("etc/logshipper/agent.toml")))
    assert problems == []
    assert (config.agent.cluster, config.loki.access.url) == ("hpc", "http://loki.example.org:3100")
    assert config.named_lokis["national"].access.tenant == "site-a"
    assert config.metrics.job_values
    assert host.text("etc/slurm/plugstack.conf.d/10-logshipper.conf") == LINE
    assert host.text("etc/slurm/plugstack.conf") == (
        "include /etc/slurm/plugstack.conf.d/10-logshipper.conf\n"
    )
    assert host.path(ENABLED).is_symlink()
    assert not host.path("etc/slurm/slurm.conf").exists()
    again = host.apply("--diff", **node)
    assert (again.failed, again.changed) == (0, 0), again.output

    out = host.apply(logshipper_state="absent", logshipper_plugin=True)
    assert (out.failed, host.packages()) == (0, []), out.output
    assert host.text("etc/slurm/plugstack.conf") == ""
    assert not host.path("etc/slurm/plugstack.conf.d/10-logshipper.conf").exists()
    assert host.path("etc/logshipper/agent.toml").exists()
    again = host.apply(logshipper_state="absent", logshipper_plugin=True)
    assert (again.failed, again.changed) == (0, 0), again.output


def test_the_plugin_of_a_repository_is_that_of_its_slurm(
    host: Host, packages: list[Path], tmp_path: Path
) -> None:
    files = {"usr/lib/slurm/logshipper-24.11.so": ""}
    host.has_repository([*packages, make_package(tmp_path, OTHER_PLUGIN, "logshipper", files)])
    host.path("usr/sbin/slurmd").unlink(missing_ok=True)
    host.path("usr/sbin/slurmd").write_text("#!/bin/sh\necho slurm-wlm 24.11.5\n")
    host.path("usr/sbin/slurmd").chmod(0o755)
    node = {"logshipper_plugin": True, "logshipper_package_files": []}
    trial = host.apply("--check", **node)
    assert (trial.failed, host.packages()) == (0, []), trial.output
    for more in ({}, {"logshipper_slurm_release": "22.05"}):
        installed = host.apply(**node, **more)
        assert installed.failed == 0, installed.output
    assert host.packages() == ["logshipper", PLUGIN, OTHER_PLUGIN]
    again = host.apply(**node)
    assert (again.failed, again.changed) == (0, 0), again.output
    out = host.apply(logshipper_state="absent", **node)
    assert (out.failed, host.packages()) == (0, []), out.output


def test_the_controller(host: Host) -> None:
    host.path("etc/slurm").mkdir()
    host.path("etc/slurm/slurm.conf").write_text(SLURM_CONF)
    first = host.apply(logshipper_job_ended=True)
    assert first.failed == 0, first.output
    assert "takes effect when slurmctld is restarted" in first.output
    assert host.text("etc/slurm/slurm.conf").splitlines() == [
        "ClusterName=hpc", "JobCompType=jobcomp/script", "NodeName=n1", "JobCompLoc=/usr/libexec/logshipper/job-ended",
    ]  # fmt: skip
    assert host.path("var/spool/logshipper-ended").owner() == "daemon"
    assert 'ended_dir = "/var/spool/logshipper-ended"' in host.text("etc/logshipper/agent.toml")
    again = host.apply(logshipper_job_ended=True)
    assert (again.failed, again.changed) == (0, 0), again.output

    out = host.apply(logshipper_state="absent")
    assert out.failed == 0, out.output
    assert host.text("etc/slurm/slurm.conf") == "ClusterName=hpc\nNodeName=n1\n"
    assert host.packages() == ["logshipper", PLUGIN], "slurmctld calls its hook still"
    out = host.apply(logshipper_state="absent", logshipper_purge=True)
    assert (out.failed, host.packages()) == (0, []), out.output
    assert not host.path("etc/logshipper").exists()


@pytest.mark.parametrize(
    ("files", "variables", "words"),
    [
        (
            {"slurm.conf": "JobCompType=jobcomp/filetxt\n"},
            {"logshipper_job_ended": True},
            "has another JobCompType",
        ),
        (
            {"plugstack.conf": "required spank_pyxis.so\ninclude /etc/slurm/plugstack.conf.d/*\n"},
            {"logshipper_plugin": True},
            "Pyxis' line",
        ),
        (
            {"plugstack.conf.d/05-pyxis.conf": "required spank_pyxis.so\n"},
            {"logshipper_plugin": True},
            "Pyxis' line",
        ),
        ({}, {"logshipper_agent_config": {"loki": {}}}, "failed to validate"),
    ],
)
def test_what_it_refuses(
    host: Host, files: dict[str, str], variables: dict[str, object], words: str
) -> None:
    for name, text in files.items():
        path = host.path(f"etc/slurm/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    run = host.apply(**variables)
    assert run.failed == 1, run.output
    assert words in " ".join(run.output.split())
    for name, text in files.items():
        assert host.text(f"etc/slurm/{name}") == text


def test_a_folder_that_plugstack_includes_has_the_line_once(host: Host) -> None:
    host.path("etc/slurm").mkdir()
    host.path("etc/slurm/plugstack.conf").write_text("include /etc/slurm/plugstack.conf.d/*\n")
    run = host.apply(logshipper_plugin=True)
    assert run.failed == 0, run.output
    assert host.text("etc/slurm/plugstack.conf") == "include /etc/slurm/plugstack.conf.d/*\n"
    assert host.text("etc/slurm/plugstack.conf.d/10-logshipper.conf") == LINE


def test_a_login_machine(host: Host) -> None:
    site = {
        "loki": {"url": "http://loki.example.org:3100"},
        "grafana": {"url": "https://g.example.org"},
    }
    run = host.apply(logshipper_agent=False, logshipper_site_config=site)
    assert run.failed == 0, run.output
    assert 'url = "https://g.example.org"' in host.text("etc/logshipper/site.toml")
    assert host.text("etc/logshipper/agent.toml") == '[loki]\nurl = ""\n', "the package's own"
    assert not host.path(ENABLED).exists()

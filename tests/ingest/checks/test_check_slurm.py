"""`logshipper-agent check` on a node with Slurm, with admins' files that have one fault each."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from logshipper import __version__
from logshipper_ingest.checks import check_slurm
from logshipper_ingest.checks.findings import Finding
from logshipper_ingest.checks.slurm_releases import RELEASES
from logshipper_ingest.cli import main
from logshipper_ingest.config.agent_config import AgentConfig, AgentSection, SlurmSection
from logshipper_ingest.slurm.files import MAX_FILES, plugin_version, read_conf, read_stack
from tests.tools.sources import ROOT

SETTINGS = ROOT / "deploy" / "slurm" / "spank" / "settings.c"


class Node:
    """A node's files in folder, all correct at first. line: the plugin's line in plugstack.conf."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = folder / "slurm.conf"
        self.stack = folder / "plugstack.conf"
        self.plugin = folder / "lib" / "logshipper.so"
        self.keeper = folder / "lib" / "logshipper-keeper"
        self.spool = folder / "spool"
        self.python = folder / "python"
        self.config = AgentConfig(
            AgentSection("alpha", "n1", str(self.spool)), path="/etc/agent.toml"
        )
        folder.chmod(0o755)
        self.plugin.parent.mkdir(mode=0o755)
        self.program(self.plugin, "")
        self.program(self.keeper, "")
        self.program(self.python, f"echo {__version__}")
        self.spool.mkdir()
        self.spool.chmod(0o711)
        self.write()

    def program(self, path: Path, text: str) -> None:
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def write(
        self, conf: str = "", line: str = "", kind: str = "optional", before: str = ""
    ) -> None:
        arguments = line or f"spool={self.spool} cluster=alpha python={self.python}"
        self.conf.write_text(
            f"ClusterName=alpha\nPluginDir={self.plugin.parent}\nProctrackType=proctrack/cgroup\n{conf}\n"
        )
        self.stack.write_text(f"# plugins\n{before}\n{kind} logshipper.so {arguments}\n")

    def check(self, plugstack: str | None = None) -> list[Finding]:
        return check_slurm.check_slurm(self.config, plugstack)


@pytest.fixture
def node(root_user: None, open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """Return a node whose files belong to root; an ordinary user runs its Python."""
    slurm_node = Node(open_folder)
    monkeypatch.setenv("SLURM_CONF", str(slurm_node.conf))
    monkeypatch.setattr(
        check_slurm, "_program", lambda name: "/usr/sbin/slurmd" if name == "slurmd" else ""
    )
    monkeypatch.setattr(check_slurm, "_slurm_version", lambda: (22, 5))
    monkeypatch.setattr(check_slurm, "plugin_version", lambda path: (22, 5))
    monkeypatch.setattr(check_slurm, "_cgroup", lambda: "cgroup v1")
    return slurm_node


def words(findings: list[Finding], level: str) -> str:
    return "\n".join(
        f"{finding.words} {finding.fix}" for finding in findings if finding.level == level
    )


def test_all_is_well(node: Node) -> None:
    findings = node.check()
    assert {finding.level for finding in findings} == {"ok"}, findings
    text = words(findings, "ok")
    for part in ("ProctrackType=proctrack/cgroup", "loads it, with spool and cluster of /etc/agent.toml",
                 "was built for this Slurm, 22.05", "the keeper", f"can run logshipper {__version__}"):  # fmt: skip
        assert part in text


def test_cgroup_v2_is_as_well(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_slurm, "_cgroup", lambda: "cgroup v2")
    findings = node.check()
    assert {finding.level for finding in findings} == {"ok"}, findings
    assert "ProctrackType=proctrack/cgroup, cgroup v2" in words(findings, "ok")


def test_no_slurm_no_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "none"))
    assert check_slurm.check_slurm(AgentConfig()) == []
    (tmp_path / "none").write_text("ClusterName=alpha\n")
    monkeypatch.setattr(check_slurm, "_program", lambda name: "")
    assert check_slurm.check_slurm(AgentConfig()) == []


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("spool=/elsewhere cluster=alpha", "spool=/elsewhere, but [agent] spool_dir is"),
        ("cluster=beta", "cluster=beta, but [agent] cluster is alpha in /etc/agent.toml Jobs would be looked for"),
        ("cluser=alpha", "`cluser=alpha` isn't one of its arguments, which are spool=, cluster=, python=, keeper="),
        ("verbose", "`verbose` isn't one of its arguments"),
        ("drain_secs=99", "drain_secs= takes a number from 0 to 60, not `99`"),
        ("rows=-1", "rows= takes a number from 5 to 1000, not `-1`"),
        ("python=python3", "python= takes an absolute path, not `python3`"),
        ("python=/bin/false", "python=/bin/false: an ordinary user can't run logshipper by it: it ended with 1"),
        ("python=/nowhere/python", "python=/nowhere/python: an ordinary user can't run it: "),
        ("keeper=/nowhere/keeper", "the keeper /nowhere/keeper: no such file or directory"),
    ],
)  # fmt: skip
def test_arguments(line: str, sentence: str, node: Node) -> None:
    node.write(line=line)
    assert sentence in words(node.check(), "wrong")


def test_more_captures_than_the_agent_takes(node: Node) -> None:
    node.config = replace(node.config, agent=replace(node.config.agent, max_captures_per_user=7))
    assert "max_captures=1000, but [agent] max_captures_per_user is 7" in words(
        node.check(), "note"
    )


def test_the_order_of_plugins(node: Node) -> None:
    node.write(before="required /usr/lib/spank_pyxis.so")
    assert "stands after spank_pyxis.so" in words(node.check(), "wrong")
    with node.stack.open("a") as file:
        file.write("optional /usr/lib/spank_pyxis.so\noptional logshipper.so\n")
    assert "stands there once more" in words(node.check(), "wrong")
    node.write()
    with node.stack.open("a") as file:
        file.write("optional /usr/lib/spank_pyxis.so\n")
    assert words(node.check(), "wrong") == ""


def test_required(node: Node) -> None:
    node.write(kind="required")
    assert "is required: where it can't be loaded, no job starts Write `optional`" in words(
        node.check(), "wrong"
    )


def test_included_files(node: Node) -> None:
    """plugstack.conf includes files by relative paths and patterns, and slurm.conf names
    plugstack.conf."""
    folder = node.folder / "stack.d"
    folder.mkdir()
    shutil.move(node.stack, folder / "10-logshipper.conf")
    (folder / "05-pyxis.conf").write_text("optional spank_pyxis.so\n")
    (node.folder / "other.conf").write_text("include stack.d/*.conf\ninclude stack.d/none*\n")
    (node.folder / "more.conf").write_text(f"PlugStackConfig={node.folder}/other.conf\n")
    node.conf.write_text(f'pluginDIR="{node.plugin.parent}"\nInclude more.conf\n')
    findings = node.check()
    assert f"{folder}/10-logshipper.conf:3: stands after spank_pyxis.so" in words(findings, "wrong")
    assert "was built for this Slurm" in words(findings, "ok")


def test_without_the_plugins_line(node: Node) -> None:
    node.stack.write_text("nonsense here\n")
    findings = node.check()
    assert "plugstack.conf:1: Slurm ignores this line" in words(findings, "wrong")
    assert "doesn't load it: no job is captured" in words(findings, "note")
    node.stack.unlink()
    assert "isn't there: no job is captured" in words(node.check(), "note")
    node.conf.write_text("TaskProlog=/usr/libexec/logshipper/task-prolog\n")
    assert "but TaskEpilog isn't set TaskEpilog=.../task-epilog" in words(node.check(), "wrong")
    node.conf.write_text("TaskProlog=/x/task-prolog\nTaskEpilog=/x/task-epilog\n")
    assert words(node.check(), "wrong") == ""
    assert "may be the fallback" in words(node.check(), "note")


def test_another_plugstack_file(node: Node) -> None:
    second_stack = node.folder / "mine.conf"
    second_stack.write_text("required logshipper.so\n")
    assert "mine.conf:1: is required" in words(node.check(str(second_stack)), "wrong")
    node.conf.unlink()
    assert "mine.conf:1: is required" in words(node.check(str(second_stack)), "wrong")


def test_the_plugins_file(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_slurm, "plugin_version", lambda path: (23, 11))
    assert "was built for Slurm 23.11, this one is 22.05: Slurm doesn't load it" in words(
        node.check(), "wrong"
    )
    monkeypatch.setattr(check_slurm, "plugin_version", lambda path: None)
    assert "it can't be told whether it was built for this Slurm" in words(node.check(), "note")
    node.plugin.chmod(0o775)
    assert f"others than root may write {node.plugin}" in words(node.check(), "wrong")
    node.plugin.unlink()
    assert "there is no logshipper.so Install it into Slurm's plugin directory" in words(
        node.check(), "wrong"
    )


def test_a_plugin_of_a_package_for_each_release(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's folder has links to the files in the release's folder."""
    packaged = node.folder / "logshipper" / "slurm-22.05"
    packaged.mkdir(parents=True, mode=0o755)
    for path in (node.plugin, node.keeper):
        shutil.move(path, packaged / path.name)
        path.symlink_to(packaged / path.name)
    findings = node.check()
    assert {finding.level for finding in findings} == {"ok"}, findings
    linked = (
        f"{node.plugin} (that is {packaged / node.plugin.name}) was built for this Slurm, 22.05"
    )
    assert linked in words(findings, "ok")
    packaged.chmod(0o777)
    assert f"others than root may write {packaged}" in words(node.check(), "wrong")
    packaged.chmod(0o755)
    monkeypatch.setattr(check_slurm, "_slurm_version", lambda: (24, 11))
    assert (
        "was built for Slurm 22.05, this one is 24.11: Slurm doesn't load it Install the plugin's package for 24.11"
        in words(node.check(), "wrong")
    )
    (packaged / node.plugin.name).unlink()
    assert "there is no logshipper.so" in words(node.check(), "wrong")


@pytest.mark.parametrize(
    ("slurm", "plugin", "level", "sentence"),
    [
        ((22, 5), (22, 5), "ok", "Slurm 22.05: jobs were run with the plugin on this release"),
        ((20, 11), (0, 0), "ok", "was built for this Slurm, 20.11"),
        ((20, 11), (0, 0), "note", "Slurm 20.11: the plugin was built against this release, and not run; it ran on"),
        ((22, 5), (0, 0), "wrong", "was built for Slurm before 21.08, this one is 22.05"),
        ((99, 5), (99, 5), "note", "Slurm 99.05: the plugin wasn't tried with this release; it ran on 22.05, "),
    ],
)  # fmt: skip
def test_what_was_done_on_a_release(
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
    slurm: tuple[int, int],
    plugin: tuple[int, int],
    level: str,
    sentence: str,
) -> None:
    monkeypatch.setattr(check_slurm, "_slurm_version", lambda: slurm)
    monkeypatch.setattr(check_slurm, "plugin_version", lambda path: plugin)
    assert sentence in words(node.check(), level)


def test_releases_are_those_of_the_documentation() -> None:
    """Rows of the page's table: release, package, `run` or `built` and how."""
    page = (ROOT / "docs" / "slurm-releases.md").read_text()
    section = page.partition("## Slurm releases\n")[2].partition("\n## ")[0]
    rows = re.findall(r"(?m)^\| ([0-9]{2})\.([0-9]{2}) \|[^|]*\| (run|built)\b", section)
    assert {(int(major), int(minor)): done for major, minor, done in rows} == dict(RELEASES)


def test_the_keeper(node: Node) -> None:
    node.keeper.chmod(0o644)
    assert f"the keeper {node.keeper} isn't executable `chmod 755" in words(node.check(), "wrong")
    node.keeper.chmod(0o755)
    os.chown(node.keeper, 1000, 1000)
    assert f"others than root may write {node.keeper}" in words(node.check(), "wrong")
    node.keeper.unlink()
    assert f"the keeper {node.keeper}: no such file" in words(node.check(), "wrong")
    node.plugin.parent.chmod(0o777)
    assert f"others than root may write {node.plugin.parent}" in words(node.check(), "wrong")


def test_the_pythons_version_and_its_folders(node: Node) -> None:
    node.program(node.python, "echo 0.0.9")
    assert f"has logshipper 0.0.9, this is {__version__}" in words(node.check(), "wrong")
    node.program(node.python, "echo ModuleNotFoundError: no logshipper >&2; exit 1")
    assert "can't run logshipper by it: ModuleNotFoundError: no logshipper" in words(
        node.check(), "wrong"
    )
    node.python.chmod(0o700)
    assert "an ordinary user can't run it: " in words(node.check(), "wrong")


def test_a_python_that_hangs(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_slurm, "_PROGRAM_SECS", 0.3)
    node.program(node.python, "exec sleep 100")
    assert "no end within 0.3 s" in words(node.check(), "wrong")


def test_our_own_python_is_a_good_one(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("an ordinary user may not run root's Python; see tests/slurm")
    (finding,) = check_slurm._python(sys.executable)
    assert finding.level == "ok"


def test_the_spool(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.spool.chmod(0o755)
    assert "must be a folder of root's with mode 0711, and is uid 0's with 0755 `chown" in words(
        node.check(), "wrong"
    )
    node.spool.chmod(0o711)
    os.chown(node.spool, 1000, 1000)
    assert "is uid 1000's with" in words(node.check(), "wrong")
    os.chown(node.spool, 0, 0)
    monkeypatch.setattr(check_slurm, "_disk", lambda path: "tmpfs")
    assert "is in memory (tmpfs)" in words(node.check(), "note")
    node.spool.rmdir()
    assert f"spool={node.spool}: no such file or directory Does the agent run?" in words(
        node.check(), "wrong"
    )


def test_the_type_of_a_disk(tmp_path: Path) -> None:
    assert check_slurm._disk("/proc/self") == "proc"
    disk_type = subprocess.run(
        ["stat", "-f", "-c", "%T", "/dev/shm"], capture_output=True, text=True
    ).stdout.strip()
    assert check_slurm._disk("/dev/shm/x") == disk_type
    assert check_slurm._disk(str(tmp_path)) not in ("", "proc")


def test_tracking_without_cgroups(node: Node) -> None:
    node.write(conf="ProctrackType=proctrack/pgid PrologFlags=Alloc,Contain")
    notes = words(node.check(), "note")
    assert "ProctrackType=proctrack/pgid" in notes
    assert "PrologFlags=Alloc,Contain" in notes
    assert "4711.uUID" in notes


# ---- a controller


@pytest.fixture
def controller(node: Node, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(
        check_slurm, "_program", lambda name: "/usr/sbin/slurmctld" if name == "slurmctld" else ""
    )
    ended = node.folder / "ended"
    ended.mkdir()
    node.config = replace(node.config, slurm=SlurmSection(str(ended)))
    monkeypatch.setattr(check_slurm, "ENDED_DIR", str(ended))
    node.program(node.folder / "job-ended", "")
    return node


def test_a_controllers_hook(controller: Node) -> None:
    controller.write(conf=f"JobCompType=jobcomp/script\nJobCompLoc={controller.folder}/job-ended")
    assert [finding.level for finding in controller.check()] == ["ok"]
    controller.write(conf=f"EpilogSlurmctld={controller.folder}/job-ended")
    assert [finding.level for finding in controller.check()] == ["ok"]
    controller.write(conf=f"JobCompType=jobcomp/script\nJobCompLoc={controller.folder}/job-ended\n"
                          f"EpilogSlurmctld={controller.folder}/job-ended")  # fmt: skip
    assert "both call it" in words(controller.check(), "note")


def test_a_hook_that_nobody_calls_or_reads(controller: Node) -> None:
    assert "names no hook that writes there JobCompType=jobcomp/script" in words(
        controller.check(), "wrong"
    )
    controller.write(conf=f"JobCompType=jobcomp/none\nJobCompLoc={controller.folder}/job-ended")
    assert "names no hook" in words(controller.check(), "wrong")
    controller.write(conf=f"EpilogSlurmctld={controller.folder}/job-ended")
    controller.config = replace(controller.config, slurm=SlurmSection())
    assert "EpilogSlurmctld: nobody takes what the hook writes [slurm] ended_dir = " in words(
        controller.check(), "wrong"
    )


def test_hook_and_agent_mean_two_folders(controller: Node) -> None:
    elsewhere = controller.folder / "elsewhere"
    controller.config = replace(controller.config, slurm=SlurmSection(str(elsewhere)))
    controller.write(conf=f"EpilogSlurmctld={controller.folder}/job-ended")
    text = words(controller.check(), "wrong")
    assert f"job-ended doesn't write into [slurm] ended_dir, {elsewhere}" in text
    assert "isn't there The agent makes it" in text
    elsewhere.mkdir()
    controller.program(
        controller.folder / "own", f"exec {controller.folder}/job-ended '{elsewhere}'"
    )
    controller.write(conf=f"EpilogSlurmctld={controller.folder}/own")
    assert [finding.level for finding in controller.check()] == ["ok"]
    (controller.folder / "own").chmod(0o644)
    assert "isn't executable" in words(controller.check(), "wrong")


# ---- the parts


def test_defaults_and_ranges_are_the_plugins_own() -> None:
    text = SETTINGS.read_text()
    defaults = dict(re.findall(r"^\s+\.(\w+) = \"?([^\",]+)\"?,", text, re.MULTILINE))
    assert {**defaults, "keeper": ""} == check_slurm.DEFAULTS
    ranges = re.findall(r'\{"(\w+)", NULL, &settings->\w+, (\d+), (\d+)\}', text)
    assert {
        name: (int(minimum), int(maximum)) for name, minimum, maximum in ranges
    } == check_slurm.RANGES
    assert set(re.findall(r'^\s+\{"(\w+)",', text, re.MULTILINE)) == set(check_slurm.DEFAULTS)


def test_odd_files(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_bytes(
        b'A=1 B = 2 # C=3\nd=x\\\ny\nInclude slurm.conf\ninclude /nowhere\nTaskProlog="/a b"\n\xff\n=\n'
    )
    assert read_conf(str(conf)) == {"a": "1", "b": "2", "d": "x", "taskprolog": "/a b"}
    stack = tmp_path / "plugstack.conf"
    stack.write_text("include plugstack.conf\noptional a.so x=1 # y\n\noptional\n")
    plugin_stack = read_stack(str(stack))
    assert len(plugin_stack.plugins) <= MAX_FILES
    assert plugin_stack.plugins[0][1:] == ("optional", "a.so", ("x=1",))
    assert read_stack("/nowhere") == ([], [])


def test_a_plugins_version(binaries: Path, tmp_path: Path) -> None:
    built = binaries / "logshipper.so"
    result = (
        subprocess.run(["slurmd", "-V"], capture_output=True, text=True)
        if shutil.which("slurmd")
        else None
    )
    version = plugin_version(str(built))
    assert version is not None
    assert result is None or f"{version[0]}.{version[1]:02d}." in result.stdout
    whole = built.read_bytes()
    short_copy = tmp_path / "cut.so"
    for size in (0, 5, 63, 100, len(whole) // 2, len(whole) - 100):
        short_copy.write_bytes(whole[:size])
        assert plugin_version(str(short_copy)) in (None, version)
    for path in ("/bin/sh", "/etc/passwd", "/nowhere"):
        assert plugin_version(path) is None


def test_the_commands_option(
    node: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(
        '[agent]\nsocket = ""\n[loki]\nurl = "http://127.0.0.1:1"\ntimeout_secs = 0.2\n[metrics]\nlisten = ""\n'
    )
    second_stack = node.folder / "mine.conf"
    second_stack.write_text("required logshipper.so\n")
    assert main(["check", "--config", str(file), "--plugstack", str(second_stack)]) == 1
    assert "mine.conf:1: is required" in capsys.readouterr().out

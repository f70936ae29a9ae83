"""Links from Slurm's plugin folder to the plugin of the installed release, while packages of Slurm
and of the plugin come, change and go."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from logshipper_ingest.slurm import files, plugin_links
from logshipper_ingest.slurm.plugin_links import NAMES, main, slurm_release

pytestmark = pytest.mark.skipif(
    subprocess.run(["sh", "-c", "command -v gcc"], capture_output=True).returncode != 0,
    reason="gcc makes the plugins here",
)
SHARED_OBJECTS: dict[int, bytes] = {}


def shared_object(release: str, folder: Path) -> bytes:
    """Return a plugin of Slurm's, of which only the release is real."""
    major, minor = map(int, release.split("."))
    number = major << 16 | minor << 8 | 5
    if number not in SHARED_OBJECTS:
        source, place = folder / "p.c", folder / "p.so"
        source.write_text(f"const unsigned int plugin_version = {number};\n")
        subprocess.run(["gcc", "-shared", "-o", place, source], check=True)
        SHARED_OBJECTS[number] = place.read_bytes()
    return SHARED_OBJECTS[number]


class Machine:
    """Slurm's plugin folder, the packages' folder, and plugstack.conf."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.slurm = folder / "slurm-wlm"
        self.packages = folder / "usr/lib/logshipper"
        self.stack = folder / "plugstack.conf"
        self.slurm.mkdir()
        conf = folder / "slurm.conf"
        conf.write_text(f"PluginDir={self.slurm}\n")
        monkeypatch.setenv("SLURM_CONF", str(conf))
        monkeypatch.setattr(plugin_links, "_PACKAGED", (str(self.packages),))
        ours = re.compile(re.escape(str(self.packages)) + r"/slurm-[0-9.]+/[^/]+")
        monkeypatch.setattr(plugin_links, "_OURS", ours)
        monkeypatch.setattr(
            plugin_links, "plugin_folders", lambda options: files.plugin_folders(options) if options else []
        )  # fmt: skip
        self.patch = monkeypatch

    def install_slurm(self, release: str) -> None:
        for name in ("auth_munge", "proctrack_cgroup", "task_affinity"):
            (self.slurm / f"{name}.so").write_bytes(shared_object(release, self.folder))

    def remove_slurm(self) -> None:
        for path in self.slurm.glob("[a-km-z]*.so"):
            path.unlink()

    def install_plugin(self, release: str) -> None:
        folder = self.packages / f"slurm-{release}"
        folder.mkdir(parents=True)
        for name in NAMES:
            (folder / name).write_bytes(shared_object(release, self.folder))

    def remove_plugin(self, release: str) -> None:
        folder = self.packages / f"slurm-{release}"
        for name in NAMES:
            (folder / name).unlink()
        folder.rmdir()

    def link(self, *arguments: str) -> int:
        self.patch.setattr(sys, "argv", ["link-slurm-plugin", *arguments])
        return main()

    def linked(self) -> set[str]:
        """Return the release of the linked plugin, if there is one."""
        targets = [
            os.readlink(self.slurm / name) for name in NAMES if (self.slurm / name).is_symlink()
        ]
        assert len(targets) in (0, len(NAMES)), targets
        assert all((self.slurm / name).exists() for name in NAMES) == bool(targets), "no dead links"
        return {re.findall(r"slurm-([0-9.]+)/", target)[0] for target in targets}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_the_plugin_follows_slurm(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """Install and remove packages in a possible order."""
    machine.install_slurm("22.05")
    assert machine.link() == 0
    assert machine.linked() == set(), "nothing is installed"
    machine.install_plugin("22.05")
    machine.install_plugin("24.11")
    assert machine.link() == 0
    assert machine.linked() == {"22.05"}
    assert "Slurm 22.05 loads" in capsys.readouterr().out
    assert machine.link() == 0
    assert capsys.readouterr() == ("", ""), "nothing changed, nothing is said"

    machine.install_slurm("24.11")
    assert machine.link() == 0
    assert machine.linked() == {"24.11"}

    machine.install_slurm("25.05")
    assert machine.link() == 0
    assert machine.linked() == set()
    told = capsys.readouterr().err
    assert "install logshipper-slurm-25.05" in told
    assert "22.05, 24.11" in told

    machine.install_slurm("22.05")
    machine.link()
    assert machine.linked() == {"22.05"}
    machine.remove_plugin("22.05")
    machine.link()
    assert machine.linked() == set()


def test_slurm_or_logshipper_goes(machine: Machine) -> None:
    machine.install_slurm("23.11")
    machine.install_plugin("23.11")
    machine.link()
    machine.remove_slurm()
    assert machine.link() == 0
    assert machine.linked() == set(), "Slurm went"
    machine.install_slurm("23.11")
    machine.link()
    assert machine.link("--remove") == 0
    assert machine.linked() == set(), "logshipper goes"
    assert sorted(machine.slurm.glob("logshipper*")) == []


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_an_admin_put_there_stays(
    machine: Machine, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make slurm-plugin` put it there."""
    machine.install_slurm("23.11")
    machine.install_plugin("23.11")
    own = machine.slurm / "logshipper.so"
    if kind == "file":
        own.write_bytes(shared_object("23.11", machine.folder))
    else:
        own.symlink_to(machine.slurm / "task_affinity.so")
    machine.link()
    assert own.resolve().parent == machine.slurm
    assert f"{own} belongs to no package" in capsys.readouterr().err
    machine.link("--remove")
    assert own.exists()


def test_a_plugstack_that_names_what_isnt_there(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.stack.write_text("# ours\noptional logshipper.so cluster=hpc\n")
    machine.install_slurm("23.11")
    machine.install_plugin("22.05")
    machine.link()
    assert f"{machine.stack}:2 names logshipper.so" in capsys.readouterr().err
    machine.install_plugin("23.11")
    machine.link()
    assert "names logshipper.so" not in capsys.readouterr().err
    machine.link("--remove")
    assert f"{machine.stack}:2 names logshipper.so" in capsys.readouterr().err


def test_the_release_is_that_of_most_plugins(machine: Machine) -> None:
    """A plugin of a third party, older than an upgrade, doesn't count; nor does logshipper's
    own."""
    machine.install_slurm("24.05")
    (machine.slurm / "a_spank_of_others.so").write_bytes(shared_object("22.05", machine.folder))
    (machine.slurm / "logshipper.so").write_bytes(shared_object("22.05", machine.folder))
    (machine.slurm / "libslurmfull.so").write_bytes(b"\x7fELF, and damaged")
    assert slurm_release(str(machine.slurm)) == "24.05"
    assert slurm_release(str(machine.folder / "nowhere")) == ""


def test_a_folder_that_is_named(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """The admin's own build of Slurm has its slurm.conf elsewhere."""
    machine.install_slurm("22.05")
    machine.install_plugin("22.05")
    machine.patch.setenv("SLURM_CONF", "/nowhere")
    machine.link()
    assert machine.linked() == set()
    assert machine.link(str(machine.slurm)) == 0
    assert machine.linked() == {"22.05"}
    assert machine.link("--help") == 2
    assert "link-slurm-plugin [FOLDER ...]" in capsys.readouterr().err


def test_a_folder_that_cant_be_written(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.install_slurm("22.05")
    machine.install_plugin("22.05")
    (machine.slurm / "logshipper.so.new").mkdir()
    assert machine.link() == 1
    assert f"logshipper: {machine.slurm}: " in capsys.readouterr().err

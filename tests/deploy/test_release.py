"""`make release`: two builds of a commit, the tag, the software bill of materials, and refusals."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.tools.sources import ROOT, copy_sources
from tests.tools.tools_of_others import needs_program_of_others, python_of
from tests.tools.waiting import scaled

pytestmark = [needs_program_of_others, pytest.mark.timeout(400)]

RELEASE_SECS = 150.0
COMMIT_SECS = 1790000000  # since 1970
VERSION = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0]
IDENTITY = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in {
        "NAME": "test",
        "EMAIL": "test@example.org",
        "DATE": f"{COMMIT_SECS} +0000",
    }.items()
} | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
ODD = {"TZ": "Asia/Tokyo", "LANG": "de_DE.UTF-8", "PYTHONHASHSEED": "7", "COLUMNS": "40"}


def git(clone: Path, *words: str) -> str:
    return subprocess.check_output(["git", *words], cwd=clone, env=os.environ | IDENTITY, text=True)


def commit(clone: Path) -> None:
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "State of the tests")


def replace(path: Path, pattern: str, text: str) -> None:
    changed, count = re.subn(pattern, text, path.read_text(), count=1, flags=re.MULTILINE)
    assert count, pattern
    path.write_text(changed)


def make_release(
    clone: Path, *options: str, umask: int = 0o022, **environment: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, clone / "deploy" / "packages" / "release.py", *options],
        env=os.environ | IDENTITY | environment, umask=umask, cwd="/", stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=scaled(RELEASE_SECS),
    )  # fmt: skip


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the tested sources in one commit, and a dated changelog."""
    python_of("release")
    python_of("runtime")
    place = tmp_path_factory.mktemp("release") / "clone"
    copy_sources(place)
    heading = f"## [{VERSION}] - 2026-11-30"
    replace(place / "CHANGELOG.md", rf"^## \[{re.escape(VERSION)}\].*$", heading)
    git(place, "init", "--quiet", "--initial-branch", "main")
    commit(place)
    return place


@pytest.fixture
def copy(clone: Path, tmp_path: Path) -> Path:
    git(tmp_path, "clone", "--quiet", "--no-tags", str(clone), "copy")
    return tmp_path / "copy"


def test_two_builds_have_the_same_bytes_and_the_tag_comes_last(clone: Path, copy: Path) -> None:
    first = make_release(clone, "--parts", "python")
    assert first.returncode == 0, first.stdout + first.stderr
    second = make_release(copy, "--parts", "python", "--no-tag", umask=0o077, **ODD)
    assert second.returncode == 0, second.stdout + second.stderr
    folders = [place / "dist" / VERSION for place in (clone, copy)]
    names = [sorted(path.name for path in folder.iterdir()) for folder in folders]
    wheel, sbom = f"logshipper-{VERSION}-py3-none-any.whl", f"logshipper-{VERSION}.cdx.json"
    sdist = f"logshipper-{VERSION}.tar.gz"
    assert names == [["SHA256SUMS", wheel, sbom, sdist]] * 2
    for name in names[0]:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folders[0], check=True)
    assert git(clone, "cat-file", "-t", f"v{VERSION}") == "tag\n"
    assert git(clone, "rev-parse", f"v{VERSION}^{{commit}}") == git(clone, "rev-parse", "HEAD")
    assert git(copy, "tag", "--list") == ""
    assert git(clone, "status", "--porcelain") == ""
    check_sdist(folders[0] / sdist)
    check_sbom(folders[0] / sbom)


def check_sdist(path: Path) -> None:
    with tarfile.open(path) as sdist:
        members = sdist.getmembers()
    assert {(member.uid, member.mode & 0o777) for member in members} <= {(0, 0o644), (0, 0o755)}
    assert {member.mtime for member in members} == {COMMIT_SECS}
    assert len(members) > 500


def check_sbom(path: Path) -> None:
    """The list has each package of an installation, with its version, and no path of the machine."""
    sbom = json.loads(path.read_text())
    main = sbom["metadata"]["component"]
    assert (main["name"], main["version"]) == ("logshipper", VERSION)
    listed = {re.sub(r"[-_.]+", "-", part["name"]).lower(): part for part in sbom["components"]}
    lock = (ROOT / "requirements" / "runtime.lock").read_text()
    locked = dict(re.findall(r"^([a-z][\w.-]*)==(\S+)", lock, re.MULTILINE))
    assert {name: part["version"] for name, part in listed.items()} == locked
    assert sum("licenses" in part for part in listed.values()) > 0.9 * len(listed)
    assert str(ROOT) not in path.read_text()
    assert sys.prefix not in path.read_text()


def refusal(clone: Path, *options: str, path: str = os.environ["PATH"]) -> str:
    done = make_release(clone, *options, PATH=path)
    assert done.returncode == 1, done.stdout
    assert not (clone / "dist").exists()
    assert git(clone, "tag", "--list", "v0*") == ""
    return done.stderr


def test_a_changed_clone_is_refused(copy: Path) -> None:
    (copy / "new.txt").write_text("")
    assert re.search(r"uncommitted changes; commit or remove them:\n.* new.txt", refusal(copy))


def test_a_version_without_a_dated_heading_is_refused(copy: Path) -> None:
    changelog = copy / "CHANGELOG.md"
    replace(changelog, r"^## \[.*$", f"## [{VERSION}], not yet released")
    commit(copy)
    assert "has no date; write `## [" in refusal(copy)
    replace(changelog, r"^## \[.*$", "## [9.9.9] - 2026-11-30")
    commit(copy)
    assert f"has no heading of {VERSION}" in refusal(copy, "--no-tag")


def test_different_versions_are_refused(copy: Path) -> None:
    replace(copy / "CITATION.cff", "^version: .*$", "version: 9.9.9")
    commit(copy)
    assert "'CITATION.cff': '9.9.9'" in refusal(copy)


def test_a_tag_of_another_commit_is_refused(copy: Path) -> None:
    git(copy, "tag", f"v{VERSION}")
    (copy / "new.txt").write_text("")
    commit(copy)
    done = make_release(copy)
    assert done.returncode == 1
    assert "belongs to another commit; set a new version" in done.stderr


def test_a_missing_checker_is_named_with_its_package(copy: Path, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    git_program = shutil.which("git")
    assert git_program
    (programs / "git").symlink_to(git_program)
    message = refusal(copy, "--parts", "deb,rpm", path=str(programs))
    assert "lintian (Debian: apt install lintian)" in message
    assert "rpmlint (Debian: apt install rpmlint)" in message
    assert "PARTS=python" in message

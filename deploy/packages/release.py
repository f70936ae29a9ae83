"""Build, check and tag a release of the committed state (`make release`; docs/releasing.md).

    python deploy/packages/release.py [--parts python,deb,rpm] [--no-tag]

The files come into dist/VERSION. Two builds of one commit by the same tools have the same bytes.
Needs .venv/release and .venv/runtime (requirements/tool.sh).
"""

import argparse
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RPMLINT = ROOT / "deploy" / "packages" / "rpm" / "rpmlint.toml"
PARTS = ("python", "deb", "rpm")
RPM_PYTHONS = {"el8": "3.11", "el9": "3.11", "el10": "3.12"}  # as in build.sh
TOOLS: dict[str, dict[str, str]] = {  # programs and their Debian packages
    "python": {},
    "deb": {"dpkg-deb": "dpkg", "lintian": "lintian"},
    "rpm": {"rpmbuild": "rpm", "rpmlint": "rpmlint"},
}
VERSIONS = {  # files that name the version
    "pyproject.toml": r'^version = "(.+)"$',
    "logshipper/__init__.py": r'^__version__ = "(.+)"$',
    "CITATION.cff": r"^version: (.+)$",
}


class Refused(Exception):
    """str: fault and remedy."""


def run(command: Sequence[str | Path], **environment: str) -> str:
    """Run a command in the clone and return its standard output. Raises Refused."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        words = " ".join(map(str, command))
        raise Refused(
            f"exit code {done.returncode} of `{words}`:\n{done.stdout}{done.stderr}".rstrip()
        )
    return done.stdout


@contextmanager
def step(text: str) -> Iterator[None]:
    print(f"{text} ...", end=" ", flush=True)
    begin = time.monotonic()
    try:
        yield
    except BaseException:
        print("failed", flush=True)
        raise
    print(f"{time.monotonic() - begin:.0f} s", flush=True)


def version_of(tag: bool) -> str:
    """Return the version, which all files must share. tag: require its date. Raises Refused."""
    found = {
        name: match[1] if (match := re.search(pattern, (ROOT / name).read_text(), re.M)) else ""
        for name, pattern in VERSIONS.items()
    }
    if len(set(found.values())) != 1:
        raise Refused(f"the files name different versions: {found}; give them the same one")
    version = found["pyproject.toml"]
    headings = re.findall(r"^## .*$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    heading = next((line for line in headings if line.startswith(f"## [{version}]")), "")
    wanted = f"## [{version}] - YYYY-MM-DD"
    if not heading:
        raise Refused(f"CHANGELOG.md has no heading of {version}; write `{wanted}`")
    if tag and not re.fullmatch(r"## \[.+\] - \d{4}-\d\d-\d\d", heading):
        raise Refused(f"CHANGELOG.md: `{heading}` has no date; write `{wanted}`, or give TAG=no")
    return version


def check_clone(tag: str) -> None:
    """Raise Refused if the clone has changes, or if the tag belongs to another commit."""
    if changes := run(["git", "status", "--porcelain"]):
        raise Refused(f"the clone has uncommitted changes; commit or remove them:\n{changes}")
    commit = commit_of(tag)
    if commit and commit != commit_of("HEAD"):
        raise Refused(f"the tag {tag} belongs to another commit; set a new version")


def commit_of(name: str) -> str:
    """Return a tag's or a branch's commit, or ""."""
    command = ["git", "rev-parse", "--quiet", "--verify", f"{name}^{{commit}}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def check_tools(parts: Sequence[str]) -> None:
    """Raise Refused if a program is missing."""
    for name in ("release", "runtime"):
        if not (Path(sys.prefix) / name).is_dir():
            raise Refused(f".venv/{name} is missing; run requirements/tool.sh {name}")
    missing = [
        f"{program} (Debian: apt install {package})"
        for part in parts
        for program, package in TOOLS[part].items()
        if shutil.which(program) is None
    ]
    if missing:
        raise Refused(
            f"missing: {', '.join(missing)}; root's `make release` installs them on Debian; "
            "PARTS=python leaves these packages out"
        )


def export(folder: Path) -> None:
    """Write the commit's files into this folder, with the environment of the clone."""
    archive = folder.with_suffix(".tar")
    run(["git", "-c", "tar.umask=0022", "archive", "--output", archive, "HEAD"])
    folder.mkdir()
    run(["tar", "-xf", archive, "-C", folder])
    (folder / ".venv").symlink_to(sys.prefix)


def build_python(source: Path, out: Path, epoch: int) -> None:
    """Build the sdist, and from it the wheel."""
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", build, out], cwd=source, check=True, stdout=subprocess.DEVNULL
    )
    (sdist,) = out.glob("*.tar.gz")
    normalize(sdist, epoch)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation"]
    run([*pip, "--wheel-dir", out, sdist])


def normalize(sdist: Path, epoch: int) -> None:
    """Give all members of an sdist the commit's time, root as owner and a fixed order."""
    with tarfile.open(sdist) as tar:
        members = [(member, tar.extractfile(member)) for member in tar.getmembers()]
        contents = [(member, file.read() if file else b"") for member, file in members]
    with (
        sdist.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for member, content in sorted(contents, key=lambda entry: entry[0].name):
            entry = tarfile.TarInfo(member.name)
            entry.type, entry.size, entry.mtime = member.type, len(content), epoch
            entry.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            tar.addfile(entry, io.BytesIO(content))


def build_packages(kind: str, source: Path, out: Path, environment: Mapping[str, str]) -> None:
    targets = rpm_targets() if kind == "rpm" else [""]
    for target in targets:
        more = {"TARGET": target} if target else {}
        run([source / "deploy/packages/build.sh", kind, out], **environment, **more)


def rpm_targets() -> list[str]:
    """Return the Enterprise Linux releases whose Python is here. Raises Refused for none."""
    found = [target for target, python in RPM_PYTHONS.items() if has_python(python)]
    if not found:
        raise Refused("RPMs need Python 3.11 or 3.12: install one, or give PARTS=python,deb")
    for target in sorted(RPM_PYTHONS.keys() - found):
        print(f"(without {target}: no Python {RPM_PYTHONS[target]})", end=" ", flush=True)
    return found


def has_python(version: str) -> bool:
    show = f"import sys; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
    candidates = (f"/usr/bin/python{version}", f"python{version}", sys.executable)
    return any(
        shutil.which(python)
        and not subprocess.run([python, "-c", show], capture_output=True, check=False).returncode
        for python in candidates
    )


def write_sbom(source: Path, path: Path) -> None:
    """List the packages of an installation (requirements/runtime.lock) as CycloneDX JSON."""
    tools = Path(sys.prefix)
    command: list[str | Path] = [tools / "release/bin/cyclonedx-py", "environment"]
    command += ["--output-reproducible", "--pyproject", source / "pyproject.toml", "--of", "JSON"]
    run([*command, "--output-file", path, tools / "runtime/bin/python"], PYTHONPATH="")


def check_files(parts: Sequence[str], out: Path) -> None:
    """Check the packages with twine, lintian and rpmlint. Raises Refused for an error."""
    if "python" in parts:
        twine = Path(sys.prefix) / "release/bin/twine"
        with step("Checking wheel and sdist: twine check --strict"):
            run([twine, "check", "--strict", *out.glob("*.whl"), *out.glob("*.tar.gz")])
    if "deb" in parts:
        root = ["--allow-root"] if os.geteuid() == 0 else []
        with step("Checking the Debian packages: lintian"):
            warnings = run(["lintian", *root, "--fail-on", "error", *sorted(out.glob("*.deb"))])
        print(warnings, end="")
    if "rpm" in parts:
        with step("Checking the RPMs: rpmlint"):
            summary = run(["rpmlint", "--config", RPMLINT, *sorted(out.glob("*.rpm"))])
        print(*summary.splitlines()[-1:])


def write_checksums(out: Path) -> None:
    """Write SHA256SUMS, in the form of sha256sum."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(out.iterdir())
    ]
    (out / "SHA256SUMS").write_text("".join(lines))


def release(parts: Sequence[str], tag: bool) -> Path:
    """Make a release and return its folder. Raises Refused."""
    version = version_of(tag)
    name = f"v{version}"
    check_clone(name)
    check_tools(parts)
    os.umask(0o022)
    epoch = int(run(["git", "log", "-1", "--format=%ct"]))
    environment = {"SOURCE_DATE_EPOCH": str(epoch), "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    os.environ.update(environment)
    with tempfile.TemporaryDirectory(prefix="logshipper-release-") as scratch:
        source, out = Path(scratch, "source"), Path(scratch, version)
        out.mkdir()
        with step(f"Exporting commit {run(['git', 'rev-parse', '--short', 'HEAD']).strip()}"):
            export(source)
        # tools import the exported code, not the clone's
        folders = [source, *(source / name for name in ("ingest", "observe", "grafana"))]
        environment["PYTHONPATH"] = os.pathsep.join(map(str, folders))
        if "python" in parts:
            with step("Building sdist and wheel"):
                build_python(source, out, epoch)
        for kind in ("deb", "rpm"):
            if kind in parts:
                with step(f"Building the {kind}s"):
                    build_packages(kind, source, out, environment)
        check_files(parts, out)
        with step("Writing the SBOM and the checksums"):
            write_sbom(source, out / f"logshipper-{version}.cdx.json")
            write_checksums(out)
        folder = ROOT / "dist" / version
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(out, folder)
    if tag and not commit_of(name):
        run(["git", "tag", "--annotate", "--message", f"logshipper {version}", name])
        print(f"Tagged {name}.")
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(prog="release.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", default=",".join(PARTS), help="default: %(default)s")
    parser.add_argument("--no-tag", action="store_true", help="a rehearsal: make no tag")
    options = parser.parse_args()
    parts = re.split(r"[,\s]+", options.parts)
    if not set(parts) <= set(PARTS):
        parser.error(f"--parts: choose from {', '.join(PARTS)}")
    try:
        folder = release(parts, not options.no_tag)
    except Refused as error:
        print(f"make release: {error}", file=sys.stderr)
        return 1
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:>11,} {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

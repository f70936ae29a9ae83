"""Turn the installed project into version VERSION as dpkg does, in the machine. First write all
files next to their places, then rename each, then remove the old version's other files.

Each module reports to MIXED if a process of another version loads it. Processes that already run
must have loaded everything they need.
"""

import compileall
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE, SUFFIX = "logshipper_*.deb", ".dpkg-new"
MIXED = Path("/run/vm-mixed")
TRAP = """
import sys as _sys
if getattr(_sys.modules.get("logshipper"), "__version__", {version!r}) != {version!r}:
    try:
        with open("{place}/" + __name__, "a") as _file:
            _file.write(" ".join(_sys.argv) + chr(10))
    except OSError:
        pass
"""


def content_of(name: str, content: bytes, version: str) -> bytes:
    """Return a file of the package with the version's content."""
    if name == "logshipper/__init__.py":
        return re.sub(rb'__version__ = ".*"', f'__version__ = "{version}"'.encode(), content)
    if name.endswith(".dist-info/METADATA"):
        return re.sub(rb"(?m)^Version: .*$", f"Version: {version}".encode(), content)
    if name.endswith(".py"):
        return content + TRAP.format(version=version, place=MIXED).encode()
    return content


def replace(site: Path, source: Path, version: str) -> None:
    """Replace the files installed in `site`. source: the package's folder for that place."""
    folders = set(site.glob("logshipper-*.dist-info"))
    places = []
    for path in source.glob("logshipper*/**/*"):
        name = str(path.relative_to(source))
        if path.is_dir() or path.suffix == ".pyc":
            continue
        own = re.sub(r"^logshipper-[^/]*(\.dist-info/)", rf"logshipper-{version}\1", name)
        place = site / own
        place.parent.mkdir(parents=True, exist_ok=True)
        place.with_name(place.name + SUFFIX).write_bytes(
            content_of(name, path.read_bytes(), version)
        )
        places.append(place)
    for place in places:
        place.with_name(place.name + SUFFIX).rename(place)
    for folder in folders - {site / f"logshipper-{version}.dist-info"}:
        shutil.rmtree(folder)


def main(version: str) -> None:
    MIXED.mkdir(exist_ok=True)
    MIXED.chmod(0o1777)
    (site,) = Path("/opt/logshipper/lib").glob("python3.*/site-packages")
    (package,) = Path("/root/packages").glob(PACKAGE)
    with tempfile.TemporaryDirectory() as tree:
        subprocess.run(["dpkg-deb", "--extract", str(package), tree], check=True)
        replace(site, Path(tree, *site.parts[1:]), version)
    for name in ("logshipper", "logshipper_ingest"):  # packages that run on a node
        compileall.compile_dir(site / name, quiet=2)
    for pattern in ("logshipper*.so", "logshipper-keeper"):
        for place in Path("/usr/lib").rglob(pattern):
            if place.is_file() and "slurm" in str(place):
                scratch = place.with_name(place.name + SUFFIX)
                scratch.write_bytes(place.read_bytes())
                scratch.chmod(place.stat().st_mode & 0o7777)
                os.rename(scratch, place)


if __name__ == "__main__":
    main(sys.argv[1])

"""Lays out what the package `logshipper` installs: the environment in /opt/logshipper out of
wheels, links, configuration, unit, hooks, completion, documentation.

    python tree.py deb|rpm VERSION WHEELS TREE    VERSION: of the Python, such as 3.11; WHEELS: folder of wheels;
                                                  TREE: made, the root of what is installed

The environment is for /usr/bin/pythonVERSION, whatever Python runs this. Byte code is compiled by
build.sh afterwards.
"""

import configparser
import email.parser
import os
import re
import shutil
import stat
import sys
import zipfile
from collections.abc import Iterable, Iterator
from email.message import Message
from pathlib import Path

from logshipper_observe.commands.upkeep.completion import PROGRAMS, completion_script

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = ROOT / "deploy" / "packages"
OPT = Path("opt/logshipper")
PAGES = ["README.md", "CHANGELOG.md", "deploy/slurm/README.md"]
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)")
ZSH = {"deb": "vendor-completions", "rpm": "site-functions"}
# -I: what a module or a user sets for other Pythons (PYTHONPATH, ~/.local) isn't ours
SCRIPT = """#!/{opt}/bin/python -I
import sys

from {module} import {function}

sys.exit({function}())
"""
PYVENV = """home = /usr/bin
include-system-site-packages = false
version = {version}
executable = /usr/bin/python{version}
"""
COMMENT = """Comment:
 /opt/logshipper holds packages of the Python Package Index, unchanged, in the versions below. The texts of their
 licences lie in *.dist-info there.
"""
BUNDLED = """
Files: {files}
Copyright: its authors: {dist_info}
License: {license}
Comment: {name} {version}
"""


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def write_script(path: Path, module: str, function: str) -> None:
    write(path, SCRIPT.format(opt=OPT, module=module, function=function), 0o755)


def copy(source: Path, target: Path, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def unpack(wheel: Path, site: Path) -> None:
    """Into site-packages; scripts of others aren't ours to offer. Raises SystemExit for what would
    need more."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            top, _, rest = name.partition("/")
            if name.endswith("/") or (
                top.endswith(".data") and rest.startswith(("scripts/", "data/"))
            ):
                continue
            if top.endswith(".data"):
                kind, _, name_within = rest.partition("/")
                if kind not in ("purelib", "platlib"):
                    raise SystemExit(f"{wheel.name}: nobody knows where {name} should go")
                target = site / name_within
            else:
                target = site / name
            if not target.resolve().is_relative_to(site.resolve()):
                raise SystemExit(f"{wheel.name}: {name} is outside of it")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))


def environment(version: str, wheels: Path, tree: Path) -> Path:
    """Makes /opt/logshipper; returns its site-packages."""
    opt = tree / OPT
    python = f"python{version}"
    site = opt / "lib" / python / "site-packages"
    site.mkdir(parents=True)
    (opt / "bin").mkdir()
    write(opt / "pyvenv.cfg", PYVENV.format(version=version))
    (opt / "bin" / "python").symlink_to(f"/usr/bin/{python}")
    for name in ("python3", python):
        (opt / "bin" / name).symlink_to("python")
    (opt / "lib64").symlink_to("lib")  # where Enterprise Linux looks
    for wheel in sorted(wheels.glob("*.whl")):
        unpack(wheel, site)
    (own,) = site.glob("logshipper-*.dist-info")
    points = configparser.ConfigParser()
    points.read(own / "entry_points.txt")
    for name, place in points["console_scripts"].items():
        module, _, function = place.partition(":")
        write_script(opt / "bin" / name, module, function)
        link = tree / "usr" / "bin" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"/{OPT}/bin/{name}")
    return site


def completion(kind: str, tree: Path) -> None:
    share = tree / "usr" / "share"
    write(share / "bash-completion/completions/logshipper", completion_script(PROGRAMS, "bash"))
    for name in PROGRAMS[1:]:
        (share / "bash-completion/completions" / name).symlink_to(PROGRAMS[0])
    write(share / f"zsh/{ZSH[kind]}/_logshipper", completion_script(PROGRAMS, "zsh"))
    for name in PROGRAMS:  # fish looks for a file of the program's name
        write(share / f"fish/vendor_completions.d/{name}.fish", completion_script([name], "fish"))


def configuration(tree: Path) -> None:
    copy(ROOT / "deploy/agent.toml", tree / "etc/logshipper/agent.toml")
    copy(HERE / "site.toml", tree / "etc/logshipper/site.toml")
    copy(HERE / "plugstack.conf", tree / "usr/share/logshipper/plugstack.conf")
    copy(
        ROOT / "deploy/systemd/logshipper-agent.service",
        tree / "usr/lib/systemd/system/logshipper-agent.service",
    )
    copy(ROOT / "deploy/systemd/logshipper.tmpfiles", tree / "usr/lib/tmpfiles.d/logshipper.conf")
    for hook in sorted(
        [*(ROOT / "deploy/slurm/hooks").glob("*"), *(ROOT / "deploy/launchers").glob("*")]
    ):
        if hook.is_file():
            mode = 0o755 if hook.stat().st_mode & stat.S_IXUSR else 0o644
            copy(hook, tree / "usr/libexec/logshipper" / hook.name, mode)
    write_script(
        tree / "usr/libexec/logshipper/link-slurm-plugin",
        "logshipper_ingest.slurm.plugin_links",
        "main",
    )


def bundled(site: Path) -> Iterator[tuple[Path, Message]]:
    """The dist-info and the metadata of each bundled package."""
    for dist_info in sorted(site.glob("*.dist-info")):
        if not dist_info.name.startswith("logshipper-"):
            yield (
                dist_info,
                email.parser.HeaderParser().parsestr((dist_info / "METADATA").read_text()),
            )


def license_of(metadata: Message) -> str:
    """As its metadata names it: an SPDX expression, or the first line of an older field."""
    told = metadata["License-Expression"] or metadata["License"] or ""
    classifiers = [
        line.rpartition(":: ")[2]
        for line in metadata.get_all("Classifier", [])
        if "License ::" in line
    ]
    return (told.strip().splitlines() or classifiers or ["see its text"])[0]


def linked(pages: Iterable[Path]) -> set[Path]:
    """Pages, and all that they link to, paths from ROOT. Raises SystemExit for a link that leads
    nowhere."""
    found, waiting = set[Path](), set(pages)
    while waiting:
        page = waiting.pop()
        found.add(page)
        for link in LINK.findall((ROOT / page).read_text()) if page.suffix == ".md" else []:
            target = Path(os.path.normpath(page.parent / link))
            if target.is_absolute() or ".." in target.parts or not (ROOT / target).is_file():
                raise SystemExit(f"{page}: {link} is no file that could be packaged")
            waiting |= {target} - found
    return found


def documentation(site: Path, tree: Path) -> None:
    doc = tree / "usr/share/doc/logshipper"
    text = (HERE / "copyright").read_text() + COMMENT
    place = site.relative_to(tree)
    for dist_info, metadata in bundled(site):
        tops = sorted(
            {
                line.split(",")[0].split("/")[0]
                for line in (dist_info / "RECORD").read_text().splitlines()
            }
        )
        files = " ".join(f"{place}/{top}" for top in tops if top not in ("..", ""))
        text += BUNDLED.format(
            files=files, dist_info=f"/{place}/{dist_info.name}", license=license_of(metadata), name=metadata["Name"],
            version=metadata["Version"],
        )  # fmt: skip
    write(doc / "copyright", text)
    copy(ROOT / "LICENSE", doc / "LICENSE")
    pages = [*map(Path, PAGES), *(page.relative_to(ROOT) for page in (ROOT / "docs").glob("*.md"))]
    included = {
        page.relative_to(ROOT) for page in (ROOT / "deploy/gateway/logshipper").iterdir()
    }  # by what is linked
    for path in sorted(linked(pages) | included):
        copy(ROOT / path, doc / path)


def set_modes(tree: Path) -> None:
    """Nothing of the caller's umask or of a wheel's modes stays; what was executable for its owner
    is so for all."""
    tree.chmod(0o755)
    for folder, folders, files in os.walk(tree):
        for name in (*folders, *files):
            path = Path(folder, name)
            if path.is_symlink():
                continue
            mode = 0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644
            path.chmod(mode)


def main() -> None:
    kind, version, wheels, tree = sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
    tree.mkdir(parents=True)
    site = environment(version, wheels, tree)
    completion(kind, tree)
    configuration(tree)
    documentation(site, tree)
    set_modes(tree)


if __name__ == "__main__":
    main()

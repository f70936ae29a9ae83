"""Links in Slurm's plugin folder to the package logshipper-slurm-RELEASE of the installed release.
Package scripts call this when Slurm or such a package comes or goes. Admins call it for a Slurm in
another folder.

    link-slurm-plugin [FOLDER ...]     FOLDER: else PluginDir of slurm.conf, or the usual ones
    link-slurm-plugin --remove         removes all links

It changes only its own links.
"""

import contextlib
import glob
import itertools
import os
import re
import sys
from collections import Counter

from logshipper.errors import os_words
from logshipper_ingest.slurm.files import (
    find_conf,
    plugin_folders,
    plugin_version,
    read_conf,
    read_stack,
    stack_path,
)

NAMES = ("logshipper.so", "logshipper-identity.so", "logshipper-keeper")
_PACKAGED = ("/usr/lib/*/logshipper", "/usr/lib64/logshipper")
_OURS = re.compile(r"/usr/lib(?:64|/[^/]+)/logshipper/slurm-[0-9.]+/[^/]+")
_MANY = 9  # plugins to examine: single ones may be of another release


def main() -> int:
    """Update the links. Return 0, or 1 if a folder failed."""
    words = sys.argv[1:]
    if any(word.startswith("-") and word != "--remove" for word in words):
        print((__doc__ or "").partition("\n\n")[2].partition("\n\n")[0], file=sys.stderr)
        return 2
    folders = [word for word in words if word != "--remove"]
    conf = find_conf(os.environ)
    options = read_conf(conf) if conf else {}
    packaged = {} if "--remove" in words else _packaged()
    failed = False
    usual = [*plugin_folders(options), *plugin_folders({})]
    for folder in dict.fromkeys(map(os.path.realpath, folders or usual)):
        if os.path.isdir(folder):
            try:
                _arrange(folder, packaged)
            except OSError as error:
                failed = True
                print(f"logshipper: {folder}: {os_words(error)}", file=sys.stderr)
    loaded = [
        line
        for line in read_stack(stack_path(conf or "/etc/slurm/slurm.conf", options)).plugins
        if line.path == NAMES[0]
    ]
    usable = [folder for folder in folders or plugin_folders(options) if _is_there(folder)]
    if loaded and not usable:
        print(
            f"logshipper: {loaded[0].where} names {NAMES[0]}, which is missing for this Slurm: "
            "install its package or remove the line, else jobs report the missing plugin",
            file=sys.stderr,
        )
    return int(failed)


def _is_there(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, NAMES[0]))


def _packaged() -> dict[str, str]:
    """Return the packages' folders by Slurm release."""
    return {
        folder.rpartition("/slurm-")[2]: folder
        for pattern in _PACKAGED
        for folder in glob.glob(f"{pattern}/slurm-*")
        if _is_there(folder)
    }


def slurm_release(folder: str) -> str:
    """Return the Slurm release of most plugins in a folder, or ""."""
    versions = (
        version
        for path in sorted(glob.glob(f"{glob.escape(folder)}/*.so"))
        if not os.path.basename(path).startswith("logshipper")
        and (version := plugin_version(path)) is not None
    )
    releases = Counter(itertools.islice(versions, _MANY))
    if not releases:
        return ""
    (major, minor), _ = releases.most_common(1)[0]
    return f"{major}.{minor:02d}"


def _arrange(folder: str, packaged: dict[str, str]) -> None:
    """Point the links of a folder to the matching plugin, or remove them. Raises OSError."""
    linked = [name for name in NAMES if _OURS.fullmatch(_target(os.path.join(folder, name)))]
    if not packaged and not linked:
        return
    release = slurm_release(folder) if packaged else ""
    plugin = packaged.get(release)
    changed = False
    for name in NAMES:
        changed |= _link(os.path.join(folder, name), f"{plugin}/{name}" if plugin else "")
    if plugin and changed:
        print(
            f"logshipper: Slurm {release} loads {plugin}/{NAMES[0]} now; "
            "restart slurmd when it suits you (jobs continue)"
        )
    elif release and not plugin and not _is_there(folder):
        there = ", ".join(sorted(packaged))
        print(f"logshipper: no plugin for Slurm {release} ({folder}) is installed, only for {there}: "
              f"install logshipper-slurm-{release}, as jobs aren't captured without it", file=sys.stderr)  # fmt: skip


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _link(path: str, target: str) -> bool:
    """Create a link, or remove ours if target is "". Return whether anything changed. Raises
    OSError."""
    old = _target(path)
    if old == target and (target or not os.path.lexists(path)):
        return False
    if os.path.lexists(path) and not _OURS.fullmatch(old):
        if target:
            words = "belongs to no package: remove it, else Slurm loads it instead of"
            print(f"logshipper: {path} {words} {target}", file=sys.stderr)
        return False
    if not target:
        os.unlink(path)
        return True
    fresh = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh)
    os.symlink(target, fresh)
    os.rename(fresh, path)  # atomic: a starting job finds a link at any time
    return True

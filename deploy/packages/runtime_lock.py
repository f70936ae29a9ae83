"""Writes the part of requirements/dev.lock that the packages bundle: what pyproject.toml needs at run time on Python
3.11 and Linux, with EXTRAS, and what that needs in turn, as the metadata of what .venv has installed tells.

    .venv/bin/python deploy/packages/runtime_lock.py OUTPUT    from the clone
"""

import re
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent.parent
LOCK = ROOT / "requirements" / "dev.lock"
EXTRAS = ("grafana",)  # nobody could add it to the packages' own environment
TARGET = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.11.0",
    "python_version": "3.11",
    "sys_platform": "linux",
    "extra": "",
}


def applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({**TARGET})


def needed() -> set[str]:
    """Names of all packages that are needed at run time, in their normal form."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: set[str] = set()
    waiting = [*project["dependencies"], *(line for name in EXTRAS for line in project["optional-dependencies"][name])]
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if applies(requirement) and name not in found:
            found.add(name)
            waiting += requires(name) or []
    return found


def locked() -> dict[str, str]:
    """The lock's entries for the target, hashes included, by name."""
    entries = re.findall(r"^(?!#)\S.*(?:\n    .*)*", LOCK.read_text(), re.MULTILINE)
    found: dict[str, str] = {}
    for entry in entries:
        requirement = Requirement(re.split(r"\s*\\\n", entry)[0])
        if applies(requirement):
            found[canonicalize_name(requirement.name)] = entry
    return found


def main() -> None:
    names, entries = needed(), locked()
    if missing := sorted(names - entries.keys()):
        raise SystemExit(f"{LOCK}: {', '.join(missing)} are needed at run time and not locked; `make lock` mends that")
    Path(sys.argv[1]).write_text("".join(f"{entries[name]}\n" for name in sorted(names)))


if __name__ == "__main__":
    main()

"""Slurm's own package in the guise of another release: the same files with another version number
in each plugin. Slurm and our links compare only this number."""

from tests.distributions.machine import Machine

RELEASE = "27.11"  # no existing Slurm has it
FOLDER = "/root/slurm"  # its files
PLUGINS = f"{FOLDER}/usr/lib/*/slurm-wlm"
# its headers, with the parts that a plugin reads
HEADERS = "/other"
MAKE_HEADERS = f"""
mkdir {HEADERS}
cp -R /usr/include/slurm {HEADERS}
sed -i -E 's/(SLURM_VERSION_NUMBER 0x)..../\\11b0b/' {HEADERS}/slurm/slurm.h {HEADERS}/slurm/slurm_version.h
"""
_NUMBER = """
import sys
from pathlib import Path
from logshipper_ingest.slurm.files import _symbol_value
major, minor = map(int, sys.argv[1].split("."))
changed = 0
for path in Path(sys.argv[2]).glob("usr/lib/*/slurm-wlm/*.so"):
    data = path.read_bytes()
    number = None if path.is_symlink() else _symbol_value(data, b"plugin_version")
    if number:
        other = major << 16 | minor << 8 | number & 255
        path.write_bytes(data.replace(number.to_bytes(4, "little"), other.to_bytes(4, "little")))
        changed += 1
assert changed > 10, changed
"""


def change(machine: Machine, archive: str) -> None:
    """Unpack Debian's package in FOLDER, and change its release to RELEASE. Needs logshipper
    installed."""
    machine.run(
        f"dpkg-deb --raw-extract {archive} {FOLDER}\ncat > number.py <<'END'\n{_NUMBER}END\n"
        f"/opt/logshipper/bin/python number.py {RELEASE} {FOLDER}"
    )

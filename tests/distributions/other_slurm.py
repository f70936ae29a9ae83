"""Slurm's own package as of another release: the same files, but for the number in each plugin,
which is what Slurm and our links go by."""

from tests.distributions.machine import Machine

RELEASE = "27.11"  # of no Slurm there is
FOLDER = "/root/slurm"  # its files
PLUGINS = f"{FOLDER}/usr/lib/*/slurm-wlm"
# headers of it as far as a plugin knows
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
    """Lays out Debian's package in FOLDER, as of RELEASE. logshipper is installed there."""
    machine.run(
        f"dpkg-deb --raw-extract {archive} {FOLDER}\ncat > number.py <<'END'\n{_NUMBER}END\n"
        f"/opt/logshipper/bin/python number.py {RELEASE} {FOLDER}"
    )

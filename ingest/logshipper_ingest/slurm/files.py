"""Slurm's own files for the checks: slurm.conf, plugstack.conf, and a plugin's version. Reading is
bounded and skips unreadable files, like Slurm."""

import glob
import os
import re
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

# the last one: without files of the node's own
FOLDERS = ("/etc/slurm", "/etc/slurm-llnl", "/run/slurm/conf")
MAX_FILE_BYTES = 1 << 20
MAX_FILES = 64
MAX_PLUGIN_BYTES = 16 << 20
_PAIR = re.compile(r'(?<![A-Za-z0-9_])([A-Za-z][A-Za-z0-9_]*)\s*[+-]?=\s*("[^"]*"|\S*)')
_KINDS = ("required", "optional", "include")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SHT_DYNSYM = 11


class StackLine(NamedTuple):
    """A plugin of plugstack.conf."""

    where: str  # `FILE:LINE`
    kind: str  # required or optional
    path: str
    arguments: tuple[str, ...]


class Stack(NamedTuple):
    """Content of plugstack.conf."""

    plugins: list[StackLine]  # in their order
    problems: list[str]  # a sentence for each line that Slurm ignores


def find_conf(environment: Mapping[str, str]) -> str:
    """Return the path of the node's slurm.conf, or ""."""
    conf_path = environment.get("SLURM_CONF", "")
    places = (
        [conf_path] if conf_path else [os.path.join(folder, "slurm.conf") for folder in FOLDERS]
    )
    return next((place for place in places if os.path.isfile(place)), "")


def read_conf(path: str) -> dict[str, str]:
    """Read options by lower-case names, with included files. A repeated option has its last
    value."""
    options: dict[str, str] = {}
    for name, value in _pairs(path, [MAX_FILES]):
        options[name.lower()] = value.strip('"')
    return options


def _pairs(path: str, file_budget: list[int]) -> Iterator[tuple[str, str]]:
    for _, line in _lines(path, file_budget):
        words = line.split(None, 1)
        if len(words) == 2 and words[0].lower() == "include":
            place = os.path.join(os.path.dirname(path), words[1].strip())
            yield from _pairs(place, file_budget)
        else:
            yield from _PAIR.findall(line)


def stack_path(conf: str, options: Mapping[str, str]) -> str:
    """Return the configured path of plugstack.conf, even if missing."""
    return options.get("plugstackconfig") or os.path.join(os.path.dirname(conf), "plugstack.conf")


def read_stack(path: str) -> Stack:
    """Read plugstack.conf with its included files."""
    stack = Stack([], [])
    _read_stack(path, stack, [MAX_FILES])
    return stack


def _read_stack(path: str, stack: Stack, file_budget: list[int]) -> None:
    for number, line in _lines(path, file_budget):
        words = line.split()
        where = f"{path}:{number}"
        if words[0] not in _KINDS or len(words) < 2:
            stack.problems.append(
                f"{where}: Slurm ignores this line: it takes required, optional or include, and a path"
            )
        elif words[0] == "include":
            for place in sorted(glob.glob(os.path.join(os.path.dirname(path), words[1]))):
                _read_stack(place, stack, file_budget)
        else:
            stack.plugins.append(StackLine(where, words[0], words[1], tuple(words[2:])))


def _lines(path: str, file_budget: list[int]) -> Iterator[tuple[int, str]]:
    """Yield non-empty lines without comments. file_budget: one element, the number of files left
    to read."""
    if file_budget[0] <= 0:
        return
    file_budget[0] -= 1
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(MAX_FILE_BYTES)
    except OSError:
        return
    for number, raw_line in enumerate(text.replace("\\\n", " ").split("\n"), start=1):
        line = raw_line.partition("#")[0].strip()
        if line:
            yield number, line


def plugin_folders(options: Mapping[str, str]) -> list[str]:
    """Return Slurm's plugin folders: PluginDir, else those of the distributions."""
    if options.get("plugindir"):
        return options["plugindir"].split(":")
    return [*sorted(glob.glob("/usr/lib/*/slurm-wlm")), *sorted(glob.glob("/usr/lib/*/slurm")), "/usr/lib64/slurm",
            "/usr/lib/slurm", "/usr/local/lib/slurm"]  # fmt: skip


def find_plugin(name: str, options: Mapping[str, str]) -> str:
    """Return the path of a plugin, or ""."""
    if name.startswith("/"):
        return name if os.path.exists(name) else ""
    places = (os.path.join(folder, name) for folder in plugin_folders(options))
    return next((place for place in places if os.path.exists(place)), "")


def plugin_version(path: str) -> tuple[int, int] | None:
    """Return the Slurm release (major, minor) of a plugin's build, or None.

    Reads the symbol `plugin_version` and executes nothing. (ELF:
    https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html)
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_PLUGIN_BYTES)
        number = _symbol_value(data, b"plugin_version")
    except (OSError, struct.error, IndexError):
        return None
    return None if number is None else ((number >> 16) & 0xFF, (number >> 8) & 0xFF)


def _symbol_value(data: bytes, name: bytes) -> int | None:
    if data[:6] != b"\x7fELF\x02\x01":  # 64 bits, little endian
        return None
    (at,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    if size != _SECTION.size:
        return None
    sections = [_SECTION.unpack_from(data, at + size * number) for number in range(count)]
    for _, kind, _, _, offset, length, link, _, _, _ in sections:
        if kind != _SHT_DYNSYM:
            continue
        names = sections[link][4]
        for symbol in range(offset, offset + length - _SYMBOL.size + 1, _SYMBOL.size):
            label, _, _, section, value, _ = _SYMBOL.unpack_from(data, symbol)
            end = names + label + len(name)
            if data[names + label : end + 1] == name + b"\0" and 0 < section < len(sections):
                base, place = sections[section][3], sections[section][4]
                return int(struct.unpack_from("<I", data, place + value - base)[0])
    return None

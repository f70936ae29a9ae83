"""Limits of core files, from /proc/PID/limits."""

from pathlib import Path


def core_limit(limits: str) -> tuple[str, str]:
    """Return soft and hard limit in bytes. limits: text of /proc/PID/limits."""
    (line,) = [line for line in limits.splitlines() if line.startswith("Max core file size")]
    soft, hard = line.split()[4:6]
    return soft, hard


def limit_of(pid: int) -> tuple[str, str]:
    return core_limit(Path(f"/proc/{pid}/limits").read_text())

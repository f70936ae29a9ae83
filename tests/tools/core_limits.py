"""Limits of core files, as /proc/PID/limits has them."""

from pathlib import Path


def core_limit(limits: str) -> tuple[str, str]:
    """Soft and hard limit, in bytes, by the text of /proc/PID/limits."""
    (line,) = [line for line in limits.splitlines() if line.startswith("Max core file size")]
    soft, hard = line.split()[4:6]
    return soft, hard


def limit_of(pid: int) -> tuple[str, str]:
    return core_limit(Path(f"/proc/{pid}/limits").read_text())

"""Jobs whose own output must be complete despite faults, and the reports about them in the node's
log."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from tests.slurm.tools.capturing import CapturingCluster
from tests.slurm.tools.cases import APART, BOTH, READY, text_of
from tests.slurm.tools.cluster import JobEnd
from tests.slurm.tools.users import JobUser
from tests.tools.captures.captured_runs import comm_of, parent_of, wait_until
from tests.tools.waiting import scaled

LINES = 300
LATER_SECS = 10.0
READY_SECS = 30.0
OUT, ERR = ("".join(f"{name} {n}\n" for n in range(1, LINES + 1)) for name in ("out", "err"))
PRINTS = BOTH.format(LINES)
SLOWLY = """
for i in $(seq 300); do
    echo out $i; echo err $i >&2
    [ $i != 100 ] || sleep 3
done
"""


def runs_whole(
    cluster: CapturingCluster,
    user: JobUser,
    script: str = PRINTS,
    env: Mapping[str, str] | None = None,
) -> str:
    """Run a job on n1. Assert that its output is complete, and return its id. env: further
    environment of sbatch."""
    job_id = cluster.sbatch(user, script, "--nodelist=n1", *APART, env=env)
    end = cluster.wait(job_id)
    assert end == JobEnd("COMPLETED", 0, 0), cluster.describe(job_id, str(end))
    differs = difference(user)
    assert not differs, cluster.describe(job_id, f"{differs}; later: {later(user) or 'whole'}")
    return job_id


def ready_job(
    cluster: CapturingCluster, user: JobUser, script: str, *options: str, opted_in: bool = True
) -> str:
    """Start a job on n1 and wait until it has printed READY. Return its id. options: further ones
    of sbatch."""
    if opted_in:
        (user.home / ".logoptin").touch()
    job_id = cluster.sbatch(user, script, "--nodelist=n1", *options, *APART)
    wait_until(lambda: READY in text_of(user, "job.out"), "the job runs", READY_SECS)
    return job_id


def helpers_outside(cluster: CapturingCluster) -> list[int]:
    """Wait for keeper, relay and sidecar of the only captured job, and return their pids. Assert
    that they share slurmd's mount namespace, independent of the job's."""
    wait_until(lambda: len(helpers(cluster)) == 3, "keeper, relay and sidecar are there", 20.0)
    own = os.readlink(f"/proc/{cluster.first_pid}/ns/mnt")
    for name, pids in helpers(cluster).items():
        for pid in pids:
            assert os.readlink(f"/proc/{pid}/ns/mnt") == own, name
    return [pid for pids in helpers(cluster).values() for pid in pids]


def difference(user: JobUser) -> str:
    """Return the difference between the job's output files and its printed lines, or ""."""
    differences = []
    for name, output in (("job.out", OUT), ("job.err", ERR)):
        content = text(user.home / name)
        if content != output:
            at = next(
                (
                    i
                    for i, pair in enumerate(zip(content, output, strict=False))
                    if pair[0] != pair[1]
                ),
                len(content),
            )
            differences.append(
                f"{name}: {len(content)} of {len(output)} bytes, from {at} on {content[at : at + 200]!r}"
            )
    return ", ".join(differences)


def later(user: JobUser) -> str:
    """Return the difference after a few seconds, or "" once there is none. It tells late bytes from
    lost ones."""
    deadline = time.monotonic() + scaled(LATER_SECS)
    while (differs := difference(user)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return differs


def plugin_lines(cluster: CapturingCluster, job_id: str) -> list[str]:
    """Return the plugin's lines about a job in the node's log."""
    lines = [line for line in cluster.log("n1").splitlines() if job_id in line]
    return [line for line in lines if "] logshipper: " in line or "spank" in line]


def text(place: Path) -> str:
    return place.read_text() if place.exists() else ""


def helpers(cluster: CapturingCluster) -> dict[str, list[int]]:
    """Return the plugin's processes on this cluster: pids by role."""
    pids: dict[str, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "logshipper.slurm_sidecar" in words and str(cluster.folder) in "".join(words):
            pids.setdefault("sidecar", []).append(int(path.name))
        elif "logshipper-keeper" in words[0] and str(cluster.folder) in "".join(words):
            pids.setdefault(comm_of(int(path.name)).removeprefix("logship-"), []).append(
                int(path.name)
            )
    relays = pids.get("relay", [])
    for pid in [pid for pid in relays if parent_of(pid) in relays]:  # forked, but not yet Python
        relays.remove(pid)
        pids.setdefault("sidecar", []).append(pid)
    return pids


def late_python(cluster: CapturingCluster) -> tuple[str, Path]:
    """Return the plugin's argument for a Python that starts when a file exists, and the file's
    path."""
    script, go = cluster.folder / "python-late", cluster.folder / "python-go"
    go.unlink(missing_ok=True)
    script.write_text(
        f'#!/bin/sh\nuntil [ -e {go} ]; do sleep 0.1; done\nexec {cluster.python} "$@"\n'
    )
    script.chmod(0o755)
    return f"python={script}", go


def slow_python(cluster: CapturingCluster, secs: float) -> str:
    """Return the plugin's argument for a Python that takes `secs` to start."""
    script = cluster.folder / f"python-after-{secs:g}"
    script.write_text(f'#!/bin/sh\nsleep {secs:g}\nexec {cluster.python} "$@"\n')
    script.chmod(0o755)
    return f"python={script}"

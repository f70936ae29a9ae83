"""Faults in the plugin's surroundings: the job runs, its own output is complete, and the node's log
gives the reason for a missing or partial capture."""

import os
import signal
import subprocess

import pytest

from tests.slurm.tools.capturing import CapturingCluster
from tests.slurm.tools.cases import APART
from tests.slurm.tools.cluster import JobEnd
from tests.slurm.tools.users import JobUser
from tests.slurm.tools.whole import (
    ERR,
    OUT,
    SLOWLY,
    difference,
    helpers,
    later,
    plugin_lines,
    runs_whole,
    text,
)
from tests.tools.captures.captured_runs import wait_until


def test_missing_plugin(cluster: CapturingCluster, user: JobUser) -> None:
    cluster.set_plugstack(f"optional {cluster.folder}/missing.so spool=$folder/spool")
    runs_whole(cluster, user)
    assert "missing.so" in cluster.log("n1")


def test_not_a_plugin(cluster: CapturingCluster, user: JobUser) -> None:
    place = cluster.folder / "text.so"
    place.write_text("no program at all\n")
    cluster.set_plugstack(f"optional {place} spool=$folder/spool")
    runs_whole(cluster, user)
    assert "text.so" in cluster.log("n1")


FOREIGN = """
#include <slurm/spank.h>
{}
const char plugin_name[] = "logshipper", plugin_type[] = "{}";
const unsigned int plugin_version = {}, spank_plugin_version = 1;
int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv) {{ {} return 0; }}
"""
WRONG = {
    "of_another_release": ("", "spank", "0x990b00", ""),  # its plugins have another version
    "of_another_type": ("", "select/spank", "1", ""),
    "that_needs_what_this_slurm_lacks": (
        "extern void slurm_of_a_newer_one(void);",
        "spank",
        "1",
        "slurm_of_a_newer_one();",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_plugin(cluster: CapturingCluster, user: JobUser, kind: str) -> None:
    """The plugin was built for another Slurm."""
    source, place = cluster.folder / f"{kind}.c", cluster.folder / f"{kind}.so"
    source.write_text(FOREIGN.format(*WRONG[kind]))
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-o", place, source], check=True, capture_output=True
    )
    cluster.set_plugstack(f"optional {place} spool=$folder/spool")
    job_id = runs_whole(cluster, user)
    cluster.wait_shipped(job_id)
    assert not cluster.entries(job_id)


@pytest.mark.parametrize("argument", ["colour=blue", "columns=many", "spool=relative"])
def test_wrong_argument(cluster: CapturingCluster, user: JobUser, argument: str) -> None:
    cluster.set_plugstack(f"{cluster.line} {argument}")
    assert plugin_lines(cluster, runs_whole(cluster, user))


def test_missing_python(cluster: CapturingCluster, user: JobUser) -> None:
    cluster.set_plugstack(f"{cluster.line} python={cluster.folder}/no-python")
    assert "no-python" in str(plugin_lines(cluster, runs_whole(cluster, user)))


@pytest.mark.parametrize("keeper", ["missing", "not a program"])
def test_wrong_keeper(cluster: CapturingCluster, user: JobUser, keeper: str) -> None:
    place = cluster.folder / f"keeper-{keeper[:3]}"
    if keeper != "missing":
        place.write_text("text\n")
    cluster.set_plugstack(f"{cluster.line} keeper={place}")
    assert place.name in str(plugin_lines(cluster, runs_whole(cluster, user)))


@pytest.mark.parametrize("python", ["/bin/false", "/bin/true", "/bin/cat", "/dev/null"])
def test_wrong_python(cluster: CapturingCluster, user: JobUser, python: str) -> None:
    """The configured file is executable, but not Python."""
    cluster.set_plugstack(f"{cluster.line} python={python}")
    job_id = runs_whole(cluster, user)
    wait_until(lambda: not helpers(cluster), "nobody of logshipper's is left", 30.0)
    runs_whole(cluster, cluster.add_user())
    assert plugin_lines(cluster, job_id), cluster.describe(
        job_id, "the node's log doesn't say why nothing is captured"
    )


def test_python_that_hangs(cluster: CapturingCluster, user: JobUser) -> None:
    """The job ends as usual. The processes that wait for Python give up, and the node's log reports
    it."""
    script = cluster.folder / "hanging-python"
    script.write_text("#!/bin/sh\nexec sleep 1000\n")
    script.chmod(0o755)
    cluster.set_plugstack(f"{cluster.line} python={script} stall_secs=2")
    runs_whole(cluster, user)
    for pids in helpers(cluster).values():
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    cluster.end_processes(user)


def test_python_without_the_package(cluster: CapturingCluster, user: JobUser) -> None:
    """The job's own slurmstepd reports it. If slurmstepd ends before Python, the next step on the
    node reports it."""
    cluster.set_plugstack(f"{cluster.line} python=/usr/bin/python3")
    waits = f"touch begun; until [ -e go ]; do sleep 0.1; done{SLOWLY}"
    job_id = cluster.sbatch(user, waits, "--nodelist=n1", *APART)
    wait_until((user.home / "begun").exists, "it has begun", 30.0)
    wait_until(lambda: "sidecar" not in helpers(cluster), "Python has ended", 30.0)
    (user.home / "go").touch()  # the job needs three more seconds
    assert cluster.wait(job_id) == JobEnd("COMPLETED", 0, 0)
    assert not difference(user)
    assert "No module named" in str(plugin_lines(cluster, job_id))
    job_id = runs_whole(cluster, user)
    wait_until(lambda: "keeper" not in helpers(cluster), "its keeper has ended", 30.0)
    runs_whole(cluster, cluster.add_user())  # without opt-in, so no further report follows
    assert "No module named" in str(plugin_lines(cluster, job_id))


def test_opted_out_costs_nothing(cluster: CapturingCluster) -> None:
    wait_until(lambda: not helpers(cluster), "the jobs before are over", 30.0)
    runs_whole(cluster, cluster.add_user())  # reports the last messages of earlier keepers
    user = cluster.add_user()
    before = cluster.log("n1")
    script = (
        'pgrep -u "$(id -u)" -c . ; ls -l /proc/$$/fd/1 | grep -c job.out; env | grep -c LOGSHIPPER'
    )
    job_id = cluster.sbatch(user, script, "--nodelist=n1", *APART)
    assert cluster.wait(job_id).state in {"COMPLETED", "FAILED"}  # grep sets the exit code
    processes, is_file, mark = (user.home / "job.out").read_text().split()
    assert (int(processes) <= 3, is_file, mark) == (True, "1", "0")
    assert not cluster.entries(job_id)
    assert not list((cluster.node_folder("n1") / "spool").glob(f"{job_id}@*"))
    log = cluster.log("n1")[len(before) :].replace(str(cluster.folder), "")  # it contains the word
    assert "logshipper" not in log


@pytest.mark.parametrize("victim", ["sidecar", "relay", "keeper"])
def test_killed_helper(cluster: CapturingCluster, user: JobUser, victim: str) -> None:
    job_id = cluster.sbatch(user, SLOWLY, "--nodelist=n1", *APART)
    wait_until(lambda: "out 100\n" in text(user.home / "job.out"), "it has printed a third", 30.0)
    pids = helpers(cluster).get(victim)
    assert pids, "it has gone on for three seconds already"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert cluster.wait(job_id) == JobEnd("COMPLETED", 0, 0)
    assert not later(user)
    wait_until(
        lambda: not helpers(cluster), f"nobody of logshipper's is left: {helpers(cluster)}", 30.0
    )


FLOOD = """#!/usr/bin/python3
import itertools, os, time

os.set_blocking(1, True)
for number in itertools.count(1):
    os.write(1, b"out %d of a flood that fills pipes and terminals on its way\\n" % number)
    if number >= 60_000 and number % 100 == 0:
        if os.path.exists("go"):
            break
        time.sleep(0.01)  # on, until somebody was killed, and slower
os.write(2, b"err %d\\n" % number)
"""


@pytest.mark.parametrize("opt_in", ["", "tty: false\n"], ids=["terminals", "pipes"])
@pytest.mark.parametrize("victim", ["sidecar", "relay", "keeper"])
def test_killed_in_a_flood(
    cluster: CapturingCluster, user: JobUser, victim: str, opt_in: str
) -> None:
    """The death of any helper leaves the job intact: its own output has every byte exactly once."""
    (user.home / ".logoptin").write_text(opt_in)
    job_id = cluster.sbatch(user, FLOOD, "--nodelist=n1", *APART)
    wait_until(lambda: helpers(cluster).get("sidecar"), "its sidecar has begun", 20.0)
    wait_until(lambda: len(text(user.home / "job.out")) > 300_000, "it prints", 30.0)
    for pid in helpers(cluster)[victim]:
        os.kill(pid, signal.SIGKILL)
    (user.home / "go").touch()
    assert cluster.wait(job_id) == JobEnd("COMPLETED", 0, 0)
    wait_until(
        lambda: text(user.home / "job.err").endswith("\n"),
        "its own output of errors is there",
        10.0,
    )
    last = int(text(user.home / "job.err").removeprefix("err "))
    output = "".join(
        f"out {n} of a flood that fills pipes and terminals on its way\n"
        for n in range(1, last + 1)
    )
    wait_until(lambda: len(text(user.home / "job.out")) >= len(output), "so is the other one", 10.0)
    assert text(user.home / "job.out").split("\n") == output.split("\n")
    wait_until(lambda: not helpers(cluster), "nobody of logshipper's is left", 30.0)


def test_agent_down_and_up_again(cluster: CapturingCluster, user: JobUser) -> None:
    agent = cluster.agents["n1"]
    agent.stop()
    try:
        job_id = runs_whole(cluster, user)
    finally:
        agent.start()
    cluster.wait_closed([job_id], 1)
    log = cluster.log_of(job_id)
    assert log["1", "batch", "0", "stdout"] == OUT.splitlines()
    assert log["1", "batch", "0", "stderr"] == ERR.splitlines()

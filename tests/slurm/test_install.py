"""Every step of deploy/slurm/README.md works as written on machines that have only Debian and
Slurm.

The tests install, use, upgrade and remove logshipper. Upgrade and removal happen while a job runs.
"""

import re
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from logshipper_ingest.loki.client import LokiClient
from tests.servers.running import LokiServer
from tests.slurm.conftest import unless_missing
from tests.slurm.tools.clean_root import clean_root
from tests.slurm.tools.followed_guide import DOWNGRADE, MACHINES, Site, blocks
from tests.tools.captures.captured_runs import wait_until
from tests.tools.debs import built_debs
from tests.tools.sources import ROOT
from tests.tools.stores.node_agents import entries_of
from tests.tools.waiting import scaled

SHIPPED_SECS = 60.0
RUNNING = """#!/bin/bash
for n in 1 2 3; do echo line $n; done
echo '{"step": 1}'
touch begun-$SLURM_JOB_ID
until [ -e go-on ]; do sleep 0.1; done
printf 'a bar 10%%\\ra bar 100%%\\n'
echo '{"step": 2, "unit": "μs"}'
for n in 4 5 6; do echo line $n; done
exit 3
"""
LOGGED = ["line 1", "line 2", "line 3", '{"step": 1}', "a bar 100%", '{"step": 2, "unit": "μs"}', "line 4", "line 5",
          "line 6"]  # fmt: skip

MANY = 100
# the loop starts no process per line
PRINTS_ON = """#!/bin/bash
exec 9<> <(:)
for ((n = 1; ; n++)); do
    echo out $n; echo err $n >&2
    [ ! -e stop ] || exit 0
    read -rt 1 -u 9
done
"""

pytestmark = pytest.mark.timeout(1800)  # the first test builds the clean root


@pytest.fixture(scope="module")
def packages(slurm_machine: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of built packages (step 1). `make deb` calls the same script."""
    return built_debs(tmp_path_factory).folder


@pytest.fixture(scope="module")
def newer(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the same packages and a higher version number."""
    folder = tmp_path_factory.mktemp("newer")
    for path in packages.glob("*.deb"):
        tree = folder / "tree"
        subprocess.run(["dpkg-deb", "--raw-extract", path, tree], check=True)
        control = tree / "DEBIAN" / "control"
        control.write_text(re.sub(r"(Version: \S+)-1\b", r"\1-2", control.read_text()))
        name = path.name.replace("-1+", "-2+")
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", tree, folder / name],
            check=True,
        )
        subprocess.run(["rm", "-r", tree], check=True)
    return folder


@pytest.fixture(scope="module")
def site(packages: Path, loki: LokiServer) -> Iterator[Site]:
    (package,) = packages.glob("logshipper_*.deb")
    depends = subprocess.check_output(["dpkg-deb", "-f", package, "Depends"], text=True)
    python = re.findall(r"python3\.[0-9]+", depends)[0]
    root = unless_missing(lambda: clean_root(python))
    replacements = {
        "http://loki.example.org:3100": loki.url,
        "http://prometheus.example.org:9090": "http://127.0.0.1:9",
    }
    with Site(root, replacements) as running:
        for name in MACHINES:
            copy(running, name, packages)
        yield running


def copy(site: Site, name: str, packages: Path) -> None:
    site.run(name, "rm -f ~/*.deb")
    for path in packages.glob("*.deb"):
        site.put(name, f"/root/{path.name}", path.read_bytes())


def is_installed(site: Site, name: str, version: str) -> None:
    """Assert that both packages are installed in that version."""
    shown = site.run(name, "dpkg-query -W -f '${Version}\n' logshipper 'logshipper-slurm-*'")
    assert shown.count(version) == 2


def submit(site: Site, name: str) -> str:
    """Start RUNNING, which waits after its first lines. Return the job's id."""
    site.put("login", f"/home/ann/{name}", RUNNING)
    job = site.run("login", f"sbatch --parsable {name}", user="ann").strip()
    site.wait_for(f"test -e begun-{job}")
    return job


def finish(site: Site, job: str) -> None:
    """Let RUNNING continue. Assert that it ends as usual and its own output is complete."""
    site.run("login", "touch go-on", user="ann")
    wait_until(
        lambda: "FAILED" in site.run("login", f"scontrol -o show job {job}"),
        f"{job} is over",
        SHIPPED_SECS,
    )
    assert "ExitCode=3:0" in site.run("login", f"scontrol -o show job {job}")
    whole = site.run("login", f"cat slurm-{job}.out; rm go-on", user="ann").replace("\r", "\n")
    assert [line for line in whole.splitlines() if line != "a bar 10%"] == LOGGED


def logged(site: Site, job: str) -> list[str]:
    output = site.run("login", f"logshipper logs {job} --from loki 2>/dev/null || :", user="ann")
    return [line for line in output.splitlines() if not line.startswith("[logshipper")]


def wait_logged(site: Site, job: str, lines: Sequence[str] = LOGGED) -> None:
    deadline = time.monotonic() + scaled(SHIPPED_SECS)
    while logged(site, job) != lines:
        assert time.monotonic() < deadline, site.describe()
        time.sleep(0.2)


def test_every_block_is_followed() -> None:
    """This test fails if the guide gains a step. Add the step to these tests."""
    assert {heading: len(texts) for heading, texts in blocks().items()} == {
        "1. Packages": 1, "2. Every machine": 1, "3. Each compute node": 1, "4. Where users log in": 1,
        "5. The line in plugstack.conf": 1, "6. The controller": 1, "7. A job": 1, "Is it right?": 1, "Upgrading": 1,
        "Taking it out": 3,
    }  # fmt: skip
    assert blocks()["1. Packages"] == ["make deb\n"]
    assert "deploy/packages/build.sh deb" in (ROOT / "Makefile").read_text()


def test_installed_in_seven_steps(site: Site) -> None:
    for name in MACHINES:
        site.follow("2. Every machine", name)
        assert site.run(name, "logshipper --version").split()[0] == "logshipper"
        assert not site.has(name, "/run/logshipper"), "nothing starts unasked"
    site.follow("3. Each compute node", "node")
    site.follow("4. Where users log in", "login")
    for name in MACHINES:
        site.follow("5. The line in plugstack.conf", name)
    site.follow("6. The controller", "controller")

    output = site.follow("7. A job", "login", user="ann")
    (job,) = re.findall(r"Submitted batch job (\d+)", output)
    job_lines = ["hello from localhost", "hello from a step"]
    wait_until(
        lambda: logged(site, job) == job_lines, f"the lines of {job} are in Loki", SHIPPED_SECS
    )
    assert job in site.run("login", "logshipper ls --from loki", user="ann")
    assert site.run("login", f"cat slurm-{job}.out", user="ann").splitlines() == job_lines


def test_the_check_on_the_node_finds_nothing_wrong(site: Site) -> None:
    """The check reports only the missing Prometheus."""
    output = site.follow("Is it right?", "node")
    assert "plugin" in output
    assert "spool_dir" in output


def test_without_the_file_nothing_is_touched(site: Site) -> None:
    site.run("login", "mv .logoptin .was", user="ann")
    output = site.run(
        "login",
        "sbatch --wait --wrap 'tty -s <&1 || echo no terminal; env | grep LOGSHIPPER || :'",
        user="ann",
    )
    job = re.findall(r"\d+", output)[0]
    assert (
        site.run("login", f"cat slurm-{job}.out; mv .was .logoptin", user="ann") == "no terminal\n"
    )
    assert site.run("node", f"ls /var/spool/logshipper | grep {job} || :") == ""


def test_how_slurm_ended_a_job_is_in_its_log(site: Site) -> None:
    job = submit(site, "cancelled.sh")
    site.run("login", f"scancel {job}", user="ann")
    output = ""
    deadline = time.monotonic() + scaled(SHIPPED_SECS)
    while "cancelled (Slurm)" not in output:
        assert time.monotonic() < deadline, output + site.describe()
        output = site.run(
            "login", f"logshipper logs {job} --from loki 2>/dev/null || :", user="ann"
        )


def test_upgraded_with_a_job_running(site: Site, newer: Path) -> None:
    job = submit(site, "upgrade.sh")
    for name in MACHINES:
        copy(site, name, newer)
        site.follow("Upgrading", name)
        is_installed(site, name, "-2+")
    assert site.run("node", "cat /etc/logshipper/agent.toml").count(site.cluster) == 1, (
        "the admin's file stays"
    )
    for name in ("node", "controller"):
        # with systemd, the package's script restarts it
        site.systemctl(name, "systemctl restart logshipper-agent")
    finish(site, job)
    wait_logged(site, job)


def test_back_and_upgraded_with_a_hundred_jobs_running(
    site: Site, packages: Path, newer: Path, loki: LokiServer
) -> None:
    site.put("login", "/home/ann/many.sh", PRINTS_ON)
    options = f"--array=1-{MANY} --mem=5 --output=%j.out --error=%j.err"
    site.run("login", f"sbatch {options} many.sh", user="ann")

    def wait_lines(more: int) -> None:
        """Wait until each job has printed this number of further lines."""
        before = {place: len(lines) for place, lines in printed(site).items()}

        def reached() -> bool:
            now = printed(site)
            return len(now) == 2 * MANY and all(
                len(lines) >= before.get(place, 0) + more for place, lines in now.items()
            )

        wait_until(reached, f"{MANY} jobs print {more} more lines", SHIPPED_SECS)

    wait_lines(2)
    for folder, version in ((packages, "-1+"), (newer, "-2+")):
        for name in MACHINES:
            copy(site, name, folder)
            site.run(name, DOWNGRADE) if folder is packages else site.follow("Upgrading", name)
            is_installed(site, name, version)
        for name in ("node", "controller"):
            site.systemctl(name, "systemctl restart logshipper-agent")
        wait_lines(3)
    site.run("login", "touch stop", user="ann")
    wait_until(lambda: not site.run("login", "squeue -h"), "all jobs are over", SHIPPED_SECS)
    own = printed(site)
    assert all(
        lines == [f"{place[1]} {n + 1}" for n in range(len(lines))] for place, lines in own.items()
    )
    client = LokiClient(loki.url)
    selector = f'| job_id=~"{"|".join({job for job, _ in own})}"'

    def stored() -> dict[tuple[str, str], list[str]]:
        lines = defaultdict(list)
        for entry in entries_of(client, site.cluster, "log", selector=selector):
            stream = entry.labels["stream"].removeprefix("std")
            lines[entry.metadata["job_id"], stream].append(entry.line)
        return dict(lines)

    wait_until(lambda: stored() == own, "all lines are in Loki, once and in order", SHIPPED_SECS)


def printed(site: Site) -> dict[tuple[str, str], list[str]]:
    """Return the printed lines of many.sh's jobs, by job and stream."""
    script = 'for f in [0-9]*.out [0-9]*.err; do [ ! -e $f ] || sed "s/^/$f /" $f; done'
    lines = defaultdict(list)
    for line in site.run("login", script, user="ann").splitlines():
        name, _, text = line.partition(" ")
        job, _, stream = name.partition(".")
        lines[job, stream].append(text)
    return dict(lines)


def test_taken_out_with_a_job_running(site: Site, newer: Path) -> None:
    job = submit(site, "out.sh")
    wait_logged(site, job, LOGGED[:4])  # its sidecar's Python runs
    site.follow("Taking it out", "node")
    site.follow("Taking it out", "controller", which=1)
    output = ""
    for name in MACHINES:
        site.stop(f"agent-{name}")
        output += site.follow("Taking it out", name, which=2)
        assert not site.has(name, "/opt/logshipper")
        assert site.run(name, "ls /etc/logshipper").split() == ["agent.toml", "site.toml"]
    assert "captures that aren't in Loki yet" in output
    finish(site, job)

    plain = site.run("login", "sbatch --wait --wrap 'echo plain' 2>&1", user="ann")
    assert re.fullmatch(r"Submitted batch job \d+\n", plain), "no noise"
    assert "exited with status" not in site.run("controller", "cat /var/log/slurm/slurmctld.log")
    assert site.run("node", "ls /var/spool/logshipper").split()[0].startswith(f"{job}@")

    for name in ("node", "login"):
        site.follow("2. Every machine", name)
    site.start_agent("node")
    wait_logged(site, job)  # includes the lines that it printed while logshipper was not installed
    empty = "[ -z \"$(find /var/spool/logshipper -name '*@*')\" ]"
    site.wait_for(empty, "node", user="")  # the agent deletes shipped captures slightly later

    site.stop("agent-node")
    assert "captures" not in site.run("node", "apt-get -qq purge logshipper 'logshipper-slurm-*'")
    listing = "ls -d /var/spool/logshipper /var/lib/logshipper /etc/logshipper /opt/logshipper 2>/dev/null || :"
    assert site.run("node", listing) == "", "purged, with all shipped"

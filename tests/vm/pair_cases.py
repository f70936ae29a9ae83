"""Faults of the two machines while jobs run on the node. Each runs alone, with uncaptured and
captured jobs at the same time."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.slurm.tools.users import JobUser
from tests.vm.machine import MachineFailed
from tests.vm.pair import PairCluster
from tests.vm.pair_figures import Log

CUT_SECS = 300
DOWN_SECS = 60
SKEW_SECS = 600
STATE = "/var/lib/logshipper"
LOKI_DATA = "/var/lib/loki"
UNIT = "logshipper-agent"
RESTART = f"systemctl daemon-reload && systemctl restart {UNIT}"  # like the package's postinst
VERSION = "python3 -I -c 'import sys; sys.path.append(sys.argv[1]); import logshipper; print(logshipper.__version__)'"
INSTALLED = f"{VERSION} /opt/logshipper/lib/python3.*/site-packages"
NEXT = "9.9.9"
# includes root's reserve: the disk has none
FILL = """size=$(df --output=avail -B1 {place} | tail -n 1); fallocate -l $size {place}/filler 2>/dev/null
dd if=/dev/zero of={place}/filler2 bs=4k 2>/dev/null; [ $(df --output=avail -B1 {place} | tail -n 1) -lt 65536 ]"""
REACH = "timeout 5 bash -c 'exec 3<>/dev/tcp/10.11.13.1/3100' 2>/dev/null"
FREE = "rm -f {place}/filler {place}/filler2"


@dataclass(frozen=True)
class Scene:
    """Target of a fault: the jobs of two users on a cluster."""

    cluster: PairCluster
    plain: JobUser
    captured: JobUser

    @property
    def users(self) -> tuple[JobUser, JobUser]:
        return self.plain, self.captured

    def more_lines(self, lines: int = 3, secs: float = 300.0) -> None:
        self.cluster.more_lines(self.users, lines, secs)


Act = Callable[[Scene], None]


@dataclass(frozen=True)
class Fault:
    """A fault. jobs: number of captured jobs, begun `at_once` at a time, which print by `pace`.
    log: expected state of the log. ends: whether the fault ends the jobs. before: preparation
    before their start."""

    name: str
    act: Act
    log: Log = Log.WHOLE
    jobs: int = 4
    at_once: int = 5
    plain_jobs: int = 2
    pace: float = 1.0
    ends: bool = False
    before: Act | None = None


# ---- restart of the node


def reboot(scene: Scene) -> None:
    _begin_anew(scene, lambda: scene.cluster.node.start("systemctl reboot"))


def reset(scene: Scene) -> None:
    _begin_anew(scene, lambda: scene.cluster.node.monitor("system_reset"))


def _begin_anew(scene: Scene, begin: Callable[[], object]) -> None:
    node = scene.cluster.node
    count = node.boots
    begin()
    node.wait_boots(count + 1)
    node.until(f"systemctl is-active --quiet {UNIT} slurmd", 300)
    _wait_gone(scene)


def _wait_gone(scene: Scene) -> None:
    """Wait until Slurm knows the end of the jobs. It notices it when slurmd registers."""
    for _ in range(6):
        answer = scene.cluster.machine.run(
            "for n in $(seq 20); do squeue -h | grep -q . || exit 0; sleep 1; done; exit 9"
        )
        if answer.code == 0:
            break
        scene.cluster.node.output("systemctl restart slurmd", secs=120)
    scene.cluster.wait_node()


# ---- the network


def cut(scene: Scene) -> None:
    """The link is down for 5 minutes, and jobs continue to print."""
    _cut(scene, CUT_SECS)
    scene.cluster.wait_node()


def cut_and_down(scene: Scene) -> None:
    """The controller gives the node up during the cut. The jobs are over when the node returns."""
    _cut(scene, DOWN_SECS, "scontrol update nodename=n1 state=down reason=vm")
    scene.cluster.machine.output("scontrol update nodename=n1 state=resume")
    scene.cluster.wait_node()
    scene.cluster.node.until("! pgrep -f '[s]lurm_script'", 120)


def _cut(scene: Scene, secs: int, meanwhile: str = ":") -> None:
    pair = scene.cluster.pair
    pair.set_link(up=False)
    try:
        scene.cluster.machine.output(meanwhile, secs=120)
        scene.cluster.node.output(f"! {REACH}; sleep {secs}", secs=secs + 60)
    finally:
        pair.set_link(up=True)


# ---- the clock


def clock_ahead(scene: Scene) -> None:
    _with_clock(scene, SKEW_SECS)


def clock_behind(scene: Scene) -> None:
    _with_clock(scene, -SKEW_SECS)


def _with_clock(scene: Scene, secs: int) -> None:
    """munge refuses credentials that are more than 5 minutes off. No job begins or ends then, but a
    manual run does."""
    node = scene.cluster.node
    node.output(f"date -s @$(($(date +%s) + {secs}))")
    try:
        scene.more_lines(10)
        refused = node.run("timeout 60 scontrol ping | grep -q UP").code
        if refused == 0:
            raise MachineFailed("munge takes credentials of a clock that is 10 minutes off")
        _run_by_hand(scene)
        node.output(f"systemctl restart {UNIT}", secs=120)
        scene.more_lines(10)
    finally:
        now = scene.cluster.machine.output("date +%s").strip()
        node.output(f"date -s @{now}")
    scene.more_lines(5)
    node.output("systemctl restart slurmd", secs=120)
    scene.cluster.wait_node()


def _run_by_hand(scene: Scene) -> None:
    """Start a capture now. Its output files have names like a job's."""
    user = scene.captured
    name = f"hand.u{user.uid}"
    prints = "for n in 1 2 3 4 5; do echo out $n; echo err $n >&2; sleep 1; done; echo out end"
    run = f"/opt/logshipper/bin/logshipper run --job-id hand -- bash -c '{prints}'"
    scene.cluster.node.output(
        f"{run} >{name}.out 2>{name}.err </dev/null", user=user.name, secs=180
    )


# ---- disks


def home_apart(scene: Scene) -> None:
    """Put the users' own files on a separate disk."""
    for user in scene.users:
        scene.cluster.node.output(
            f"mount -t tmpfs -o size=50m,mode=700,uid={user.uid},gid={user.gid} none {user.home}"
        )


def disk_full(scene: Scene) -> None:
    """The node's disk is full, except for the jobs' own files."""
    _fill(scene, "/")


def state_apart(scene: Scene) -> None:
    """Put the agent's state on a separate disk."""
    scene.cluster.node.output(
        f"""systemctl stop {UNIT}; mkdir /root/state; cp -a {STATE}/. /root/state
        mount -t tmpfs -o size=8m,mode=700 none {STATE}; cp -a /root/state/. {STATE}; systemctl start {UNIT}""",
        secs=180,
    )


def state_full(scene: Scene) -> None:
    _fill(scene, STATE)


def loki_apart(scene: Scene) -> None:
    """Put Loki's data on a separate disk."""
    scene.cluster.machine.output(
        f"""systemctl stop loki; mkdir /root/loki; cp -a {LOKI_DATA}/. /root/loki
        mount -t tmpfs -o size=400m none {LOKI_DATA}; cp -a /root/loki/. {LOKI_DATA}; systemctl start loki
        until (exec 3<>/dev/tcp/127.0.0.1/3100); do sleep 1; done 2>/dev/null""",
        secs=180,
    )


def loki_full(scene: Scene) -> None:
    _fill(scene, LOKI_DATA, on_node=False)


def _fill(scene: Scene, place: str, *, on_node: bool = True) -> None:
    machine = scene.cluster.node if on_node else scene.cluster.machine
    machine.output(FILL.format(place=place), secs=120)
    try:
        scene.more_lines(30)
    finally:
        machine.output(FREE.format(place=place))
    scene.more_lines(10)


# ---- upgrades


def upgrade(scene: Scene) -> None:
    """Upgrade to a higher version and back, while old jobs run and a new one begins in between."""
    node = scene.cluster.node
    version = node.output(INSTALLED).strip()
    for target in (NEXT, version):
        node.output(f"python3 -I /usr/local/lib/vm/upgrade.py {target} && {RESTART}", secs=600)
        if node.output(INSTALLED).strip() != target:
            raise MachineFailed(f"version {target} isn't what is installed")
        scene.more_lines(2, 400)
        scene.cluster.submit(scene.captured, 1, pace=5.0, opted_in=True)
    mixed = node.output("grep -rsH . /run/vm-mixed || :").strip()
    if mixed:
        raise MachineFailed(f"loaded by processes of another version: {mixed[:2000]}")


FAULTS = (
    Fault("node_reboot", reboot, ends=True),
    Fault("node_reset", reset, Log.AHEAD, ends=True),
    Fault("network_cut", cut),
    Fault("network_cut_node_down", cut_and_down, ends=True),
    Fault("clock_ahead", clock_ahead),
    Fault("clock_behind", clock_behind),
    Fault("root_disk_full", disk_full, Log.COUNTED, before=home_apart),
    Fault("state_disk_full", state_full, before=state_apart),
    Fault("loki_disk_full", loki_full, before=loki_apart),
    # The limit of an emulated processor. tests/slurm/test_install.py runs a hundred.
    Fault("upgrade", upgrade, jobs=25, pace=10.0),
)  # fmt: skip

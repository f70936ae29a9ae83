"""Two virtual machines of one disk image, with a link between them. `controller` runs slurmctld,
Loki and an agent, and users log in there. `node` runs slurmd and an agent. Each machine has its own
homes, so output files are on the node."""

import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.slurm.tools.cases import Run
from tests.slurm.tools.users import JobUser
from tests.vm.answers import files_of
from tests.vm.cluster import FILES, NODES_UP, GuestCluster
from tests.vm.machine import Machine
from tests.vm.root import kernel

LINK = "link"
CONTROLLER_MB, NODE_MB = 2048, 4096
SECOND_NODE = "systemd.mask=slurmd-n2.service systemd.mask=logshipper-agent-n2.service"
WORDS = {
    "controller": f"vm.role=controller systemd.wants=vm-pair.service systemd.mask=slurmd.service {SECOND_NODE}",
    "node": (
        "vm.role=node systemd.wants=vm-pair.service systemd.mask=slurmctld.service systemd.mask=loki.service "
        f"{SECOND_NODE}"
    ),
}  # fmt: skip
START_SECS = 400.0
NODE_SECS = 300.0
SPOOL = "/var/spool/logshipper"
# The script keeps its pace without a process per line. Its two words distinguish the streams in one
# log.
SCRIPT = """exec 9<> <(:)
n=0
while [ ! -e ~/stop ]; do
    n=$((n + 1)); echo out $n; echo err $n >&2; read -rt {pace} -u 9
done
echo out end
"""


class Pair:
    """Start both machines on `with`, and wait until they answer. disk: image to copy. folder: for
    their consoles."""

    def __init__(self, root: Path, disk: Path, options: Sequence[str], folder: Path) -> None:
        self._stack = ExitStack()
        self._scratch = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="logshipper-vm-"))
        )
        self._machines = {}
        for number, (role, memory_mb) in enumerate(
            {"controller": CONTROLLER_MB, "node": NODE_MB}.items()
        ):
            own = self._scratch / f"disk-{role}"
            shutil.copyfile(disk, own)  # it leaves out holes if possible
            ends = [f"{self._scratch}/link-{end}" for end in (number, 1 - number)]
            link = f"dgram,id={LINK},local.type=unix,local.path={ends[0]},remote.type=unix,remote.path={ends[1]}"
            card = f"virtio-net-pci,netdev={LINK},mac=52:54:00:0b:0d:0{number + 1}"
            self._machines[role] = Machine(
                *kernel(root), own, options, folder / f"{role}-console.log", memory_mb=memory_mb, processors=1,
                words=WORDS[role], devices=("-netdev", link, "-device", card),
            )  # fmt: skip
        self.controller, self.node = self._machines.values()

    def __enter__(self) -> Self:
        with self._stack as stack:
            for machine in self._machines.values():
                machine.launch()
                stack.callback(machine.__exit__)
            for machine in self._machines.values():
                machine.wait_boots(1)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def set_link(self, *, up: bool) -> None:
        """Connect or disconnect the machines. The node's own end stays up, as after the failure of
        a more distant switch."""
        self.controller.monitor("set_link", name=LINK, up=up)


class PairCluster(GuestCluster):
    """Slurm on both machines. Users and jobs belong to the controller, output files and spool to
    the node."""

    agents = "logshipper-agent"

    def __init__(self, pair: Pair) -> None:
        super().__init__(pair.controller)
        self.pair = pair
        self.node = pair.node
        self._on_node = GuestCluster(pair.node)

    def wait_up(self) -> None:
        super().wait_up()
        self.node.until("systemctl is-active --quiet logshipper-agent", NODE_SECS)

    def wait_node(self) -> None:
        """Wait until Slurm accepts jobs for the node."""
        self.machine.until(NODES_UP, NODE_SECS)

    def set_plugin(self, *, loaded: bool) -> None:
        super().set_plugin(loaded=loaded)
        self._on_node.set_plugin(loaded=loaded)

    def wait_shipped(self) -> None:
        self._on_node.wait_shipped()

    def submit(self, user: JobUser, jobs: int, *, pace: float, opted_in: bool) -> None:
        """Submit jobs that print by `pace` until `stop`. Return when all of them print and, after
        an opt-in, are captured."""
        if opted_in:
            self.node.output("touch .logoptin", user=user.name)
        out = f"{user.home}/[0-9]*.out"
        before = int(self.node.output(f"cat {out} 2>/dev/null | grep -cx 'out 1' || :"))
        captures = f"ls {SPOOL}/*@*/segments/*.seg 2>/dev/null | wc -l"
        spooled = int(self.node.output(captures))
        options = [
            f"--array=1-{jobs}", "--job-name=job.sh", "--no-requeue", "--output=%j.out", "--error=%j.err",
        ]  # fmt: skip
        self._sbatch(user.name, SCRIPT.format(pace=pace), options)
        self.node.until(
            f"[ $(cat {out} 2>/dev/null | grep -cx 'out 1') -ge {before + jobs} ]", START_SECS
        )
        if opted_in:
            self.node.until(f"[ $({captures}) -ge {spooled + jobs} ]", START_SECS)

    def more_lines(self, users: Sequence[JobUser], lines: int = 3, secs: float = 300.0) -> None:
        """Wait until each of the users' jobs has printed this number of further lines."""
        for user in users:
            files = f"{user.home}/[0-9]*.out"
            self.node.output(
                f"""declare -A n; for file in {files}; do n[$file]=$(wc -l <$file); done
                for file in {files}; do
                    until [ $(wc -l <$file) -ge $((n[$file] + {lines})) ]; do sleep 0.5; done
                done""",
                secs=secs,
            )

    def stop(self, user: JobUser) -> None:
        """End the user's jobs."""
        self.node.output("touch stop", user=user.name)

    def wait_ends(self, user: JobUser) -> Run:
        """Wait for the ends of all jobs of the user."""
        run = Run(user)
        self.finish(run)
        return run

    def own_files(self, users: Sequence[JobUser]) -> dict[str, dict[str, bytes]]:
        """Return the users' own files by user and name."""
        names = " ".join(user.name for user in users)
        return files_of(self.node.output(FILES.format(users=names), secs=300))

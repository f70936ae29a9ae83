"""`make test-vm MACHINES=2`: boots a controller with slurmctld and Loki and a node, with a link
between them. Causes typical faults of clusters while jobs print on the node, and counts lines. Jobs
without the plugin must end in the same way.

Exit code: 0, 1 if a case failed, 2 without machines.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from tests.servers.progress import Progress
from tests.slurm.tools.cases import Run
from tests.vm import leftovers
from tests.vm.answers import Account, Result, summary
from tests.vm.launch import LOGS, command_line, exit_code, prepared
from tests.vm.machine import MachineFailed
from tests.vm.pair import Pair, PairCluster
from tests.vm.pair_cases import FAULTS, Fault, Scene
from tests.vm.pair_figures import Figures, Log, compare, own_lines, sequence_faults
from tests.vm.run import STATE

TOLD_SECS = 200.0
EMPTY = Account({}, [], [])


class Trial:
    """A fault, its jobs' files, and its problems."""

    def __init__(self, cluster: PairCluster, fault: Fault) -> None:
        self.fault = fault
        self.scene = Scene(cluster, cluster.add_user(), cluster.add_user())
        self.runs: list[Run] = []
        self.files: dict[str, dict[str, bytes]] = {}
        self.problems: list[str] = []
        self.secs = 0.0

    def run(self, progress: Progress) -> None:
        """Run the fault to the end of its jobs, and until the spool is empty."""
        begin = time.monotonic()
        try:
            self._run(progress)
        except MachineFailed as error:
            self.problems += [str(error), self.scene.cluster.machine.run(STATE, secs=120).output]
            self._give_up()
        self.secs = time.monotonic() - begin

    def _run(self, progress: Progress) -> None:
        cluster, fault, (plain, captured) = self.scene.cluster, self.fault, self.scene.users
        progress.doing = "jobs begin"
        if fault.before is not None:
            fault.before(self.scene)
        cluster.set_plugin(loaded=False)
        cluster.submit(plain, fault.plain_jobs, pace=fault.pace, opted_in=False)
        cluster.set_plugin(loaded=True)
        for first in range(0, fault.jobs, fault.at_once):
            jobs = min(fault.at_once, fault.jobs - first)
            cluster.submit(captured, jobs, pace=fault.pace, opted_in=True)
        self.scene.more_lines(secs=300)
        progress.doing = "what befalls them"
        fault.act(self.scene)
        progress.doing = "their ends"
        if not fault.ends:
            for user in self.scene.users:
                cluster.stop(user)
        self.runs = [cluster.wait_ends(user) for user in self.scene.users]
        self.files = cluster.own_files(self.scene.users)
        progress.doing = "what waits is shipped"
        cluster.wait_shipped()

    def _give_up(self) -> None:
        """End the jobs, so that other faults have the machines to themselves."""
        cluster = self.scene.cluster
        for user in self.scene.users:
            cluster.node.run("touch stop", user=user.name)
            cluster.machine.run(f"scancel -u {user.name}", secs=120)

    def result(self, accounts: dict[str, Account]) -> Result:
        """Return the result. accounts: Loki's data by job."""
        figures, problems = Figures(), list(self.problems)
        if not problems:
            plain, captured = self.runs
            if set(plain.ends) != set(captured.ends):
                problems.append(
                    f"jobs end as {set(captured.ends)}, plain ones as {set(plain.ends)}"
                )
            problems += [
                f"captured without the plugin: {job}" for job in plain.job_ids if job in accounts
            ]
            for user in self.scene.users:
                jobs = own_lines(self.files.get(user.name, {}), self.fault.log)
                for job_id, lines in jobs.items():
                    problems += sequence_faults(job_id, lines, whole=not self.fault.ends)
                    if user is self.scene.captured:
                        account = accounts.get(job_id, EMPTY)
                        here, faults = compare(job_id, lines, account, self.fault.log)
                        figures = figures.plus(here)
                        problems += faults
            problems += _told(captured, accounts)
            if self.fault.log is Log.COUNTED and not figures.lost:
                problems.append("no line was lost: it wasn't full")
        return Result(self.fault.name, self.secs, problems, figures.words())


def _told(run: Run, accounts: dict[str, Account]) -> list[str]:
    """Return messages about jobs whose end by Slurm is missing from Loki."""
    states = {end.state for end in run.ends}
    return [
        f"{job_id}: Loki is told {told}, not how Slurm ended it, {states}"
        for job_id in run.job_ids
        if len(told := _states(accounts.get(job_id, EMPTY))) != 1 or told[0] not in states
    ]


def _states(account: Account) -> list[str | None]:
    return [event["state"] for event in account.events if event["event"] == "job_ended"]


def _read(cluster: PairCluster, trial: Trial) -> dict[str, Account]:
    """Return Loki's data once it has the ends of the jobs, which follow the ends of their
    captures."""
    deadline = time.monotonic() + TOLD_SECS
    while True:
        accounts = cluster.accounts()
        untold = trial.runs and _told(trial.runs[1], accounts)
        if not untold or time.monotonic() > deadline:
            return accounts
        cluster.machine.output("sleep 10")


def try_faults(pair: Pair, faults: Sequence[Fault]) -> list[Result]:
    """Try the faults one after another, and print each result."""
    cluster = PairCluster(pair)
    with Progress("Waiting until Slurm, Loki and agents are up"):
        cluster.wait_up()
    results: list[Result] = []

    def add(result: Result) -> None:
        results.append(result)
        print(result.line(len(results), len(faults) + 1), flush=True)

    for fault in faults:
        trial = Trial(cluster, fault)
        title = f"{fault.name}: {fault.jobs} captured jobs, {fault.plain_jobs} without the plugin"
        with Progress(title) as progress:
            trial.run(progress)
            progress.doing = "reading Loki"
            accounts = _read(cluster, trial)
        add(trial.result(accounts))
    begin = time.monotonic()
    problems = [*leftovers.find(pair.node), *leftovers.find(pair.controller)]
    add(Result("nothing_left", time.monotonic() - begin, problems))
    return results


def run(release_name: str, mirror: str, faults: Sequence[Fault]) -> int:
    """Return the exit code."""
    begin = time.monotonic()
    folder = LOGS / "pair"
    folder.mkdir(parents=True, exist_ok=True)
    with prepared(release_name, mirror) as (release, root, image, name, options):
        pair = Pair(root, image, options, folder)
        image.unlink()
        boot = time.monotonic()
        with Progress(f"Booting two machines of {release.name} by {name}"):
            pair.__enter__()
        facts = {name: f"boot {time.monotonic() - boot:.0f} s"}
        try:
            print(leftovers.about(pair.node), flush=True)
            results = try_faults(pair, faults)
            for role, machine in (("controller", pair.controller), ("node", pair.node)):
                (folder / f"{role}-journal.log").write_text(leftovers.logs(machine))
        finally:
            pair.__exit__()
    print(summary(results, facts, (time.monotonic() - begin) / 60))
    return 1 if any(result.problems for result in results) else 0


def main() -> int:
    """Run the command line."""
    parser = command_line("tests.vm.pair_run", __doc__ or "")
    parser.add_argument("--jobs", type=int, default=0, help="captured ones, at most")
    parser.add_argument("case", nargs="*", help="some faults only, by name, in this order")
    options = parser.parse_args()
    by_name = {fault.name: fault for fault in FAULTS}
    if unknown := set(options.case) - set(by_name):
        parser.error(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(by_name)}")
    faults = [by_name[name] for name in options.case or by_name]
    if options.jobs:
        faults = [replace(fault, jobs=min(fault.jobs, options.jobs)) for fault in faults]
    return exit_code(lambda: run(options.release, options.mirror, faults))


if __name__ == "__main__":
    sys.exit(main())

"""`make test-vm`: boots a machine with systemd, cgroup v2, Slurm, Loki and this clone's project,
and runs each case there without and with the plugin. Both runs must have the same own output and
end. Loki must have each line once, each capture's ledger must balance, and nothing may remain.

Exit code: 0, 1 if a case failed, 2 without a machine.
"""

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from tests.servers.progress import Progress
from tests.slurm.tools.cases import Case, Run, compare_logs, difference
from tests.vm import guide, leftovers
from tests.vm.answers import Account, Result, event_words, ledger_faults, summary
from tests.vm.cases import Fault, faults, table
from tests.vm.cluster import GuestCluster
from tests.vm.launch import LOGS, command_line, exit_code, prepared
from tests.vm.machine import Machine, MachineFailed
from tests.vm.root import kernel

SCRIPT_SECS = 600.0  # limit of a script around a run
AT_ONCE = 4  # parallel cases: each starts several processes, on an emulated processor
STATE = "sinfo -R; sinfo; squeue; tail -n 25 /var/log/slurm/slurmctld.log; tail -n 15 /var/log/slurm/slurmd-*.log"


class Trial:
    """A case with its two runs, their duration, and its problems."""

    def __init__(self, case: Case, fault: Fault | None = None) -> None:
        self.case = case
        self.fault = fault or Fault(case, "each")
        self.runs: list[Run] = []
        self.secs = 0.0
        self.problems: list[str] = []

    def run(self, cluster: GuestCluster, *, opted_in: bool, acts: bool = True) -> None:
        """Start a run, perform the case's action, and wait for the run's end."""
        run = Run(cluster.add_user())
        self.runs.append(run)
        with self._noted(cluster, "captured" if opted_in else "plain"):
            if opted_in:
                cluster.machine.output(self.fault.before, secs=SCRIPT_SECS)
            cluster.begin(self.case, run, opted_in=opted_in)
            if acts:
                cluster.act(self.case, run)
            cluster.finish(run)
            if opted_in:
                cluster.machine.output(self.fault.after, secs=SCRIPT_SECS)

    def run_both(self, cluster: GuestCluster) -> None:
        """Run both side by side, the first without and the second with the plugin. Perform the
        case's action once."""
        self.runs = [Run(cluster.add_user()), Run(cluster.add_user())]
        with self._noted(cluster, "both"):
            for opted_in, run in enumerate(self.runs):
                cluster.set_plugin(loaded=bool(opted_in))
                cluster.begin(self.case, run, opted_in=bool(opted_in))
                cluster.wait_ready(run)
            cluster.act(self.case, self.runs[1])
            for run in self.runs:
                cluster.finish(run)

    @contextlib.contextmanager
    def _noted(self, cluster: GuestCluster, which: str) -> Iterator[None]:
        begin = time.monotonic()
        try:
            yield
        except MachineFailed as error:
            self.problems.append(f"{which}: {error}")
            self.problems.append(cluster.machine.run(STATE, secs=120).output)
        secs = time.monotonic() - begin
        self.secs += secs
        ends = [run.ends for run in self.runs]
        with (LOGS / "cases.log").open("a") as log:
            log.write(f"{self.case.name} {which} {secs:.0f} s {ends} {self.problems}\n")

    def result(self, cluster: GuestCluster, accounts: dict[str, Account]) -> Result:
        """Return the differences between the two runs. accounts: Loki's data by job."""
        if not self.problems:
            plain, captured = self.runs
            case = replace(self.case, ends=self.case.ends or plain.ends)
            self.problems += difference(case, plain, captured)
            self.problems += [
                f"captured without the plugin: job {job_id}"
                for job_id in plain.job_ids
                if job_id in accounts
            ]
            self.problems += self._of_loki(accounts)
        files = [cluster.figures.get(run.user.name, {}) for run in self.runs]
        note = leftovers.figures(files) if any(files) else ""
        return Result(self.case.name, self.secs, self.problems, note)

    def _of_loki(self, accounts: dict[str, Account]) -> list[str]:
        plain, captured = self.runs
        own = [accounts.get(job_id, Account({}, [], [])) for job_id in captured.job_ids]
        whole = Account({}, [], [])
        for account in own:
            whole.closed.extend(account.closed)
            for stream, lines in account.logs.items():
                whole.logs.setdefault(stream, []).extend(lines)
        if self.case.captures == 0:
            return [f"captured: {stream}" for stream in whole.logs]
        problems = compare_logs(self.case, plain, captured, whole.logs)
        closed = sum(len(account.closed) for account in own)
        if closed != self.case.captures:
            problems.append(f"{closed} captures are closed, not {self.case.captures}")
        for account in own:
            problems += ledger_faults(account)
        if problems:
            problems += [f"event: {words}" for account in own for words in event_words(account)]
        return problems


def run_together(cluster: GuestCluster, trials: Sequence[Trial], *, opted_in: bool) -> None:
    """Run the trials, AT_ONCE of them at a time."""
    cluster.set_plugin(loaded=opted_in)
    with Progress(f"{_title(opted_in)}: {len(trials)} cases, {AT_ONCE} at a time") as progress:
        done = 0

        def one(trial: Trial) -> None:
            nonlocal done
            trial.run(cluster, opted_in=opted_in, acts=opted_in or trial.fault.to != "captured")
            done += 1
            progress.doing = f"{done} of {len(trials)}"

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, trials))


def run_alone(cluster: GuestCluster, trials: Sequence[Trial]) -> None:
    """Run the trials one after another."""
    for trial in trials:
        with Progress(f"Alone: {trial.case.name}"):
            if trial.fault.to == "both":
                trial.run_both(cluster)
            else:
                cluster.set_plugin(loaded=True)
                trial.run(cluster, opted_in=True)
            try:
                cluster.machine.until("! squeue -h | grep -q .", 120)
            except MachineFailed as error:
                trial.problems.append(str(error))
                cluster.machine.output("squeue -h -o %A | xargs -r scancel")


def _title(opted_in: bool) -> str:
    return f"{'With' if opted_in else 'Without'} the plugin"


def try_cases(machine: Machine, chosen: Callable[[str], bool]) -> list[Result]:
    """Try all cases that `chosen` accepts by name."""
    cluster = GuestCluster(machine)
    cluster.wait_up()
    together = [Trial(case) for case in table() if chosen(case.name)]
    alone = [
        Trial(fault.case, fault)
        for fault in (*faults(machine), *guide.faults(machine))
        if chosen(fault.case.name)
    ]
    trials = [*together, *alone]
    plain = [trial for trial in trials if trial.fault.to != "both"]
    run_together(cluster, plain, opted_in=False)
    run_together(cluster, together, opted_in=True)
    run_alone(cluster, alone)
    cluster.fetch([run for trial in trials for run in trial.runs])
    with Progress("Waiting until all is shipped, and reading it from Loki"):
        begin = time.monotonic()
        problems = _shipped(cluster)
        accounts = cluster.accounts()
        secs = time.monotonic() - begin
    results = [trial.result(cluster, accounts) for trial in trials]
    problems += leftovers.find(machine)
    results.append(Result("nothing_left", secs, problems))
    if chosen("seven_steps"):
        with Progress("Installing it by deploy/slurm/README.md"):
            results.append(guide.seven_steps(cluster))
    return results


def _shipped(cluster: GuestCluster) -> list[str]:
    try:
        cluster.wait_shipped()
    except MachineFailed as error:
        listing = cluster.machine.run(
            "ls -R /var/spool/logshipper; journalctl -u logshipper-agent | tail"
        )
        return [str(error), listing.output]
    return []


def run(release_name: str, mirror: str, names: Iterable[str], keep: bool) -> int:
    """Return the exit code."""
    begin = time.monotonic()
    LOGS.mkdir(parents=True, exist_ok=True)
    with prepared(release_name, mirror) as (release, root, image, name, options):
        boot = time.monotonic()
        with Progress(f"Booting {release.name} by {name}"):
            machine = Machine(*kernel(root), image, options, LOGS / f"{release.name}-console.log")
            machine.__enter__()
        facts = {
            "root": f"{_megabytes(root)} MB",
            "disk": f"{_megabytes(image)} MB",
            name: f"boot {time.monotonic() - boot:.0f} s",
        }
        try:
            print(leftovers.about(machine), flush=True)
            wanted = set(names)
            results = try_cases(machine, lambda case: not wanted or case in wanted)
            (LOGS / f"{release.name}-journal.log").write_text(leftovers.logs(machine))
        finally:
            if keep:
                shutil.copy(image, LOGS / f"{release.name}-disk")
            machine.__exit__()
    for number, result in enumerate(results, 1):
        print(result.line(number, len(results)), flush=True)
    print(summary(results, facts, (time.monotonic() - begin) / 60))
    return 1 if any(result.problems for result in results) else 0


def _megabytes(place: Path) -> int:
    done = subprocess.run(["du", "-sm", place], stdout=subprocess.PIPE, text=True)
    return int(done.stdout.split()[0])


def main() -> int:
    """Run the command line."""
    parser = command_line("tests.vm.run", __doc__ or "")
    parser.add_argument("--keep", action="store_true", help="keeps the disk, in build/vm")
    parser.add_argument("case", nargs="*", help="some cases only, by name")
    options = parser.parse_args()
    return exit_code(lambda: run(options.release, options.mirror, options.case, options.keep))


if __name__ == "__main__":
    sys.exit(main())

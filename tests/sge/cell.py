"""A Grid Engine cell of one node on this machine: sge_qmaster, sge_execd, and ordinary users.

Like the tests' Slurm clusters it lives in PID, mount, network and host name namespaces that
`Namespaces` holds. No port, name or file collides with the machine's. The cell ends with this
process, even after a crash.
"""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any, Self

from tests.slurm.tools import machine, plugin
from tests.slurm.tools.namespaces import Namespaces
from tests.slurm.tools.users import JobUser, Users
from tests.tools.captures.captured_runs import wait_until
from tests.tools.sources import ROOT
from tests.tools.waiting import scaled

PROGRAMS = {
    "sge_qmaster": "gridengine-master",
    "sge_execd": "gridengine-exec",
    "qsub": "gridengine-client",
}
INSTALLED = Path("/usr/lib/gridengine")
SHARED = Path("/var/lib/gridengine")
DEFAULTS = Path("/usr/share/gridengine")
HOOKS = ROOT / "deploy" / "launchers"
TEMPLATES = Path(__file__).with_name("templates")
JOB_SECS = 60.0


def check() -> None:
    """Raise machine.SlurmMissing if no cell can start here."""
    machine.check()
    for name, package in PROGRAMS.items():
        if shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{machine.SBIN}") is None:
            raise machine.SlurmMissing(
                f"{name} isn't installed; requirements/system.sh does it (Debian: {package})"
            )


class SgeCell:
    """A cell that `with` starts and removes.

    queues: `plain.q` starts jobs as Grid Engine does. `all.q` uses our starter_method, with
    logshipper at `program`. Each queue also exists with the prefixes `unix` and `stdin`, for these
    start modes.
    """

    def __init__(self) -> None:
        check()
        self.folder = Path(tempfile.mkdtemp(prefix="logshipper-sge-", dir="/tmp"))
        self.folder.chmod(0o755)
        self._users = Users(self.folder)
        self._inside: Namespaces | None = None
        self._enter: list[str] = []
        self.program = self.folder / "logshipper"
        self.starter = self.folder / "starter"

    # ---- its life

    def start(self) -> Self:
        self._lay_out()
        self._inside = Namespaces(
            self._users.files, self.folder / "inside.log", self._environment(), self._failed
        )
        self._enter = self._inside.enter("mount", "net", "pid", "uts")
        self._start_daemon("sge_qmaster")
        wait_until(
            lambda: not self.as_root("qconf", "-sh").returncode,
            self._describe("sge_qmaster answers"),
        )
        self._configure()
        self._start_daemon("sge_execd")
        return self

    def _lay_out(self) -> None:
        python = plugin.python_for_users(self.folder)
        self.program.write_text(f'#!/bin/sh\nexec {python} -m logshipper "$@"\n')
        shutil.copytree(HOOKS, self.folder / "hooks")
        self.starter.write_text(self.starter_for(self.program))
        for path in (self.program, self.starter):
            path.chmod(0o755)
        for name in ("root/cell/common", "qmaster/job_scripts", "execd"):
            (self.folder / name).mkdir(parents=True)
        for name in ("bin", "lib", "utilbin", "util"):
            (self.folder / "root" / name).symlink_to(SHARED / name)
        common = self.folder / "root/cell/common"
        (common / "bootstrap").write_text(self._text_from("bootstrap", folder=self.folder))
        (common / "act_qmaster").write_text("localhost\n")
        changed = {
            "execd_spool_dir": str(self.folder / "execd"), "min_uid": "1", "min_gid": "1",
            "load_report_time": "00:00:01",
            "reporting_params": "accounting=true reporting=false flush_time=00:00:00 joblog=false sharelog=00:00:00",
        }  # fmt: skip
        lines = [
            line.split(maxsplit=1)
            for line in (DEFAULTS / "default-configuration").read_text().splitlines()
        ]
        configuration = [
            f"{line[0]} {changed.get(line[0], line[1])}"
            for line in lines
            if len(line) == 2 and line[0] != "#"
        ]
        (self.folder / "configuration").write_text("\n".join(configuration) + "\n")
        spool = f"{common};{self.folder}/qmaster"
        steps: list[list[object]] = [
            [INSTALLED / "spoolinit", "classic", "libspoolc", spool, "init"]
        ]
        kinds = {"configuration": self.folder / "configuration", "managers": "root"}
        kinds |= {
            "complexes": DEFAULTS / "util/resources/centry",
            "usersets": DEFAULTS / "util/resources/usersets",
        }
        steps += [[INSTALLED / "spooldefaults", kind, value] for kind, value in kinds.items()]
        for step in steps:
            subprocess.run(
                [str(word) for word in step],
                env=self._environment(),
                check=True,
                capture_output=True,
            )

    def starter_for(self, program: Path) -> str:
        """Return a script that runs the starter_method with logshipper at `program`."""
        return f'#!/bin/sh\nLOGSHIPPER={program} exec {self.folder}/hooks/sge-starter-method "$@"\n'

    def _text_from(self, template: str, **values: object) -> str:
        return Template((TEMPLATES / template).read_text()).substitute(values)

    def _configure(self) -> None:
        self._must("qconf", "-as", "localhost")
        self._must("qconf", "-Msconf", str(self._file("scheduler", self._text_from("scheduler"))))
        for prefix, mode in (
            ("", "posix_compliant"),
            ("unix.", "unix_behavior"),
            ("stdin.", "script_from_stdin"),
        ):
            for name, starter in (("plain.q", "NONE"), ("all.q", str(self.starter))):
                self.add_queue(prefix + name, starter, mode)

    def add_queue(self, name: str, starter: str, mode: str = "posix_compliant") -> None:
        text = self._text_from("queue", name=name, mode=mode, starter=starter)
        self._must("qconf", "-Aq", str(self._file(name, text)))

    def _file(self, name: str, text: str) -> Path:
        path = self.folder / f"{name}.conf"
        path.write_text(text)
        return path

    def _start_daemon(self, name: str) -> None:
        assert self._inside is not None
        self._inside.ask(do="start", name=name, argv=[name], log=str(self.folder / f"{name}.log"))

    def close(self) -> None:
        inside, self._inside = self._inside, None
        if inside is not None:
            inside.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def _failed(self, heading: str) -> AssertionError:
        return AssertionError(self._describe(heading))

    def _describe(self, heading: str) -> str:
        """Return the failure, with the ends of the logs."""
        patterns = ("*.log", "qmaster/messages", "execd/*/messages")
        logs = [path for pattern in patterns for path in self.folder.glob(pattern)]
        ends = [f"{log}:\n{log.read_text(errors='replace')[-2000:]}" for log in logs]
        return "\n".join([heading, *ends])

    # ---- users and their commands

    def add_user(self, *, opted_in: bool) -> JobUser:
        user = self._users.add()
        if opted_in:
            (user.home / ".logoptin").touch()
        return user

    def _environment(self, user: JobUser | None = None) -> dict[str, str]:
        name, home = (user.name, str(user.home)) if user else ("root", "/")
        path = "/usr/local/bin:/usr/bin:/bin" + ("" if user else f":{machine.SBIN}")
        variables = {
            "HOME": home,
            "USER": name,
            "LOGNAME": name,
            "SHELL": "/bin/bash",
            "PATH": path,
            "LANG": "C.UTF-8",
        }
        ports = {
            "SGE_QMASTER_PORT": "26444",
            "SGE_EXECD_PORT": "26445",
            "SGE_ND": "1",
        }  # ports in our own network namespace
        return {**variables, **ports, "SGE_ROOT": str(self.folder / "root"), "SGE_CELL": "cell"}

    def as_root(self, *command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*self._enter, *command], cwd="/", env=self._environment(), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=scaled(JOB_SECS),
        )  # fmt: skip

    def _must(self, *command: str) -> str:
        result = self.as_root(*command)
        assert not result.returncode, self._describe(f"{command}: {result.stdout}{result.stderr}")
        return result.stdout

    def run_as(
        self, user: JobUser, *command: str, stdin: str = "", env: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command as a user, in the user's home."""
        become = [
            machine.program("setpriv"),
            f"--reuid={user.uid}",
            f"--regid={user.gid}",
            "--init-groups",
            "--",
        ]
        whole = [*self._enter, *become, "env", f"--chdir={user.home}", *command]
        environment = {**self._environment(user), **(env or {})}
        return subprocess.run(
            whole,
            cwd="/",
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=scaled(JOB_SECS),
        )

    def qsub(self, user: JobUser, *words: str, stdin: str = "") -> str:
        """Submit a job; return its id, without its tasks."""
        result = self.run_as(user, "qsub", "-terse", *words, stdin=stdin)
        assert not result.returncode, self._describe(result.stderr)
        return result.stdout.strip().partition(".")[0]

    def wait(self, *job_ids: str) -> None:
        """Wait until jobs have ended, and none of their processes writes any more."""

        def over() -> bool:
            lines = self.as_root("qstat", "-u", "*").stdout.splitlines()
            return not {line.split()[0] for line in lines[2:]} & set(job_ids)

        with contextlib.suppress(AssertionError):
            wait_until(over, "", JOB_SECS)
            return
        raise AssertionError(
            self._describe(f"not over: {job_ids}: {self.as_root('qstat', '-u', '*').stdout}")
        )

    def ends(self, job_id: str, runs: int = 1) -> list[tuple[str, str]]:
        """Return, for each run of a job (or of its tasks), the task and its end by `qacct`, in
        order.

        Waits for this many runs.
        """
        ends: list[tuple[str, str]] = []

        def has_ended() -> bool:
            output = self.as_root("qacct", "-j", job_id).stdout
            fields = [
                line.split(maxsplit=1)
                for line in output.splitlines()
                if len(line.split(maxsplit=1)) == 2
            ]
            values: dict[str, list[str]] = {}
            for name, value in fields:
                values.setdefault(name, []).append(value.split()[0])
            ends[:] = sorted(
                zip(values.get("taskid", []), values.get("exit_status", []), strict=True)
            )
            return len(ends) >= runs

        wait_until(has_ended, f"qacct knows {job_id}", JOB_SECS)
        return ends

    def show(self, user: JobUser, job: str) -> dict[str, Any]:  # Any: JSON
        """Return `logshipper show JOB --json` of the user's own store."""
        result = self.run_as(user, str(self.program), "show", job, "--json")
        assert not result.returncode, result.stderr
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    def logs(self, user: JobUser, job: str, *options: str) -> list[str]:
        result = self.run_as(user, str(self.program), "logs", job, *options)
        assert not result.returncode, result.stderr
        return result.stdout.splitlines()

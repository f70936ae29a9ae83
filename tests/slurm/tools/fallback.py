"""A cluster without the compiled plugin: TaskProlog and TaskEpilog capture bash batch scripts."""

import shutil
from pathlib import Path
from typing import Any

from tests.servers.running import LokiServer
from tests.slurm.tools.capturing import CapturingCluster
from tests.slurm.tools.cluster import NODES
from tests.slurm.tools.users import JobUser
from tests.tools.sources import ROOT

HOOKS = ROOT / "deploy" / "slurm" / "hooks"
CALLER = """#!/bin/sh
[ ! -e {folder}/untouched ] || exit 0
LOGSHIPPER_PYTHON={python} LOGSHIPPER_AGENT_SOCKET={folder}/$SLURMD_NODENAME/agent.sock exec {hook}
"""


class FallbackCluster(CapturingCluster):
    """A CapturingCluster that captures by the hooks. While its folder has a file `untouched`, the
    hooks do nothing."""

    def __init__(
        self, loki: LokiServer, *, proctrack: str, **options: Any
    ) -> None:  # Any: options of SlurmCluster
        super().__init__(loki, proctrack=proctrack, **options)
        self._proven = proctrack == "cgroup"
        self.set_plugstack("")
        self.untouched = self.folder / "untouched"
        hooks = self.folder / "hooks"
        hooks.mkdir()
        lines = []
        for hook, option in (
            ("task-prolog", "TaskProlog"),
            ("task-epilog", "TaskEpilog"),
            ("batch-output", ""),
        ):
            shutil.copy2(HOOKS / hook, hooks / hook)
            if option:
                caller = self.folder / hook
                caller.write_text(
                    CALLER.format(folder=self.folder, python=self.python, hook=hooks / hook)
                )
                caller.chmod(0o755)
                lines.append(f"{option}={caller}\n")
        with (self.folder / "slurm.conf").open("a") as file:
            file.writelines(lines)

    def use_python(self, python: Path) -> None:
        """Set the Python of later captures."""
        caller = self.folder / "task-prolog"
        hook = self.folder / "hooks" / "task-prolog"
        scratch = caller.with_suffix(".new")
        scratch.write_text(CALLER.format(folder=self.folder, python=python, hook=hook))
        scratch.chmod(0o755)
        scratch.rename(caller)

    def log_id(self, job_id: str, user: JobUser) -> str:
        """Return the job's id in the log. Only a cgroup proves to the agent that a process belongs
        to the job."""
        return job_id if self._proven else f"{job_id}.u{user.uid}"

    def captures_left(self, job_id: str) -> list[Path]:
        """Return the captures of a job in the spools."""
        spools = [self.node_folder(node) / "spool" for node in NODES]
        return [path for spool in spools for path in spool.glob(f"{job_id}*@*")]

"""The reading commands, as the command line knows them when it starts. A command's module has its
options and its call, and is imported when the command is named."""

import argparse
import importlib
from typing import NamedTuple

from logshipper_observe.base.running import guarded


class Command(NamedTuple):
    module: str  # of this package
    summary: str  # in `logshipper --help`

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Also sets `call`: Namespace to exit code."""
        module = importlib.import_module(f"logshipper_observe.commands.{self.module}")
        module.add_options(parser)
        parser.set_defaults(call=guarded(module.call))


COMMANDS = {
    "ls": Command("ls", "list jobs: filtered, sorted, with columns of one's own"),
    "show": Command("show", "show all that is known of a job"),
    "info": Command("info", "tell jobs' nodes, cores, folder, run time, history, and their tasks"),
    "status": Command("status", "print jobs' states, a line each"),
    "logs": Command("logs", "print what a job printed"),
    "monitor": Command("monitor", "watch a job: its state and its log as it grows"),
    "metadata": Command("metadata", "print a job's metadata: table, JSON lines or CSV"),
    "export": Command("export", "write jobs' metadata and logs to files: CSV, TSV, JSONL, Parquet"),
    "plot": Command("plot", "draw jobs' metadata, in the terminal, as PNG or SVG"),
    "open": Command("open", "open a job's page in the browser"),
    "serve": Command("serve", "serve a page of your jobs"),
    "events": Command(
        "events", "list jobs' events: states, modes, late heartbeats, losses, their own"
    ),
    "allocations": Command("allocations", "list the nodes that jobs have and had"),
    "analyze": Command(
        "analyze", "throughput, utilization, nodes, overheads and gantt of many jobs"
    ),
    "wait": Command("wait", "wait until jobs have ended"),
    "diff": Command("diff", "compare two jobs' configuration"),
    "tag": Command("tag", "tag a job, or show its tags"),
    "annotate": Command("annotate", "write a note on a job, or star it"),
    "url": Command("url", "print the address of a job's page in Grafana"),
    "import": Command("importing", "ingest jobs of QCG-PilotJob, Balsam or XT"),
    "rm": Command("rm", "remove jobs"),
    "render": Command("render", "render raw output as a terminal would show it"),
    "completion": Command("completion", "print the shell's completion script"),
}  # in the order of `logshipper --help`

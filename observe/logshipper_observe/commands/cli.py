"""The reading commands, as the command line knows them when it starts. A command's module has its
options and its call, and is imported when the command is named."""

import argparse
import importlib
from typing import NamedTuple

from logshipper_observe.base.running import guarded


class CommandRow(NamedTuple):
    module: str  # of this package
    summary: str  # in `logshipper --help`

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Also sets `call`: Namespace to exit code."""
        module = importlib.import_module(f"logshipper_observe.commands.{self.module}")
        module.add_options(parser)
        parser.set_defaults(call=guarded(module.call))


COMMANDS = {
    "ls": CommandRow("reading.ls", "list jobs: filtered, sorted, with columns of one's own"),
    "show": CommandRow("reading.show", "show all data about a job"),
    "info": CommandRow(
        "reading.info", "tell jobs' nodes, cores, folder, run time, history, and their tasks"
    ),
    "status": CommandRow("reading.status", "print jobs' states, a line each"),
    "logs": CommandRow("reading.logs", "print a job's output"),
    "grep": CommandRow("reading.grep", "search the lines of all jobs, or of selected ones"),
    "monitor": CommandRow("reading.monitor", "watch a job: its state and its log as it grows"),
    "metadata": CommandRow("reading.metadata", "print a job's metadata: table, JSON lines or CSV"),
    "export": CommandRow(
        "reading.export", "write jobs' metadata and logs to files: CSV, TSV, JSONL, Parquet"
    ),
    "plot": CommandRow("analysis.plot", "draw jobs' metadata, in the terminal, as PNG or SVG"),
    "open": CommandRow("pages.open", "open a job's page in the browser"),
    "serve": CommandRow("pages.serve", "serve a page of your jobs"),
    "events": CommandRow(
        "reading.events", "list jobs' events: states, modes, late heartbeats, losses, their own"
    ),
    "allocations": CommandRow("analysis.allocations", "list the nodes that jobs have and had"),
    "analyze": CommandRow(
        "analysis.analyze", "throughput, utilization, nodes, overheads and gantt of many jobs"
    ),
    "wait": CommandRow("reading.wait", "wait until jobs have ended"),
    "diff": CommandRow("reading.diff", "compare two jobs' configuration"),
    "tag": CommandRow("upkeep.tag", "tag a job, or show its tags"),
    "annotate": CommandRow("upkeep.annotate", "write a note on a job, or star it"),
    "url": CommandRow("pages.url", "print the address of a job's page in Grafana"),
    "import": CommandRow("upkeep.importing", "ingest output files, and jobs of other systems"),
    "rm": CommandRow("upkeep.rm", "remove jobs"),
    "render": CommandRow("reading.render", "render raw output as a terminal would show it"),
    "completion": CommandRow("upkeep.completion", "print the shell's completion script"),
}

"""The reading commands' place in the command line. Light: each command is imported when it is
called."""

from typing import TYPE_CHECKING

from logshipper_observe.commands.cli_analyze import add_allocations, add_analyze
from logshipper_observe.commands.cli_graphs import add_plot
from logshipper_observe.commands.cli_import import add_import
from logshipper_observe.commands.cli_jobs import (
    add_export,
    add_logs,
    add_metadata,
    add_monitor,
    add_show,
)
from logshipper_observe.commands.cli_lists import add_events, add_info, add_ls, add_status, add_wait
from logshipper_observe.commands.cli_marks import add_annotate, add_diff, add_rm, add_tag
from logshipper_observe.commands.cli_pages import add_open, add_serve, add_url
from logshipper_observe.commands.cli_render import add_completion, add_render
from logshipper_observe.commands.options import Parser

if TYPE_CHECKING:
    from logshipper_observe.commands.options import Subparsers


def add_commands(subparsers: "Subparsers[Parser]") -> None:
    """Registers all reading commands; each sets `call`: Namespace to exit code."""
    add_ls(subparsers)
    add_show(subparsers)
    add_info(subparsers)
    add_status(subparsers)
    add_logs(subparsers)
    add_monitor(subparsers)
    add_metadata(subparsers)
    add_export(subparsers)
    add_plot(subparsers)
    add_open(subparsers)
    add_serve(subparsers)
    add_events(subparsers)
    add_allocations(subparsers)
    add_analyze(subparsers)
    add_wait(subparsers)
    add_diff(subparsers)
    add_tag(subparsers)
    add_annotate(subparsers)
    add_url(subparsers)
    add_import(subparsers)
    add_rm(subparsers)
    add_render(subparsers)
    add_completion(subparsers)

"""The parsers of all programs, for pages made from them."""

import argparse

from logshipper.start.cli import build_parser
from logshipper_grafana.tool.cli import build_parser as grafana_parser
from logshipper_ingest.cli import build_parser as agent_parser


def parsers() -> tuple[argparse.ArgumentParser, ...]:
    return build_parser(), agent_parser(), grafana_parser()


def commands_of(
    parser: argparse.ArgumentParser,
) -> "argparse._SubParsersAction[argparse.ArgumentParser] | None":
    """Return the commands of a program, or None for a parser without commands."""
    actions = (item for item in parser._actions if isinstance(item, argparse._SubParsersAction))
    return next(actions, None)

"""Command lines of diff, tag, annotate, rm."""

import argparse
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from logshipper_observe.base.words import NOT_IN_LOKI
from logshipper_observe.commands import completers
from logshipper_observe.commands.options import (
    JOB_HELP,
    Parser,
    add_command,
    add_job,
    add_json,
    add_source,
    add_store,
    completed,
)

if TYPE_CHECKING:
    from logshipper_observe.commands.options import Subparsers

_LOKI_OPTIONS = ("--from", "--site", "--loki-url", "--prometheus-url", "--cluster", "--since")


def add_diff(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
        subparsers,
        "diff",
        "compare two jobs' configuration",
        "Compares two jobs' options, in alphabetical order: what the store knows of how\n"
        "they were run, what their first records said and never changed, and tags.\n"
        "Different ones are marked with `!`.",
        "examples:\n  logshipper diff k3f9x2 last\n  logshipper diff a3 a4 --changed\n"
        "  logshipper diff 4711 4712 --from loki --json",
    )
    for name in ("a", "b"):
        completed(parser.add_argument(name, metavar=name.upper(), help=JOB_HELP), completers.jobs)
    parser.add_argument("--changed", action="store_true", help="only what differs")
    add_json(parser)
    add_source(parser)


def add_tag(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
        subparsers,
        "tag",
        "tag a job, or show its tags",
        "Tags a job: words (+TAG) or KEY=VALUE; -TAG takes one away. The last word\n"
        "counts. JOB may be a range (a3-a9) or have wildcards: then each is tagged. Tags are\n"
        "your own: kept on the reading side, next to your store or in\n"
        "your data folder.",
        "examples:\n"
        "  logshipper tag last +baseline\n"
        "  logshipper tag k3f9x2 dataset=cifar10 -draft\n"
        "  logshipper tag k3f9x2                 its tags\n"
        "  logshipper tag a3-a9 +keep            of each\n"
        "  logshipper tag 4711 +keep --from loki",
    )
    add_job(parser)
    parser.add_argument(
        "changes", metavar="+TAG|-TAG|KEY=VALUE", nargs="*", help="in this order; none: shows them"
    )
    add_json(parser)
    add_source(parser)
    _take_minus_tags(parser)


def _take_minus_tags(parser: argparse.ArgumentParser) -> None:
    """`-TAG` isn't an option: with a blank before it, argparse lets it through."""
    parse = parser.parse_known_args

    def with_tags(
        args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        words = [
            f" {word}" if re.match("-[^-]", word) and word != "-h" else word for word in args or ()
        ]
        return parse(words, namespace)

    parser.parse_known_args = with_tags  # type: ignore[assignment,method-assign]  # argparse's own type is overloaded


def add_annotate(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
        subparsers,
        "annotate",
        "write a note on a job, or star it",
        "Writes a note on a job, in the place of the last one, or stars it. Notes and stars\n"
        "are your own: kept on the reading side, next to your store or in your data folder.",
        "examples:\n"
        "  logshipper annotate last 'diverged after epoch 3: lr too high'\n"
        "  logshipper annotate k3f9x2 --star\n"
        "  logshipper annotate k3f9x2 ''         takes the note away\n"
        "  logshipper annotate k3f9x2            shows it",
    )
    add_job(parser)
    parser.add_argument("text", metavar="TEXT", nargs="?", help="the note; '' takes it away")
    star = parser.add_mutually_exclusive_group()
    star.add_argument("--star", action="store_const", const=True, default=None, help="star the job")
    star.add_argument(
        "--no-star", dest="star", action="store_const", const=False, help="take the star away"
    )
    add_json(parser)
    add_source(parser)


def add_rm(subparsers: "Subparsers[Parser]") -> None:
    parser = add_command(
        subparsers,
        "rm",
        "remove jobs",
        "Removes jobs and all that was logged of them from the local store, for good.\nA running job is left alone.",
        "examples:\n  logshipper rm k3f9x2\n  logshipper rm --yes k3f9x2 train.py",
    )
    completed(parser.add_argument("jobs", metavar="JOB", nargs="+", help=JOB_HELP), completers.jobs)
    parser.add_argument(
        "-y", "--yes", action="store_true", help="don't ask (needed where there is no terminal)"
    )
    add_store(parser)
    parser.set_defaults(source=None)
    _refuse_loki(parser)


def _refuse_loki(parser: argparse.ArgumentParser) -> None:
    """Answers options of reading from Loki with more than that they aren't there."""
    parse = parser.parse_known_args

    def refusing(
        args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        words = list(args or ())
        options = words[: words.index("--")] if "--" in words else words
        if any(word.partition("=")[0] in _LOKI_OPTIONS for word in options):
            parser.error(NOT_IN_LOKI)
        return parse(args, namespace)

    parser.parse_known_args = refusing  # type: ignore[assignment,method-assign]  # argparse's own type is overloaded

"""`logshipper tag JOB +TAG -TAG KEY=VALUE`: tags of the reader's own; without any, those that there
are."""

import argparse
import re

from logshipper_observe.commands import options
from logshipper_observe.commands.upkeep.marking import print_marks
from logshipper_observe.model.overlay import parse_change
from logshipper_observe.query.opening import known_jobs, overlay_of


def add_options(parser: argparse.ArgumentParser) -> None:
    options.describe(
        parser,
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
    options.add_job(parser)
    parser.add_argument(
        "changes", metavar="+TAG|-TAG|KEY=VALUE", nargs="*", help="in this order; none: shows them"
    )
    options.add_json(parser)
    options.add_source(parser)
    options.change_words(parser, _with_tags)


def _with_tags(words: list[str]) -> list[str]:
    """Put a blank before `-TAG`, so that argparse takes it for an argument."""
    return [f" {word}" if re.match("-[^-]", word) and word != "-h" else word for word in words]


def call(args: argparse.Namespace) -> int:
    changes = [parse_change(word.strip(" ")) for word in args.changes]
    with known_jobs(args, [args.job]) as (store, job_ids, unknown):
        for error in unknown:
            raise error
        overlay = overlay_of(store)
        for job_id in job_ids:
            with store.open(job_id) as reader:
                place = reader.summary.key
                marks = overlay.tag(place, changes) if changes else overlay.of(place)
                print_marks(args, reader, marks, changed=bool(changes))
    return 0

"""`logshipper annotate JOB TEXT`: sets a note of the reader's own, and a star; without either,
prints them."""

import argparse

from logshipper_observe.commands.options import add_job, add_json, add_source, describe
from logshipper_observe.commands.upkeep.marking import print_marks
from logshipper_observe.query.opening import open_job, overlay_of


def add_options(parser: argparse.ArgumentParser) -> None:
    describe(
        parser,
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


def call(args: argparse.Namespace) -> int:
    with open_job(args) as (store, job_id), store.open(job_id) as reader:
        overlay = overlay_of(store)
        place = reader.summary.key
        marks = overlay.of(place)
        if args.text is not None:
            marks = overlay.annotate(place, args.text.strip())
        if args.star is not None:
            marks = overlay.star(place, args.star)
        print_marks(args, reader, marks, changed=args.text is not None or args.star is not None)
    return 0

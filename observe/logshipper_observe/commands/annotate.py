"""`logshipper annotate JOB TEXT`: a note of the reader's own, and a star; without any, what there
is."""

import argparse

from logshipper_observe.commands.marking import print_marks
from logshipper_observe.model.overlay import JobKey
from logshipper_observe.query.opening import open_job, overlay_of


def call(args: argparse.Namespace) -> int:
    with open_job(args) as (store, job_id), store.open(job_id) as reader:
        overlay = overlay_of(store)
        place = JobKey(job_id, reader.summary.cluster)
        marks = overlay.of(place)
        if args.text is not None:
            marks = overlay.annotate(place, args.text.strip())
        if args.star is not None:
            marks = overlay.star(place, args.star)
        print_marks(args, reader, marks, changed=args.text is not None or args.star is not None)
    return 0

"""`logshipper tag JOB +TAG -TAG KEY=VALUE`: tags of the reader's own; without any, those that there are."""

import argparse

from observe.marking import print_marks
from observe.opening import opened_job, overlay_of
from observe.overlay import Place, parse_change


def call(args: argparse.Namespace) -> int:
    changes = [parse_change(word.strip(" ")) for word in args.changes]
    with opened_job(args) as (store, job_id), store.open(job_id) as reader:
        overlay = overlay_of(store)
        place = Place(job_id, reader.summary.cluster)
        marks = overlay.tag(place, changes) if changes else overlay.of(place)
        print_marks(args, reader, marks, changed=bool(changes))
    return 0

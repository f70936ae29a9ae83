"""`logshipper tag JOB +TAG -TAG KEY=VALUE`: tags of the reader's own; without any, those that there
are."""

import argparse

from logshipper_observe.commands.marking import print_marks
from logshipper_observe.model.overlay import JobKey, parse_change
from logshipper_observe.query.opening import known_jobs, overlay_of


def call(args: argparse.Namespace) -> int:
    changes = [parse_change(word.strip(" ")) for word in args.changes]
    with known_jobs(args, [args.job]) as (store, job_ids, unknown):
        for error in unknown:
            raise error
        overlay = overlay_of(store)
        for job_id in job_ids:
            with store.open(job_id) as reader:
                place = JobKey(job_id, reader.summary.cluster)
                marks = overlay.tag(place, changes) if changes else overlay.of(place)
                print_marks(args, reader, marks, changed=bool(changes))
    return 0

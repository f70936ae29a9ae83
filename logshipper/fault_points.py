"""Fault points: named places in the code where a crash would split two effects.

In production `fault_point` does nothing, and nothing outside can change that: it reads no
environment variable, file, argument or signal, because users must not influence root's agent. A
test sets `on_reached` in its own process (tests/tools/stress/crashing.py), kills it at one of
NAMES, restarts it and counts lines (tests/logshipper/test_fault_points.py covers all of them). The
code calls fault points per read, frame or file, never per line.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = {
    # ---- relay
    "relay_read": "bytes are read from the job's terminal, and neither counted nor passed on",
    "relay_counted": "they are counted, and not passed on",
    "relay_passed_on": "they are in the job's output, and the sidecar doesn't have them",
    "relay_cmd_ended": "CMD has ended, and the counters don't say so",
    "relay_end_noted": "the counters say how CMD ended, and the sidecar doesn't know",
    "relay_end_told": "the sidecar was told, and hasn't said that all is synced",
    # ---- sidecar
    "sidecar_locked": "the sidecar holds its lock, and there is no segment",
    "segment_created": "a segment is there, without a header",
    "segment_begun": "its header is written, and nothing else",
    "next_segment_made": "the next segment is there, and the last one doesn't say that it follows",
    "segment_sealed": "the last segment says so, and is still the one that is written",
    "frames_written": "frames are written, and not synced",
    "frames_synced": "frames are synced, and nobody knows",
    "lines_without_ledger": "lines are written, and the ledger that counts them isn't",
    "lines_refused": "the disk has refused lines, and the log doesn't say that they are lost",
    "end_written": "the end record is written, and not synced",
    "capture_closed": "the capture's END frame is written, and not synced",
    "capture_synced": "all of the capture is synced, and the relay isn't told",
    # ---- node agent: captures are made
    "capture_made": "a capture's directory is complete, under a name that readers leave out",
    "capture_named": "it has its name, and who asked for it isn't told",
    # ---- node agent: captures are shipped
    "attempt_noted": "it is noted what a round sends, and to which streams, and nothing is sent",
    "pushed": "Loki has taken a batch, and others of the round not yet",
    "sent": "all of a round is acknowledged, or in the quarantine, and the checkpoint doesn't say so",
    "quarantine_written": "refused entries are written to the quarantine, and not synced",
    "set_aside": "they are synced, and the checkpoint doesn't say so",
    "committed": "the checkpoint says so, and the segments behind it are still there",
    "sinks_differ": "one Loki's checkpoint says so, and another's doesn't",
    "shipped_segments_removed": "these are removed, and the agent hasn't gone on",
    "learnt": "the learner's position is saved, and the segments behind it are still there",
    # ---- logshipper-agent replay
    "replay_sent": "entries of the quarantine are delivered, and still stand there",
    "replay_rewritten": "they don't any more, and nothing says how many there were",
    # ---- removal, of the node's captures and of a user's own
    "segments_moved": "a capture's segments are out of the way, and not removed",
    "entry_removed": "one of a capture's files is removed, and others not",
    "identity_removed": "nothing is left of a capture but its empty directory",
    "capture_removed": "a capture is removed, and the agent still follows it",
    # ---- node agent on Slurm's controller
    "slurm_taken": "a job's end is taken, and the hook's file is still there",
    "slurm_file_removed": "the file is gone, and the end may not be sent yet",
    "slurm_told": "it is noted what is sent of an end, and nothing is sent",
    "slurm_sent": "Loki has it, and it still waits",
    "slurm_committed": "it doesn't wait any more",
    # ---- local store
    "store_rows_written": "lines are in the job's database, and the transaction is open",
    "store_committed": "it is committed, and the segments are still there",
    "store_segments_removed": "these are removed, and the store hasn't gone on",
    "store_catalogue_updated": "the job is in the catalogue, and its captures are still in the spool",
    "store_job_buried": "a job that is to go has its tombstone, and is still there",
    "store_spool_dropped": "what is spooled of it is removed, and its database is still there",
    "store_database_removed": "that is removed, and the catalogue still has the job",
    "store_summary_blanked": "the catalogue has its id, and none of its words",
    # ---- jobs of other systems
    "import_written": "a job is in its database, and the transaction is open",
    "import_committed": "it is committed, and its tags and notes are only noted",
    "imports_marked": "these are the reader's own, and new jobs have no names in the store",
    "imports_synced": "new jobs are on the disk, and have no names",
    "import_named": "one has its name, others haven't, and the catalogue doesn't have it",
    "imports_named": "all have their names, and the catalogue doesn't have them",
}

on_reached: "Callable[[str], None] | None" = None  # a test's; called by any thread


def fault_point(name: str) -> None:
    """A place where a crash would split two effects; name: one of NAMES."""
    if on_reached is not None:
        on_reached(name)

/* Whether a job's output is captured on this node: decided once per job and restart (R3), kept by
 * root in the spool, obeyed by all later steps. `.jobs/JOB.UID.RESTARTS`, as Slurm gives a job's
 * number again: the line `in present`, `in refused`, `out absent` or `out unknown`, then what
 * ~/.logoptin held (or why it is refused). */
#ifndef LOGSHIPPER_DECISION_H
#define LOGSHIPPER_DECISION_H

#include "optin.h"

#include <stdint.h>

/* Opens the spool, which must be a folder of our own (root's) with mode 0711. Returns its fd, or -1
 * and why. */
int spool_open(const char *path, char *why, size_t why_size);

/* Reads the decision. Returns 1 where it stands, 0 where there is none, -1 where it can't be read
 * (errno). */
int decision_find(int spool, uint32_t job_id, uint32_t uid, uint32_t restarts, struct look *look);

/* Records what was looked at, unless a decision stands already; *look is what counts afterwards.
 * Returns 0 or -1. */
int decision_make(int spool, uint32_t job_id, uint32_t uid, uint32_t restarts, struct look *look);

/* Bits of WIRE_IN and the options. */
int decision_bits(const struct look *look);

#endif

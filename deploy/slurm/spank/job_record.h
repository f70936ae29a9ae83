/* What Slurm itself says of a job, where a step's environment may be the user's own words: kept by
 * root in the spool's `.jobs/JOB.UID.slurm` at the job's prolog, or by the keeper of its batch
 * script. */
#ifndef LOGSHIPPER_JOB_RECORD_H
#define LOGSHIPPER_JOB_RECORD_H

#include "wire.h"

#include <stdbool.h>

/* Takes over what the record has of the step's job. Returns whether it has the number of restarts;
 * where it stands without that, it is of the batch script and has account and partition. */
bool job_record_apply(int spool, struct wire_step *step);

/* Writes it. with_restarts: these are known as well; replace: a record that stands (of an earlier
 * run). Returns 0, or -1 (errno). */
int job_record_write(int spool, const struct wire_step *step, bool with_restarts, bool replace);

/* In a job's prolog or epilog: the number of restarts that slurmd tells there, of the job's
 * credential (Slurm 22.05 and newer); -1: it doesn't. */
long job_restarts(void);

#endif

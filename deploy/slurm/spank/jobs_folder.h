/* SPOOL/.jobs: what root keeps of each job on this node (docs/segment-format.md, "The node's
 * spool"), each file named JOB.UID.SOMETHING. It is the job's as long as that runs here. */
#ifndef LOGSHIPPER_JOBS_FOLDER_H
#define LOGSHIPPER_JOBS_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A number of restarts that only the job's environment tells is no larger: each may leave files of
 * root's until the job's end, which finds them by their names then. */
enum { MOST_RESTARTS = 1000 };

/* Makes the folder, where there is none yet. Returns 0, or -1 (errno). */
int jobs_make(int spool);

/* Writes a file of it, a line and what follows, whole or not at all. replace: also where there is
 * one of that name; else the first one stands (EEXIST). Returns 0, or -1 (errno). */
int jobs_write(int spool, const char *name, const char *line, const void *rest, size_t rest_size, bool replace);

/* After a reboot: removes what is left of jobs that ran before it. Cheap where there was none. */
void jobs_after_boot(int spool);

/* At a job's end: removes what there is of its runs up to `restarts`, and what no later run can
 * have made: the next one may be here already, and have its record. A negative number: that isn't
 * known, so all of it. However many files others have here, all of the job's are found, and in the
 * same time; what an earlier job of its number left, another user's, is looked for among the first
 * 20,000. */
void jobs_forget(int spool, uint32_t job_id, uint32_t uid, long restarts, bool next_is_recorded);

/* Once a day: removes what is left of jobs whose end nobody saw, KEPT_DAYS after the last
 * change. */
void jobs_sweep(int spool);

#endif

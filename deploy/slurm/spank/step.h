/* A step as slurmstepd sees it: starts the keeper before the tasks, tells it of their ends. */
#ifndef LOGSHIPPER_STEP_H
#define LOGSHIPPER_STEP_H

#include "settings.h"
#include "wire.h"

#include <stdint.h>

/* Starts the keeper and tells it whose the step is. argv: the plugin's words; keeper: path of the
 * program. Returns the socket to it, or -1 and why. */
int step_start_keeper(const char *keeper, int argc, char **argv, const struct wire_step *step, char *why, size_t why_size);

/* Takes over what Slurm itself said of the job, where that is recorded. A batch script's account
 * and partition are right already, and newer than those that an earlier run has recorded. */
void step_learn_record(int spool, struct wire_step *step);

/* A task ended: tells the keeper, waits until all its output is delivered, drain_secs at most.
 * *socket becomes -1 where the keeper is gone. log: what the keeper has to say. */
void step_task_ended(int *socket, uint32_t task, int wait_status, unsigned drain_secs, void (*log)(const char *text));

/* What the keeper has said meanwhile. */
void step_take_words(int socket, void (*log)(const char *text));

#endif

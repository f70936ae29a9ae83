/* What a task does between Slurm's fork and exec, as the job's user: the look, the new ends, the
 * handing over. */
#ifndef LOGSHIPPER_TASK_H
#define LOGSHIPPER_TASK_H

#include <stdbool.h>
#include <stdint.h>

struct task_wish {
    int keeper; /* socket */
    uint32_t task;
    uint32_t restarts; /* of the job, where only the task knows them; 0: as the step said */
    int bits;     /* what was decided before (WIRE_IN...); -1: nothing yet */
    bool leave;   /* not to be captured, whatever is decided (an interactive step) */
    bool nested;  /* its output is captured already, by the batch: only with `per_task: true` once more */
    const char *home, *host;
    uint32_t limit_secs; /* of the job's time; 0 where that isn't known */
    unsigned columns, rows;
    unsigned start_secs;
    const char *loadavg; /* the kernel's file of this name */
};

/* How long a task waits for keeper and relay. `start_secs` counts for a node with no more runnable
 * processes than cores; twice as many double it, up to MOST_BUSY times. loadavg: the kernel's text.
 * What delays the relay there delays the task's own start as well. */
unsigned task_patience_secs(unsigned start_secs, const char *loadavg, long cores);

/* A job's time limit, by its start and end (seconds since 1970) as Slurm writes them; 0 where that
 * can't be one. */
uint32_t task_limit_secs(const char *start, const char *end);

/* Returns whether the task is captured: then fds 1 and 2 are its new ends. Else nothing has
 * changed. Takes some milliseconds, and no longer than the bounds in task.c where something hangs.
 * Never writes to the task's own output: what is to be said goes to the keeper. */
bool task_begin(const struct task_wish *wish);

#endif

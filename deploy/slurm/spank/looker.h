/* Who looks at ~/.logoptin, in the keeper: a look that hangs is taken out of the job's cgroups, as a process that nobody
 * can end (a file server that took the question and never answers) would keep the job from ending there, and Slurm
 * would drain the node. A look takes less than a millisecond as a rule, and being moved takes ten, for which no task is
 * to wait: so who still looks after a while is moved, long before the task gives up and goes on. The kernel moves who
 * hangs in a system call, too. */
#ifndef LOGSHIPPER_LOOKER_H
#define LOGSHIPPER_LOOKER_H

#include "wire.h"

#include <stdbool.h>

/* Somebody is going to look (WIRE_LOOKER). */
void looker_note(const struct wire_packet *packet);

/* For poll(2): milliseconds until somebody is to be moved; -1: nobody. */
int looker_wait_ms(void);

/* Moves those that are due and look on; all: those that aren't due, too. */
void looker_take_out(bool all, void (*say)(const char *text));

#endif

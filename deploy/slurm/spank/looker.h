/* Who looks at ~/.logoptin, in the keeper: a look that hangs is taken out of the job's cgroups, as
 * a process that nobody can end (a file server that took the question and never answers) would keep
 * the job from ending there, and Slurm would drain the node. A look takes less than a millisecond
 * as a rule, and being moved takes ten, for which no task is to wait: so who still looks after a
 * while is moved, long before the task gives up and goes on. The kernel moves who hangs in a system
 * call, too.
 *
 * Only a number tells the kernel whom to move, and by then it may be another's: the user, who can
 * kill who looks, would have a process of the job freed of its limits. While a process is traced
 * its number stays its own, even when it is dead; so it is traced meanwhile, which neither stops it
 * nor waits for it. That takes a process of our own, as tracing one that hangs ends with the
 * tracer. */
#ifndef LOGSHIPPER_LOOKER_H
#define LOGSHIPPER_LOOKER_H

#include "wire.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Somebody is going to look (WIRE_LOOKER). */
void looker_note(const struct wire_packet *packet);

/* For poll(2): milliseconds until somebody is to be moved; -1: nobody. */
int looker_wait_ms(void);

/* Has those moved that are due and look on; all: those that aren't due, too. */
void looker_take_out(bool all, void (*say)(const char *text));

/* Moves the process of that number which began then, if it still is; it is traced until this
 * process ends. root: as cgroup_leave has it. */
void looker_move(const char *root, pid_t pid, uint64_t started, void (*say)(const char *text));

#endif

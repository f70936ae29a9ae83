/* Out of the job's cgroups: what runs next to a job mustn't count against its memory, share its
 * pinned cores, or die with it; and a cgroup that somebody else sits in can't be removed at the
 * job's end. */
#ifndef LOGSHIPPER_CGROUP_H
#define LOGSHIPPER_CGROUP_H

#include <sys/types.h>

/* Moves a process (0: this one), which may hang in a system call meanwhile. Version 1: into the
 * root of each hierarchy that Slurm has a job's cgroup in. Version 2: into `logshipper` next to
 * Slurm's `job_N` (from 26.05 on: the job's SLUID), in the scope that is delegated to Slurm, wherever
 * that is: a leaf, as a cgroup whose children have controllers takes no process itself. Else into
 * the root, which alone is free of that rule.
 * Returns how many cgroups of a job it is left in, which is said to `say`; 0 where it is gone.
 * root: "" but for tests, who have a tree of their own. */
int cgroup_leave(const char *root, pid_t pid, void (*say)(const char *text));

#endif

/* Out of the job's cgroups: what runs beside a job mustn't count against its memory, share its pinned cores, or die
 * with it; and a cgroup that somebody else sits in can't be removed at the job's end. */
#ifndef LOGSHIPPER_CGROUP_H
#define LOGSHIPPER_CGROUP_H

/* Moves this process. Version 1: into the root of each hierarchy that Slurm has a job's cgroup in. Version 2: into
 * `logshipper` beside Slurm's `job_N`, in the scope that is delegated to Slurm, else into the root. Returns how many
 * cgroups of a job this process is left in, which is said to `say`. */
int cgroup_leave(void (*say)(const char *text));

#endif

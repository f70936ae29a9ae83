/* From root to the job's user, for good. */
#ifndef LOGSHIPPER_PRIVILEGES_H
#define LOGSHIPPER_PRIVILEGES_H

#include <stdint.h>

/* As root: a user namespace that has this user alone, as whom it is outside. In it our processes
 * don't count in the user's RLIMIT_NPROC (from Linux 5.14 on), so a job with a small `ulimit -u`
 * may have as many as without us. It is root's, so nobody of the user's has any right over it.
 * Returns an fd, or -1 where the kernel has none to give. */
int make_namespace(uint32_t uid, uint32_t gid);

/* User and group alone, no supplementary groups (nothing of the group's is touched); no new
 * privileges by any exec, not to be traced, no core file; what is started nicer may become as usual
 * again (RLIMIT_NICE). namespace: to do it in, or -1. Returns 0, or -1: then the process must
 * end. */
int become_user(uint32_t uid, uint32_t gid, int namespace);

/* Nobody may trace this process or read its memory, and it leaves no core file, which would be full
 * of job bytes. */
void hide_memory(void);

#endif

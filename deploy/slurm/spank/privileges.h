/* From root to the job's user, for good. */
#ifndef LOGSHIPPER_PRIVILEGES_H
#define LOGSHIPPER_PRIVILEGES_H

#include <stdint.h>

/* User and group alone, no supplementary groups (nothing of the group's is touched); no new privileges by any exec,
 * not to be traced, no core file; what is started nicer may become as usual again (RLIMIT_NICE). Returns 0, or -1: then the process must end. */
int become_user(uint32_t uid, uint32_t gid);

/* Nobody may trace this process or read its memory, and it leaves no core file, which would be full of job bytes. */
void hide_memory(void);

#endif

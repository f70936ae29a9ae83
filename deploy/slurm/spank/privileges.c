#include "privileges.h"

#include <grp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

void hide_memory(void)
{
    const struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

int become_user(uint32_t uid, uint32_t gid)
{
    uid_t real, effective, saved;
    if (geteuid() == 0) {
        const struct rlimit usual = {20, 20}; /* nice 0: 20 - 20 */
        (void)setrlimit(RLIMIT_NICE, &usual);
        if (setgroups(0, NULL) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid))
            return -1;
    }
    if (getresuid(&real, &effective, &saved) || real != uid || effective != uid || saved != uid)
        return -1;
    if (uid != 0 && setresuid(0, 0, 0) == 0)
        return -1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return -1;
    hide_memory(); /* what a change of users set back */
    return 0;
}

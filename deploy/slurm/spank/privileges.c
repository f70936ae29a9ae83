#include "privileges.h"

#include "basics.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NAMESPACE_MS = 1000, NOBODY = 65534 };

void hide_memory(void)
{
    const struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

static int write_map(pid_t pid, const char *which, uint32_t id)
{
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, which);
    int size = snprintf(text, sizeof text, "%u %u 1\n", id, id);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int failed = fd < 0 || write_all(fd, text, (size_t)size);
    close_fd(&fd);
    return failed;
}

int make_namespace(uint32_t uid, uint32_t gid)
{
    char path[64], byte = 0;
    int ends[2], found = -1;
    if (geteuid() != 0 || uid == 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return -1;
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        if (unshare(CLONE_NEWUSER) == 0 && write(ends[1], &byte, 1) == 1)
            (void)!read(ends[1], &byte, 1); /* until it has been opened */
        _exit(0);
    }
    close(ends[1]);
    struct pollfd news = {.fd = ends[0], .events = POLLIN};
    if (child > 0 && poll(&news, 1, NAMESPACE_MS) > 0 && read(ends[0], &byte, 1) == 1 &&
        !write_map(child, "uid_map", uid) && !write_map(child, "gid_map", gid)) {
        snprintf(path, sizeof path, "/proc/%d/ns/user", (int)child);
        found = open(path, O_RDONLY | O_CLOEXEC);
    }
    close(ends[0]);
    if (child > 0) {
        kill(child, SIGKILL);
        (void)waitpid(child, NULL, 0);
    }
    return found;
}

/* In a namespace without root a change of users takes none away. */
static int drop_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
    return (int)syscall(SYS_capset, &head, none);
}

int become_user(uint32_t uid, uint32_t gid, int namespace)
{
    uid_t real, effective, saved;
    if (geteuid() == 0) {
        const struct rlimit usual = {20, 20}; /* nice 0: 20 - 20 */
        (void)setrlimit(RLIMIT_NICE, &usual);
        if (namespace >= 0 && setns(namespace, CLONE_NEWUSER))
            return -1;
        /* without a namespace of root's only this keeps the user's other processes from tracing
         * what is exec'ed here: all three of its groups would have to be theirs */
        gid_t real_gid = namespace >= 0 || uid == 0 ? gid : gid != NOBODY ? NOBODY : NOBODY - 1;
        if (setgroups(0, NULL) || setresgid(real_gid, gid, gid) || setresuid(uid, uid, uid))
            return -1;
    }
    if (getresuid(&real, &effective, &saved) || real != uid || effective != uid || saved != uid)
        return -1;
    if (uid != 0 && (drop_capabilities() || setresuid(0, 0, 0) == 0))
        return -1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return -1;
    hide_memory(); /* what a change of users set back */
    return 0;
}

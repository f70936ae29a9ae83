#include "cgroup.h"

#include "basics.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static FILE *open_below(const char *root, const char *name)
{
    char path[PATH_MAX];
    return (size_t)snprintf(path, sizeof path, "%s%s", root, name) < sizeof path ? fopen(path, "re") : NULL;
}

/* Where a hierarchy is mounted. controllers: as /proc/self/cgroup names it, "" for version 2.
 * Returns 0 or -1. */
static int find_mount(const char *root, const char *controllers, char *path, size_t size)
{
    char line[2 * PATH_MAX];
    int found = -1;
    FILE *mounts = open_below(root, "/proc/self/mountinfo");
    if (!mounts)
        return -1;
    while (found && fgets(line, sizeof line, mounts)) {
        char mount[PATH_MAX], type[32], options[512];
        char *after = strstr(line, " - ");
        if (!after || sscanf(line, "%*s %*s %*s %*s %4095s", mount) != 1 ||
            sscanf(after, " - %31s %*s %511s", type, options) != 2)
            continue;
        if (!controllers[0]) {
            if (strcmp(type, "cgroup2") == 0)
                found = 0;
        } else if (strcmp(type, "cgroup") == 0) {
            /* options are a list like `rw,cpu,cpuacct`; ours may be a part of it, whole words */
            char wrapped[520], wanted[260];
            snprintf(wrapped, sizeof wrapped, ",%s,", options);
            snprintf(wanted, sizeof wanted, ",%s,", controllers);
            if (strstr(wrapped, wanted))
                found = 0;
        }
        if (!found && (size_t)snprintf(path, size, "%s%s", root, mount) >= size)
            found = -1;
    }
    fclose(mounts);
    return found;
}

static int join(const char *folder, pid_t pid)
{
    char number[16];
    int size = snprintf(number, sizeof number, "%ld", (long)pid);
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/cgroup.procs", folder) >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int failed = write_all(fd, number, (size_t)size);
    int error = errno;
    close(fd);
    errno = error;
    return failed;
}

/* base: the cgroup that Slurm's job_N lies in. */
static int leave_v2(const char *mount, const char *base, pid_t pid)
{
    char folder[PATH_MAX];
    if ((size_t)snprintf(folder, sizeof folder, "%s%s/logshipper", mount, base) < sizeof folder &&
        (mkdir(folder, 0755) == 0 || errno == EEXIST) && join(folder, pid) == 0)
        return 0;
    return join(mount, pid);
}

/* Where `/job_N` begins in a path; NULL: it is no job's. */
static char *find_job(char *path)
{
    for (char *at = path; (at = strstr(at, "/job_")); at++) {
        const char *number = at + strlen("/job_");
        size_t digits = strspn(number, "0123456789");
        if (digits && (number[digits] == '/' || !number[digits]))
            return at;
    }
    return NULL;
}

int cgroup_leave(const char *root, pid_t pid, void (*say)(const char *text))
{
    char line[PATH_MAX + 512], mount[PATH_MAX], text[PATH_MAX + 128], list[32] = "/proc/self/cgroup";
    int left = 0;
    if (pid)
        snprintf(list, sizeof list, "/proc/%ld/cgroup", (long)pid);
    FILE *groups = open_below(root, list);
    if (!groups)
        return 0; /* a kernel without cgroups; or it is gone */
    while (fgets(line, sizeof line, groups)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        char *job = path ? find_job(path + 1) : NULL;
        if (!job)
            continue;
        *controllers++ = *path++ = 0;
        *job = 0; /* path is now what the job's cgroup lies in */
        if (find_mount(root, controllers, mount, sizeof mount)) {
            errno = ENOENT;
        } else if ((controllers[0] ? join(mount, pid) : leave_v2(mount, path, pid)) == 0 || (pid && errno == ESRCH)) {
            continue;
        }
        left++;
        snprintf(text, sizeof text, "the job's %s cgroup can't be left: %s", controllers[0] ? controllers : "(v2)",
                 strerror(errno));
        say(text);
    }
    fclose(groups);
    return left;
}

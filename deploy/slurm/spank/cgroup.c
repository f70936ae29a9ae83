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

/* Where a hierarchy is mounted. controllers: as /proc/self/cgroup names it, "" for version 2. Returns 0 or -1. */
static int find_mount(const char *controllers, char *path, size_t size)
{
    char line[2 * PATH_MAX];
    int found = -1;
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
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
        if (!found && (size_t)snprintf(path, size, "%s", mount) >= size)
            found = -1;
    }
    fclose(mounts);
    return found;
}

static int join(const char *folder)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/cgroup.procs", folder) >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int failed = write_all(fd, "0", 1);
    int error = errno;
    close(fd);
    errno = error;
    return failed;
}

/* base: the cgroup that Slurm's job_N lies in. */
static int leave_v2(const char *mount, const char *base)
{
    char folder[PATH_MAX];
    if ((size_t)snprintf(folder, sizeof folder, "%s%s/logshipper", mount, base) < sizeof folder &&
        (mkdir(folder, 0755) == 0 || errno == EEXIST) && join(folder) == 0)
        return 0;
    return join(mount);
}

int cgroup_leave(void (*say)(const char *text))
{
    char line[PATH_MAX + 512], mount[PATH_MAX], text[PATH_MAX + 128];
    int left = 0;
    FILE *groups = fopen("/proc/self/cgroup", "re");
    if (!groups)
        return 0; /* a kernel without cgroups */
    while (fgets(line, sizeof line, groups)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        char *job = path ? strstr(path + 1, "/job_") : NULL;
        if (!job)
            continue;
        *controllers++ = *path++ = 0;
        *job = 0; /* path is now what the job's cgroup lies in */
        if (find_mount(controllers, mount, sizeof mount)) {
            errno = ENOENT;
        } else if ((controllers[0] ? join(mount) : leave_v2(mount, path)) == 0) {
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

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

/* What is left of a cgroup's path below the one that is mounted, which in a container may be another
 * than the root; NULL where it isn't below. */
static const char *below_mounted(const char *mounted, const char *path)
{
    size_t size = strcmp(mounted, "/") == 0 ? 0 : strlen(mounted);
    return strncmp(path, mounted, size) == 0 && (path[size] == '/' || !path[size]) ? path + size : NULL;
}

/* Where a hierarchy is mounted. controllers: as /proc/self/cgroup names it, "" for version 2, of
 * which group is looked for there, and becomes its path below the mount. Returns 0 or -1. */
static int find_mount(const char *root, const char *controllers, const char **group, char *path, size_t size)
{
    char line[2 * PATH_MAX];
    int found = -1;
    FILE *mounts = open_below(root, "/proc/self/mountinfo");
    if (!mounts)
        return -1;
    while (found && fgets(line, sizeof line, mounts)) {
        char mounted[PATH_MAX], mount[PATH_MAX], type[32], options[512];
        char *after = strstr(line, " - ");
        if (!after || sscanf(line, "%*s %*s %*s %4095s %4095s", mounted, mount) != 2 ||
            sscanf(after, " - %31s %*s %511s", type, options) != 2)
            continue;
        if (!controllers[0]) {
            const char *below = strcmp(type, "cgroup2") == 0 ? below_mounted(mounted, *group) : NULL;
            if (below) {
                *group = below;
                found = 0;
            }
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

/* The length of a job's cgroup's name at the beginning of a path: `job_N`, or in version 2 from
 * Slurm 26.05 on the job's SLUID with steps below it (`s` and 13 digits of a base of 32); else 0. */
static size_t job_name(const char *path)
{
    const size_t size = strcspn(path, "/"), prefix = strlen("job_"), sluid = 14;
    if (size > prefix && starts_with(path, "job_") && strspn(path + prefix, "0123456789") == size - prefix)
        return size;
    bool is_sluid = size == sluid && path[0] == 's' && strspn(path + 1, "0123456789ABCDEFGHJKMNPQRSTVWXYZ") == sluid - 1;
    return is_sluid && starts_with(path + size, "/step_") ? size : 0;
}

/* Where the slash before a job's name is in a path; NULL: it is no job's. */
static char *find_job(char *path)
{
    for (char *at = path; (at = strchr(at, '/')); at++)
        if (job_name(at + 1))
            return at;
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
        char *job = path ? find_job(path + 1) : NULL; /* behind its colon */
        if (!job)
            continue;
        *controllers++ = *path++ = 0;
        *job = 0; /* path is now what the job's cgroup lies in */
        const char *base = path;
        if (find_mount(root, controllers, &base, mount, sizeof mount)) {
            errno = ENOENT;
        } else if ((controllers[0] ? join(mount, pid) : leave_v2(mount, base, pid)) == 0 || (pid && errno == ESRCH)) {
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

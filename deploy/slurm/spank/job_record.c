#include "job_record.h"

#include "basics.h"
#include "jobs_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void name_of(char *name, size_t size, const struct wire_step *step)
{
    snprintf(name, size, "%u.%u.slurm", step->job_id, step->uid);
}

static void take_word(struct wire_step *step, const char *line, bool *has_restarts)
{
    char *end;
    if (starts_with(line, "restarts=")) {
        unsigned long restarts = strtoul(line + strlen("restarts="), &end, 10);
        *has_restarts = !*end && restarts < UINT32_MAX;
        if (*has_restarts)
            step->restarts = (uint32_t)restarts;
    } else if (starts_with(line, "account=")) {
        snprintf(step->account, sizeof step->account, "%s", line + strlen("account="));
    } else if (starts_with(line, "partition=")) {
        snprintf(step->partition, sizeof step->partition, "%s", line + strlen("partition="));
    }
}

bool job_record_apply(int spool, struct wire_step *step)
{
    char name[32], path[64], text[512];
    bool has_restarts = false;
    name_of(name, sizeof name, step);
    snprintf(path, sizeof path, ".jobs/%s", name);
    int fd = openat(spool, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    text[size > 0 ? size : 0] = 0;
    char *at = text;
    for (char *end; (end = strchr(at, '\n')); at = end + 1) {
        *end = 0;
        take_word(step, at, &has_restarts);
    }
    return has_restarts;
}

int job_record_write(int spool, const struct wire_step *step, bool with_restarts, bool replace)
{
    char name[32], text[512], restarts[32] = "";
    name_of(name, sizeof name, step);
    if (with_restarts)
        snprintf(restarts, sizeof restarts, "restarts=%u\n", step->restarts);
    if (strchr(step->account, '\n') || strchr(step->partition, '\n')) {
        errno = EINVAL; /* Slurm has no such names */
        return -1;
    }
    snprintf(text, sizeof text, "%saccount=%s\npartition=%s\n", restarts, step->account, step->partition);
    return jobs_write(spool, name, text, NULL, 0, replace);
}

long job_restarts(void)
{
    char *end = NULL;
    const char *told = getenv("SLURM_JOB_RESTART_COUNT");
    long restarts = told ? strtol(told, &end, 10) : -1;
    return told && end != told && !*end && restarts >= 0 && restarts < UINT32_MAX ? restarts : -1;
}

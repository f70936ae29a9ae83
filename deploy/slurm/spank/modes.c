#include "modes.h"

#include "basics.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int modes_open(int spool, const struct wire_step *step)
{
    char name[64];
    snprintf(name, sizeof name, ".jobs/%u.%u.modes", step->job_id, step->restarts);
    int fd = openat(spool, name, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd >= 0 && geteuid() == 0 && fchown(fd, step->uid, step->gid))
        close_fd(&fd);
    return fd;
}

#include "basics.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MANY_FDS = 65536 };

int64_t now_ns(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now))
        return 0; /* can't be */
    return (int64_t)now.tv_sec * SEC_NS + now.tv_nsec;
}

int ms_until(int64_t deadline_ns)
{
    int64_t left = deadline_ns - now_ns();
    if (left <= 0)
        return 0;
    left = (left + MS_NS - 1) / MS_NS;
    return left > 3600 * 1000 ? 3600 * 1000 : (int)left;
}

void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void close_from(int first)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, (unsigned)first, ~0U, 0U) == 0)
        return;
#endif
    long most = sysconf(_SC_OPEN_MAX); /* Linux before 5.9 */
    if (most < 0 || most > MANY_FDS)
        most = MANY_FDS;
    for (int fd = first; fd < (int)most; fd++)
        close(fd);
}

int write_all(int fd, const void *data, size_t size)
{
    const char *at = data;
    while (size) {
        ssize_t done = write(fd, at, size);
        if (done < 0) {
            if (errno == EINTR)
                continue;
            return -1;
        }
        at += done;
        size -= (size_t)done;
    }
    return 0;
}

int starts_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

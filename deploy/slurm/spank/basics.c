#include "basics.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MANY_FDS = 65536, COMM_FIELD = 2, STARTED_FIELD = 22 };

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

/* What follows the name in /proc/PID/stat, from its bracket on; NULL where there is no such
 * process, or it is dead. */
static const char *read_stat(const char *path, char *text, size_t text_size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    ssize_t size = read(fd, text, text_size - 1);
    close(fd);
    text[size > 0 ? size : 0] = 0;
    const char *at = strrchr(text, ')'); /* in the name anything may be */
    return at && !starts_with(at, ") Z") && !starts_with(at, ") X") ? at : NULL;
}

bool process_waits_for_processor(const char *path)
{
    char text[1024];
    const char *at = read_stat(path, text, sizeof text);
    return at && starts_with(at, ") R");
}

int process_started(const char *path, uint64_t *started)
{
    char text[1024];
    const char *at = read_stat(path, text, sizeof text);
    for (int field = COMM_FIELD; at && field < STARTED_FIELD; field++)
        at = strchr(at + 1, ' ');
    if (!at)
        return -1;
    *started = 0;
    for (at++; *at >= '0' && *at <= '9'; at++)
        *started = *started * 10 + (uint64_t)(*at - '0');
    return 0;
}

void session_nice(int nice)
{
    char text[16];
    int size = snprintf(text, sizeof text, "%d", nice);
    int fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)write_all(fd, text, (size_t)size);
    close_fd(&fd);
}

void ignore_signals_of_jobs(void)
{
    const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU, SIGXFSZ};
    for (int signo = 1; signo < NSIG; signo++)
        signal(signo, SIG_DFL);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
}

int starts_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

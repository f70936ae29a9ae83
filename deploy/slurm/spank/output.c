#include "output.h"

#include "basics.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { PIECE_BYTES = 4096, PTS_MAJOR_FIRST = 136, PTS_MAJOR_LAST = 143 };

void output_own_description(int *fd)
{
    struct stat found, own_found;
    int flags = fcntl(*fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || fstat(*fd, &found))
        return;
    unsigned device = major(found.st_rdev);
    int is_pts = S_ISCHR(found.st_mode) && device >= PTS_MAJOR_FIRST && device <= PTS_MAJOR_LAST;
    if (!S_ISFIFO(found.st_mode) && !is_pts)
        return;
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", *fd);
    int own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own < 0)
        return; /* its reader is gone */
    if (fstat(own, &own_found) || own_found.st_dev != found.st_dev || own_found.st_ino != found.st_ino) {
        close(own);
        return;
    }
    close(*fd);
    *fd = own;
}

void output_init(struct output *output, int fd)
{
    struct stat found;
    int tty = isatty(fd);
    int flags = fcntl(fd, F_GETFL);
    int pipe_like = fstat(fd, &found) == 0 && (S_ISFIFO(found.st_mode) || S_ISSOCK(found.st_mode));
    *output = (struct output){.fd = fd, .cut = !tty, .kind = OUTPUT_WHOLE};
    if (pipe_like || tty)
        output->kind = flags >= 0 && flags & O_NONBLOCK ? OUTPUT_FREE : OUTPUT_CAREFUL;
}

/* Up to the last line's end in the first 4 KiB, or all of these. */
static size_t piece_of(const struct output *output, const unsigned char *data, size_t size)
{
    if (output->kind == OUTPUT_WHOLE || size <= PIECE_BYTES)
        return size;
    const unsigned char *end = output->cut ? memrchr(data, '\n', PIECE_BYTES) : NULL;
    return end ? (size_t)(end - data) + 1 : PIECE_BYTES;
}

size_t output_write(struct output *output, const unsigned char *data, size_t size)
{
    size_t at = 0;
    while (at < size) {
        struct pollfd room = {.fd = output->fd, .events = POLLOUT};
        if (output->kind == OUTPUT_CAREFUL && poll(&room, 1, 0) == 0)
            break;
        ssize_t done = write(output->fd, data + at, piece_of(output, data + at, size - at));
        if (done >= 0) {
            at += (size_t)done;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            break;
        if (errno == EPIPE || errno == EIO)
            output->gone = errno;
        else if (!output->fault)
            output->fault = errno;
        return size;
    }
    return at;
}

int same_file(int one, int other)
{
    struct stat first, second;
    if (fstat(one, &first) || fstat(other, &second))
        return 0;
    if (S_ISCHR(first.st_mode) && S_ISCHR(second.st_mode))
        return first.st_rdev == second.st_rdev;
    return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

#include "output.h"

#include "basics.h"
#include "fault_points.h"

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

/* A pipe of our own: the kernel moves bytes from it to the output, so none is ever in both, or in
 * neither. */
static enum intent make_stage(struct output *output)
{
    return pipe2(output->stage, O_CLOEXEC | O_NONBLOCK) ? INTENT_BLIND : INTENT_STAGED;
}

void output_init(struct output *output, int fd, struct entry *entry)
{
    struct stat found = {0};
    int tty = isatty(fd);
    int flags = fcntl(fd, F_GETFL);
    (void)fstat(fd, &found);
    int pipe_like = S_ISFIFO(found.st_mode) || S_ISSOCK(found.st_mode);
    *output = (struct output){.fd = fd, .cut = !tty, .kind = OUTPUT_WHOLE, .stage = {-1, -1}};
    output->entry = entry;
    if (pipe_like || tty)
        output->kind = flags >= 0 && flags & O_NONBLOCK ? OUTPUT_FREE : OUTPUT_CAREFUL;
    if (S_ISFIFO(found.st_mode)) {
        output->trace = make_stage(output);
    } else if (output->kind == OUTPUT_WHOLE && lseek(fd, 0, flags & O_APPEND ? SEEK_END : SEEK_CUR) >= 0) {
        output->trace = INTENT_FILE; /* an appending file's offset is what it should be after its first write only */
    } else {
        output->trace = INTENT_BLIND;
    }
}

void output_close(struct output *output)
{
    close_fd(&output->fd);
    close_fd(&output->stage[0]);
    close_fd(&output->stage[1]);
}

/* Up to the last line's end in the first 4 KiB, or all of these. */
static size_t piece_of(const struct output *output, const unsigned char *data, size_t size)
{
    if (output->kind == OUTPUT_WHOLE || size <= PIECE_BYTES)
        return size;
    const unsigned char *end = output->cut ? memrchr(data, '\n', PIECE_BYTES) : NULL;
    return end ? (size_t)(end - data) + 1 : PIECE_BYTES;
}

static ssize_t write_plain(struct output *output, const unsigned char *data, size_t size)
{
    struct pollfd room = {.fd = output->fd, .events = POLLOUT};
    if (output->kind == OUTPUT_CAREFUL && poll(&room, 1, 0) == 0) {
        errno = EAGAIN;
        return -1;
    }
    int64_t offset = output->trace == INTENT_FILE ? lseek(output->fd, 0, SEEK_CUR) : 0;
    entry_intend(output->entry, output->trace, size, offset);
    FAULT_POINT(bytes_intended);
    ssize_t done = write(output->fd, data, size);
    int error = errno;
    FAULT_POINT(bytes_written);
    entry_settle(output->entry, done > 0 ? (size_t)done : 0);
    errno = error;
    return done;
}

/* The kernel can't move bytes here: as if nothing had been staged. */
static void unstage(struct output *output)
{
    unsigned char away[PIECE_BYTES];
    output->trace = INTENT_BLIND;
    entry_settle(output->entry, 0);
    while (output->staged) {
        ssize_t got = read(output->stage[0], away, sizeof away);
        output->staged -= got > 0 ? (size_t)got : output->staged;
    }
}

/* What is staged is the beginning of `data`, which grows at its end alone. */
static ssize_t write_staged(struct output *output, const unsigned char *data, size_t size)
{
    if (!output->staged) {
        entry_intend(output->entry, INTENT_STAGING, size, 0);
        ssize_t put = write(output->stage[1], data, size);
        output->staged = put > 0 ? (size_t)put : 0; /* it is empty, and takes PIPE_BUF at least */
        FAULT_POINT(bytes_staged);
        entry_intend(output->entry, INTENT_STAGED, output->staged, 0);
    }
    if (size > output->staged)
        size = output->staged;
    ssize_t done = splice(output->stage[0], NULL, output->fd, NULL, size, SPLICE_F_NONBLOCK);
    if (done > 0) {
        FAULT_POINT(bytes_moved);
        output->staged -= (size_t)done;
        entry_moved(output->entry, (size_t)done, output->staged == 0);
        return done;
    }
    if (done < 0 && (errno == EAGAIN || errno == EINTR || errno == EPIPE))
        return -1;
    unstage(output);
    return write_plain(output, data, size);
}

size_t output_write(struct output *output, const unsigned char *data, size_t size)
{
    size_t at = 0;
    while (at < size) {
        size_t piece = piece_of(output, data + at, size - at);
        ssize_t done = output->trace == INTENT_STAGED ? write_staged(output, data + at, piece)
                                                      : write_plain(output, data + at, piece);
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
        entry_settle(output->entry, size - at);
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

#include "side_pipe.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { HEADER_BYTES = 8 };

static void write_header(unsigned char *at, unsigned type, unsigned stream, unsigned flags, size_t size)
{
    at[0] = (unsigned char)type;
    at[1] = (unsigned char)stream;
    at[2] = (unsigned char)flags;
    at[3] = 0;
    for (int i = 0; i < 4; i++)
        at[4 + i] = (unsigned char)(size >> (8 * i));
}

static void end_frame(struct side_pipe *pipe)
{
    if (pipe->open < pipe->end) {
        size_t size = pipe->end - pipe->open - HEADER_BYTES;
        write_header(pipe->buffer + pipe->open, SIDE_DATA, pipe->open_stream, pipe->open_flags, size);
    }
    pipe->open = pipe->end;
}

/* Room for `size` bytes more at the end. */
static bool has_room(struct side_pipe *pipe, size_t size)
{
    if (SIDE_ROOM - pipe->end >= size)
        return true;
    size_t waiting = pipe->end - pipe->start;
    memmove(pipe->buffer, pipe->buffer + pipe->start, waiting);
    pipe->open -= pipe->start;
    pipe->start = 0;
    pipe->end = waiting;
    if (SIDE_ROOM - pipe->end < size)
        pipe->broken = true; /* can't be: streams aren't read once BUFFER_BYTES wait */
    return !pipe->broken;
}

void side_data(struct side_pipe *pipe, unsigned stream, const unsigned char *data, size_t size, unsigned flags)
{
    bool grows = pipe->open < pipe->end && pipe->open_stream == stream && !(flags & ~pipe->open_flags) &&
                 pipe->end - pipe->open - HEADER_BYTES + size <= FRAME_BYTES;
    if (!grows)
        end_frame(pipe);
    if (pipe->broken || pipe->ended || !has_room(pipe, HEADER_BYTES + size))
        return;
    if (!grows) {
        pipe->open = pipe->end;
        pipe->open_stream = stream;
        pipe->open_flags = flags;
        pipe->end += HEADER_BYTES;
    }
    memcpy(pipe->buffer + pipe->end, data, size);
    pipe->end += size;
    if (side_waiting(pipe) >= FRAME_BYTES)
        side_send(pipe);
}

static void add_frame(struct side_pipe *pipe, enum side_type type, unsigned stream, unsigned flags, const void *payload,
                      size_t size)
{
    end_frame(pipe);
    if (pipe->broken || pipe->ended || !has_room(pipe, HEADER_BYTES + size))
        return;
    write_header(pipe->buffer + pipe->end, (unsigned)type, stream, flags, size);
    pipe->end += HEADER_BYTES;
    if (size)
        memcpy(pipe->buffer + pipe->end, payload, size);
    pipe->end += size;
    pipe->open = pipe->end;
}

void side_frame(struct side_pipe *pipe, enum side_type type, unsigned stream, unsigned flags)
{
    add_frame(pipe, type, stream, flags, NULL, 0);
}

void side_exit(struct side_pipe *pipe, int wait_status)
{
    unsigned char payload[4];
    for (int i = 0; i < 4; i++)
        payload[i] = (unsigned char)((unsigned)wait_status >> (8 * i));
    add_frame(pipe, SIDE_EXIT, 0, 0, payload, sizeof payload);
    pipe->ended = true;
}

void side_send(struct side_pipe *pipe)
{
    if (pipe->broken || pipe->fd < 0)
        return;
    end_frame(pipe);
    while (!pipe->blocked && pipe->start < pipe->end) {
        ssize_t sent = write(pipe->fd, pipe->buffer + pipe->start, pipe->end - pipe->start);
        if (sent >= 0)
            pipe->start += (size_t)sent;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            pipe->blocked = true;
        else if (errno != EINTR)
            pipe->broken = true; /* EPIPE */
        if (pipe->broken)
            return;
    }
    if (pipe->start == pipe->end)
        pipe->start = pipe->end = pipe->open = 0;
}

size_t side_waiting(const struct side_pipe *pipe)
{
    return pipe->end - pipe->start;
}

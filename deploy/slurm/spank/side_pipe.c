#include "side_pipe.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
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

static void add_frame(struct side_pipe *pipe, enum side_type type, unsigned stream, unsigned flags, const void *payload,
                      size_t size);

static void say_empty(struct side_pipe *pipe)
{
    if (pipe->empty)
        add_frame(pipe, SIDE_EMPTY, 0, pipe->empty, NULL, 0);
    pipe->empty = 0;
}

/* Where the last command's word ends; NULL: there is none. */
static const unsigned char *last_command(const unsigned char *text, size_t size)
{
    static const char command[] = "/LOGCOMMAND";
    const unsigned char *end = text + size, *found = NULL;
    while ((text = memchr(text, '/', (size_t)(end - text))) && end - text >= SIDE_COMMAND_BYTES) {
        if (!strncasecmp((const char *)text, command, SIDE_COMMAND_BYTES))
            found = text + SIDE_COMMAND_BYTES;
        text++;
    }
    return found;
}

/* How many bytes go up to the end of the last command's line; 0 where no command is in `data`, nor
 * begins before it. Where a relay is killed, what it has not handed over comes stream by stream:
 * commands don't wait, nor what is seen empty after them. */
static size_t look_for_command(struct side_pipe *pipe, unsigned stream, const unsigned char *data, size_t size)
{
    enum { KEPT = SIDE_COMMAND_BYTES - 1 };
    unsigned char seam[2 * KEPT], *ends = pipe->ends[stream - 1];
    size_t more = size < KEPT ? size : KEPT;
    memcpy(seam, ends, KEPT);
    memcpy(seam + KEPT, data, more);
    const unsigned char *found = last_command(data, size);
    if (!found && last_command(seam, KEPT + more))
        found = data;
    if (found) {
        say_empty(pipe);
        pipe->doubtful = SIDE_BOTH & ~pipe->over;
        pipe->due_ns = 0;
    }
    if (size < KEPT)
        memcpy(ends, seam + more, KEPT);
    else
        memcpy(ends, data + size - KEPT, KEPT);
    const unsigned char *line_end = found ? memchr(found, '\n', size - (size_t)(found - data)) : NULL;
    if (line_end)
        return (size_t)(line_end - data) + 1;
    return found ? size : 0;
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

static void gather(struct side_pipe *pipe, unsigned stream, const unsigned char *data, size_t size, unsigned flags)
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
}

void side_settle(struct side_pipe *pipe)
{
    if (pipe->held_size)
        gather(pipe, pipe->held_stream, pipe->held, pipe->held_size, pipe->held_flags);
    pipe->held_size = 0;
}

static void hold(struct side_pipe *pipe, unsigned stream, const unsigned char *data, size_t size, unsigned flags)
{
    if (!pipe->held_size) {
        pipe->held_stream = stream;
        pipe->held_flags = flags;
    }
    pipe->held_flags &= flags;
    memcpy(pipe->held + pipe->held_size, data, size);
    pipe->held_size += size;
}

void side_data(struct side_pipe *pipe, unsigned stream, const unsigned char *data, size_t size, unsigned flags)
{
    size_t commands = look_for_command(pipe, stream, data, size);
    unsigned own = 1U << (stream - 1), seen_empty = flags & (SIDE_BOTH & ~own);
    bool is_other = pipe->held_stream != stream;
    pipe->empty = 0; /* not to be told is always right */
    if (commands && pipe->held_size && is_other) {
        gather(pipe, stream, data, commands, 0);
        data += commands;
        size -= commands;
        pipe->held_flags = seen_empty = 0; /* what was seen empty once says nothing in this order */
    }
    if (is_other || !(flags & own) || pipe->held_size + size > FRAME_BYTES)
        side_settle(pipe);
    if (size && flags & own)
        hold(pipe, stream, data, size, seen_empty);
    else if (size)
        gather(pipe, stream, data, size, seen_empty);
    if (pipe->end - pipe->start >= MUCH_BYTES)
        pipe->due_ns = 0; /* the sidecar would need too long for all of a beat */
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

void side_empty(struct side_pipe *pipe, unsigned flags)
{
    side_settle(pipe);
    pipe->empty = pipe->ended ? 0 : flags;
    if (pipe->doubtful) {
        pipe->doubtful &= ~flags;
        say_empty(pipe);
        pipe->due_ns = 0;
    }
}

void side_closed(struct side_pipe *pipe, unsigned stream)
{
    pipe->over |= 1U << (stream - 1);
    pipe->doubtful &= ~pipe->over;
    side_settle(pipe);
    say_empty(pipe);
    add_frame(pipe, SIDE_CLOSED, stream, 0, NULL, 0);
    pipe->due_ns = 0;
}

void side_missed(struct side_pipe *pipe)
{
    add_frame(pipe, SIDE_MISSED, 0, 0, NULL, 0);
    pipe->due_ns = 0;
}

void side_exit(struct side_pipe *pipe, int wait_status)
{
    unsigned char payload[4];
    for (int i = 0; i < 4; i++)
        payload[i] = (unsigned char)((unsigned)wait_status >> (8 * i));
    side_settle(pipe);
    say_empty(pipe);
    add_frame(pipe, SIDE_EXIT, 0, 0, payload, sizeof payload);
    pipe->ended = true;
    pipe->due_ns = 0;
}

void side_send(struct side_pipe *pipe, int64_t now)
{
    if (pipe->broken || pipe->fd < 0)
        return;
    say_empty(pipe);
    end_frame(pipe);
    if (!pipe->blocked && pipe->start < pipe->end)
        pipe->due_ns = (now / SIDE_GATHER_NS + 1) * SIDE_GATHER_NS;
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

int64_t side_wait_ns(const struct side_pipe *pipe, int64_t now, int64_t most)
{
    if (pipe->blocked || pipe->broken || pipe->fd < 0 || !(side_waiting(pipe) || pipe->empty))
        return most;
    int64_t wait_ns = pipe->due_ns > now ? pipe->due_ns - now : 0;
    return wait_ns < most ? wait_ns : most;
}

size_t side_waiting(const struct side_pipe *pipe)
{
    return pipe->end - pipe->start + pipe->held_size;
}

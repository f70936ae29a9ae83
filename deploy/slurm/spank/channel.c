#include "channel.h"

#include "basics.h"

#include <fcntl.h>
#include <string.h>

static const int64_t HOLD_NS = 20 * MS_NS;

void channel_init(struct channel *channel, int stream, int master, int out, struct counters *counters)
{
    channel->stream = stream;
    channel->master = master;
    output_init(&channel->out, out);
    channel->counters = counters;
    int flags = fcntl(master, F_GETFL);
    if (flags >= 0)
        (void)fcntl(master, F_SETFL, flags | O_NONBLOCK); /* of a description that is ours alone; can't fail */
}

void channel_pair(struct channel *one, struct channel *other, struct shared_line *line)
{
    one->other = other;
    other->other = one;
    if (same_file(one->out.fd, other->out.fd))
        one->line = other->line = line;
}

void channel_count(struct channel *channel, const unsigned char *data, size_t size)
{
    channel->after_exit += size;
    if (!channel->counters)
        return;
    uint64_t feeds = 0;
    for (size_t i = 0; i < size; i++)
        feeds += data[i] == '\n';
    channel->counters->stream[channel->stream - 1].bytes += size;
    channel->counters->stream[channel->stream - 1].feeds += feeds;
}

static void compact(struct channel *channel)
{
    if (channel->at)
        memmove(channel->pending, channel->pending + channel->at, channel->size);
    channel->at = 0;
}

void channel_put(struct channel *channel, const unsigned char *data, size_t size, int64_t now)
{
    if (!channel->size)
        channel->held_since_ns = now;
    compact(channel);
    if (size > PENDING_BYTES - channel->size)
        size = PENDING_BYTES - channel->size; /* can't be: a full channel isn't read */
    memcpy(channel->pending + channel->size, data, size);
    channel->size += size;
    channel_deliver(channel, now);
}

/* How many bytes of pending may go out now without tearing a line. */
static size_t allowed(struct channel *channel, int64_t now)
{
    const struct channel *other = channel->other;
    struct shared_line *line = channel->line;
    if (!line || !other || other->closed || !channel->size)
        return channel->size;
    if (line->owner == other) {
        if (other->size)
            return 0; /* it is blocked, in this very file */
        if (now >= line->opened_ns + HOLD_NS)
            return channel->size;
        channel->due_ns = line->opened_ns + HOLD_NS;
        return 0;
    }
    if (channel->at_end || !(other->size || other->ready))
        return channel->size;
    const unsigned char *start = channel->pending + channel->at;
    const unsigned char *end = memrchr(start, '\n', channel->size);
    if (end)
        return (size_t)(end - start) + 1;
    if (line->owner == channel || channel->size >= HELD_BYTES || now >= channel->held_since_ns + HOLD_NS)
        return channel->size;
    channel->due_ns = channel->held_since_ns + HOLD_NS;
    return 0;
}

static void note_line(struct channel *channel, const unsigned char *written, size_t size, int64_t now)
{
    struct shared_line *line = channel->line;
    if (!line)
        return;
    if (written[size - 1] == '\n') {
        line->owner = NULL;
    } else if (line->owner != channel || memchr(written, '\n', size)) {
        line->owner = channel;
        line->opened_ns = now;
    }
}

void channel_deliver(struct channel *channel, int64_t now)
{
    channel->due_ns = 0;
    size_t limit = allowed(channel, now);
    if (!limit)
        return;
    const unsigned char *start = channel->pending + channel->at;
    size_t written = output_write(&channel->out, start, limit);
    if (channel->out.gone) {
        channel->at = channel->size = 0;
        channel->blocked = false;
        return;
    }
    channel->blocked = written < limit;
    if (!written)
        return;
    note_line(channel, start, written, now);
    channel->at += written;
    channel->size -= written;
    channel->held_since_ns = now;
    if (!channel->size)
        channel->at = 0;
    else if (!channel->blocked)
        channel->due_ns = now + HOLD_NS;
}

bool channel_full(const struct channel *channel)
{
    return channel->size >= HELD_BYTES;
}

void channel_close(struct channel *channel)
{
    channel->closed = channel->drained = true;
    channel->at = channel->size = 0;
    channel->blocked = false;
    channel->due_ns = 0;
    if (channel->line && channel->line->owner == channel)
        channel->line->owner = NULL;
    close_fd(&channel->master);
    close_fd(&channel->out.fd);
}

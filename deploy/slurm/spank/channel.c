#include "channel.h"

#include "basics.h"
#include "fault_points.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { PTY_READ_BYTES = 4095 /* the most that the kernel gives of a terminal */, PIECE_BYTES = 1024 };
static const int64_t HOLD_NS = 20 * MS_NS, PIECES_NS = 200 * MS_NS, MOST_NS = SEC_NS, POLL_NS = 5 * MS_NS;

void channel_init(struct channel *channel, int stream, int master, int out, struct counters *counters,
                  struct journal *journal)
{
    channel->stream = stream;
    channel->master = master;
    output_init(&channel->out, out, &journal->file->entry[stream - 1]);
    channel->counters = counters;
    channel->journal = journal;
    int flags = fcntl(master, F_GETFL);
    if (flags >= 0)
        (void)fcntl(master, F_SETFL, flags | O_NONBLOCK); /* of a description that is ours alone; can't fail */
}

void channel_pair(struct channel *one, struct channel *other, struct shared_line *line)
{
    one->other = other;
    other->other = one;
    if (same_file(one->out.fd, other->out.fd)) {
        *line = (struct shared_line){.is_terminal = isatty(one->out.fd)};
        one->line = other->line = line;
    }
}

size_t channel_read(struct channel *channel, const unsigned char **data, int64_t now)
{
    struct journal *journal = channel->journal;
    size_t size = 0;
    bool hung_up = false;
    *data = journal_room(journal, channel->stream, TURN_BYTES);
    while (size < TURN_BYTES) {
        ssize_t more = read(channel->master, journal_room(journal, channel->stream, TURN_BYTES - size), TURN_BYTES - size);
        if (more > 0) {
            FAULT_POINT(bytes_read);
            journal_took(journal, channel->stream, (size_t)more);
            size += (size_t)more;
        } else if (more < 0 && errno == EIO && !hung_up) {
            hung_up = true; /* of what was written right before, Linux may give the last bytes after its first EIO */
        } else if (more == 0 || errno != EINTR) {
            /* 0: a pipe's end; EIO: a pty's */
            channel->at_end = more == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
            break;
        }
    }
    if (!size)
        return 0;
    FAULT_POINT(bytes_taken);
    channel->counters->stream[channel->stream - 1].feeds += journal_count(journal, channel->stream, size);
    channel->counters->stream[channel->stream - 1].bytes += size;
    channel->after_exit += size;
    channel->cut = size >= PTY_READ_BYTES;
    if (!channel->size)
        channel->held_since_ns = now;
    channel->size += size;
    return size;
}

/* What is pending. */
static const unsigned char *pending(const struct channel *channel)
{
    return journal_at(channel->journal, channel->stream, channel->out.entry->written);
}

void channel_polled(struct channel *channel, int64_t now)
{
    struct shared_line *line = channel->line;
    if (!line || line->owner != channel)
        return;
    int64_t passed = now - line->polled_ns, most = now <= channel->other->due_ns + POLL_NS ? HOLD_NS : POLL_NS;
    passed = passed < most ? passed : most;
    line->polled_ns = now;
    line->idle_ns = channel->ready ? 0 : line->idle_ns + passed;
    if (channel->other->size)
        line->waited_ns += passed;
}

/* How long its owner may be idle before the other one goes on. */
static int64_t patience_ns(const struct shared_line *line)
{
    return line->in_pieces ? PIECES_NS : HOLD_NS;
}

/* Whether the line that stands open isn't waited for any more. */
static bool is_given_up(const struct shared_line *line)
{
    if (line->waited_ns >= MOST_NS)
        line->owner->tiring = true;
    return line->owner->tiring || line->idle_ns >= patience_ns(line);
}

/* How many bytes may go out now without tearing a line. */
static size_t allowed(struct channel *channel, int64_t now)
{
    const struct channel *other = channel->other;
    struct shared_line *line = channel->line;
    if (!line || !other || other->closed || !channel->size)
        return channel->size;
    if (line->owner == other) {
        if (other->size)
            return 0; /* it is blocked, in this very file */
        if (is_given_up(line) || (line->is_terminal && !other->cut))
            return channel->size;
        int64_t left = patience_ns(line) - line->idle_ns, most = MOST_NS - line->waited_ns;
        left = left < most ? left : most;
        left = left > POLL_NS ? left : POLL_NS;
        channel->due_ns = now + (left < HOLD_NS ? left : HOLD_NS);
        return 0;
    }
    if (channel->at_end || !(other->size || other->ready) || (line->is_terminal && !channel->cut))
        return channel->size;
    const unsigned char *start = pending(channel);
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
    const unsigned char *end = memrchr(written, '\n', size);
    size_t tail = end ? (size_t)(written + size - end) - 1 : size;
    if (end)
        channel->tiring = false;
    if (end || line->owner != channel)
        *line = (struct shared_line){.owner = tail ? channel : NULL, .is_terminal = line->is_terminal};
    line->size += tail;
    line->in_pieces = line->in_pieces || channel->cut || line->size >= PIECE_BYTES;
    line->polled_ns = now;
    line->idle_ns = 0;
}

/* Nobody will have what is pending. */
static void forget(struct channel *channel)
{
    struct entry *entry = channel->out.entry;
    if (entry)
        entry_settle(entry, entry->read - entry->written);
    channel->size = 0;
    channel->blocked = false;
}

void channel_deliver(struct channel *channel, int64_t now)
{
    channel->due_ns = 0;
    size_t limit = allowed(channel, now);
    if (!limit)
        return;
    const unsigned char *start = pending(channel);
    size_t written = output_write(&channel->out, start, limit);
    if (channel->out.gone) {
        forget(channel);
        return;
    }
    channel->blocked = written < limit;
    if (!written)
        return;
    note_line(channel, start, written, now);
    channel->size -= written;
    channel->held_since_ns = now;
    if (channel->size && !channel->blocked)
        channel->due_ns = now + HOLD_NS;
}

bool channel_full(const struct channel *channel)
{
    return channel->size >= HELD_BYTES;
}

void channel_close(struct channel *channel)
{
    channel->closed = channel->drained = true;
    forget(channel);
    channel->due_ns = 0;
    if (channel->line && channel->line->owner == channel)
        channel->line->owner = NULL;
    if (channel->out.entry)
        channel->out.entry->closed = 1;
    close_fd(&channel->master);
    output_close(&channel->out);
}

/* One stream on its way from the task to the job's own output. The same as logshipper/channel.py: two outputs that are
 * one file never tear each other's lines. They switch at a line's end: the tail of an open line is held back while the
 * other stream waits, and a line that stands open there holds the other stream back, each for 20 ms at most. A line
 * that is longer than 64 KiB goes out open. */
#ifndef LOGSHIPPER_CHANNEL_H
#define LOGSHIPPER_CHANNEL_H

#include "output.h"
#include "spool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HELD_BYTES = 64 << 10, TURN_BYTES = 60 << 10, PENDING_BYTES = HELD_BYTES + TURN_BYTES };

struct channel;

/* The one file of two channels. */
struct shared_line {
    const struct channel *owner; /* whose line stands open there */
    int64_t opened_ns;
};

struct channel {
    int stream; /* 1 or 2 */
    int master; /* to read from, non-blocking */
    struct output out;
    struct channel *other;         /* NULL where there is one stream alone */
    struct shared_line *line;      /* NULL where the outputs are two files */
    struct counters *counters;     /* may be NULL */
    size_t at, size;               /* of pending: read, but not written yet */
    int64_t held_since_ns, due_ns; /* due: when pending must be tried again though nothing new came; 0: needn't */
    size_t after_exit;             /* bytes read since the drain began */
    bool blocked;                  /* out takes nothing now */
    bool failure_said, closed;
    /* the relay's: */
    bool listening, ready, at_end, drained;
    unsigned char pending[PENDING_BYTES];
};

/* Owns master and out. */
void channel_init(struct channel *channel, int stream, int master, int out, struct counters *counters);

/* Makes two channels know each other; `line` is used where they write to one file. */
void channel_pair(struct channel *one, struct channel *other, struct shared_line *line);

/* Into the account that survives everybody: bytes and line feeds, as read. */
void channel_count(struct channel *channel, const unsigned char *data, size_t size);

/* Writes data on (TURN_BYTES at most), as far as that may be; the rest is pending. */
void channel_put(struct channel *channel, const unsigned char *data, size_t size, int64_t now);

/* Writes of pending what may be written, and what out takes. */
void channel_deliver(struct channel *channel, int64_t now);

bool channel_full(const struct channel *channel);

void channel_close(struct channel *channel);

#endif

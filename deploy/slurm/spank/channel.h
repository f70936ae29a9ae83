/* One stream on its way from the task to the job's own output. The same as
 * logshipper/relay/channel.py: two outputs that are one file never tear each other's lines. They
 * switch at a line's end:
 * - The tail of an open line is held back while the other stream has whole ones, 20 ms and 64 KiB
 *   at most.
 * - A line that stands open there (its owner's) holds the other stream back until it ends, or its
 *   writer is idle: since it last grew, polls have found the owner's stream empty for 20 ms; for
 *   200 ms where the line comes in pieces (it is over 1 KiB long, or the read that brought its end
 *   so far was as much as a full terminal gives), as then its writer is in the middle of a write,
 *   and only waits for its turn of the processor.
 * - Time counts by polls: for each as long as it was to take, 20 ms at most, where it ended in time
 *   (5 ms); else, or where nothing was waited for, 5 ms. Where the relay itself didn't run, the
 *   writer may not have either.
 * - In all it is waited for no longer than a second. Whose line was given up so isn't waited for
 *   again before that line ends: a row of dots doesn't slow the other stream down.
 * - On a terminal only lines are held that our own reading cut: there a prompt stands open, and
 *   what follows on the other stream follows it on the screen. */
#ifndef LOGSHIPPER_CHANNEL_H
#define LOGSHIPPER_CHANNEL_H

#include "journal.h"
#include "output.h"
#include "spool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HELD_BYTES = 64 << 10, TURN_BYTES = 60 << 10 };

struct channel;

/* The one file of two channels. */
struct shared_line {
    bool is_terminal;
    struct channel *owner;     /* whose line stands open there */
    size_t size;               /* of that line so far */
    bool in_pieces;            /* its writer is in the middle of a write */
    int64_t polled_ns;         /* when it last grew, or was asked for */
    int64_t idle_ns, waited_ns; /* polled time since it last grew; in which the other one waited */
};

struct channel {
    int stream; /* 1 or 2 */
    int master; /* to read from, non-blocking */
    struct output out;
    struct channel *other;         /* NULL where there is one stream alone */
    struct shared_line *line;      /* NULL where the outputs are two files */
    struct counters *counters;
    struct journal *journal;
    size_t size;                   /* of what is pending: read, but not written yet */
    int64_t held_since_ns, due_ns; /* due: when it must be tried again though nothing new came; 0: needn't */
    size_t after_exit;             /* bytes read since the drain began */
    bool cut;                      /* the last read was as much as a full terminal gives: more of the same write may follow */
    bool tiring;                   /* its open line was waited for in vain */
    bool blocked;                  /* out takes nothing now */
    bool failure_said, closed;
    /* the relay's: */
    bool listening, ready, at_end, drained;
    bool resumed; /* relayed to its end though the relay has stopped, as nobody holds it any more */
    bool given;   /* the sidecar has it */
};

/* Owns master and out. */
void channel_init(struct channel *channel, int stream, int master, int out, struct counters *counters,
                  struct journal *journal);

/* Makes two channels know each other; `line` is used where they write to one file. */
void channel_pair(struct channel *one, struct channel *other, struct shared_line *line);

/* Reads what there is (TURN_BYTES at most), and counts it in the account that survives everybody:
 * it is pending then. Returns how much that is, and in *data where it stays for now; sets
 * at_end. */
size_t channel_read(struct channel *channel, const unsigned char **data, int64_t now);

/* A poll has asked for the channel, and found it `ready` or not. */
void channel_polled(struct channel *channel, int64_t now);

/* Writes of what is pending what may be written, and what out takes. */
void channel_deliver(struct channel *channel, int64_t now);

bool channel_full(const struct channel *channel);

void channel_close(struct channel *channel);

#endif

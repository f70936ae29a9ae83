/* Frames of the side pipe (docs/side-pipe.md) and the buffer in which they wait for room in it. The
 * same as logshipper/relay/handover.py: small writes gather for GATHER_NS, as to be woken costs the
 * sidecar more than a line does. What others may be waiting for doesn't gather: commands, a stream's
 * end, the task's. Bytes that may be newer than
 * what the other stream has (`flags` of side_data) wait for that: a command in it goes first. */
#ifndef LOGSHIPPER_SIDE_PIPE_H
#define LOGSHIPPER_SIDE_PIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FRAME_BYTES = 64 << 10,
    MUCH_BYTES = 16 << 10, /* as much doesn't wait */
    BUFFER_BYTES = 256 << 10, /* waiting next to a full pipe; then the streams aren't read */
    SIDE_ROOM = BUFFER_BYTES + 4 * FRAME_BYTES,
};

enum { SIDE_COMMAND_BYTES = 11, SIDE_BOTH = 3 };     /* of "/LOGCOMMAND"; bits of streams */
/* between two writes of less than MUCH_BYTES, at multiples of it by the monotonic clock */
static const int64_t SIDE_GATHER_NS = 250 * 1000000;

enum side_type { SIDE_DATA = 1, SIDE_EMPTY = 2, SIDE_CLOSED = 4, SIDE_EXIT = 5, SIDE_MISSED = 6 };

struct side_pipe {
    int fd;
    bool blocked;             /* poll says when it takes more */
    bool broken;              /* nobody reads it, or a frame had no room: it can't go on */
    bool ended;               /* the EXIT frame, the last one, was added: nothing more is */
    size_t start, end;        /* of what waits in `buffer` */
    size_t open;              /* where the DATA frame that still grows begins; `end` where there is none */
    unsigned open_stream, open_flags;
    int64_t due_ns;           /* nothing that waits is written before; 0: at once */
    unsigned empty;           /* streams seen empty after all of it; sent with it */
    unsigned doubtful;        /* that may bring what was printed before a command: what is seen empty then is sent at once */
    unsigned over;            /* streams that are closed */
    unsigned held_stream, held_flags;
    size_t held_size;         /* of what waits for the other stream, in `held`; 0: nothing does */
    unsigned char held[FRAME_BYTES];
    unsigned char ends[2][SIDE_COMMAND_BYTES - 1]; /* of what came of each: a command may come in pieces */
    unsigned char buffer[SIDE_ROOM];
};

/* flags: bit of the other stream: it was seen empty before these bytes were read; of their own: it
 * has something now, which may be older. A DATA frame may be joined to the one before; one frame may
 * say less than two, never more. */
void side_data(struct side_pipe *pipe, unsigned stream, const unsigned char *data, size_t size, unsigned flags);
void side_empty(struct side_pipe *pipe, unsigned flags);
void side_settle(struct side_pipe *pipe); /* nothing of the other stream is waited for */
void side_closed(struct side_pipe *pipe, unsigned stream);
void side_missed(struct side_pipe *pipe); /* the task didn't wait for its relay: no stream is read */
void side_exit(struct side_pipe *pipe, int wait_status);

/* Writes what the pipe takes. now: of the monotonic clock, as below. */
void side_send(struct side_pipe *pipe, int64_t now);

/* How long what waits may wait, in ns; `most` where nothing does, or the pipe is full. */
int64_t side_wait_ns(const struct side_pipe *pipe, int64_t now, int64_t most);

size_t side_waiting(const struct side_pipe *pipe);

#endif

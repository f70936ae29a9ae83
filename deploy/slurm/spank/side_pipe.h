/* Frames of the side pipe (docs/side-pipe.md) and the buffer in which they wait for room in it. */
#ifndef LOGSHIPPER_SIDE_PIPE_H
#define LOGSHIPPER_SIDE_PIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FRAME_BYTES = 64 << 10,
    BUFFER_BYTES = 256 << 10, /* waiting next to a full pipe; then the streams aren't read */
    SIDE_ROOM = BUFFER_BYTES + 4 * FRAME_BYTES,
};

enum side_type { SIDE_DATA = 1, SIDE_EMPTY = 2, SIDE_CLOSED = 4, SIDE_EXIT = 5 };

struct side_pipe {
    int fd;
    bool blocked;             /* poll says when it takes more */
    bool broken;              /* nobody reads it, or a frame had no room: it can't go on */
    bool ended;               /* the EXIT frame, the last one, was added: nothing more is */
    size_t start, end;        /* of what waits in `buffer` */
    size_t open;              /* where the DATA frame that still grows begins; `end` where there is none */
    unsigned open_stream, open_flags;
    unsigned char buffer[SIDE_ROOM];
};

/* flags: bits of streams that were seen empty. A DATA frame may be joined to the one before; one
 * frame may say less than two, never more. */
void side_data(struct side_pipe *pipe, unsigned stream, const unsigned char *data, size_t size, unsigned flags);
void side_frame(struct side_pipe *pipe, enum side_type type, unsigned stream, unsigned flags);
void side_exit(struct side_pipe *pipe, int wait_status);

/* Writes what the pipe takes. */
void side_send(struct side_pipe *pipe);

size_t side_waiting(const struct side_pipe *pipe);

#endif

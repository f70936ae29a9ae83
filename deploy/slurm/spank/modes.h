/* The modes of a job's captures on this node: separate captures of one job start no wider than the
 * narrowest of them (R16). A table that the job's relays and sidecars share, docs/side-pipe.md,
 * "What a job's captures share"; Python's side is logshipper/sidecar/slurm_modes.py.
 *
 * A capture gets its slot before its task runs. In it the relay counts what it has taken of the
 * task, and the sidecar what it has obeyed of that. So a capture that begins knows which others
 * have printed what nobody has looked at yet: a command that narrows may be among it, and its own
 * sidecar waits for these before it logs anything. */
#ifndef LOGSHIPPER_MODES_H
#define LOGSHIPPER_MODES_H

#include "wire.h"

#include <stdint.h>

enum { MODE_UNKNOWN, MODE_ENABLED, MODE_METADATA, MODE_DISABLED };

/* By whom a field is written: r the relay, s the sidecar. */
struct modes_slot {
    uint64_t begun;     /* r: the how manyth capture of the table; 0: the slot is free */
    uint64_t taken[2];  /* r: bytes of stdout, of stderr, before they are written on */
    uint64_t obeyed[2]; /* s: up to here; `mode` is the one after that */
    uint64_t mode;      /* s */
    uint64_t over;      /* s: 1: the capture is, and all of it was obeyed */
    uint64_t reserved;
};

struct modes {
    int fd;      /* the sidecar's, and while somebody has it the slot is locked; -1: there is no table available */
    int awaited; /* a file of struct modes_awaited; -1: nobody is to be waited for */
    unsigned number;
    struct modes_slot *slot; /* NULL: none */
};

/* Whom a new capture waits for: until it has obeyed so much. */
struct modes_awaited {
    uint64_t number, begun, taken[2];
};

/* As root, before the task runs: takes a slot in the job's table, which is made where it is
 * missing, the job's user's own. Where that can't be done nothing is known of other captures: then
 * this one starts disabled. */
void modes_begin(struct modes *modes, int spool, const struct wire_step *step);

/* Bytes of a stream were read, and nobody has seen them yet. */
void modes_took(struct modes_slot *slot, int stream, uint64_t size);

#endif

/* A capture's directory in the node's spool, made as ingest/logshipper_ingest/agent/node_spool.py
 * makes it (docs/segment-format.md, "Folders"), and the counters in it. */
#ifndef LOGSHIPPER_SPOOL_H
#define LOGSHIPPER_SPOOL_H

#include "settings.h"
#include "wire.h"

#include <stdint.h>

struct capture {
    char name[64]; /* in the spool */
    char job_id[16];
    unsigned attempt;
    int folder, identity, segments; /* fds; -1: closed */
};

/* Makes the directory under the spool's lock. facts: the task's own; user: as identity.json shall
 * have it. Returns 0, or -1 and why; then nothing of it is left. */
int capture_make(struct capture *capture, int spool, const struct settings *settings, const struct wire_step *step,
                 uint32_t task, const struct wire_task *facts, const char *user, char *why, size_t why_size);

/* Has the directory's name and content written to the disk by a process of its own: a sync may take
 * long. */
void capture_sync(const struct capture *capture, int spool);

/* Removes it again, where nobody has written to it yet; counters are the maker's own and go
 * along. */
void capture_unmake(struct capture *capture, int spool);

void capture_close(struct capture *capture);

/* The shared account of a relay: 72 bytes, docs/segment-format.md, "Counters". */
struct counters {
    char magic[8];
    uint32_t version, pid;
    struct {
        uint64_t bytes, feeds;
    } stream[2];
    uint32_t ended;
    int32_t wait_status;
    uint64_t ended_ns, started;
};

/* As the job's user: makes and maps the file. Returns NULL where that can't be done (errno). */
struct counters *counters_make(int segments);

/* CMD's end, for the case that the sidecar is dead. */
void counters_note_end(struct counters *counters, int wait_status);

#endif
